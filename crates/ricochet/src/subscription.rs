//! Subscriptions to groups, as the application holds them.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error::{RecvError, RecvIntoError, RecvTimeoutError, TryRecvError};
use crate::joining::SubscriptionHandle;
use crate::message::{Event, Lost, Message, OrderChange};
use crate::queue::{ORDER_MAX, Queue, QueueCounts};
use crate::shared::Shared;

/// Maximum number of loss reports kept for [`Subscription::take_lost`].
const LOST_MAX: usize = 1_024;

/// A bounded queue of the messages of one or more groups. Dropping it leaves the groups.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let quiet = || ricochet::Node::builder("lo").address([127, 0, 0, 1]).unicast(true).port(0);
/// let receiver = quiet().start()?;
/// let prices = receiver.join_many(["prices/AAPL", "prices/IBM"])?;
/// let sender = quiet().seed(receiver.address().to_string()).start()?;
/// # assert!(sender.wait_for_members("prices/IBM", 1, std::time::Duration::from_secs(20)));
/// sender.send("prices/IBM", b"187.21")?;
/// let message = prices.recv()?;
/// assert_eq!((message.group(), message.payload()), ("prices/IBM", &b"187.21"[..]));
/// assert_eq!(message.sender(), sender.id());
/// # Ok(()) }
/// ```
pub struct Subscription {
    shared: Arc<Shared>,
    handle: SubscriptionHandle,
    /// Loss reports passed over while receiving messages.
    lost: Mutex<VecDeque<Lost>>,
    /// News about numbers that were missed or not agreed on, passed over in the same way.
    order_losses: Mutex<VecDeque<OrderChange>>,
    left: AtomicBool,
}

impl Subscription {
    pub(crate) fn new(shared: Arc<Shared>, handle: SubscriptionHandle) -> Self {
        Self {
            shared,
            handle,
            lost: Mutex::default(),
            order_losses: Mutex::default(),
            left: AtomicBool::new(false),
        }
    }

    /// Waits for the next message. [`take_lost`](Self::take_lost) and
    /// [`take_order_losses`](Self::take_order_losses) return what was passed over meanwhile.
    ///
    /// # Errors
    /// [`RecvError`] if the node has ended and all queued messages have been received.
    pub fn recv(&self) -> Result<Message, RecvError> {
        loop {
            if let Some(message) = self.message_of(self.queue()?.pop_wait()?) {
                return Ok(message);
            }
        }
    }

    /// Returns the next message, if one waits.
    ///
    /// # Errors
    /// [`TryRecvError`].
    pub fn try_recv(&self) -> Result<Message, TryRecvError> {
        loop {
            if let Some(message) = self.message_of(self.queue()?.try_pop()?) {
                return Ok(message);
            }
        }
    }

