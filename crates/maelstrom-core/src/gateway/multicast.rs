//! Packets of IP groups, from this site to far ones and from there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Gateway;
use crate::counters::{Unforwarded, Unprotected};
use crate::multicast::{MulticastConfig, MulticastCounts};
use crate::outbox::Outbox;
use crate::packet::{MutableFields, Packet, restore};
use crate::peer::Peer;
use ipnet::IpNet;

impl Gateway {
    /// Takes a packet that was heard on the LAN of a section, by its number in the configuration, from its IP
    /// header on. It leaves with [`Gateway::flush_tunnels`] for each far site that wants its group.
    pub fn handle_group_packet(&mut self, now_us: u64, section: usize, packet: &[u8], out: &mut Outbox) {
        if let Err(reason) = self.forward(now_us, section, packet, out) {
            self.multicast.drop_packet(section, reason);
        }
    }

    fn forward(
        &mut self,
        now_us: u64,
        section: usize,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Result<(), Unforwarded> {
        let packet = Packet::new_whole(bytes).map_err(|_| Unforwarded::Malformed)?;
        if self.multicast.learn(now_us, section, &packet) {
            return Ok(());
        }
        let (group, fields) = (packet.destination(), packet.mutable_fields());
        if self.multicast.section_of(group) != Some(section) {
            return Err(Unforwarded::NoGroup);
        }
        // Its checksum would be made right.
        if !packet.is_intact() {
            return Err(Unforwarded::Malformed);
        }
        if self.sites.find(packet.source()).is_some() {
            return Err(Unforwarded::OfFarSite);
        }
        if fields.ttl <= 1 {
            return Err(Unforwarded::Expiring);
        }
        let (mut is_wanted, mut is_taken) = (false, false);
        for peer in self.peers.iter_mut().filter(|peer| peer.wants_group(now_us, group)) {
            is_wanted = true;
            is_taken |= peer.takes_source(now_us, packet.source());
        }
        if !is_wanted {
            return Err(Unforwarded::Unwanted);
        }
        // Packets that no site takes must not use up the rate of others.
        if !is_taken {
            return Err(Unforwarded::ForeignSource);
        }
        self.multicast.spend(now_us, section, packet.as_slice().len())?;
        let mut copy = std::mem::take(&mut self.multicast.copy);
        copy.clear();
        copy.extend_from_slice(packet.as_slice());
        restore(&mut copy, MutableFields { ttl: fields.ttl - 1, ..fields });
        let routed = Packet::new_whole(&copy).expect("a packet with another time to live is one");
        let sites = self.send_to_group(now_us, &routed, out);
        self.multicast.copy = copy;
        self.multicast.on_sent(section, sites);
        Ok(())
    }

    /// Sends a packet to each far site that wants its group and watches its source; returns their number.
    fn send_to_group(&mut self, now_us: u64, packet: &Packet<'_>, out: &mut Outbox) -> u64 {
        let care = match self.classes.judge(packet) {
            Err(Unprotected::Class) => None,
            Err(reason) => {
                self.refused.add(reason);
                return 0;
            }
            Ok(care) => Some(care),
        };
        let mut sites = 0;
        let (group, source) = (packet.destination(), packet.source());
        let is_for = |peer: &mut Peer| peer.wants_group(now_us, group) && peer.takes_source(now_us, source);
        for peer in self.peers.iter_mut().filter_map(|peer| is_for(peer).then_some(peer)) {
            let repairs = peer.egress.repairs_begun();
            if let Err(reason) = peer.handle_tunnelled(now_us, packet, care, out) {
                self.refused.add(reason);
                continue;
            }
            sites += 1;
            if let Some(care) = &care {
                self.classes.on_protected(care);
                self.classes.on_repairs(care.class, peer.egress.repairs_begun().saturating_sub(repairs));
            }
        }
        sites
    }

    /// Returns the number of the section on whose LAN the driver multicasts a packet of the [`Outbox`];
    /// `None` if it must not be, because it is of no group, or too much of it comes.
    pub fn admit_to_group(&mut self, now_us: u64, packet: &[u8]) -> Option<usize> {
        let packet = Packet::new_whole(packet).ok()?;
        let section = self.multicast.section_of(packet.destination())?;
        self.multicast.admit(now_us, section, packet.as_slice().len()).then_some(section)
    }

    /// Tells far sites which groups this one wants, where that is due. When the outbox is nearly full, the
    /// rest stays due: an announcement may take dozens of datagrams.
    pub(super) fn announce_groups(&mut self, now_us: u64, out: &mut Outbox) {
        if self.multicast.update(now_us) {
            self.peers.iter_mut().for_each(|peer| peer.groups.on_change());
        }
        for peer in self.peers.iter_mut().filter(|peer| peer.config.is_tunnel) {
            if out.is_nearly_full() {
                break;
            }
            peer.announce_groups(now_us, self.multicast.wants(), out);
        }
    }

    /// Takes the addresses of this gateway on the LAN of a section, from which it asks who is in which group.
    pub fn set_lan_addresses(&mut self, section: usize, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) {
        self.multicast.set_own(section, true, v4.map(IpAddr::from));
        self.multicast.set_own(section, false, v6.map(IpAddr::from));
    }

    /// Returns a packet that is due on the LAN of a section, if there is one: a question about members, or an
    /// advertisement for switches.
    pub fn poll_group_message(&mut self, now_us: u64, section: usize) -> Option<Vec<u8>> {
        self.multicast.poll_message(now_us, section)
    }

    /// The groups with members on the LAN of a section, and the number of reports for which there was no
    /// room.
    pub fn group_members(&self, section: usize) -> (Vec<IpAddr>, u64) {
        self.multicast.members(section)
    }

    /// The sections of groups, in the order of the configuration.
    pub fn multicast(&self) -> impl Iterator<Item = (&MulticastConfig, MulticastCounts)> {
        self.multicast.iter()
    }

    /// The groups that the site of a peer wants, given by its number in the configuration, and the number of
    /// those for which there was no room.
    pub fn groups_wanted_by(&self, peer: usize) -> (Vec<IpNet>, u64) {
        let wants = &self.peers[peer].groups;
        (wants.iter().collect(), wants.refused())
    }
}
