//! Sending messages.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ricochet_core::GroupId;
use ricochet_core::wire::{CONTENT_TYPE_MAX, DEADLINE_US_MAX, Envelope, HEADERS_MAX, KEY_MAX};

use crate::clock;
use crate::error::SendError;
use crate::shared::Shared;

/// A handle that sends to one group, whose name was checked once. It may be cloned, and used by many threads.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = ricochet::Node::builder("lo").address([127, 0, 0, 1]).unicast(true).port(0).start()?;
/// let prices = node.sender("prices/AAPL")?;
/// assert_eq!(prices.send(b"187.21")?, 0);
/// assert_eq!(prices.send(b"187.22")?, 1);
/// let positions = node.sender("positions")?.expiring(true);
/// positions.send(b"52.5 N 13.4 E")?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Sender {
    shared: Arc<Shared>,
    group: GroupId,
    expires: bool,
    fragments: bool,
    deadline: Option<Duration>,
    content_type: Option<Arc<str>>,
}

/// Options of a message: content beside its payload, and its deadline.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ricochet::SendOptions;
/// # let quiet = || ricochet::Node::builder("lo").address([127, 0, 0, 1]).unicast(true).port(0);
/// # let receiver = quiet().start()?;
/// # let orders = receiver.join("orders")?;
/// # let node = quiet().seed(receiver.address().to_string()).start()?;
/// # assert!(node.wait_for_members("orders", 1, Duration::from_secs(20)));
/// let options = SendOptions {
///     deadline: Some(Duration::from_secs(5)),
///     content_type: Some("application/json"),
///     headers: b"trace=7",
///     key: Some(b"7"),
/// };
/// node.sender("orders")?.send_with(b"{}", &options)?;
/// let order = orders.recv()?;
/// assert_eq!((order.content_type(), order.headers()), (Some("application/json"), &b"trace=7"[..]));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions<'a> {
    /// Age at which the message is worthless, up to an hour. A receiver does not deliver it when it is older,
    /// and does not request it any more; the subscription gets a report ([`GivenUp::Expired`]) in its place.
    /// The age counts from the time at which the node takes the message: see [`Message::sent`].
    ///
    /// A receiver compares the times in the packets of a sender with its own clock, and takes the fastest of
    /// the last minute or two for one without delay. Clocks need not agree. A delay that all packets of a
    /// sender have in common does not count, and the first packet that a receiver gets of a sender is new.
    ///
    /// [`GivenUp::Expired`]: crate::GivenUp::Expired
    /// [`Message::sent`]: crate::Message::sent
    pub deadline: Option<Duration>,
    /// Type of the payload, up to 128 bytes.
    pub content_type: Option<&'a str>,
    /// Bytes that receivers get beside the payload; with the content type up to 256.
    pub headers: &'a [u8],
    /// Key of which the message is the value, 1 to 255 bytes ([`Sender::send_keyed`]).
    pub key: Option<&'a [u8]>,
}

/// A message on its way out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outbound<'a> {
    pub(crate) group: GroupId,
    pub(crate) payload: &'a [u8],
    pub(crate) envelope: Envelope<'a>,
    /// Whether a late message is worthless, so that receivers do not request it.
    pub(crate) expires: bool,
    /// Whether a message longer than a packet is sent in several packets.
    pub(crate) fragments: bool,
}

#[cfg(test)]
impl<'a> Outbound<'a> {
    /// Returns a message to a group without anything else.
    pub(crate) fn plain(group: GroupId, payload: &'a [u8]) -> Self {
        Self { group, payload, envelope: Envelope::default(), expires: false, fragments: false }
    }
}

impl Sender {
    pub(crate) fn new(shared: Arc<Shared>, group: GroupId) -> Self {
        Self { shared, group, expires: false, fragments: false, deadline: None, content_type: None }
    }

    pub(crate) fn group(&self) -> GroupId {
        self.group
    }

    /// Fails in the child of a fork, for bindings that have a descriptor of their own.
    ///
    /// # Errors
    /// [`SendError::Failed`].
    #[doc(hidden)]
    pub fn check_process(&self) -> Result<(), SendError> {
        Ok(self.shared.check_process()?)
    }

    /// Sets whether late messages are worthless. Receivers then do not request messages
    /// that repairs do not recover.
    #[must_use]
    pub fn expiring(mut self, expires: bool) -> Self {
        self.expires = expires;
        self
    }

