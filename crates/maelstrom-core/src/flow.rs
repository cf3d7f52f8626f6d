//! Traits of a packet that say something about its path: its flow, and traces of boxes on the way
//! that change packets.
//!
//! Routers that share load among several paths keep the packets of one flow on one path. They tell flows
//! apart by addresses, protocol and ports.

use crate::identity::Identity;
use crate::packet::Packet;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const UDPLITE: u8 = 136;

/// Keyed hash of a packet's addresses, protocol and ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flow(pub(crate) u32);

/// Keyed hash of the addresses, protocol, identification and offset of an IPv4 packet: what the first piece
/// has in common with a packet that a router fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece(pub(crate) u32);

/// Keyed hash of what a packet carries behind its transport header, which address translation leaves as it
/// is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content(pub(crate) u32);

impl Content {
    /// Returns the content of a packet; `None` if it is a fragment, or too little to recognise.
    pub(crate) fn of(packet: &Packet<'_>, identity: &Identity) -> Option<Self> {
        const ENOUGH: usize = 16;
        let bytes = packet.as_slice();
        let (protocol, transport) = if bytes[0] >> 4 == 6 {
            (bytes[6], bytes.get(40..)?)
        } else if u16::from_be_bytes([bytes[6], bytes[7]]) & 0x3fff == 0 {
            (bytes[9], bytes.get(usize::from(bytes[0] & 0x0f) * 4..)?)
        } else {
            return None;
        };
        let header = match protocol {
            TCP => usize::from(transport.get(12)? >> 4) * 4,
            UDP | ICMP | ICMPV6 => 8,
            _ => return None,
        };
        let content = transport.get(header..).filter(|content| content.len() >= ENOUGH)?;
        Some(Self(identity.keyed_hash(content) as u32))
    }
}

/// Traits of a packet that say something about its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) flow: Flow,
    /// Sequence number of a TCP packet that opens a connection. Boxes that clamp the MSS change such packets
    /// alone.
    pub(crate) opens: Option<u32>,
    pub(crate) is_fragment: bool,
}

impl Piece {
    /// Returns what the first piece of a packet would share with it; `None` for IPv6, which routers do not
    /// fragment. Of a fragment, this is its own.
    pub(crate) fn of(packet: &Packet<'_>, identity: &Identity) -> Option<Self> {
        let bytes = packet.as_slice();
        let offset = u16::from_be_bytes([bytes[6], bytes[7]]) & 0x1fff;
        let ends = Ends { bytes: [0; 48], len: 0 }.with(bytes.get(12..20)?).with(&bytes[9..10]);
        let piece = || Self(ends.with(&bytes[4..6]).with(&offset.to_be_bytes()).hash(identity));
        (bytes[0] >> 4 == 4).then(piece)
    }
}

/// The addresses and the protocol of a packet, as input of the hashes.
struct Ends {
    bytes: [u8; 48],
    len: usize,
}

impl Ends {
    fn with(mut self, more: &[u8]) -> Self {
        self.bytes[self.len..self.len + more.len()].copy_from_slice(more);
        self.len += more.len();
        self
    }

    fn hash(&self, identity: &Identity) -> u32 {
        identity.keyed_hash(&self.bytes[..self.len]) as u32
    }
}

impl Traits {
    /// Returns the traits of `packet`.
    pub(crate) fn of(packet: &Packet<'_>, identity: &Identity) -> Self {
        let bytes = packet.as_slice();
        if bytes[0] >> 4 == 6 { Self::of_v6(bytes, identity) } else { Self::of_v4(bytes, identity) }
    }

    fn of_v4(bytes: &[u8], identity: &Identity) -> Self {
        let protocol = bytes[9];
        let ends = Ends { bytes: [0; 48], len: 0 }.with(&bytes[12..20]).with(&[protocol]);
        let fragment = u16::from_be_bytes([bytes[6], bytes[7]]) & 0x3fff;
        let behind = bytes.get(usize::from(bytes[0] & 0x0f) * 4..).unwrap_or_default();
        // Later fragments have no ports, so that no fragment is distributed by them.
        let transport = if fragment == 0 { behind } else { &[] };
        let flow = Flow(ends.with(ports(protocol, transport)).hash(identity));
        Self { flow, opens: opening(protocol, transport), is_fragment: fragment != 0 }
    }

    fn of_v6(bytes: &[u8], identity: &Identity) -> Self {
        let (protocol, transport) = (bytes[6], &bytes[40..]);
        let ends = Ends { bytes: [0; 48], len: 0 }.with(&bytes[8..40]).with(&[protocol]);
        let flow = Flow(ends.with(ports(protocol, transport)).hash(identity));
        Self { flow, opens: opening(protocol, transport), is_fragment: false }
    }
}

