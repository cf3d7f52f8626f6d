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

mod ask;
mod members;
mod question;
pub mod reports;
mod wants;

use std::net::IpAddr;

use ipnet::IpNet;

use crate::caps::BitRate;
use crate::counters::{Unforwarded, UnforwardedCounts};
use crate::packet::{PACKET_BYTES_MAX, Packet};
use crate::prefixes::PrefixTable;
use crate::wire::Want;
use members::Members;
pub(crate) use wants::FarWants;

/// Maximum number of sections of groups.
pub const SECTIONS_MAX: usize = 8;

/// Interval between looks at what this site wants.
const LOOK_US: u64 = 100_000;
/// Time for which far sites are told that a group is not wanted any more.
const ENDED_US: u64 = 12_000_000;
/// Maximum number of entries of an announcement. A site that wants more gets the first ones.
const WANTS_MAX: usize = 4_096;

/// Groups that cross the tunnels: a section of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastConfig {
    /// Name of the LAN at which they are heard. Another one has other members.
    pub lan: String,
    /// Networks of multicast addresses, disjoint from those of other sections.
    pub groups: Vec<IpNet>,
    /// Which of them this site wants from others.
    pub wanted: Wanted,
    /// Highest bit rate of their packets to the far sites, each counted once, and of those from them.
    pub bps_max: u64,
}

/// Groups of a section that a site wants from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Those with members on the LAN.
    #[default]
    Members,
    /// All of them.
    All,
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
    /// Reports and questions about members that were read on the LAN.
    pub reports: u64,
    /// Packets that did not cross, by reason.
    pub dropped: UnforwardedCounts,
}

/// A section with what crossed.
struct Section {
    config: MulticastConfig,
    outward: BitRate,
    inward: BitRate,
    counts: MulticastCounts,
    members: Members,
}

/// The sections of a gateway.
#[derive(Default)]
pub(crate) struct Multicast {
    sections: Vec<Section>,
    table: PrefixTable<usize>,
    /// The groups that this site wants from the others.
    wants: Vec<Want>,
    /// Time until which the far sites are told what is not wanted any more.
    ended_until_us: u64,
    /// Time of the next look at members.
    next_look_us: u64,
    /// A packet on its way into the tunnels.
    pub(crate) copy: Vec<u8>,
}

impl Section {
    fn new(config: MulticastConfig) -> Self {
        let [outward, inward] = [BitRate::new(config.bps_max), BitRate::new(config.bps_max)];
        Self { config, outward, inward, counts: MulticastCounts::default(), members: Members::default() }
    }

    /// The section by another configuration, with its counts, and with its members if it has the same LAN.
    fn reconfigured(self, config: MulticastConfig) -> Self {
        let members = if config.lan == self.config.lan { self.members } else { Members::default() };
        if config.bps_max == self.config.bps_max {
            return Self { config, members, ..self };
        }
        Self { counts: self.counts, members, ..Self::new(config) }
    }
}

