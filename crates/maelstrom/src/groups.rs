//! The IP groups that cross tunnels: heard on a LAN of this site, and multicast there.
//!
//! The packets pass by packet sockets on the LAN ([`Lan`]), beside the kernel's routing and its firewall. A
//! LAN that is missing is tried again four times a second, and the gateway works on without it.

use std::io;

use ipnet::IpNet;
use maelstrom_core::{Gateway, Wanted};
use netio::lan::Lan;
use netio::poll::{Interest, Poller};
use netio::segment;
use tracing::{debug, info, warn};

use crate::config::{GatewayConfig, MulticastSection};
use crate::engine::Engine;
use crate::passive::{GROUPS, Passive, clock_us};
use crate::ports::Outlets;

/// Interval between checks whether the interfaces are the same.
const CHECK_US: u64 = 250_000;
/// Maximum number of packets and super-packets that are read from a LAN in one round.
const CAPTURES_MAX: usize = 64;

/// The LAN of a section.
pub(crate) struct GroupPort {
    interface: String,
    groups: Vec<IpNet>,
    /// Whether members on the LAN decide what this site wants.
    hears_members: bool,
    /// `None` while the interface is missing.
    lan: Option<Lan>,
    /// Packets that the kernel did not send.
    unsent: u64,
    /// Packets that closed LANs have not shown.
    unheard_before: u64,
    /// Whether the operator knows that the interface cannot be used.
    is_told: bool,
}

impl GroupPort {
    /// The port of a section, which [`Passive::follow_groups`] opens.
    fn new(section: &MulticastSection) -> Self {
        Self {
            interface: section.interface.clone(),
            groups: section.groups.clone(),
            hears_members: section.wanted == Wanted::Members,
            lan: None,
            unsent: 0,
            unheard_before: 0,
            is_told: false,
        }
    }

    fn is_of(&self, section: &MulticastSection) -> bool {
        let hears_members = section.wanted == Wanted::Members;
        let own = (&self.interface, &self.groups, self.hears_members);
        own == (&section.interface, &section.groups, hears_members)
    }

    /// Multicasts a packet on the LAN.
    fn send(&mut self, packet: &[u8]) {
        let sent = self.lan.as_ref().map(|lan| lan.send(packet));
        self.unsent += u64::from(!matches!(sent, Some(Ok(()))));
    }

    /// Opens the LAN if it is missing, or again if its interface has been replaced.
    fn follow(&mut self, poller: &Poller) {
        if self.lan.as_ref().is_some_and(Lan::is_alive) {
            return;
        }
        let name = &self.interface;
        if let Some(lan) = self.lan.take() {
            self.unheard_before += lan.dropped();
            warn!("lost the interface {name}: no group crosses there until it is back");
        }
        let opened = Lan::open(name, &self.groups, self.hears_members)
            .and_then(|lan| poller.add(&lan, GROUPS, Interest::Readable).map(|()| lan));
        match opened {
            Ok(lan) => {
                info!("hears groups on {name}");
                self.lan = Some(lan);
                self.is_told = false;
            }
            Err(error) if !self.is_told => {
                warn!("no group crosses at {name}: {error}; the gateway tries again and again");
                self.is_told = true;
            }
            Err(error) => debug!(%error, "cannot open the LAN yet"),
        }
    }

    /// Whether the interface can be used.
    pub(crate) fn is_open(&self) -> bool {
        self.lan.is_some()
    }

    /// Number of packets that the kernel did not send.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Number of packets that were not read in time.
    pub(crate) fn unheard(&self) -> u64 {
        self.unheard_before + self.lan.as_ref().map_or(0, Lan::dropped)
    }
}

