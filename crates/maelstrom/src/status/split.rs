//! Split mode in the status.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::Counts;

/// Split mode: TCP connections that end at this gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SplitStatus {
    /// Reason why split mode does not work; null if it does.
    pub fault: Option<String>,
    /// Congestion control of the carriers.
    pub congestion: String,
    /// Connections with hosts of this site at present.
    pub connections: u64,
    /// Maximum number of connections; further ones go unsplit.
    pub connections_max: u64,
    /// The buffer for all connections.
    pub buffer_bytes: u64,
    /// Bytes of the buffer that far gateways may fill at present.
    pub promised_bytes: u64,
    /// Bytes that wait for hosts of this site.
    pub waiting_bytes: u64,
    /// Bytes that came from hosts of this site.
    pub bytes_from_hosts: u64,
    /// Bytes that hosts of this site took.
    pub bytes_to_hosts: u64,
    /// Connections and carriers so far, by what became of them.
    pub counters: Counts,
    /// The far sites.
    pub sites: Vec<FarSiteStatus>,
}

/// Split connections with one far site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FarSiteStatus {
    /// The peer, as in the log.
    pub peer: String,
    /// Where it takes carriers.
    pub carrier: SocketAddr,
    /// Whether new connections to the site are split.
    pub is_splitting: bool,
    /// Working carriers that this gateway dialed.
    pub carriers_out: u64,
    /// Working carriers that the far gateway dialed.
    pub carriers_in: u64,
    /// Connections at present.
    pub connections: u64,
    /// Shortest of the carriers' latest round-trip times in microseconds, queues included.
    pub rtt_us: Option<u64>,
}
