//! IP packets.

use std::net::{Ipv4Addr, Ipv6Addr};

const UDP: u8 = 17;
/// Time to live, or hop limit.
const TTL: u8 = 63;

/// Returns an IPv4 UDP packet with a valid header checksum and no UDP checksum.
///
/// ```
/// let packet = testkit::packet::udp4([10, 0, 0, 1].into(), [10, 0, 1, 1].into(), 7, 77, b"hello");
/// assert_eq!(packet.len(), 28 + 5);
/// ```
pub fn udp4(source: Ipv4Addr, destination: Ipv4Addr, port: u16, id: u16, payload: &[u8]) -> Vec<u8> {
    let total = 28 + payload.len();
    let mut packet = vec![0; total];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[8..10].copy_from_slice(&[TTL, UDP]);
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&destination.octets());
    let checksum = internet_checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    packet[24..26].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    packet[28..].copy_from_slice(payload);
    packet
}

/// Returns an IPv6 UDP packet of traffic class 0xb8, without a UDP checksum or ports.
pub fn udp6(source: Ipv6Addr, destination: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    let length = ((8 + payload.len()) as u16).to_be_bytes();
    let mut packet = vec![0; 48 + payload.len()];
    packet[..2].copy_from_slice(&[0x6b, 0x80]);
    packet[4..6].copy_from_slice(&length);
    packet[6..8].copy_from_slice(&[UDP, TTL]);
    packet[8..24].copy_from_slice(&source.octets());
    packet[24..40].copy_from_slice(&destination.octets());
    packet[44..46].copy_from_slice(&length);
    packet[48..].copy_from_slice(payload);
    packet
}

/// RFC 1071 over a header whose checksum field is zero.
pub fn internet_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}
