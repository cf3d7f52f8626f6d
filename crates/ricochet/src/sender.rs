//! Sending.

use std::fmt;
use std::sync::Arc;

use ricochet_core::GroupId;
use ricochet_core::message::{SendError as CoreError, SendOptions};

use crate::clock;
use crate::error::SendError;
use crate::outward::Leaving;
use crate::shared::{Core, Gone, Shared};

/// Sends to one group, whose name was looked at once. It may be cloned, and used by many threads.
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
}

impl Sender {
    pub(crate) fn new(shared: Arc<Shared>, group: GroupId) -> Self {
        Self { shared, group, expires: false, fragments: false }
    }

    /// Whether messages are worth nothing when they are late: then receivers ask nobody for those that repairs do not
    /// bring back.
    #[must_use]
    pub fn expiring(mut self, expires: bool) -> Self {
        self.expires = expires;
        self
    }

    /// Whether messages longer than a packet are sent in several; up to [`Node::message_max`](crate::Node::message_max).
    #[must_use]
    pub fn fragments(mut self, fragments: bool) -> Self {
        self.fragments = fragments;
        self
    }

    /// Sends a message; returns its sequence number in what this node sends to the group.
    ///
    /// # Errors
    /// [`SendError`]. That the network loses the message is none.
    pub fn send(&self, payload: &[u8]) -> Result<u32, SendError> {
        self.shared.send(self.group, payload, self.expires, self.fragments)
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Shared {
    /// Stamps a message and sends it, on the calling thread. The core is held until the kernel has it, sealed if there is a key:
    /// what two threads send leaves in the order of its numbers, or receivers would find gaps and ask.
    pub(crate) fn send(
        &self,
        group: GroupId,
        payload: &[u8],
        expires: bool,
        fragments: bool,
    ) -> Result<u32, SendError> {
        let mut core = self.core().map_err(|gone| match gone {
            Gone::Closed => SendError::Closed,
            Gone::Failed(why) => SendError::Failed(why),
        })?;
        let now_us = clock::now_us();
        let Core { node, out, .. } = &mut *core;
        out.now_us = now_us;
        let fragments = fragments || out.groups.get(&group).is_some_and(|joined| joined.fragments);
        let options = SendOptions { expires };
        let sent = if fragments && payload.len() > node.payload_max() {
            node.multicast_large(now_us, group, payload, options, out)
        } else {
            out.leaving = Leaving::AtOnce;
            node.multicast(now_us, group, payload, options, out)
        };
        out.leaving = Leaving::Together;
        out.flush();
        let seq = sent.map_err(|error| match error {
            CoreError::TooLong { length, payload_max } => SendError::TooLong { length, payload_max },
            CoreError::TooManyGroups => SendError::TooManyGroups,
            other => SendError::Failed(other.to_string()),
        })?;
        if let Some(due_us) = core.poll_timeout() {
            self.wake_before(due_us);
        }
        Ok(seq)
    }
}
