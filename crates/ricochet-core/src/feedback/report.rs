//! The counts as applications get them.

use super::latency::Latencies;
use crate::ids::{GroupId, NodeId};
use crate::wire::Kind;

/// Share of packets above which a peer is slow, in percent: packets that it lately requested, of those that
/// passed in the groups that it shares with this node.
pub const SLOW_PERCENT: u64 = 2;
/// Minimum number of packets that a slow peer has lately requested. Counts of recent packets are halved every
/// 4.2 s.
pub const SLOW_PACKETS_MIN: u32 = 32;

/// Number of datagrams and of their bytes (UDP payload without the driver's trailer).
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
    /// Data packets sent again on request.
    pub retransmissions: Volume,
    /// Repairs, lateral digests included.
    pub repairs: Volume,
    /// Requests, and news that requested packets are not held.
    pub requests: Volume,
    /// Heartbeats.
    pub heartbeats: Volume,
    /// Questions about the newest packet of a stream, and answers.
    pub questions: Volume,
    /// Reports about the room of receivers, and requests for them.
    pub rooms: Volume,
    /// Requests for history, and answers.
    pub history: Volume,
}

impl Traffic {
    pub(crate) fn add(&mut self, kind: Kind, bytes: usize) {
        let volume = match kind {
            Kind::Data => &mut self.data,
            Kind::Retransmission => &mut self.retransmissions,
            Kind::Repair => &mut self.repairs,
            Kind::Nak | Kind::Denial => &mut self.requests,
            Kind::Heartbeat => &mut self.heartbeats,
            Kind::Question | Kind::Answer => &mut self.questions,
            Kind::Room | Kind::Probe => &mut self.rooms,
            Kind::HistoryRequest | Kind::History => &mut self.history,
        };
        volume.add(bytes);
    }

    /// Returns the bytes of all other datagrams, divided by those of data packets.
    pub fn overhead(&self) -> Option<f64> {
        let Self { retransmissions, repairs, requests, heartbeats, questions, rooms, history, .. } = *self;
        let rest = [retransmissions, repairs, requests, heartbeats, questions, rooms, history];
        let bytes: u64 = rest.iter().map(|volume| volume.bytes).sum();
        (self.data.bytes > 0).then(|| bytes as f64 / self.data.bytes as f64)
    }
}

/// Fate of the data packets of a group or of a sender. Packets that came, were recovered or were lost add up
/// to all packets that this node knows of, except those that are missing at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reception {
    /// Packets that came by themselves.
    pub data: Volume,
    /// Messages in all packets that came, were recovered or came on request. A long message counts once for
    /// each of its packets.
    pub messages: u64,
    /// Packets found missing; some of these came by themselves after all.
    pub discovered: u64,
    /// Packets recovered from repairs.
    pub repaired: u64,
    /// Packets that came on request.
    pub requested: u64,
    /// Packets given up.
    pub lost: u64,
    /// Packets that came again.
    pub duplicates: u64,
    /// Times that recovered and requested packets were known to be missing.
    pub latencies: Latencies,
}

/// Counts of one of a node's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFeedback {
    /// The group.
    pub group: GroupId,
    /// Data packets that this node sent to it.
    pub sent: Volume,
    /// Messages in them. A long message counts once for each of its packets.
    pub messages_sent: u64,
    /// Data packets from others.
    pub reception: Reception,
}

/// Counts of one of a node's peers.
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
    /// Packets requested of it.
    pub asked: u64,
    /// Packets held here that it requested.
    pub wanted: u64,
    /// Retransmissions sent to it.
    pub answered: Volume,
    /// Packets held here that it requested lately.
    pub wanted_lately: u32,
    /// Packets sent and received lately in the groups that it shares with this node; if it shares none, all
    /// packets that this node sent lately.
    pub passed_lately: u64,
    /// Whether it cannot keep up, judged by [`SLOW_PERCENT`] and [`SLOW_PACKETS_MIN`].
    pub slow: bool,
}

impl PeerFeedback {
    pub(super) fn new(peer: NodeId) -> Self {
        Self {
            peer,
            reception: Reception::default(),
            repairs: Volume::default(),
            repairs_sent: Volume::default(),
            asked: 0,
            wanted: 0,
            answered: Volume::default(),
            wanted_lately: 0,
            passed_lately: 0,
            slow: false,
        }
    }
}

/// A copy of a node's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    /// Datagrams that this node sent; one to a group counts once.
    pub sent: Traffic,
    /// Datagrams received, duplicates included.
    pub received: Traffic,
    /// The groups that this node is in, in order of their ids.
    pub groups: Vec<GroupFeedback>,
    /// The peers that it has had traffic with, in no order.
    pub peers: Vec<PeerFeedback>,
    /// Events of peers for which there was no room.
    pub unrecorded: u64,
}

impl Feedback {
    /// Returns the peers that cannot keep up.
    pub fn slow(&self) -> impl Iterator<Item = &PeerFeedback> {
        self.peers.iter().filter(|peer| peer.slow)
    }
}