impl Multicast {
    /// Takes other sections. Those that stay keep their counts and members, also with another rate, or with
    /// other groups beside some of the same. On another LAN they keep their counts alone.
    pub(crate) fn reconfigure(&mut self, configs: &[MulticastConfig]) {
        let mut old: Vec<_> = std::mem::take(&mut self.sections).into_iter().map(Some).collect();
        let same = |old: &MulticastConfig, new: &MulticastConfig| {
            (&old.groups, old.wanted) == (&new.groups, new.wanted)
        };
        let similar = |old: &MulticastConfig, new: &MulticastConfig| {
            old.wanted == new.wanted && old.groups.iter().any(|one| new.groups.contains(one))
        };
        let mut found: Vec<Option<Section>> = configs.iter().map(|_| None).collect();
        for is_it in [same, similar] {
            for (config, found) in configs.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
                let it = |section: &&mut Option<Section>| {
                    section.as_ref().is_some_and(|section| is_it(&section.config, config))
                };
                *found = old.iter_mut().find(it).and_then(Option::take);
            }
        }
        let sections = configs.iter().zip(found);
        self.sections = sections
            .map(|(config, found)| match found {
                Some(section) => section.reconfigured(config.clone()),
                None => Section::new(config.clone()),
            })
            .collect();
        self.table = table(configs);
        // One allocation, before packets flow.
        self.copy.reserve(if configs.is_empty() { 0 } else { PACKET_BYTES_MAX });
        self.next_look_us = 0;
    }

    /// Brings the groups that this site wants up to date; returns whether it has changed.
    pub(crate) fn update(&mut self, now_us: u64) -> bool {
        if now_us < self.next_look_us {
            return false;
        }
        self.next_look_us = now_us + LOOK_US;
        let mut wanted = Vec::new();
        for (index, section) in self.sections.iter_mut().enumerate() {
            section.members.update(now_us);
            match section.config.wanted {
                Wanted::All => wanted.extend_from_slice(&section.config.groups),
                Wanted::Members => {
                    // A section may have had more groups.
                    let ours = section.members.iter().filter(|group| self.table.find(*group) == Some(index));
                    wanted.extend(ours.map(IpNet::from));
                }
            }
        }
        // Hosts may join thousands of groups.
        wanted.sort_unstable();
        wanted.truncate(WANTS_MAX);
        if now_us >= self.ended_until_us {
            self.wants.retain(|want| !want.ends);
        }
        let present = self.wants.iter().filter(|want| !want.ends).map(|want| want.groups);
        if present.eq(wanted.iter().copied()) {
            return false;
        }
        // Those that ended before are said again with this.
        let is_over = |want: &Want| wanted.binary_search(&want.groups).is_err();
        let ended: Vec<_> = self.wants.iter().filter(|want| is_over(want)).map(|want| want.groups).collect();
        let all = wanted.iter().map(|&groups| Want { groups, ends: false });
        self.wants = all.chain(ended.into_iter().map(|groups| Want { groups, ends: true })).collect();
        self.wants.truncate(WANTS_MAX);
        self.ended_until_us = now_us + ENDED_US;
        true
    }

    /// Takes what a packet says about members of groups on the LAN of a section; returns whether nothing else
    /// is left to do with it.
    pub(crate) fn learn(&mut self, now_us: u64, section: usize, packet: &Packet<'_>) -> bool {
        let Self { sections, table, .. } = self;
        let Some(Section { config, members, counts, .. }) = sections.get_mut(section) else { return false };
        if config.wanted != Wanted::Members {
            return false;
        }
        let is_ours = |group: IpAddr| !is_of_link(group) && table.find(group) == Some(section);
        let is_read = reports::read(packet, &mut |said| members.take(now_us, said, is_ours));
        counts.reports += u64::from(is_read);
        // Nothing else to a group of the link crosses.
        is_read || is_of_link(packet.destination())
    }

    /// Takes an address of this gateway on the LAN of a section, of one version of IP.
    pub(crate) fn set_own(&mut self, section: usize, is_v4: bool, own: Option<IpAddr>) {
        if let Some(section) = self.sections.get_mut(section) {
            section.members.set_own(is_v4, own);
        }
    }

    /// Returns a packet that is due on the LAN of a section.
    pub(crate) fn poll_message(&mut self, now_us: u64, section: usize) -> Option<Vec<u8>> {
        let section = self.sections.get_mut(section)?;
        (section.config.wanted == Wanted::Members).then(|| section.members.poll_message(now_us))?
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

    /// The groups with members on the LAN of a section, and the number of reports for which there was no
    /// room.
    pub(crate) fn members(&self, section: usize) -> (Vec<IpAddr>, u64) {
        self.sections
            .get(section)
            .map_or((Vec::new(), 0), |section| (section.members.iter().collect(), section.members.refused()))
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
