//! What a node wants done.

use crate::ids::{GroupId, NodeId, StreamKey};
use crate::tracker::{Front, Lost};
use foundation::Seq;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// To all members of a group.
    Group(GroupId),
    /// To one node.
    Node(NodeId),
}

/// How a packet came; a message of several packets, how the last resort among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// By itself, as its sender multicast it.
    Multicast,
    /// By lateral repair.
    Repaired,
    /// On request.
    Requested,
}

/// A message for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Who sent it.
    pub sender: NodeId,
    /// To whom.
    pub group: GroupId,
    /// Its place in the stream of this sender to this group; of several packets, the first one's.
    pub seq: Seq,
    /// What was sent.
    pub payload: &'a [u8],
    /// How many packets of the stream it took, one after the other.
    pub packets: u32,
    /// How it came.
    pub how: How,
    /// For how long it was known to be missing, in microseconds; of several packets, the longest.
    pub missed_us: Option<u64>,
    /// How far its stream is settled, now that it has come.
    pub front: Front,
}

/// Takes what a node wants done; called in order, from within the node's methods.
pub trait Output {
    /// Sends a datagram.
    fn send(&mut self, to: To, datagram: &[u8]);
    /// Hands a packet to the application.
    fn deliver(&mut self, message: &Message<'_>);
    /// Tells the application that packets will not come. Told before any message of the stream is delivered whose
    /// [front](Message::front) lies behind them.
    fn lost(&mut self, lost: &Lost);
    /// A stream is settled so far, and no message comes that says so. Who keeps streams in order needs to know
    /// ([`Fifo`](crate::delivery::Fifo)).
    fn settled(&mut self, key: StreamKey, front: Front) {
        let _ = (key, front);
    }
}
