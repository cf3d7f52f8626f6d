//! Sending messages.

use std::fmt;
use std::sync::Arc;

use ricochet_core::GroupId;
use ricochet_core::message::{SendError as CoreError, SendOptions as CoreOptions};

use crate::clock;
use crate::error::SendError;
use crate::outward::SendMode;
use crate::shared::{Core, Gone, Shared};

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

    /// Sends a message and returns its sequence number among this node's messages to the group.
    ///
    /// # Errors
    /// [`SendError`]. A loss in the network is not an error.
    pub fn send(&self, payload: &[u8]) -> Result<u32, SendError> {
        self.shared.send(self.group, payload, self.options)
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Shared {
    /// Sends a message on the calling thread.
    ///
    /// The lock of the core is held until the kernel has the message. Messages of two threads thus leave in
    /// the order of their sequence numbers; otherwise receivers would find gaps and send requests.
    pub(crate) fn send(
        &self,
        group: GroupId,
        payload: &[u8],
        options: SendOptions,
    ) -> Result<u32, SendError> {
        let mut core = self.core().map_err(|gone| match gone {
            Gone::Closed => SendError::Closed,
            Gone::Failed(why) => SendError::Failed(why),
        })?;
        let now_us = clock::now_us();
        let Core { node, out, .. } = &mut *core;
        out.now_us = now_us;
        let fragments = options.fragments || out.groups.get(&group).is_some_and(|joined| joined.fragments);
        let options = CoreOptions { expires: options.expires };
        let sent = if fragments && payload.len() > node.payload_max() {
            node.multicast_large(now_us, group, payload, options, out)
        } else {
            out.send_mode = SendMode::Immediate;
            node.multicast(now_us, group, payload, options, out)
        };
        out.send_mode = SendMode::Batched;
        out.flush();
        let seq = sent.map_err(|error| match error {
            CoreError::TooLong { length, payload_max } => SendError::TooLong { length, payload_max },
            CoreError::TooManyGroups => SendError::TooManyGroups,
            other => SendError::Failed(other.to_string()),
        })?;
        if let Some(due_us) = core.poll_timeout() {
            self.sleep.wake_before(due_us);
        }
        Ok(seq)
    }
}
