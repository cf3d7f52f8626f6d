//! Classes of packets that the operator protects otherwise than the rest.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use fec::RepairRate;
use ipnet::IpNet;

use crate::counters::Unprotected;
use crate::packet::Packet;

/// Maximum number of classes.
pub const CLASSES_MAX: usize = 8;
/// Highest rate of a class.
pub const CLASS_RATE_MAX: RepairRate = RepairRate::constant(1, 1);

const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDPLITE: u8 = 136;

/// Protection of the packets of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protect {
    /// None: they get no repair.
    Off,
    /// That of all packets.
    #[default]
    Auto,
    /// At least this number of repairs for each packet, at most [`CLASS_RATE_MAX`]. Only a sliding window
    /// sends more repairs than its rate.
    AtLeast(RepairRate),
}

/// Conditions on a packet, all of which must hold. An empty one always does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Values of the DSCP.
    pub dscp: Vec<u8>,
    /// Ports, of which the source's or the destination's is one.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Protocol numbers.
    pub protocol: Vec<u8>,
    /// Networks, of which the source or the destination is in one.
    pub networks: Vec<IpNet>,
    /// Lengths of the packet in bytes.
    pub length: Option<RangeInclusive<u16>>,
}

/// A class of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Name in status and log.
    pub name: String,
    /// Its packets. A packet belongs to the first class that matches.
    pub matches: Match,
    /// Their protection.
    pub protect: Protect,
    /// Time after which a recovered packet of the class is of no use, in microseconds; `None` for the usual
    /// time. The rate that the gateway chooses follows the shortest of all packets, and the window the
    /// longest.
    pub late_us: Option<u64>,
}

/// Wishes of the class of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Care {
    /// The number of the class.
    pub(crate) class: Option<usize>,
    /// Repairs for each packet, at least.
    pub(crate) rate: Option<RepairRate>,
    /// Time after which the packet is of no use.
    pub(crate) late_us: Option<u64>,
}

/// Counts of the packets of a class that leave for a peer's site, and of those that are recovered here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Packets, protected or not.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that were protected.
    pub protected: u64,
    /// Repairs that left because of a packet of the class: those that it completed, those of the rate of the
    /// class, and those out of turn for its deadline. All of them contain packets of other classes too.
    pub repairs: u64,
    /// Packets of the class from a peer's site that were recovered, without those that could not be injected.
    pub recovered: u64,
}

impl Match {
    /// Whether the packet meets all conditions.
    pub fn contains(&self, packet: &Packet<'_>) -> bool {
        let bytes = packet.as_slice();
        let is_any = |networks: &[IpNet], ip: IpAddr| networks.iter().any(|network| network.contains(&ip));
        (self.dscp.is_empty() || self.dscp.contains(&(packet.mutable_fields().tos >> 2)))
            && (self.protocol.is_empty()
                || protocol(packet).is_some_and(|number| self.protocol.contains(&number)))
            && self
                .length
                .as_ref()
                .is_none_or(|range| u16::try_from(bytes.len()).is_ok_and(|length| range.contains(&length)))
            && (self.networks.is_empty()
                || is_any(&self.networks, packet.source())
                || is_any(&self.networks, packet.destination()))
            && (self.ports.is_empty()
                || ports(packet).is_some_and(|ports| {
                    ports.iter().any(|port| self.ports.iter().any(|range| range.contains(port)))
                }))
    }
}

/// The protocol of a packet, also of a fragment.
fn protocol(packet: &Packet<'_>) -> Option<u8> {
    let bytes = packet.as_slice();
    if bytes[0] >> 4 == 4 { Some(bytes[9]) } else { packet.protocol_v6() }
}

/// Source and destination port of a packet that has them.
fn ports(packet: &Packet<'_>) -> Option<[u16; 2]> {
    let (protocol, at) = packet.transport()?;
    let &[a, b, c, d] = packet.as_slice().get(at..at + 4)?.first_chunk()?;
    let has_ports = matches!(protocol, TCP | UDP | DCCP | SCTP | UDPLITE);
    has_ports.then_some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
}

/// The classes of a gateway, with their counts.
#[derive(Debug, Default)]
pub(crate) struct Classes(Vec<(Class, ClassCounts)>);

impl Classes {
    /// Changes the classes. Those that stay as they are keep their counts.
    pub(crate) fn reconfigure(&mut self, classes: &[Class]) {
        let old = std::mem::take(&mut self.0);
        let counts = |class: &Class| {
            old.iter().find(|(was, _)| was == class).map_or_else(ClassCounts::default, |old| old.1)
        };
        self.0 = classes.iter().map(|class| (class.clone(), counts(class))).collect();
    }