/// Returns the bytes that tell flows between two addresses apart: ports, or the identifier of an echo.
fn ports(protocol: u8, transport: &[u8]) -> &[u8] {
    let range = match protocol {
        TCP | UDP | SCTP | UDPLITE => 0..4,
        ICMP if matches!(transport.first(), Some(0 | 8)) => 4..6,
        ICMPV6 if matches!(transport.first(), Some(128 | 129)) => 4..6,
        _ => 0..0,
    };
    transport.get(range).unwrap_or_default()
}

/// Returns the sequence number of a TCP header with the flag SYN.
fn opening(protocol: u8, transport: &[u8]) -> Option<u32> {
    const SYN: u8 = 2;
    let header: &[u8; 14] = transport.first_chunk().filter(|_| protocol == TCP)?;
    let number = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    (header[13] & SYN != 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::PeerKey;
    use crate::packet::tests::{udp4, udp6};

    fn traits(bytes: &[u8]) -> Traits {
        Traits::of(&Packet::new_checked(bytes).unwrap(), &Identity::new(&PeerKey::new([1; 32])))
    }

    fn piece(bytes: &[u8]) -> Option<Piece> {
        Piece::of(&Packet::new_checked(bytes).unwrap(), &Identity::new(&PeerKey::new([1; 32])))
    }

    fn packet() -> Vec<u8> {
        udp4([10, 0, 0, 1], [10, 0, 1, 1], 77, b"hello, far site")
    }

    #[test]
    fn a_flow_is_addresses_protocol_and_ports() {
        let same = [(4, 9), (6, 0x40), (30, 7)];
        for (at, byte) in same {
            let mut other = packet();
            other[at] = byte;
            assert_eq!(traits(&other).flow, traits(&packet()).flow, "byte {at}");
        }
        for at in [9, 12, 19, 20, 23] {
            let mut other = packet();
            other[at] ^= 0x55;
            assert_ne!(traits(&other).flow, traits(&packet()).flow, "byte {at}");
        }
        let v6 = udp6("fd00::1".parse().unwrap(), "fd00:1::1".parse().unwrap(), b"hello");
        assert!(piece(&v6).is_none() && !traits(&v6).is_fragment);
    }

    #[test]
    fn the_first_piece_of_a_fragmented_packet_is_recognised() {
        let (whole, mut first, mut second) = (packet(), packet(), packet());
        first[6] = 0x20;
        second[7] = 3;
        assert_eq!(piece(&first), piece(&whole));
        assert_ne!(piece(&second), piece(&whole));
        assert!(traits(&first).is_fragment && traits(&second).is_fragment && !traits(&whole).is_fragment);
        assert_eq!(traits(&first).flow, traits(&second).flow, "fragments have no ports");
    }

    /// Inserts options behind the fixed part of an IPv4 header.
    fn with_options(packet: &[u8], words: usize) -> Vec<u8> {
        let mut bytes = [&packet[..20], &vec![1; 4 * words], &packet[20..]].concat();
        let length = bytes.len() as u16;
        bytes[0] += words as u8;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    #[test]
    fn the_content_of_a_packet_begins_behind_its_headers() {
        let content = |bytes: &[u8]| {
            let identity = Identity::new(&PeerKey::new([1; 32]));
            Content::of(&Packet::new_checked(bytes).unwrap(), &identity)
        };
        let long = b"sixteen bytes, or more of them";
        let udp = udp4([10, 0, 0, 1], [10, 0, 1, 1], 77, long);
        let mut tcp = udp4([10, 0, 0, 9], [10, 0, 1, 1], 78, &[&[0; 12][..], long].concat());
        (tcp[9], tcp[32]) = (TCP, 5 << 4);
        let mut tcp_with_options = udp4([10, 0, 0, 9], [10, 0, 1, 1], 79, &[&[0; 24][..], long].concat());
        (tcp_with_options[9], tcp_with_options[32]) = (TCP, 8 << 4);
        let v6 = udp6("fd00::1".parse().unwrap(), "fd00:1::1".parse().unwrap(), long);
        assert!(content(&udp).is_some());
        for same in [&with_options(&udp, 1), &with_options(&udp, 9), &tcp, &tcp_with_options, &v6] {
            assert_eq!(content(same), content(&udp), "{same:?}");
        }
        let mut other = udp.clone();
        other[28] ^= 1;
        assert_ne!(content(&other), content(&udp));
        assert_eq!(content(&udp4([10, 0, 0, 1], [10, 0, 1, 1], 77, &long[..15])), None, "too little");
        assert!(content(&udp4([10, 0, 0, 1], [10, 0, 1, 1], 77, &long[..16])).is_some());
    }

    #[test]
    fn only_a_syn_opens_a_connection() {
        let mut tcp = packet();
        tcp[9] = TCP;
        tcp[24..28].copy_from_slice(&[1, 2, 3, 4]);
        tcp[33] = 0x12;
        assert_eq!(traits(&tcp).opens, Some(0x0102_0304));
        tcp[33] = 0x10;
        assert_eq!(traits(&tcp).opens, None);
    }
}
