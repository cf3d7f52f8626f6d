//! What a subscription receives.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ricochet_core::NodeId;
use ricochet_core::counters::GivenUp;

use crate::pool::Payload;

pub use ricochet_core::message::How;

/// A message of one of the groups that a subscription covers.
///
/// Its payload lies in a buffer of the node's, which is used again when the message is dropped: keep what you need of it,
/// not the message.
pub struct Message {
    pub(crate) group: Arc<str>,
    pub(crate) sender: NodeId,
    pub(crate) seq: u32,
    pub(crate) how: How,
    pub(crate) missed_us: Option<u64>,
    pub(crate) payload: Payload,
}

impl Message {
    /// The name of the group that it was sent to.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Who sent it: one life of a node.
    pub fn sender(&self) -> NodeId {
        self.sender
    }

    /// Its place in what this sender sends to this group, counted from 0, modulo 2³².
    pub fn seq(&self) -> u32 {
        self.seq
    }

    /// What was sent.
    pub fn payload(&self) -> &[u8] {
        self.payload.bytes()
    }

    /// Whether it did not come by itself: it was brought back by a repair, or sent again.
    pub fn recovered(&self) -> bool {
        self.how != How::Multicast
    }

    /// How it came.
    pub fn how(&self) -> How {
        self.how
    }

    /// For how long this node knew that it was missing; zero of one that came in its turn.
    pub fn latency(&self) -> Duration {
        Duration::from_micros(self.missed_us.unwrap_or(0))
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("group", &self.group())
            .field("sender", &self.sender)
            .field("seq", &self.seq)
            .field("how", &self.how)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

/// Messages that are not to be expected any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub(crate) group: Arc<str>,
    pub(crate) sender: NodeId,
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) reason: GivenUp,
}

impl Lost {
    /// The name of the group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Who sent them.
    pub fn sender(&self) -> NodeId {
        self.sender
    }

    /// Their places in what this sender sends to this group.
    pub fn range(&self) -> RangeInclusive<u32> {
        self.first..=self.last
    }

    /// How many packets they were.
    pub fn packets(&self) -> u64 {
        u64::from(self.last.wrapping_sub(self.first)) + 1
    }

    /// Why they were given up.
    pub fn reason(&self) -> GivenUp {
        self.reason
    }
}

/// What comes out of a subscription, in order.
#[derive(Debug)]
pub enum Event {
    /// A message.
    Message(Message),
    /// Messages that will not come.
    Lost(Lost),
}
