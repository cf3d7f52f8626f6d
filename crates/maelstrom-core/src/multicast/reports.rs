//! Messages between hosts and routers of a LAN about IP groups: IGMP (RFC 1112, 2236, 3376) and MLD (RFC
//! 2710, 3810).
//!
//! Lists of sources are read over: whoever wants a group of some sources gets all of it, and the hosts'
//! kernels choose.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foundation::bytes::{ReadError, Reader};

pub use super::question::Question;
use crate::packet::Packet;

pub(super) const IGMP: u8 = 2;
pub(super) const ICMP_V6: u8 = 58;

pub(super) const IGMP_QUERY: u8 = 0x11;
const IGMP_V1_REPORT: u8 = 0x12;
const IGMP_V2_REPORT: u8 = 0x16;
const IGMP_LEAVE: u8 = 0x17;
const IGMP_V3_REPORT: u8 = 0x22;

pub(super) const MLD_QUERY: u8 = 130;
const MLD_V1_REPORT: u8 = 131;
const MLD_DONE: u8 = 132;
const MLD_V2_REPORT: u8 = 143;

/// A statement of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// A host is in a group.
    Joins(IpAddr),
    /// A host has left a group; others may be in it.
    Leaves(IpAddr),
    /// A router asks for the members of groups.
    Asks(Question),
}

/// Passes what a packet says about groups to `said`; returns whether it is such a message, whole and intact.
/// Messages that came from beyond the LAN are none.
pub fn read(packet: &Packet<'_>, said: &mut dyn FnMut(Said)) -> bool {
    // RFC 3376 §4, RFC 3810 §5: no router passes them on.
    if packet.mutable_fields().ttl != 1 || !packet.is_intact() {
        return false;
    }
    let Some((protocol, at)) = packet.transport() else { return false };
    let Some(message) = packet.as_slice().get(at..) else { return false };
    let is_right = match (protocol, packet.source(), packet.destination()) {
        (IGMP, IpAddr::V4(_), _) => checksum(0, message) == 0,
        (ICMP_V6, IpAddr::V6(source), IpAddr::V6(to)) => checksum(pseudo(source, to, message), message) == 0,
        _ => false,
    };
    is_right && read_message(packet.source(), message, said)
}

/// The same for a message with a right checksum, IGMP or MLD by its source.
pub fn read_message(source: IpAddr, message: &[u8], said: &mut dyn FnMut(Said)) -> bool {
    let is_read = match source {
        IpAddr::V4(source) => read_igmp(source, message, said),
        // Hosts and routers of a LAN have addresses of it (RFC 3810 §5.1.14, §5.2.13).
        IpAddr::V6(source) if source.is_unicast_link_local() => read_mld(source, message, said),
        IpAddr::V6(_) => Ok(false),
    };
    is_read.is_ok_and(|is_known| is_known)
}

fn read_igmp(source: Ipv4Addr, message: &[u8], said: &mut dyn FnMut(Said)) -> Result<bool, ReadError> {
    let mut reader = Reader(message);
    let [kind, code, _, _] = reader.array()?;
    if kind == IGMP_V3_REPORT {
        let _reserved = reader.u16()?;
        let count = reader.u16()?;
        let group = |reader: &mut Reader<'_>| reader.array::<4>().map(|bytes| Ipv4Addr::from(bytes).into());
        return read_records(reader, count, 4, group, said);
    }
    let group = Ipv4Addr::from(reader.array::<4>()?);
    match kind {
        IGMP_QUERY => said(Said::Asks(Question::read_igmp(source, code, group, &mut reader))),
        IGMP_V1_REPORT | IGMP_V2_REPORT if group.is_multicast() => said(Said::Joins(group.into())),
        IGMP_LEAVE if group.is_multicast() => said(Said::Leaves(group.into())),
        _ => return Ok(false),
    }
    Ok(true)
}

