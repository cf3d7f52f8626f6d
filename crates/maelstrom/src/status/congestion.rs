//! Congestion in the status of a gateway.

use serde::{Deserialize, Serialize};

/// Knowledge about the queue on the way to this gateway, and the treatment of packets that were dropped
/// there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CongestionStatus {
    /// Treatment of losses, and its reason.
    pub verdict: String,
    /// Whether losses behind a full queue are left to their senders, but for the share that the link loses.
    pub leaving: bool,
    /// Present delay of the queue, in microseconds beyond the shortest delay.
    pub queue_us: u64,
    /// Delay from which the queue counts as full, in microseconds; null while losses do not depend on it.
    pub full_us: Option<u64>,
    /// Packets lost with less queue, per hundred: those that the link itself loses.
    pub link_loss_percent: Option<f64>,
    /// Packets lost with a full queue, per hundred.
    pub full_loss_percent: Option<f64>,
    /// Packets left to their senders.
    pub left: u64,
    /// Packets recovered with a mark that tells of congestion.
    pub marked: u64,
    /// Packets of a tunnel that got the mark which a router put on their datagram.
    #[serde(default)]
    pub path_marked: u64,
    /// Packets of a tunnel dropped because their datagram was marked and their senders do not understand
    /// marks.
    #[serde(default)]
    pub path_dropped: u64,
    /// Packets of a tunnel whose datagram came with an ECN field that no router should give it.
    #[serde(default)]
    pub path_odd: u64,
}

impl CongestionStatus {
    pub(super) fn of(peer: &maelstrom_core::PeerStatus<'_>) -> Self {
        let (state, ingress) = (&peer.congestion, peer.ingress);
        Self {
            verdict: state.to_string(),
            leaving: state.is_leaving,
            queue_us: state.queue_us,
            full_us: state.queue.map(|queue| queue.full_us),
            link_loss_percent: state.queue.map(|queue| queue.below * 100.0),
            full_loss_percent: state.queue.map(|queue| queue.above * 100.0),
            left: ingress.left,
            marked: ingress.marked,
            path_marked: ingress.ecn.marked,
            path_dropped: ingress.ecn.dropped,
            path_odd: ingress.ecn.odd,
        }
    }
}
