//! A tunnel in the status.

use serde::{Deserialize, Serialize};

/// Packets that travel to a peer inside datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelStatus {
    /// Packets sent. Those without repairs count too.
    pub packets: u64,
    /// Datagrams that carry them. Small packets that wait at the same time share one.
    pub datagrams: u64,
    /// Bytes of these datagrams on the link, IP and UDP headers included.
    pub bytes: u64,
}

impl TunnelStatus {
    /// The tunnel to a peer; `None` if packets travel beside the repairs.
    pub(super) fn of(peer: &maelstrom_core::PeerStatus<'_>) -> Option<Self> {
        let egress = peer.egress;
        peer.config.is_tunnel.then_some(Self {
            packets: egress.tunnel_packets,
            datagrams: egress.tunnel_datagrams,
            bytes: egress.tunnel_bytes,
        })
    }
}
