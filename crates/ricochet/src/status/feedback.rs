//! What the core has seen of groups and peers, as a status tells it.

use ricochet_core::feedback::{Latencies, PeerFeedback, Reception, Traffic, Volume};
use serde::{Deserialize, Serialize};

/// Datagrams and their bytes, UDP payload without the trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Datagrams.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Datagrams of each kind, in one direction; what went to a group counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrafficStatus {
    /// Data packets.
    pub data: VolumeStatus,
    /// Data packets sent again.
    pub retransmissions: VolumeStatus,
    /// Repairs and digests.
    pub repairs: VolumeStatus,
    /// Requests.
    pub requests: VolumeStatus,
    /// Heartbeats.
    pub heartbeats: VolumeStatus,
    /// Bytes of all that is not data, for a hundred of data.
    pub overhead_percent: Option<f64>,
}

/// What has become of the data packets of a group, or of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceptionStatus {
    /// Came by themselves.
    pub data: VolumeStatus,
    /// Were found missing.
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
    pub latency: LatencyStatus,
}

/// Times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyStatus {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_us: Option<u64>,
    /// Half of them are no longer, within 12 %.
    pub p50_us: Option<u64>,
    /// 99 of 100 are no longer, within 12 %.
    pub p99_us: Option<u64>,
    /// The longest.
    pub max_us: u64,
}

/// What this node has had to do with a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DealingsStatus {
    /// Data packets that it sent, in all groups of this node.
    pub reception: ReceptionStatus,
    /// Repairs that came from it.
    pub repairs: VolumeStatus,
    /// Repairs sent to it.
    pub repairs_sent: VolumeStatus,
    /// Packets asked of it.
    pub asked: u64,
    /// Packets held here that it asked for.
    pub wanted: u64,
    /// Whether it cannot keep up: it asks for too many of the packets that pass.
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
            overhead_percent: traffic.overhead().map(|share| share * 100.0),
        }
    }
}

impl From<&Reception> for ReceptionStatus {
    fn from(reception: &Reception) -> Self {
        Self {
            data: reception.data.into(),
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
