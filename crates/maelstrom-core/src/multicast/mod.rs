//! Multicast between sites (Maelstrom §4.8): which packets of IP groups cross the tunnels, and which enter
//! this site.
//!
//! A gateway hears the groups of its sections on its LAN. Each far gateway announces which groups its site
//! wants (`wants.rs`, `wire/wants.rs`), and gets their packets once, in its tunnel, however many hosts listen
//! there. It multicasts them on its own LAN.
//!
//! Nothing circulates. A packet is taken only at the site where its source is: on the LAN of any other site,
//! its source is in the networks of a peer. It crosses one tunnel, loses a hop of its time to live there, and
//! the far gateway does not hear what it has sent itself.

mod wants;

use std::net::IpAddr;

use ipnet::IpNet;

use crate::caps::BitRate;
use crate::counters::{Unforwarded, UnforwardedCounts};
use crate::packet::PACKET_BYTES_MAX;
use crate::prefixes::PrefixTable;
use crate::wire::Want;
pub(crate) use wants::FarWants;

/// Maximum number of sections of groups.
pub const SECTIONS_MAX: usize = 8;

/// Groups that cross the tunnels: a section of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastConfig {
    /// Networks of multicast addresses, disjoint from those of other sections.
    pub groups: Vec<IpNet>,
    /// Highest bit rate of their packets to the far sites, each counted once, and of those from them.
    pub bps_max: u64,
}

/// Counts of the packets of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MulticastCounts {
    /// Packets heard on the LAN that were sent to a far site at least.
    pub forwarded: u64,
    /// Their bytes.
    pub forwarded_bytes: u64,
    /// Packets sent to far sites: each of the above once for each site.
    pub sent: u64,
    /// Packets of far sites for the LAN.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets that did not cross, by reason.
    pub dropped: UnforwardedCounts,
}

/// A section with what crossed.
struct Section {
    config: MulticastConfig,
    outward: BitRate,
    inward: BitRate,
    counts: MulticastCounts,
}

/// The sections of a gateway.
#[derive(Default)]
pub(crate) struct Multicast {
    sections: Vec<Section>,
    table: PrefixTable<usize>,
    /// The groups that this site wants from the others.
    wants: Vec<Want>,
    /// A packet on its way into the tunnels.
    pub(crate) copy: Vec<u8>,
}

impl Section {
    fn new(config: MulticastConfig) -> Self {
        let [outward, inward] = [BitRate::new(config.bps_max), BitRate::new(config.bps_max)];
        Self { config, outward, inward, counts: MulticastCounts::default() }
    }
}

impl Multicast {
    /// Takes other sections. Those that stay keep their counts. Returns whether this site wants other groups.
    pub(crate) fn reconfigure(&mut self, configs: &[MulticastConfig]) -> bool {
        let mut old = std::mem::take(&mut self.sections);
        for config in configs {
            let at = old.iter().position(|section| section.config == *config);
            let section = at.map_or_else(|| Section::new(config.clone()), |at| old.swap_remove(at));
            self.sections.push(section);
        }
        self.table = table(configs);
        // One allocation, before packets flow.
        self.copy.reserve(if configs.is_empty() { 0 } else { PACKET_BYTES_MAX });
        let all = configs.iter().flat_map(|config| &config.groups);
        let wants: Vec<_> = all.map(|&groups| Want { groups, ends: false }).collect();
        let is_other = wants != self.wants;
        self.wants = wants;
        is_other
    }

    /// The groups that this site wants from the others.
    pub(crate) fn wants(&self) -> &[Want] {
        &self.wants
    }

    /// The section of a group.
    pub(crate) fn section_of(&self, group: IpAddr) -> Option<usize> {
        self.table.find(group).filter(|_| !is_of_link(group))
    }

    /// Notes that a packet is about to leave.
    ///
    /// # Errors
    /// [`Unforwarded::OverRate`].
    pub(crate) fn spend(&mut self, now_us: u64, section: usize, len: usize) -> Result<(), Unforwarded> {
        let Section { outward, counts, .. } = &mut self.sections[section];
        if !outward.take(now_us, len) {
            return Err(Unforwarded::OverRate);
        }
        counts.forwarded += 1;
        counts.forwarded_bytes += len as u64;
        Ok(())
    }

    /// Notes that a packet was sent to a number of far sites.
    pub(crate) fn on_sent(&mut self, section: usize, sites: u64) {
        self.sections[section].counts.sent += sites;
    }

    /// Notes that a packet of a far site is about to be multicast; returns whether it may be.
    pub(crate) fn admit(&mut self, now_us: u64, section: usize, len: usize) -> bool {
        let Section { inward, counts, .. } = &mut self.sections[section];
        if !inward.take(now_us, len) {
            counts.dropped.add(Unforwarded::OverRateHere);
            return false;
        }
        counts.received += 1;
        counts.received_bytes += len as u64;
        true
    }

    /// Counts a packet that does not cross.
    pub(crate) fn drop_packet(&mut self, section: usize, reason: Unforwarded) {
        if let Some(section) = self.sections.get_mut(section) {
            section.counts.dropped.add(reason);
        }
    }

    /// The sections, with what crossed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&MulticastConfig, MulticastCounts)> {
        self.sections.iter().map(|section| (&section.config, section.counts))
    }
}

/// Whether a group belongs to one link alone, so that no router passes it on (RFC 5771 §4, RFC 4291 §2.7).
pub fn is_of_link(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.octets()[..3] == [224, 0, 0],
        IpAddr::V6(group) => group.octets()[1] & 0x0f <= 2,
    }
}

/// The sections by their groups.
pub(crate) fn table(configs: &[MulticastConfig]) -> PrefixTable<usize> {
    let sections = configs.iter().enumerate();
    PrefixTable::new(
        sections.flat_map(|(index, config)| config.groups.iter().map(move |&groups| (groups, index))),
    )
}
