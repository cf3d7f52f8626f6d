//! Messages, and the seam between a node and its driver.

use foundation::Seq;
use thiserror::Error;

use crate::flow::ReaderNews;
use crate::groups::SENT_GROUPS_MAX;
use crate::history::HistoryNews;
use crate::ids::{GroupId, NodeId, StreamKey};
use crate::tracker::{Front, Lost};

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// All members of a group.
    Group(GroupId),
    /// One node.
    Node(NodeId),
}

/// Origin of a datagram, as the driver knows it from the source address. It concerns the node that the
/// datagram names as its sender; a retransmission names the first sender of the packet, and may come from any
/// member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The address of that node, as the membership knows it. Of a retransmission: the address of any member,
    /// or the one that the packets of its sender come from.
    Member,
    /// An address at which the membership knows no such node.
    Stranger,
    /// Another address than that of the node.
    Impostor,
}

/// How a packet came. A message of several packets came as the last resort among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// By itself, as its sender multicast it.
    Multicast,
    /// Recovered from a lateral repair.
    Repaired,
    /// Retransmitted on request.
    Requested,
}

/// Time at which a message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Microseconds since 1970, by the sender's clock.
    pub at_us: u64,
    /// The same instant by this node's clock, without the time that the sender's fastest packets take: the
    /// message is at least this old.
    pub since_us: u64,
}

/// A message for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Node that sent it.
    pub sender: NodeId,
    /// Group that it was sent to.
    pub group: GroupId,
    /// Position in the stream of this sender to this group; of several packets, the position of the first.
    pub seq: Seq,
    /// Payload that was sent.
    pub payload: &'a [u8],
    /// Whether the payload holds several messages ([`messages_of`](crate::wire::messages_of)), which were
    /// sent together and have consecutive positions.
    pub joint: bool,
    /// Number of consecutive positions of the stream that it takes: that of the packets that carried it, or
    /// that of the messages in its packet.
    pub packets: u32,
    /// How it came.
    pub how: How,
    /// How long it was known to be missing, in microseconds; of several packets, the longest.
    pub missed_us: Option<u64>,
    /// How far its stream is settled, with this message counted as received.
    pub front: Front,
    /// Time at which a member got it, if this node read it from that member's history.
    pub past_us: Option<u64>,
    /// Time at which it was sent, if its sender tells. Messages that share a packet have the time of the
    /// first.
    pub sent: Option<Sent>,
    /// Whether the payload, or each message in it, begins with an [`Envelope`](crate::wire::Envelope).
    pub enveloped: bool,
}

impl<'a> Message<'a> {
    /// Makes a message that came by itself in one packet, after all those before it in its stream.
    pub fn new(sender: NodeId, group: GroupId, seq: Seq, payload: &'a [u8]) -> Self {
        Self {
            sender,
            group,
            seq,
            payload,
            joint: false,
            packets: 1,
            how: How::Multicast,
            missed_us: None,
            front: Front::END,
            past_us: None,
            sent: None,
            enveloped: false,
        }
    }
}

/// Options of a message to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Whether the message is worthless when late. A receiver that misses it does not request it, and gives
    /// it up soon.
    ///
    /// The messages of a stream should all agree, since a receiver judges a missing packet by its neighbours
    /// in the stream.
    pub expires: bool,
}

/// Reason why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The message is too long.
    #[error("expected a payload of at most {payload_max} bytes, saw {length}")]
    TooLong {
        /// Length of the message.
        length: usize,
        /// Maximum length.
        payload_max: usize,
    },
    /// This node already sends to the maximum number of groups.
    #[error("expected at most {SENT_GROUPS_MAX} groups to send to, saw one more")]
    TooManyGroups,
}

/// Receiver of a node's output. Its methods are called in order, from within the node's methods.
pub trait Output {
    /// Sends a datagram.
    fn send(&mut self, to: To, datagram: &[u8]);
    /// Hands a message to the application.
    fn deliver(&mut self, message: &Message<'_>);
    /// Reports packets that will not come. The report precedes every message of the stream whose
    /// [front](Message::front) lies behind these packets, unless this node has learned only later that it was
    /// to get packets before the first one of the stream.
    fn on_lost(&mut self, lost: &Lost);
    /// Reports how far a stream is settled when no message carries that news. An ordered subscription
    /// ([`Fifo`](crate::delivery::Fifo)) needs it.
    fn on_settled(&mut self, key: StreamKey, front: Front) {
        let _ = (key, front);
    }
    /// Reports news about a reader of this node's packets to a group.
    fn on_reader(&mut self, group: GroupId, reader: NodeId, news: ReaderNews) {
        let _ = (group, reader, news);
    }
    /// Reports that a packet of this node is held by as many members as somebody waits for.
    fn on_held(&mut self, group: GroupId, seq: u32) {
        let _ = (group, seq);
    }
    /// Returns whether the readers of a group have room for messages of its history. Otherwise they come
    /// later.
    fn has_room(&mut self, group: GroupId, messages: u32) -> bool {
        let _ = (group, messages);
        true
    }
    /// Reports news about the history of a group.
    fn on_history(&mut self, group: GroupId, news: HistoryNews) {
        let _ = (group, news);
    }
    /// Reports that this node has read the history of a group, and takes part in it from here on.
    fn on_caught_up(&mut self, group: GroupId) {
        let _ = group;
    }
    /// Reports that all that was known of a stream was false. The state that an ordered subscription keeps of
    /// the stream must be forgotten.
    fn on_restart(&mut self, key: StreamKey) {
        let _ = key;
    }
}