fn read_mld(source: Ipv6Addr, message: &[u8], said: &mut dyn FnMut(Said)) -> Result<bool, ReadError> {
    let mut reader = Reader(message);
    let [kind, _code, _, _] = reader.array()?;
    let answer_or_reserved = reader.u16()?;
    let count = reader.u16()?;
    if kind == MLD_V2_REPORT {
        let group = |reader: &mut Reader<'_>| reader.array::<16>().map(|bytes| Ipv6Addr::from(bytes).into());
        return read_records(reader, count, 16, group, said);
    }
    let group = Ipv6Addr::from(reader.array::<16>()?);
    match kind {
        MLD_QUERY => said(Said::Asks(Question::read_mld(source, answer_or_reserved, group, &mut reader))),
        MLD_V1_REPORT if group.is_multicast() => said(Said::Joins(group.into())),
        MLD_DONE if group.is_multicast() => said(Said::Leaves(group.into())),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Reads the records of a report (RFC 3376 §4.2.4, RFC 3810 §5.2.5), with sources of `address` bytes each. A
/// report that is cut short counts as far as it goes.
fn read_records(
    mut reader: Reader<'_>,
    count: u16,
    address: usize,
    group: impl Fn(&mut Reader<'_>) -> Result<IpAddr, ReadError>,
    said: &mut dyn FnMut(Said),
) -> Result<bool, ReadError> {
    for _ in 0..count {
        let [kind, words, high, low] = reader.array()?;
        let sources = u16::from_be_bytes([high, low]);
        let group = group(&mut reader)?;
        reader.take(usize::from(sources) * address + usize::from(words) * 4)?;
        if !group.is_multicast() {
            continue;
        }
        match (kind, sources) {
            // The group but for some sources; some sources; some sources more.
            (2 | 4, _) | (1 | 3 | 5, 1..) => said(Said::Joins(group)),
            (3, 0) => said(Said::Leaves(group)),
            _ => {}
        }
    }
    Ok(true)
}

/// Computes the checksum of RFC 1071 over bytes whose checksum field is zero, behind the sum of a
/// pseudo-header. Over bytes with the right checksum, it is 0.
pub(super) fn checksum(pseudo: u32, bytes: &[u8]) -> u16 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    // 65,575 bytes have a sum of 31 bits.
    let mut sum = pseudo + pairs.iter().map(|&pair| u32::from(u16::from_be_bytes(pair))).sum::<u32>();
    sum += rest.first().map_or(0, |&last| u32::from(last) << 8);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The sum of the pseudo-header of an ICMPv6 message (RFC 8200 §8.1).
pub(super) fn pseudo(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u32 {
    let words = source.segments().into_iter().chain(destination.segments());
    words.map(u32::from).sum::<u32>() + message.len() as u32 + u32::from(ICMP_V6)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::ask::{packet_v4, packet_v6};
    use super::*;

    fn igmp(source: [u8; 4], group: [u8; 4], message: &[u8]) -> Vec<u8> {
        packet_v4(source.into(), group.into(), message)
    }

    fn mld(source: &str, group: &str, message: &[u8]) -> Vec<u8> {
        packet_v6(source.parse().unwrap(), group.parse().unwrap(), message)
    }

    fn said(packet: &[u8]) -> Option<Vec<Said>> {
        let mut all = Vec::new();
        let packet = Packet::new_whole(packet).unwrap();
        read(&packet, &mut |said| all.push(said)).then_some(all)
    }

    /// A record of a report: kind, sources, bytes behind them, group.
    fn record4(kind: u8, sources: u8, words: u8, group: [u8; 4]) -> Vec<u8> {
        let head = [kind, words, 0, sources];
        [&head[..], &group, &vec![7; usize::from(sources) * 4 + usize::from(words) * 4]].concat()
    }

    fn report4(records: &[Vec<u8>]) -> Vec<u8> {
        [&[IGMP_V3_REPORT, 0, 0, 0, 0, 0, 0, records.len() as u8][..], &records.concat()].concat()
    }

    #[test]
    fn reports_of_all_versions_of_igmp_are_read() {
        let group = |last: u8| IpAddr::from([239, 1, 0, last]);
        let old = |kind| said(&igmp([10, 1, 1, 9], [239, 1, 0, 1], &[kind, 0, 0, 0, 239, 1, 0, 1]));
        assert_eq!(old(IGMP_V1_REPORT), Some(vec![Said::Joins(group(1))]));
        assert_eq!(old(IGMP_V2_REPORT), Some(vec![Said::Joins(group(1))]));
        assert_eq!(old(IGMP_LEAVE), Some(vec![Said::Leaves(group(1))]));
        let Some(Said::Asks(question)) = old(IGMP_QUERY).and_then(|all| all.first().copied()) else {
            panic!("no question")
        };
        assert_eq!((question.router, question.group), ([10, 1, 1, 9].into(), Some(group(1))));
        assert_eq!(old(0x30), None);
        let records = [
            record4(2, 0, 0, [239, 1, 0, 1]),
            record4(4, 3, 2, [239, 1, 0, 2]),
            record4(1, 2, 0, [239, 1, 0, 3]),
            record4(1, 0, 0, [239, 1, 0, 4]),
            record4(3, 0, 1, [239, 1, 0, 5]),
            record4(3, 1, 0, [239, 1, 0, 6]),
            record4(5, 1, 0, [239, 1, 0, 7]),
            record4(6, 1, 0, [239, 1, 0, 8]),
            record4(2, 0, 0, [10, 1, 0, 9]),
            record4(9, 0, 0, [239, 1, 0, 9]),
        ];
        let read = said(&igmp([10, 1, 1, 9], [224, 0, 0, 22], &report4(&records)));
        let joins = |last| Said::Joins(group(last));
        let expected = vec![joins(1), joins(2), joins(3), Said::Leaves(group(5)), joins(6), joins(7)];
        assert_eq!(read, Some(expected));
    }

    #[test]
    fn reports_of_both_versions_of_mld_are_read() {
        let group: Ipv6Addr = "ff15::7".parse().unwrap();
        let old = |kind| {
            let message = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &group.octets()].concat();
            said(&mld("fe80::9", "ff15::7", &message))
        };
        assert_eq!(old(MLD_V1_REPORT), Some(vec![Said::Joins(group.into())]));
        assert_eq!(old(MLD_DONE), Some(vec![Said::Leaves(group.into())]));
        let Some(Said::Asks(question)) = old(MLD_QUERY).and_then(|all| all.first().copied()) else {
            panic!("no question")
        };
        assert_eq!((question.router, question.group), ("fe80::9".parse().unwrap(), Some(group.into())));
        assert_eq!(old(128), None);
        let record = |kind: u8, sources: u8| {
            let head = [kind, 0, 0, sources];
            [&head[..], &group.octets(), &vec![3; usize::from(sources) * 16]].concat()
        };
        let records = [record(4, 0), record(3, 0), record(6, 2), record(5, 2)].concat();
        let message = [&[MLD_V2_REPORT, 0, 0, 0, 0, 0, 0, 4][..], &records].concat();
        let (joins, leaves) = (Said::Joins(group.into()), Said::Leaves(group.into()));
        assert_eq!(said(&mld("fe80::9", "ff02::16", &message)), Some(vec![joins, leaves, joins]));
        assert_eq!(said(&mld("2001:db8::9", "ff02::16", &message)), None, "not of this LAN");
    }

    #[test]
    fn what_is_damaged_cut_short_or_from_beyond_the_lan_is_no_report() {
        let good = igmp([10, 1, 1, 9], [224, 0, 0, 22], &report4(&[record4(2, 0, 0, [239, 1, 0, 1])]));
        assert!(said(&good).is_some());
        for at in 0..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 4;
            let read = Packet::new_whole(&damaged).map(|packet| read(&packet, &mut |_| {}));
            assert_ne!(read.ok(), Some(true), "byte {at}");
        }
        // Two records are stated, and there is one.
        let mut message = report4(&[record4(2, 0, 0, [239, 1, 0, 1])]);
        message[7] = 2;
        assert_eq!(said(&igmp([10, 1, 1, 9], [224, 0, 0, 22], &message)), None);
        let beyond = {
            let mut packet = good.clone();
            crate::packet::restore(&mut packet, crate::packet::MutableFields { ttl: 2, tos: 0xc0 });
            packet
        };
        assert_eq!(said(&beyond), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic_the_readers(bytes: Vec<u8>, kind in prop::sample::select(vec![
            IGMP_QUERY, IGMP_V3_REPORT, MLD_V1_REPORT, MLD_V2_REPORT,
        ])) {
            let message = [&[kind, 0, 0, 0][..], &bytes].concat();
            let mut count = 0;
            for packet in [igmp([10, 1, 1, 9], [224, 0, 0, 22], &message), mld("fe80::9", "ff02::16", &message)] {
                read(&Packet::new_whole(&packet).unwrap(), &mut |_| count += 1);
            }
            // A record has eight bytes at least.
            prop_assert!(count <= 2 + 2 * bytes.len() / 8);
        }

        #[test]
        fn records_are_read_as_they_were_written(
            records in prop::collection::vec((1u8..7, 0u8..5, 0u8..3, any::<[u8; 3]>()), 0..30)
        ) {
            let written: Vec<_> = records
                .iter()
                .map(|&(kind, sources, words, [b, c, d])| record4(kind, sources, words, [239, b, c, d]))
                .collect();
            let read = said(&igmp([10, 1, 1, 9], [224, 0, 0, 22], &report4(&written))).unwrap();
            let expected: Vec<_> = records
                .iter()
                .filter_map(|&(kind, sources, _, [b, c, d])| {
                    let group = IpAddr::from([239, b, c, d]);
                    match (kind, sources) {
                        (2 | 4, _) | (1 | 3 | 5, 1..) => Some(Said::Joins(group)),
                        (3, 0) => Some(Said::Leaves(group)),
                        _ => None,
                    }
                })
                .collect();
            prop_assert_eq!(read, expected);
        }
    }
}
