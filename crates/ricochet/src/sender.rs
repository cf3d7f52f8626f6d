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

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("group", &self.group).finish_non_exhaustive()
    }
}
