//! A tunnel in the status, and the paths that it takes.

use std::net::SocketAddr;

use maelstrom_core::{PathLoss, ResequenceCounts, ResequenceState};
use serde::{Deserialize, Serialize};

/// Packets that travel to a peer inside datagrams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TunnelStatus {
    /// Packets sent. Those without repairs count too.
    pub packets: u64,
    /// Datagrams that carry them. Small packets that wait at the same time share one.
    pub datagrams: u64,
    /// Bytes of these datagrams on the link, IP and UDP headers included.
    pub bytes: u64,
    /// `use` of several paths: `failover`, `duplicate` or `spread`; absent if there is one path.
    #[serde(rename = "use", default)]
    pub path_use: Option<String>,
    /// The paths in the order of the file, the first first; empty if there is one path.
    #[serde(default)]
    pub paths: Vec<TunnelPath>,
    /// Fate of its packets when the gateway fails: `closed` or `open`; absent if the gateway sets no routes.
    #[serde(default)]
    pub fail: Option<String>,
}

/// Packets of a tunnel that are held so that hosts get them in the order in which they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResequenceStatus {
    /// Longest wait for packets in front of one that came, in milliseconds.
    pub limit_ms: u64,
    /// Packets that are held at present.
    pub waiting: u64,
    /// Packets that were held.
    pub held: u64,
    /// Of these, packets handed on because the time was up.
    pub by_time: u64,
    /// Of these, packets handed on because there was no room for more.
    pub by_room: u64,
    /// Packets handed on after packets behind them.
    pub late: u64,
    /// Packets dropped, because there was no room, or because the session ended while they waited.
    pub dropped: u64,
}

impl From<ResequenceState> for ResequenceStatus {
    fn from(state: ResequenceState) -> Self {
        let ResequenceCounts { held, by_time, by_room, late, dropped } = state.counts;
        let (limit_ms, waiting) = (state.limit_us / 1_000, state.waiting as u64);
        Self { limit_ms, waiting, held, by_time, by_room, late, dropped }
    }
}

/// One of several paths to a peer, in the present session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunnelPath {
    /// Address of the peer on this path.
    pub address: SocketAddr,
    /// Whether it lives: datagrams pass in both directions.
    pub alive: bool,
    /// Whether packets take it at present.
    pub used: bool,
    /// Round-trip time on average, in microseconds.
    pub rtt_us: Option<u64>,
    /// Number of times that it has died.
    pub deaths: u64,
    /// Datagrams to the peer.
    pub sent: PathDirection,
    /// Datagrams from the peer. Those that arrived by another path first count too.
    pub received: PathDirection,
    /// Datagrams from the peer that had arrived by another path before.
    pub copies: u64,
}

/// One direction of a path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathDirection {
    /// Datagrams with packets.
    pub packets: u64,
    /// Datagrams with repairs.
    pub repairs: u64,
    /// All datagrams of the session.
    pub datagrams: u64,
    /// Their bytes on the link, IP and UDP headers included.
    pub bytes: u64,
    /// Bits per second, over the last second.
    pub bps: u64,
    /// Datagrams that did not arrive. They count once the next probe has shown that they do not come late.
    pub lost: u64,
    /// Share of the datagrams of the last seconds that did not arrive, in percent.
    pub loss_percent: f64,
}

impl PathDirection {
    fn of(traffic: &maelstrom_core::Traffic, bps: u64, loss: &PathLoss) -> Self {
        let maelstrom_core::Traffic { datagrams, bytes, packets, repairs } = *traffic;
        let loss_percent = 100.0 * loss.share();
        Self { packets, repairs, datagrams, bytes, bps, lost: loss.settled, loss_percent }
    }
}

impl TunnelStatus {
    /// The tunnel to a peer; `None` if packets travel beside the repairs.
    pub(super) fn of(peer: &maelstrom_core::PeerStatus<'_>) -> Option<Self> {
        let (config, egress) = (peer.config, peer.egress);
        let path = |(number, path): (usize, &maelstrom_core::PathStatus)| TunnelPath {
            address: config.path(number).map_or(config.address, |(_, address)| address),
            alive: path.is_alive,
            used: path.is_used,
            rtt_us: path.rtt_us,
            deaths: path.deaths,
            sent: PathDirection::of(&path.sent, path.sent_bps, &path.outgoing),
            received: PathDirection::of(&path.received, path.received_bps, &path.incoming),
            copies: path.copies,
        };
        config.is_tunnel.then(|| Self {
            packets: egress.tunnel_packets,
            datagrams: egress.tunnel_datagrams,
            bytes: egress.tunnel_bytes,
            path_use: (!peer.paths.is_empty()).then(|| config.path_use.word().to_owned()),
            paths: peer.paths.iter().enumerate().map(path).collect(),
            fail: None,
        })
    }
}