    /// Waits for the next message until the timeout is over. A loss report restarts the timeout.
    ///
    /// # Errors
    /// [`RecvTimeoutError`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Message, RecvTimeoutError> {
        loop {
            if let Some(message) = self.message_of(self.queue()?.pop_timeout(timeout)?) {
                return Ok(message);
            }
        }
    }

    /// Waits for the next message until the timeout is over, and without limit if there is none. Copies the
    /// payload to the front of `buffer`, for programs that keep messages in memory of their own. A message
    /// that does not fit waits for the next call. A loss report restarts the timeout.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use ricochet::RecvIntoError;
    /// # let quiet = || ricochet::Node::builder("lo").address([127, 0, 0, 1]).unicast(true).port(0);
    /// # let receiver = quiet().start()?;
    /// # let prices = receiver.join("prices")?;
    /// # let sender = quiet().seed(receiver.address().to_string()).start()?;
    /// # assert!(sender.wait_for_members("prices", 1, Duration::from_secs(20)));
    /// sender.send("prices", b"187.21")?;
    /// let mut buffer = vec![0; 4];
    /// let message = match prices.recv_into(&mut buffer, None) {
    ///     Err(RecvIntoError::TooSmall { length, .. }) => {
    ///         buffer.resize(length, 0);
    ///         prices.recv_into(&mut buffer, None)?
    ///     }
    ///     received => received?,
    /// };
    /// assert_eq!((&buffer[..message.payload().len()], message.group()), (&b"187.21"[..], "prices"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`RecvIntoError`].
    pub fn recv_into(&self, buffer: &mut [u8], timeout: Option<Duration>) -> Result<Message, RecvIntoError> {
        loop {
            let event = self.queue()?.pop_fitting(buffer.len(), timeout)?;
            if let Some(message) = self.message_of(event) {
                let payload = message.payload();
                buffer[..payload.len()].copy_from_slice(payload);
                return Ok(message);
            }
        }
    }

    /// Returns an iterator that waits for each message and ends with the node.
    pub fn iter(&self) -> impl Iterator<Item = Message> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// Waits for the next message, loss report or news, in order. Methods that return messages alone leave
    /// out news about the past and about members, leave the loss reports to [`take_lost`](Self::take_lost),
    /// and the losses of total order to [`take_order_losses`](Self::take_order_losses).
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv_event(&self) -> Result<Event, RecvError> {
        self.queue()?.pop_wait()
    }

    /// Returns the next message or loss report, if one waits.
    ///
    /// # Errors
    /// [`TryRecvError`].
    pub fn try_recv_event(&self) -> Result<Event, TryRecvError> {
        self.queue()?.try_pop()
    }

    /// Waits for the next message or loss report until the timeout is over.
    ///
    /// # Errors
    /// [`RecvTimeoutError`].
    pub fn recv_event_timeout(&self, timeout: Duration) -> Result<Event, RecvTimeoutError> {
        self.queue()?.pop_timeout(timeout)
    }

    /// Awaits the next message on any executor.
    ///
    /// # Errors
    /// [`RecvError`].
    pub async fn recv_async(&self) -> Result<Message, RecvError> {
        loop {
            if let Some(message) = self.message_of(self.recv_event_async().await?) {
                return Ok(message);
            }
        }
    }

    /// Awaits the next message, loss report or news about the past on any executor. With the feature
    /// `futures`, a subscription is also a stream of them.
    ///
    /// # Errors
    /// [`RecvError`].
    pub async fn recv_event_async(&self) -> Result<Event, RecvError> {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }

    /// Returns the next event. If none waits, wakes the task when one may.
    pub(crate) fn poll_event(&self, context: &Context<'_>) -> Poll<Result<Event, RecvError>> {
        self.queue()?.poll_pop(context.waker())
    }

    /// Returns the loss reports passed over while receiving messages. The newest 1,024 are kept;
    /// [`QueueCounts::reports_dropped`] counts the others.
    pub fn take_lost(&self) -> Vec<Lost> {
        self.take_all(&self.lost)
    }

    /// Returns the news passed over while receiving messages that say that numbers of a total order were
    /// missed, or delivered otherwise than the other members have agreed ([`OrderChange::is_loss`]). The
    /// newest 64 are kept; [`QueueCounts::reports_dropped`] counts the others. A program that must discard
    /// such messages before it uses the next one calls [`recv_event`](Self::recv_event), which returns the
    /// news in their place.
    pub fn take_order_losses(&self) -> Vec<OrderChange> {
        self.take_all(&self.order_losses)
    }

    /// Returns a descriptor for event loops. When it is readable, call [`try_recv`](Self::try_recv)
    /// or [`try_recv_event`](Self::try_recv_event) until nothing waits: only then does the next
    /// event make it readable again.
    ///
    /// # Errors
    /// If the first call cannot create the descriptor.
    pub fn ready_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.shared.check_process()?;
        self.handle.queue.ready()
    }

    /// Makes the [descriptor](Self::ready_fd) readable until an attempt to receive finds nothing, for
    /// bindings that keep a message back.
    #[doc(hidden)]
    pub fn make_ready(&self) {
        if !self.shared.is_forked() {
            self.handle.queue.make_ready();
        }
    }

    /// Fails in the child of a fork, for bindings that keep a message back.
    ///
    /// # Errors
    /// [`RecvError::Failed`].
    #[doc(hidden)]
    pub fn check_process(&self) -> Result<(), RecvError> {
        Ok(self.shared.check_process()?)
    }

    /// Returns the names of the groups in the order in which they were given.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.handle.groups.iter().map(|(_, name)| &**name)
    }

    /// Leaves the groups, as dropping does, for threads that share a subscription. A thread that waits for a
    /// message gets an error once all queued messages have been received.
    pub fn leave(&self) {
        if !self.left.swap(true, Ordering::SeqCst) {
            self.shared.leave(&self.handle);
        }
    }

    /// Returns the number of messages that wait.
    pub fn len(&self) -> usize {
        self.queue().map_or(0, Queue::len)
    }

    /// Returns whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the counters of the queue.
    pub fn counts(&self) -> QueueCounts {
        self.queue().map(Queue::counts).unwrap_or_default()
    }

    /// Returns the queue, unless this process is the child of a fork.
    fn queue(&self) -> Result<&Queue, RecvError> {
        self.shared.check_process()?;
        Ok(&self.handle.queue)
    }

    /// Returns the message of an event, or keeps what it says about a loss.
    fn message_of(&self, event: Event) -> Option<Message> {
        match event {
            Event::Message(message) => return Some(message),
            Event::Lost(lost) => self.keep(&self.lost, LOST_MAX, lost),
            Event::Order(change) if change.is_loss() => self.keep(&self.order_losses, ORDER_MAX, change),
            Event::History(_) | Event::Member(_) | Event::Group(_) | Event::Order(_) | Event::Registry(_) => {
            }
        }
        None
    }

    fn take_all<T>(&self, kept: &Mutex<VecDeque<T>>) -> Vec<T> {
        if self.shared.is_forked() {
            return Vec::new();
        }
        kept.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Keeps a report of which the application takes all together. The oldest of too many makes room.
    fn keep<T>(&self, kept: &Mutex<VecDeque<T>>, max: usize, report: T) {
        let mut all = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == max && all.pop_front().is_some() {
            self.handle.queue.on_report_dropped();
        }
        all.push_back(report);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("groups", &self.handle.groups.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ricochet_core::order::OrderNews;

    use super::*;
    use crate::joining::JoinOptions;
    use crate::message::numbered;
    use crate::node::Node;

    #[test]
    fn losses_of_total_order_are_left_for_programs_that_receive_messages_alone() {
        let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
        let (driver, _) = builder.prepare().unwrap();
        let handle = driver.shared.join(&["g"], &JoinOptions::default()).unwrap();
        let subscription = Subscription::new(Arc::clone(&driver.shared), handle);
        let queue = &subscription.handle.queue;
        let change = |news| OrderChange { group: "g".into(), news };
        let losses = [
            OrderNews::Broken { from: 2, delivered: 4, continues: 2 },
            OrderNews::Missed { from: 4, continues: 9 },
        ];
        for news in [OrderNews::Begins { number: 0 }, losses[0], OrderNews::Stalled, losses[1]] {
            queue.push_news(Event::Order(change(news))).wake();
            queue.push(numbered(0));
        }
        for _ in 0..4 {
            subscription.recv().unwrap();
        }
        assert_eq!(subscription.take_order_losses(), losses.map(change));
        assert_eq!(subscription.take_order_losses(), []);
        for _ in 0..=ORDER_MAX {
            queue.push_news(Event::Order(change(losses[0]))).wake();
            queue.push(numbered(0));
            subscription.try_recv().unwrap();
        }
        assert_eq!(
            (subscription.take_order_losses().len(), subscription.counts().reports_dropped),
            (ORDER_MAX, 1)
        );
    }
}
