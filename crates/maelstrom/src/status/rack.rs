//! The rack in the status of a gateway.

use std::net::SocketAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::Counts;

/// The rack of a gateway from its own point of view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RackStatus {
    /// Name of this gateway among the members.
    pub member: String,
    /// The members, in the order of the configuration.
    pub members: Vec<MemberStatus>,
    /// The parts of the traffic.
    pub parts: Vec<PartStatus>,
    /// Datagrams on the LAN that counted for nothing, by reason.
    pub unheeded: Counts,
    /// Heartbeats that could not be sent.
    pub unsent: u64,
}

/// A gateway of the rack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Its address for heartbeats.
    pub address: SocketAddr,
    /// Whether it is heard; this gateway is.
    pub present: bool,
    /// Whether its file has other members or parts, so that it does not count.
    pub differs: bool,
    /// Milliseconds since it was heard; null if it is gone, and for this gateway.
    pub last_heard_ms: Option<u64>,
}

/// A part of the traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartStatus {
    /// Its name: that of the member that has it by the file, or its network.
    pub name: String,
    /// Its networks.
    pub networks: Vec<IpNet>,
    /// The members in the order in which they take it.
    pub members: Vec<String>,
    /// Whether this gateway has taken it.
    pub held: bool,
    /// Members that protect it at present, as far as this gateway knows: one, two while it changes hands, or
    /// none.
    pub protected_by: Vec<String>,
}

impl RackStatus {
    /// Names of the parts that nobody protects.
    pub fn unprotected(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter(|part| part.protected_by.is_empty()).map(|part| part.name.as_str())
    }
}