/// The ports of all sections, in their order. Those of `present` that fit stay open. Each of the others
/// leaves its counts to a section of its interface.
pub(crate) fn ports(mut present: Vec<GroupPort>, config: &GatewayConfig) -> Vec<GroupPort> {
    let mut take = |is_it: &dyn Fn(&GroupPort) -> bool| {
        let at = present.iter().position(is_it)?;
        Some(present.remove(at))
    };
    let sections = || config.multicast.iter();
    let kept: Vec<_> = sections().map(|section| take(&|port: &GroupPort| port.is_of(section))).collect();
    let open = |(section, kept): (&MulticastSection, Option<GroupPort>)| {
        kept.unwrap_or_else(|| {
            let former = take(&|port: &GroupPort| port.interface == section.interface);
            let (unsent, unheard_before) = former.map_or((0, 0), |former| (former.unsent, former.unheard()));
            GroupPort { unsent, unheard_before, ..GroupPort::new(section) }
        })
    };
    sections().zip(kept).map(open).collect()
}

/// Adds the open ports to a new set of what wakes the loop.
pub(crate) fn watch(ports: &[GroupPort], poller: &Poller) {
    for lan in ports.iter().filter_map(|port| port.lan.as_ref()) {
        if let Err(error) = poller.add(lan, GROUPS, Interest::Readable) {
            warn!("groups are heard late: {error}");
        }
    }
}

/// Whether a packet of a tunnel goes to an IP group.
pub(crate) fn is_to_group(packet: &[u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(16).is_some_and(|first| (224..240).contains(first)),
        Some(6) => packet.get(24) == Some(&0xff),
        _ => false,
    }
}

/// Multicasts a packet of a far site on the LAN of its group, if it has one.
pub(crate) fn hand_out(ports: &mut [GroupPort], gateway: &mut Gateway, packet: &[u8]) {
    if let Some(section) = gateway.admit_to_group(clock_us(), packet)
        && let Some(port) = ports.get_mut(section)
    {
        port.send(packet);
    }
}

impl Engine {
    /// Reads packets of groups that other hosts of this site have sent, and sends them to the far sites that
    /// want them. Returns whether more may wait.
    pub(crate) fn drain_groups(&mut self, outlets: &mut Outlets) -> bool {
        let (mut more, mut heard) = (false, false);
        // Their packets leave behind those of the tunnel's device.
        self.leaving_us = self.leaving_us.max(self.now_us);
        if !self.out.recovered.is_empty() {
            // They may be for a LAN that is about to be read.
            self.flush(outlets);
        }
        for section in 0..outlets.groups.len() {
            let Some(mut lan) = outlets.groups[section].lan.take() else { continue };
            let drained = self.drain_group(section, &mut lan, outlets);
            outlets.groups[section].lan = Some(lan);
            match drained {
                Ok((here, count)) => {
                    more |= here;
                    heard |= count > 0;
                }
                // The interface is checked regularly.
                Err(error) => debug!(%error, "cannot read groups"),
            }
            self.flush_tunnels(outlets);
            if self.out.is_nearly_full() {
                self.flush(outlets);
            }
        }
        if heard {
            self.flush(outlets);
            self.speak_to_members(outlets);
        }
        more
    }

    /// Sends what is due to the hosts of each LAN: questions about members, and advertisements for switches.
    fn speak_to_members(&mut self, outlets: &mut Outlets) {
        for (section, port) in outlets.groups.iter_mut().enumerate().filter(|(_, port)| port.is_open()) {
            while let Some(packet) = self.gateway.poll_group_message(self.now_us, section) {
                port.send(&packet);
            }
        }
    }

    fn drain_group(
        &mut self,
        section: usize,
        lan: &mut Lan,
        outlets: &mut Outlets,
    ) -> io::Result<(bool, usize)> {
        let mut scratch = std::mem::take(&mut self.group_scratch);
        scratch.resize(1 << 16, 0);
        let drained = lan.drain(CAPTURES_MAX, |captured| {
            if captured.is_of_vlan() {
                return;
            }
            let cut = segment::cut(captured.packet, &captured.offload, &mut scratch, |packet| {
                self.hear(section, packet);
                // One packet becomes a datagram for each site.
                if self.out.is_nearly_full() {
                    self.flush(outlets);
                }
            });
            self.counts.uncut_outgoing += u64::from(cut.is_err());
        });
        self.group_scratch = scratch;
        let drained = drained?;
        Ok((drained.more, drained.packets))
    }