    /// Sets whether messages longer than a packet are sent in several packets, up to
    /// [`Node::message_max`](crate::Node::message_max).
    #[must_use]
    pub fn fragments(mut self, fragments: bool) -> Self {
        self.fragments = fragments;
        self
    }

    /// Sets the age at which messages are worthless ([`SendOptions::deadline`]), unless a message has its
    /// own.
    #[must_use]
    pub fn deadline(mut self, deadline: Option<Duration>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the content type of messages, unless a message has its own.
    #[must_use]
    pub fn content_type(mut self, content_type: Option<&str>) -> Self {
        self.content_type = content_type.map(Arc::from);
        self
    }

    /// Sends a message and returns its sequence number among this node's messages to the group. Waits while
    /// the readers that the node [follows](crate::FlowSection::follow) have no room, or a subscription of
    /// this node in total order with [`Policy::Block`](crate::Policy::Block).
    ///
    /// # Errors
    /// [`SendError`]. A loss in the network is not an error.
    pub fn send(&self, payload: &[u8]) -> Result<u32, SendError> {
        self.send_with(payload, &SendOptions::default())
    }

    /// Sends a message with options as [`send`](Self::send) does.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send_with(&self, payload: &[u8], options: &SendOptions<'_>) -> Result<u32, SendError> {
        self.shared.send(&self.outbound(payload, options)?, None)
    }

    /// Sends the value of a key of 1 to 255 bytes, as [`send`](Self::send) does. The members of the group
    /// keep the last value of each key for those who join later with
    /// [`Start::LastPerKey`](crate::Start::LastPerKey), up to 64 KiB each. An empty value deletes the key.
    ///
    /// Of two values, the one that was sent later counts, by the clocks of their senders.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use ricochet::{JoinOptions, Node, Start};
    /// # let quiet = || Node::builder("lo").address([127, 0, 0, 1]).unicast(true).port(0);
    /// # let member = quiet().start()?;
    /// # let kept = member.join("prices")?;
    /// # let node = quiet().seed(member.address().to_string()).start()?;
    /// # assert!(node.wait_for_members("prices", 1, std::time::Duration::from_secs(20)));
    /// let prices = node.sender("prices")?;
    /// for (share, price) in [("AAPL", "187.21"), ("IBM", "141.10"), ("AAPL", "187.22")] {
    ///     prices.send_keyed(share.as_bytes(), price.as_bytes())?;
    /// }
    /// # (0..3).for_each(|_| drop(kept.recv()));
    /// # let late = quiet().seed(member.address().to_string()).start()?;
    /// let options = JoinOptions { from: Start::LastPerKey, ..JoinOptions::default() };
    /// let values = late.join_with("prices", &options)?;
    /// let (ibm, aapl) = (values.recv()?, values.recv()?);
    /// assert_eq!((ibm.key(), ibm.payload()), (Some(&b"IBM"[..]), &b"141.10"[..]));
    /// assert_eq!((aapl.key(), aapl.payload()), (Some(&b"AAPL"[..]), &b"187.22"[..]));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send_keyed(&self, key: &[u8], payload: &[u8]) -> Result<u32, SendError> {
        self.send_with(payload, &SendOptions { key: Some(key), ..SendOptions::default() })
    }

    /// Sends a message as [`send`](Self::send) does, and waits for room at most until the timeout is over.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if there was no room; then nothing was sent.
    pub fn send_timeout(&self, payload: &[u8], timeout: Duration) -> Result<u32, SendError> {
        self.send_timeout_with(payload, &SendOptions::default(), timeout)
    }

    /// Does the same with options.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send_timeout_with(
        &self,
        payload: &[u8],
        options: &SendOptions<'_>,
        timeout: Duration,
    ) -> Result<u32, SendError> {
        self.shared.send(&self.outbound(payload, options)?, Some(timeout))
    }

    /// Sends a message if it need not wait for room.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if there is no room; then nothing was sent.
    pub fn try_send(&self, payload: &[u8]) -> Result<u32, SendError> {
        self.try_send_with(payload, &SendOptions::default())
    }

    /// Does the same with options.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn try_send_with(&self, payload: &[u8], options: &SendOptions<'_>) -> Result<u32, SendError> {
        self.shared.try_send(&self.outbound(payload, options)?)
    }

    /// Sends a message, and awaits room for it on any executor.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send_async(&self, payload: &[u8]) -> Result<u32, SendError> {
        self.send_async_with(payload, &SendOptions::default()).await
    }

    /// Does the same with options.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send_async_with(&self, payload: &[u8], options: &SendOptions<'_>) -> Result<u32, SendError> {
        std::future::poll_fn(|context| self.poll_send(payload, options, context)).await
    }

    /// Sends a message. If there is no room, wakes the task when there may be.
    pub(crate) fn poll_send(
        &self,
        payload: &[u8],
        options: &SendOptions<'_>,
        context: &Context<'_>,
    ) -> Poll<Result<u32, SendError>> {
        let outbound = self.outbound(payload, options)?;
        match self.shared.poll_send(&outbound, context.waker()) {
            Err(SendError::WouldBlock) => Poll::Pending,
            sent => Poll::Ready(sent),
        }
    }

    /// Adds the options of this handle to a message, and checks its own.
    fn outbound<'a>(
        &'a self,
        payload: &'a [u8],
        options: &SendOptions<'a>,
    ) -> Result<Outbound<'a>, SendError> {
        let SendOptions { deadline, content_type, headers, key } = *options;
        let deadline_us = deadline.or(self.deadline).map(|deadline| {
            let us = u32::try_from(deadline.as_micros()).ok();
            us.filter(|&us| us <= DEADLINE_US_MAX).ok_or(SendError::Deadline { seconds: deadline.as_secs() })
        });
        let content_type = content_type.or(self.content_type.as_deref());
        let deadline_us = deadline_us.transpose()?;
        if let Some(key) = key.filter(|key| !(1..=KEY_MAX).contains(&key.len())) {
            return Err(SendError::Key { length: key.len() });
        }
        let envelope = Envelope { deadline_us, content_type, headers, key, ..Envelope::default() };
        if content_type.is_some_and(|name| name.len() > CONTENT_TYPE_MAX)
            || envelope.headers_len() > HEADERS_MAX
        {
            let content_type = content_type.map_or(0, str::len);
            return Err(SendError::Headers { content_type, headers: headers.len() });
        }
        let Self { group, expires, fragments, .. } = *self;
        Ok(Outbound { group, payload, envelope, expires, fragments })
    }
}

