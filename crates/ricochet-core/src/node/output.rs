//! What a node wants done.

use crate::ids::{GroupId, NodeId};
use crate::tracker::Lost;
use foundation::Seq;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// To all members of a group.
    Group(GroupId),
    /// To one node.
    Node(NodeId),
}

/// How a packet came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// By itself, as its sender multicast it.
    Multicast,
    /// By lateral repair.
    Repaired,
    /// On request.
    Requested,
}

/// A packet for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Who sent it.
    pub sender: NodeId,
    /// To whom.
    pub group: GroupId,
    /// Its place in the stream of this sender to this group.
    pub seq: Seq,
    /// What was sent.
    pub payload: &'a [u8],
    /// Whether the payload is a part of a message.
    pub fragment: bool,
    /// How it came.
    pub how: How,
    /// For how long it was known to be missing, in microseconds.
    pub missed_us: Option<u64>,
}

/// Takes what a node wants done; called in order, from within the node's methods.
pub trait Output {
    /// Sends a datagram.
    fn send(&mut self, to: To, datagram: &[u8]);
    /// Hands a packet to the application.
    fn deliver(&mut self, message: &Message<'_>);
    /// Tells the application that packets will not come.
    fn lost(&mut self, lost: &Lost);
}
