//! What a node has seen of the network, for the application that wants to act on it: how much of each group and of each
//! peer was lost, what brought it back and how soon, what that cost, and who cannot keep up.
//!
//! The node counts as packets pass; [`Node::feedback`](crate::Node::feedback) copies the counts, which the application
//! then reads at leisure.

mod latency;
mod recent;
mod tally;

use crate::ids::{GroupId, NodeId};
use crate::wire::Kind;
pub use latency::Latencies;
pub(crate) use tally::Tally;

/// A peer is slow if of the packets sent and received lately in the groups that it shares with this node, it has asked
/// this node for more than so many in a hundred, ...
pub const SLOW_PERCENT: u64 = 2;
/// ... and for so many at the least. What is *lately* is halved every 4.2 s.
pub const SLOW_PACKETS_MIN: u32 = 32;

/// Datagrams and their bytes, UDP payload without the driver's trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Datagrams.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Volume {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// Datagrams of each kind, in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Data packets.
    pub data: Volume,
    /// Data packets that were asked for.
    pub retransmissions: Volume,
    /// Repairs and digests.
    pub repairs: Volume,
    /// Requests.
    pub requests: Volume,
    /// Heartbeats.
    pub heartbeats: Volume,
}

impl Traffic {
    pub(crate) fn add(&mut self, kind: Kind, bytes: usize) {
        let volume = match kind {
            Kind::Data => &mut self.data,
            Kind::Retransmission => &mut self.retransmissions,
            Kind::Repair => &mut self.repairs,
            Kind::Nak => &mut self.requests,
            Kind::Heartbeat => &mut self.heartbeats,
        };
        volume.add(bytes);
    }

    /// Bytes of all that is not data, divided by those of data.
    pub fn overhead(&self) -> Option<f64> {
        let rest = [self.retransmissions, self.repairs, self.requests, self.heartbeats];
        let bytes: u64 = rest.iter().map(|volume| volume.bytes).sum();
        (self.data.bytes > 0).then(|| bytes as f64 / self.data.bytes as f64)
    }
}

/// What has become of the data packets of a group, or of a sender. Packets that came, were mended and are lost make up
/// all that this node knows to have been sent, but for those that are missing now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reception {
    /// Came by themselves.
    pub data: Volume,
    /// Were found missing; some of these came by themselves after all.
    pub discovered: u64,
    /// Were brought back by repairs.
    pub repaired: u64,
    /// Came on request.
    pub requested: u64,
    /// Were given up.
    pub lost: u64,
    /// Came again.
    pub duplicates: u64,
    /// How long those brought back and those that came on request were known to be missing.
    pub latencies: Latencies,
}

/// What a node has seen of one of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFeedback {
    /// The group.
    pub group: GroupId,
    /// Data packets that this node sent to it.
    pub sent: Volume,
    /// Data packets from others.
    pub reception: Reception,
}

/// What a node has seen of one of its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFeedback {
    /// The peer.
    pub peer: NodeId,
    /// Data packets that it sent, in all groups of this node.
    pub reception: Reception,
    /// Repairs that came from it.
    pub repairs: Volume,
    /// Repairs sent to it.
    pub repairs_sent: Volume,
    /// Packets asked of it.
    pub asked: u64,
    /// Packets held here that it asked for.
    pub wanted: u64,
    /// Retransmissions sent to it.
    pub answered: Volume,
    /// Packets held here that it asked for lately.
    pub wanted_lately: u32,
    /// Packets sent and received lately in the groups that it shares with this node; all that this node sent, if none.
    pub passed_lately: u64,
    /// Whether it cannot keep up: [`SLOW_PERCENT`], [`SLOW_PACKETS_MIN`].
    pub slow: bool,
}

/// A copy of what a node has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    /// All that this node sent; what went to a group counts once.
    pub sent: Traffic,
    /// All that came, duplicates included.
    pub received: Traffic,
    /// The groups that this node is in, in order of their ids.
    pub groups: Vec<GroupFeedback>,
    /// The peers that it has had to do with, in no order.
    pub peers: Vec<PeerFeedback>,
    /// Packets and repairs of peers for which there was no room.
    pub unrecorded: u64,
}

impl Feedback {
    /// The peers that cannot keep up.
    pub fn slow(&self) -> impl Iterator<Item = &PeerFeedback> {
        self.peers.iter().filter(|peer| peer.slow)
    }
}