    /// Counts a packet that leaves; returns what its class asks for.
    ///
    /// # Errors
    /// If packets of its class get no repair.
    pub(crate) fn judge(&mut self, packet: &Packet<'_>) -> Result<Care, Unprotected> {
        let Some(index) = self.index_of(packet) else { return Ok(Care::default()) };
        let (class, counts) = &mut self.0[index];
        counts.packets += 1;
        counts.bytes += packet.as_slice().len() as u64;
        let rate = match class.protect {
            Protect::Off => return Err(Unprotected::Class),
            Protect::Auto => None,
            Protect::AtLeast(rate) => Some(rate),
        };
        Ok(Care { class: Some(index), rate, late_us: class.late_us })
    }

    /// Notes that a packet of this class was protected.
    pub(crate) fn on_protected(&mut self, care: &Care) {
        if let Some(index) = care.class {
            self.0[index].1.protected += 1;
        }
    }

    /// Notes that repairs left because of a packet of a class.
    pub(crate) fn on_repairs(&mut self, class: Option<usize>, repairs: u64) {
        if let Some((_, counts)) = class.and_then(|index| self.0.get_mut(index)) {
            counts.repairs += repairs;
        }
    }

    /// Counts a packet that was recovered; returns the number of its class.
    pub(crate) fn on_recovered(&mut self, packet: &[u8]) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        // Packets of a tunnel have any options.
        let packet = Packet::new_whole(packet).ok()?;
        let index = self.index_of(&packet)?;
        self.0[index].1.recovered += 1;
        Some(index)
    }

    /// Notes that a recovered packet of this class could not be injected.
    pub(crate) fn on_uninjected(&mut self, class: usize) {
        if let Some((_, counts)) = self.0.get_mut(class) {
            // A reload may have begun the count again.
            counts.recovered = counts.recovered.saturating_sub(1);
        }
    }

    fn index_of(&self, packet: &Packet<'_>) -> Option<usize> {
        self.0.iter().position(|(class, _)| class.matches.contains(packet))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Class, ClassCounts)> {
        self.0.iter().map(|(class, counts)| (class, *counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_of_a_class_if_all_conditions_hold() {
        let mut bytes = testkit::packet::udp4([10, 81, 1, 9].into(), [10, 81, 2, 9].into(), 0, 1, &[7; 100]);
        bytes[1] = 46 << 2;
        bytes[20..22].copy_from_slice(&5_060_u16.to_be_bytes());
        bytes[22..24].copy_from_slice(&7_u16.to_be_bytes());
        let packet = Packet::new_checked(&bytes).unwrap();
        let all = Match {
            dscp: vec![0, 46],
            ports: vec![5_000..=5_100],
            protocol: vec![UDP],
            networks: vec!["10.81.2.0/24".parse().unwrap()],
            length: Some(100..=200),
        };
        assert!(Match::default().contains(&packet) && all.contains(&packet));
        for other in [
            Match { dscp: vec![0], ..all.clone() },
            Match { ports: vec![1..=6, 8..=4_999], ..all.clone() },
            Match { protocol: vec![TCP], ..all.clone() },
            Match { networks: vec!["10.81.3.0/24".parse().unwrap()], ..all.clone() },
            Match { length: Some(0..=127), ..all.clone() },
        ] {
            assert!(!other.contains(&packet), "{other:?}");
        }
        assert!(Match { ports: vec![7..=7], ..all.clone() }.contains(&packet), "either port");
        // A later fragment has a protocol and no ports.
        bytes[7] = 1;
        let fragment = Packet::new_checked(&bytes).unwrap();
        assert!(!all.contains(&fragment) && Match { ports: Vec::new(), ..all }.contains(&fragment));
    }

    #[test]
    fn every_fragment_of_ipv6_has_the_protocol_of_its_datagram() {
        let of_udp = Match { protocol: vec![UDP], ..Match::default() };
        let whole =
            testkit::packet::udp6("fd00::1".parse().unwrap(), "fd00:1::1".parse().unwrap(), &[0; 100]);
        let fragment = |offset: u16, named: u8| {
            let mut bytes = whole.clone();
            // Fragment header: next header, reserved, offset and flags, identification.
            let [high, low] = (offset << 3 | 1).to_be_bytes();
            bytes.splice(40..40, [named, 0, high, low, 0, 0, 0, 9]);
            let length = (bytes.len() - 40) as u16;
            bytes[4..6].copy_from_slice(&length.to_be_bytes());
            bytes[6] = 44;
            bytes
        };
        for (offset, named, is_of_udp) in
            [(0, UDP, true), (100, UDP, true), (100, TCP, false), (100, 60, false)]
        {
            let bytes = fragment(offset, named);
            let packet = Packet::new_checked(&bytes).unwrap();
            assert_eq!(of_udp.contains(&packet), is_of_udp, "{offset}, {named}");
        }
        assert!(of_udp.contains(&Packet::new_checked(&whole).unwrap()));
    }
}
