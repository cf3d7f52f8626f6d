//! Traffic by group and by node, as the core counts it.

use ricochet_core::feedback::{Latencies, PeerFeedback, Reception, Traffic, Volume};
use serde::{Deserialize, Serialize};

/// Number of datagrams and of their bytes: UDP payload without the trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Datagrams.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Datagrams of each kind in one direction. A datagram to a group counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrafficStatus {
    /// Data packets.
    pub data: VolumeStatus,
    /// Retransmitted data packets.
    pub retransmissions: VolumeStatus,
    /// Repairs and digests.
    pub repairs: VolumeStatus,
    /// Requests (NAKs).
    pub requests: VolumeStatus,
    /// Heartbeats.
    pub heartbeats: VolumeStatus,
    /// Questions about the newest packet of a stream, and answers.
    #[serde(default)]
    pub questions: VolumeStatus,
    /// Reports about the room of receivers, and requests for them.
    #[serde(default)]
    pub rooms: VolumeStatus,
    /// Bytes of all other datagrams as a percentage of the bytes of data packets.
    pub overhead_percent: Option<f64>,
}

/// Fate of the data packets of a group, or of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceptionStatus {
    /// Packets received as sent.
    pub data: VolumeStatus,
    /// Messages in all packets that were received, recovered or requested. A long message counts once for
    /// each of its packets.
    #[serde(default)]
    pub messages: u64,
    /// Packets found missing.
    pub discovered: u64,
    /// Packets recovered from repairs.
    pub repaired: u64,
    /// Packets received on request.
    pub requested: u64,
    /// Packets given up as lost.
    pub lost: u64,
    /// Packets received again.
    pub duplicates: u64,
    /// Time from the discovery of a missing packet to its recovery or its arrival on request.
    pub latency: LatencyStatus,
}

/// Distribution of times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyStatus {
    /// Number of times.
    pub count: u64,
    /// Mean.
    pub mean_us: Option<u64>,
    /// Median, within 12 %.
    pub p50_us: Option<u64>,
    /// 99th percentile, within 12 %.
    pub p99_us: Option<u64>,
    /// Maximum.
    pub max_us: u64,
}

/// Traffic between this node and another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DealingsStatus {
    /// Data packets that the other node sent, in all groups of this node.
    pub reception: ReceptionStatus,
    /// Repairs received from it.
    pub repairs: VolumeStatus,
    /// Repairs sent to it.
    pub repairs_sent: VolumeStatus,
    /// Packets requested from it.
    pub asked: u64,
    /// Packets held here that it requested.
    pub wanted: u64,
    /// Whether it cannot keep up: it requests too large a share of the packets sent.
    pub slow: bool,
}

impl From<Volume> for VolumeStatus {
    fn from(volume: Volume) -> Self {
        Self { packets: volume.packets, bytes: volume.bytes }
    }
}

impl From<&Traffic> for TrafficStatus {
    fn from(traffic: &Traffic) -> Self {
        Self {
            data: traffic.data.into(),
            retransmissions: traffic.retransmissions.into(),
            repairs: traffic.repairs.into(),
            requests: traffic.requests.into(),
            heartbeats: traffic.heartbeats.into(),
            questions: traffic.questions.into(),
            rooms: traffic.rooms.into(),
            overhead_percent: traffic.overhead().map(|share| share * 100.0),
        }
    }
}

impl From<&Reception> for ReceptionStatus {
    fn from(reception: &Reception) -> Self {
        Self {
            data: reception.data.into(),
            messages: reception.messages,
            discovered: reception.discovered,
            repaired: reception.repaired,
            requested: reception.requested,
            lost: reception.lost,
            duplicates: reception.duplicates,
            latency: (&reception.latencies).into(),
        }
    }
}

impl From<&Latencies> for LatencyStatus {
    fn from(latencies: &Latencies) -> Self {
        Self {
            count: latencies.count(),
            mean_us: latencies.mean_us(),
            p50_us: latencies.quantile_us(0.5),
            p99_us: latencies.quantile_us(0.99),
            max_us: latencies.max_us(),
        }
    }
}

impl From<&PeerFeedback> for DealingsStatus {
    fn from(peer: &PeerFeedback) -> Self {
        Self {
            reception: (&peer.reception).into(),
            repairs: peer.repairs.into(),
            repairs_sent: peer.repairs_sent.into(),
            asked: peer.asked,
            wanted: peer.wanted,
            slow: peer.slow,
        }
    }
}
