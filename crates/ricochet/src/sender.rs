//! Sending messages.

use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ricochet_core::GroupId;

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
    options: SendOptions,
}

/// Options of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendOptions {
    /// Whether a late message is worthless, so that receivers do not request it.
    pub(crate) expires: bool,
    /// Whether a message longer than a packet is sent in several packets.
    pub(crate) fragments: bool,
}

impl Sender {
    pub(crate) fn new(shared: Arc<Shared>, group: GroupId) -> Self {
        Self { shared, group, options: SendOptions::default() }
    }

    /// Sets whether late messages are worthless. Receivers then do not request messages
    /// that repairs do not recover.
    #[must_use]
    pub fn expiring(mut self, expires: bool) -> Self {
        self.options.expires = expires;
        self
    }

    /// Sets whether messages longer than a packet are sent in several packets, up to
    /// [`Node::message_max`](crate::Node::message_max).
    #[must_use]
    pub fn fragments(mut self, fragments: bool) -> Self {
        self.options.fragments = fragments;
        self
    }

    /// Sends a message and returns its sequence number among this node's messages to the group. Waits while
    /// the readers that the node [follows](crate::FlowSection::follow) have no room.
    ///
    /// # Errors
    /// [`SendError`]. A loss in the network is not an error.
    pub fn send(&self, payload: &[u8]) -> Result<u32, SendError> {
        self.shared.send(self.group, payload, self.options, None)
    }

    /// Does the same, and waits for room at most until the timeout is over.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if there was no room; then nothing was sent.
    pub fn send_timeout(&self, payload: &[u8], timeout: Duration) -> Result<u32, SendError> {
        self.shared.send(self.group, payload, self.options, Some(timeout))
    }

    /// Sends a message if it need not wait for room.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if there is no room; then nothing was sent.
    pub fn try_send(&self, payload: &[u8]) -> Result<u32, SendError> {
        self.shared.try_send(self.group, payload, self.options)
    }

    /// Sends a message, and awaits room for it on any executor.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send_async(&self, payload: &[u8]) -> Result<u32, SendError> {
        std::future::poll_fn(|context| {
            match self.shared.poll_send(self.group, payload, self.options, context.waker()) {
                Err(SendError::WouldBlock) => Poll::Pending,
                sent => Poll::Ready(sent),
            }
        })
        .await
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
        let seq = self.shared.send(self.group, payload, self.options, Some(timeout))?;
        self.shared.wait_for_holders(self.group, seq, payload.len(), members)?.wait(timeout)
    }

    /// Does the same without a limit of time, on any executor.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send_held_async(&self, payload: &[u8], members: usize) -> Result<u32, SendError> {
        let seq = self.send_async(payload).await?;
        let wait = self.shared.wait_for_holders(self.group, seq, payload.len(), members)?;
        std::future::poll_fn(|context| wait.poll(context.waker())).await
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("group", &self.group).finish_non_exhaustive()
    }
}
