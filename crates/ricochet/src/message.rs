//! Messages and loss reports, as a subscription receives them.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ricochet_core::counters::GivenUp;
use ricochet_core::{HistoryNews, NodeId};

use crate::pool::Payload;

pub use ricochet_core::message::How;

/// A message of one of the groups of a subscription.
///
/// The payload lies in a buffer of the node, which reuses the buffer when the message is dropped. To keep a
/// payload for long, copy it rather than keep the message.
pub struct Message {
    pub(crate) group: Arc<str>,
    pub(crate) sender: NodeId,
    pub(crate) seq: u32,
    /// Number of packets that carried it.
    pub(crate) packets: u32,
    pub(crate) how: How,
    pub(crate) missed_us: Option<u64>,
    /// Whether this node read it from the history of a member.
    pub(crate) is_past: bool,
    pub(crate) payload: Payload,
}

impl Message {
    /// Returns the name of the group that the message was sent to.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the sender: one life of a node.
    pub fn sender(&self) -> NodeId {
        self.sender
    }

    /// Returns the sequence number of the message among those of this sender to this group, from 0, modulo
    /// 2³². A message that was sent in several packets takes as many numbers.
    pub fn seq(&self) -> u32 {
        self.seq
    }

    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        self.payload.bytes()
    }

    /// Returns whether the message was lost at first, and then recovered from a repair or retransmitted.
    pub fn recovered(&self) -> bool {
        self.how != How::Multicast
    }

    /// Returns whether the message was sent before the subscription, and kept by a member.
    pub fn is_past(&self) -> bool {
        self.is_past
    }

    /// Returns how the message arrived.
    pub fn how(&self) -> How {
        self.how
    }

    /// Returns the time for which this node knew that the message was missing; zero if it never was.
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

/// A report of messages that the application does not get: they will not arrive, or were dropped because it
/// reads too slowly ([`GivenUp::Unread`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub(crate) group: Arc<str>,
    pub(crate) sender: NodeId,
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) reason: GivenUp,
}

impl Lost {
    /// Returns the report of a message that its reader was too slow for.
    pub(crate) fn unread(message: &Message) -> Self {
        Self {
            group: Arc::clone(&message.group),
            sender: message.sender,
            first: message.seq,
            last: message.seq.wrapping_add(message.packets.saturating_sub(1)),
            reason: GivenUp::Unread,
        }
    }

    /// Adds a message that its reader was too slow for, if it follows those of this report. Returns whether
    /// it does.
    pub(crate) fn extend_by(&mut self, message: &Message) -> bool {
        let next = self.last.wrapping_add(1);
        if self.reason != GivenUp::Unread || message.sender != self.sender || message.group != self.group {
            return false;
        }
        if message.seq == next {
            self.last = self.last.wrapping_add(message.packets);
        }
        message.seq == next
    }

    /// Returns the name of the group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the sender of the messages.
    pub fn sender(&self) -> NodeId {
        self.sender
    }

    /// Returns the sequence numbers of the messages among those of this sender to this group.
    pub fn range(&self) -> RangeInclusive<u32> {
        self.first..=self.last
    }

    /// Returns the number of packets lost.
    pub fn packets(&self) -> u64 {
        u64::from(self.last.wrapping_sub(self.first)) + 1
    }

    /// Returns the reason why they were given up.
    pub fn reason(&self) -> GivenUp {
        self.reason
    }
}

/// An event of a subscription.
#[derive(Debug)]
pub enum Event {
    /// A message.
    Message(Message),
    /// Messages that will not arrive, or that were dropped because the queue was full.
    Lost(Lost),
    /// The messages from before the subscription begin, or end.
    History(History),
}

/// News about the messages from before a subscription, which it gets if it [asks for them](crate::Start).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    pub(crate) group: Arc<str>,
    pub(crate) news: HistoryNews,
}

impl History {
    /// Returns the name of the group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the news.
    pub fn news(&self) -> HistoryNews {
        self.news
    }
}

/// Returns message `seq` of a sender to the group `g`, for tests of queues.
#[cfg(test)]
pub(crate) fn numbered(seq: u32) -> Message {
    Message {
        group: "g".into(),
        sender: NodeId(1),
        seq,
        packets: 1,
        how: How::Multicast,
        missed_us: None,
        is_past: false,
        payload: crate::pool::Pool::new(1, 8).copy(b"x"),
    }
}