    /// Passes a packet that was heard on the LAN of a section to the core.
    fn hear(&mut self, section: usize, packet: &[u8]) {
        let count = |gateway: &Gateway| gateway.multicast().nth(section).map(|(_, counts)| counts);
        let before = if self.capturing.is_active() { count(&self.gateway) } else { None };
        self.gateway.handle_group_packet(self.leaving_us, section, packet, &mut self.out);
        if let Some(before) = before
            && let Some(after) = count(&self.gateway)
        {
            self.capturing.on_heard(self.leaving_us, packet, &before, &after);
        }
    }
}

impl Passive {
    /// Step 3 of the loop, for groups: sends what other hosts of this site have multicast.
    pub(crate) fn drain_groups(&mut self) {
        // Another process sends while this one is silent.
        if !self.ports.outlets.groups.is_empty() && !self.ports.outlets.is_silent {
            self.fills_tunnel |= self.engine.drain_groups(&mut self.ports.outlets);
        }
    }

    /// Follows the interfaces of groups, which come and go.
    pub(crate) fn follow_groups(&mut self) {
        let now_us = self.engine.now_us;
        if now_us < self.next_group_check_us || self.ports.outlets.is_silent {
            return;
        }
        self.next_group_check_us = now_us + CHECK_US;
        for (section, port) in self.ports.outlets.groups.iter_mut().enumerate() {
            port.follow(&self.poller);
            if let Some(lan) = port.lan.as_ref().filter(|_| port.hears_members) {
                let (v4, v6) = lan.addresses();
                self.engine.gateway.set_lan_addresses(section, v4, v6);
            }
        }
        self.engine.speak_to_members(&mut self.ports.outlets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::configuration;

    #[test]
    fn packets_to_groups_are_told_from_others() {
        let v4 = |first: u8| is_to_group(&[&[0x45][..], &[0; 15], &[first, 1, 1, 1]].concat());
        assert_eq!([223, 224, 239, 240].map(v4), [false, true, true, false]);
        let v6 = |first: u8| is_to_group(&[&[0x60][..], &[0; 23], &[first], &[1; 15]].concat());
        assert_eq!([0xfe, 0xff].map(v6), [false, true]);
        assert!(!is_to_group(&[]) && !is_to_group(&[0x45; 16]) && !is_to_group(&[0x60; 24]));
    }

    /// A gateway with these sections: an interface and a group each.
    fn config(sections: &[(&str, &str)]) -> GatewayConfig {
        let mut text = "[gateway]\nwan = 'w'\nlisten = '10.0.0.1:1'\nmode = 'tunnel'\n[[peer]]\n\
                        address = '10.0.0.2:1'\nnetworks = ['10.2.0.0/16']\nkey_file = 'peer.key'\n"
            .to_owned();
        for (interface, group) in sections {
            text += &format!("[[multicast]]\ninterface = '{interface}'\ngroups = ['{group}']\n");
        }
        configuration(&text)
    }

    #[test]
    fn a_section_with_other_groups_goes_on_with_the_counts_of_its_interface() {
        let before = config(&[("lan0", "239.1.0.0/16"), ("lan1", "239.2.0.0/16"), ("lan2", "239.3.0.0/16")]);
        let mut present = ports(Vec::new(), &before);
        for (port, count) in present.iter_mut().zip(1..) {
            (port.unsent, port.unheard_before) = (count, 10 * count);
        }
        let after = config(&[("lan3", "239.3.0.0/16"), ("lan1", "239.9.0.0/16"), ("lan0", "239.1.0.0/16")]);
        let counts = |port: &GroupPort| (port.interface.clone(), port.unsent(), port.unheard());
        let counts: Vec<_> = ports(present, &after).iter().map(counts).collect();
        let expected = [("lan3", 0, 0), ("lan1", 2, 20), ("lan0", 1, 10)];
        assert_eq!(counts, expected.map(|(name, unsent, unheard)| (name.to_owned(), unsent, unheard)));
    }
}