impl Sender {
    /// Sends a message, and waits until `members` members of the group hold it. A member that gave it up as
    /// lost, after `nak.give_up_ms`, counts too.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # let quiet = || ricochet::Node::builder("lo").address([127, 0, 0, 1]).unicast(true).port(0);
    /// # let receiver = quiet().start()?;
    /// # let orders = receiver.join("orders")?;
    /// # let node = quiet().seed(receiver.address().to_string()).start()?;
    /// # assert!(node.wait_for_members("orders", 1, Duration::from_secs(20)));
    /// node.sender("orders")?.send_held(b"buy 100", 1, Duration::from_secs(5))?;
    /// assert_eq!(orders.len(), 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`SendError::NotHeld`] if fewer members hold it when the time is over; the message was sent. Any other
    /// [`SendError`].
    pub fn send_held(&self, payload: &[u8], members: usize, timeout: Duration) -> Result<u32, SendError> {
        self.send_held_with(payload, &SendOptions::default(), members, timeout)
    }

    /// Does the same with options.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send_held_with(
        &self,
        payload: &[u8],
        options: &SendOptions<'_>,
        members: usize,
        timeout: Duration,
    ) -> Result<u32, SendError> {
        self.send_held_while(payload, options, members, timeout, || true)
    }

    /// Does the same, and asks `keep_waiting` at least ten times a second. Once that returns false, the wait
    /// ends as if the timeout were over.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send_held_while(
        &self,
        payload: &[u8],
        options: &SendOptions<'_>,
        members: usize,
        timeout: Duration,
        mut keep_waiting: impl FnMut() -> bool,
    ) -> Result<u32, SendError> {
        let outbound = self.outbound(payload, options)?;
        let begun_us = clock::now_us();
        let seq = self.shared.send_while(&outbound, Some(timeout), &mut keep_waiting)?;
        let spent = Duration::from_micros(clock::now_us().saturating_sub(begun_us));
        let wait = self.shared.wait_for_holders(&outbound, seq, members)?;
        wait.wait(timeout.saturating_sub(spent), &mut keep_waiting)
    }

    /// Does the same without a limit of time, on any executor.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send_held_async(&self, payload: &[u8], members: usize) -> Result<u32, SendError> {
        let seq = self.send_async(payload).await?;
        let outbound = self.outbound(payload, &SendOptions::default())?;
        let wait = self.shared.wait_for_holders(&outbound, seq, members)?;
        std::future::poll_fn(|context| wait.poll(context.waker())).await
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("group", &self.group).finish_non_exhaustive()
    }
}
