//! Messages of a router to the hosts of a LAN: questions about members of groups (RFC 3376 §4.1, RFC 3810
//! §5.1), and the advertisement by which switches learn at which port the router is (RFC 4286).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::reports::{ICMP_V6, IGMP, IGMP_QUERY, MLD_QUERY, checksum, pseudo};

/// Interval between general questions, in seconds.
pub(super) const QUERY_S: u8 = 125;
/// Interval between advertisements, in seconds.
pub(super) const ADVERT_S: u8 = 20;
/// Number of questions of which one gets through.
pub(super) const ROBUSTNESS: u8 = 2;

const IGMP_ADVERT: u8 = 0x30;
const MLD_ADVERT: u8 = 151;

const ALL_HOSTS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_HOSTS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_SNOOPERS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 106);
const ALL_SNOOPERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x6a);

/// Type of service of messages that routers send each other (RFC 3376 §4).
const INTERNET_CONTROL: u8 = 0xc0;

/// Returns the question of the router `source` who is in a group, or in any.
pub(super) fn question(source: IpAddr, group: Option<IpAddr>) -> Vec<u8> {
    // Tenths of a second, and milliseconds, in which hosts answer.
    let (tenths, millis) = if group.is_some() { (10, 1_000u16) } else { (100, 10_000) };
    match (source, group) {
        (IpAddr::V4(source), Some(IpAddr::V4(group))) => igmp_question(source, Some(group), tenths),
        (IpAddr::V4(source), _) => igmp_question(source, None, tenths),
        (IpAddr::V6(source), Some(IpAddr::V6(group))) => mld_question(source, Some(group), millis),
        (IpAddr::V6(source), _) => mld_question(source, None, millis),
    }
}

fn igmp_question(source: Ipv4Addr, group: Option<Ipv4Addr>, tenths: u8) -> Vec<u8> {
    let about = group.unwrap_or(Ipv4Addr::UNSPECIFIED).octets();
    let message = [&[IGMP_QUERY, tenths, 0, 0][..], &about, &[ROBUSTNESS, QUERY_S, 0, 0]].concat();
    packet_v4(source, group.unwrap_or(ALL_HOSTS_V4), &message)
}

fn mld_question(source: Ipv6Addr, group: Option<Ipv6Addr>, millis: u16) -> Vec<u8> {
    let [high, low] = millis.to_be_bytes();
    let about = group.unwrap_or(Ipv6Addr::UNSPECIFIED).octets();
    let head = [MLD_QUERY, 0, 0, 0, high, low, 0, 0];
    let message = [&head[..], &about, &[ROBUSTNESS, QUERY_S, 0, 0]].concat();
    packet_v6(source, group.unwrap_or(ALL_HOSTS_V6), &message)
}

/// Returns the advertisement of the router `source`.
pub(super) fn advertisement(source: IpAddr) -> Vec<u8> {
    let kind = if source.is_ipv4() { IGMP_ADVERT } else { MLD_ADVERT };
    let message = [kind, ADVERT_S, 0, 0, 0, QUERY_S, 0, ROBUSTNESS];
    match source {
        IpAddr::V4(source) => packet_v4(source, ALL_SNOOPERS_V4, &message),
        IpAddr::V6(source) => packet_v6(source, ALL_SNOOPERS_V6, &message),
    }
}

/// Returns an IPv4 packet with an IGMP message behind a router alert, and makes its checksums.
pub(super) fn packet_v4(source: Ipv4Addr, group: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let [high, low] = (24 + message.len() as u16).to_be_bytes();
    let mut packet = vec![0x46, INTERNET_CONTROL, high, low, 0, 0, 0x40, 0, 1, IGMP, 0, 0];
    packet.extend([source.octets(), group.octets(), [0x94, 4, 0, 0]].concat());
    let header = checksum(0, &packet);
    packet[10..12].copy_from_slice(&header.to_be_bytes());
    packet.extend([&message[..2], &[0, 0], &message[4..]].concat());
    let whole = checksum(0, &packet[24..]);
    packet[26..28].copy_from_slice(&whole.to_be_bytes());
    packet
}

/// Returns an IPv6 packet with an MLD message behind a router alert, and makes its checksum.
pub(super) fn packet_v6(source: Ipv6Addr, group: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    let [high, low] = (8 + message.len() as u16).to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0, high, low, 0, 1];
    packet.extend([source.octets(), group.octets()].concat());
    packet.extend([ICMP_V6, 0, 5, 2, 0, 0, 1, 0]);
    packet.extend([&message[..2], &[0, 0], &message[4..]].concat());
    let whole = checksum(pseudo(source, group, message), &packet[48..]);
    packet[50..52].copy_from_slice(&whole.to_be_bytes());
    packet
}
