//! What an application holds of the groups that it has joined.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{RecvError, RecvTimeoutError, TryRecvError};
use crate::joining::Ticket;
use crate::message::{Event, Lost, Message};
use crate::queue::QueueCounts;
use crate::shared::Shared;

/// Reports of losses kept for [`Subscription::take_lost`].
const LOST_MAX: usize = 1_024;

/// A bounded queue of the messages of one group or many; when it is dropped, they are left.
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
    ticket: Ticket,
    /// Losses that were met while messages were asked for.
    lost: Mutex<VecDeque<Lost>>,
    left: AtomicBool,
}

impl Subscription {
    pub(crate) fn new(shared: Arc<Shared>, ticket: Ticket) -> Self {
        Self { shared, ticket, lost: Mutex::new(VecDeque::new()), left: AtomicBool::new(false) }
    }

    /// The next message; waits for it.
    ///
    /// # Errors
    /// [`RecvError`]: the node is gone, and all that was queued has been taken.
    pub fn recv(&self) -> Result<Message, RecvError> {
        loop {
            if let Some(message) = self.message(self.ticket.queue.pop_wait()?) {
                return Ok(message);
            }
        }
    }

    /// The next message, if one waits.
    ///
    /// # Errors
    /// [`TryRecvError`].
    pub fn try_recv(&self) -> Result<Message, TryRecvError> {
        loop {
            if let Some(message) = self.message(self.ticket.queue.try_pop()?) {
                return Ok(message);
            }
        }
    }

    /// The next message; waits for it until `timeout` is over. (A report of a loss begins the time anew.)
    ///
    /// # Errors
    /// [`RecvTimeoutError`].
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Message, RecvTimeoutError> {
        loop {
            if let Some(message) = self.message(self.ticket.queue.pop_timeout(timeout)?) {
                return Ok(message);
            }
        }
    }

    /// Messages as they come, until the node is gone.
    pub fn iter(&self) -> impl Iterator<Item = Message> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// The next message or report of a loss, each in its place; waits for it. Who asks for messages alone finds the losses
    /// in [`take_lost`](Self::take_lost).
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv_event(&self) -> Result<Event, RecvError> {
        self.ticket.queue.pop_wait()
    }

    /// As [`recv_event`](Self::recv_event), if one waits.
    ///
    /// # Errors
    /// [`TryRecvError`].
    pub fn try_recv_event(&self) -> Result<Event, TryRecvError> {
        self.ticket.queue.try_pop()
    }

    /// As [`recv_event`](Self::recv_event), until `timeout` is over.
    ///
    /// # Errors
    /// [`RecvTimeoutError`].
    pub fn recv_event_timeout(&self, timeout: Duration) -> Result<Event, RecvTimeoutError> {
        self.ticket.queue.pop_timeout(timeout)
    }

    /// The losses met so far by those who asked for messages; the newest 1,024 are kept, and
    /// [`QueueCounts::reports_dropped`] counts the others.
    pub fn take_lost(&self) -> Vec<Lost> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// A descriptor for event loops: readable once something may be received. Then receive with
    /// [`try_recv`](Self::try_recv) or [`try_recv_event`](Self::try_recv_event) until there is nothing; only then it is
    /// written again.
    ///
    /// # Errors
    /// When it cannot be made, at the first call.
    pub fn ready_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.ticket.queue.ready()
    }

    /// The names of the groups, in the order in which they were given.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.ticket.groups.iter().map(|(_, name)| &**name)
    }

    /// Leaves the groups, as dropping does, for those who share a subscription: whoever waits for a message is told that it is
    /// closed, once all that was queued has been taken.
    pub fn leave(&self) {
        if !self.left.swap(true, Ordering::SeqCst) {
            self.shared.leave(&self.ticket);
        }
    }

    /// Messages that wait.
    pub fn len(&self) -> usize {
        self.ticket.queue.len()
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What its queue has done.
    pub fn counts(&self) -> QueueCounts {
        self.ticket.queue.counts()
    }

    /// The message, if it is one; a loss is kept aside.
    fn message(&self, event: Event) -> Option<Message> {
        match event {
            Event::Message(message) => Some(message),
            Event::Lost(lost) => {
                let mut all = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
                if all.len() == LOST_MAX && all.pop_front().is_some() {
                    self.ticket.queue.drop_report();
                }
                all.push_back(lost);
                None
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("groups", &self.ticket.groups.len()).finish_non_exhaustive()
    }
}
