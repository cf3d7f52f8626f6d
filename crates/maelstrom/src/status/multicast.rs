//! IP groups that cross tunnels, in the status.

use std::net::IpAddr;

use ipnet::IpNet;
use maelstrom_core::{MulticastConfig, MulticastCounts, Wanted};
use serde::{Deserialize, Serialize};

use super::{Counts, counts};
use crate::groups::GroupPort;

/// A section `[[multicast]]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MulticastStatus {
    /// Interface toward the hosts of this site.
    pub interface: String,
    /// Whether it can be used.
    pub open: bool,
    /// The groups.
    pub groups: Vec<IpNet>,
    /// Groups that this site wants from others: `members` or `all`.
    #[serde(default)]
    pub wanted: String,
    /// Groups with members on this LAN, at most 100 of them.
    #[serde(default)]
    pub members: Vec<IpAddr>,
    /// Number of groups with members on this LAN.
    #[serde(default)]
    pub member_groups: u64,
    /// Reports and questions about members that were read on this LAN.
    #[serde(default)]
    pub reports: u64,
    /// Reports of groups for which there was no room.
    #[serde(default)]
    pub refused_reports: u64,
    /// Packets of hosts of this site that went to a far site at least.
    pub forwarded: u64,
    /// Bytes of the forwarded packets.
    pub forwarded_bytes: u64,
    /// The same packets, counted once for each site.
    pub sent: u64,
    /// Packets of far sites for this LAN.
    pub received: u64,
    /// Bytes of the received packets.
    pub received_bytes: u64,
    /// Of these packets, those that the kernel did not send.
    pub unsent: u64,
    /// Packets of hosts of this site that the gateway was too late to read.
    pub unheard: u64,
    /// Packets that did not cross, by reason.
    pub dropped: Counts,
}

/// The groups that the site of a peer wants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WantedStatus {
    /// The peer, as in the log.
    pub peer: String,
    /// The groups, at most 100 of them.
    pub groups: Vec<IpNet>,
    /// Number of groups that it wants.
    pub count: u64,
    /// Groups that it asked for and that found no room.
    pub refused: u64,
}

impl MulticastStatus {
    pub(crate) fn of(
        (config, seen): (&MulticastConfig, MulticastCounts),
        (mut members, refused_reports): (Vec<IpAddr>, u64),
        interface: &str,
        port: Option<&GroupPort>,
    ) -> Self {
        let member_groups = members.len() as u64;
        members.truncate(WantedStatus::SHOWN_MAX);
        Self {
            wanted: if config.wanted == Wanted::All { "all" } else { "members" }.to_owned(),
            members,
            member_groups,
            reports: seen.reports,
            refused_reports,
            interface: interface.to_owned(),
            open: port.is_some_and(GroupPort::is_open),
            groups: config.groups.clone(),
            forwarded: seen.forwarded,
            forwarded_bytes: seen.forwarded_bytes,
            sent: seen.sent,
            received: seen.received,
            received_bytes: seen.received_bytes,
            unsent: port.map_or(0, GroupPort::unsent),
            unheard: port.map_or(0, GroupPort::unheard),
            dropped: counts(seen.dropped.iter()),
        }
    }
}

impl WantedStatus {
    /// Maximum number of groups that a status names.
    pub const SHOWN_MAX: usize = 100;

    pub(crate) fn of(peer: String, (mut groups, refused): (Vec<IpNet>, u64)) -> Self {
        let count = groups.len() as u64;
        groups.truncate(Self::SHOWN_MAX);
        Self { peer, groups, count, refused }
    }
}
