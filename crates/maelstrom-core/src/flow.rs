//! Traits of a packet that say something about its path: its flow, and traces of boxes on the way
//! that change packets.
//!
//! Routers that share load among several paths keep the packets of one flow on one path. They tell flows
//! apart by addresses, protocol and ports.

use crate::identity::Identity;
use crate::packet::Packet;
use crate::tcp_time;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const UDPLITE: u8 = 136;

/// Keyed hash of a packet's addresses, protocol and ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flow(pub(crate) u32);

/// Keyed hash of what the flows of one service between two hosts have in common: addresses, protocol, and the
/// port of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Service(pub(crate) u32);

/// Keyed hash of the addresses, protocol, identification, offset and first bytes of an IPv4 packet: what the
/// first piece has in common with a packet that a router fragments.
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
    /// Time of sending that a TCP segment states.
    pub(crate) timestamp: Option<u32>,
}

impl Piece {
    /// Returns what the first piece of a packet would share with it; `None` for IPv6, which routers do not
    /// fragment. Of a fragment, this is its own.
    pub(crate) fn of(packet: &Packet<'_>, identity: &Identity) -> Option<Self> {
        /// Each fragment but the last has at least this length. Strangers cannot guess these bytes, because
        /// they contain a checksum or a sequence number.
        const START: usize = 8;
        let bytes = packet.as_slice();
        if bytes[0] >> 4 != 4 {
            return None;
        }
        let offset = u16::from_be_bytes([bytes[6], bytes[7]]) & 0x1fff;
        let start = bytes.get(usize::from(bytes[0] & 0x0f) * 4..)?;
        let ends = Ends { bytes: [0; 48], len: 0 }.with(&bytes[12..20]).with(&bytes[9..10]);
        let ends = ends.with(&bytes[4..6]).with(&offset.to_be_bytes());
        Some(Self(ends.with(&start[..START.min(start.len())]).hash(identity)))
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
        let parts = Parts::of(packet);
        let flow = Flow(parts.ends(parts.addresses).with(parts.ports()).hash(identity));
        Self {
            flow,
            opens: opening(parts.protocol, parts.transport),
            is_fragment: parts.is_fragment,
            timestamp: tcp_time::timestamp(parts.protocol, parts.transport),
        }
    }
}

impl Flow {
    /// Returns the flow in which answers to a packet arrive; `None` if it is no packet that may begin a
    /// flow.
    pub(crate) fn of_answers(packet: &Packet<'_>, identity: &Identity) -> Option<Self> {
        let parts = Parts::of(packet);
        if parts.protocol == TCP && opening(TCP, parts.transport).is_none() {
            return None;
        }
        let (from, to) = parts.addresses.split_at(parts.addresses.len() / 2);
        let ends = parts.ends(to).with(from);
        let answers = match parts.ports() {
            &[a, b, c, d] => ends.with(&[c, d, a, b]),
            identifier => ends.with(identifier),
        };
        Some(Self(answers.hash(identity)))
    }
}

impl Service {
    /// Returns the service that a packet is sent to.
    pub(crate) fn asked(packet: &Packet<'_>, identity: &Identity) -> Self {
        let parts = Parts::of(packet);
        let port = match parts.protocol {
            ICMP | ICMPV6 => parts.transport.get(..1),
            _ => parts.ports().get(2..4),
        };
        Self(parts.ends(parts.addresses).with(b"to").with(port.unwrap_or_default()).hash(identity))
    }

    /// Returns the service that a packet comes from.
    pub(crate) fn answering(packet: &Packet<'_>, identity: &Identity) -> Self {
        let parts = Parts::of(packet);
        let port = parts.ports().get(..2).unwrap_or_default();
        Self(parts.ends(parts.addresses).with(b"from").with(port).hash(identity))
    }
}

/// The parts of a packet by which routers tell flows apart.
struct Parts<'a> {
    /// Source and destination.
    addresses: &'a [u8],
    protocol: u8,
    /// Empty for all but the first fragment of a packet.
    transport: &'a [u8],
    /// Whether the packet is a fragment that a router may have made.
    is_fragment: bool,
}

impl<'a> Parts<'a> {
    fn of(packet: &Packet<'a>) -> Self {
        let bytes = packet.as_slice();
        let is_v6 = bytes[0] >> 4 == 6;
        let (protocol, transport) = match packet.transport() {
            Some((protocol, at)) => (protocol, bytes.get(at..).unwrap_or_default()),
            None => (bytes[if is_v6 { 6 } else { 9 }], &[][..]),
        };
        let fragment = u16::from_be_bytes([bytes[6], bytes[7]]) & 0x3fff;
        let addresses = if is_v6 { &bytes[8..40] } else { &bytes[12..20] };
        Self { addresses, protocol, transport, is_fragment: !is_v6 && fragment != 0 }
    }

    /// Returns the bytes that tell flows between two addresses apart: ports, or the identifier of an echo.
    fn ports(&self) -> &'a [u8] {
        let range = match self.protocol {
            TCP | UDP | SCTP | UDPLITE => 0..4,
            ICMP if matches!(self.transport.first(), Some(0 | 8)) => 4..6,
            ICMPV6 if matches!(self.transport.first(), Some(128 | 129)) => 4..6,
            _ => 0..0,
        };
        self.transport.get(range).unwrap_or_default()
    }

    /// Begins the input of a hash with these addresses.
    fn ends(&self, addresses: &[u8]) -> Ends {
        Ends { bytes: [0; 48], len: 0 }.with(&[self.protocol]).with(addresses)
    }
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
        assert_eq!(traits(&first).flow, traits(&whole).flow, "a filter sees the ports of the first one");
        assert_ne!(traits(&first).flow, traits(&second).flow, "the others have no ports");
    }

    /// Returns an IPv6 packet with these extension headers before its UDP header.
    fn with_extensions(extensions: &[&[u8]], ports: [u8; 4]) -> Vec<u8> {
        let mut bytes = udp6("fd00::1".parse().unwrap(), "fd00:1::1".parse().unwrap(), b"hello");
        bytes[40..44].copy_from_slice(&ports);
        let mut next = 17;
        for extension in extensions.iter().rev() {
            let mut header = extension.to_vec();
            header[0] = std::mem::replace(&mut next, extension[0]);
            bytes.splice(40..40, header);
        }
        bytes[6] = next;
        let length = (bytes.len() - 40) as u16;
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    #[test]
    fn ports_are_found_behind_extension_headers() {
        let options = &[60, 0, 1, 4, 0, 0, 0, 0][..];
        let first = &[44, 0, 0, 1, 9, 9, 9, 9][..];
        let second = &[44, 0, 0, 9, 9, 9, 9, 9][..];
        for extensions in [&[][..], &[options], &[first], &[options, first]] {
            let flow = |ports| traits(&with_extensions(extensions, ports)).flow;
            assert_ne!(flow([1, 2, 3, 4]), flow([1, 2, 3, 5]), "{extensions:?}");
        }
        let later = |ports| traits(&with_extensions(&[options, second], ports));
        assert_eq!(later([1, 2, 3, 4]), later([1, 2, 3, 5]), "a later fragment has none");
    }

    #[test]
    fn a_service_is_asked_and_answers_at_one_port() {
        let with_ports = |ports: [u8; 4]| {
            let mut bytes = packet();
            bytes[20..24].copy_from_slice(&ports);
            bytes
        };
        let identity = Identity::new(&PeerKey::new([1; 32]));
        let asked = |bytes: &[u8]| Service::asked(&Packet::new_checked(bytes).unwrap(), &identity);
        let answering = |bytes: &[u8]| Service::answering(&Packet::new_checked(bytes).unwrap(), &identity);
        let [query, other] = [[1, 2, 0, 53], [7, 7, 0, 53]].map(with_ports);
        assert_eq!(asked(&query), asked(&other));
        assert_ne!(asked(&query), asked(&with_ports([1, 2, 0, 54])));
        assert_ne!(asked(&query), answering(&query));
        assert_eq!(answering(&query), answering(&with_ports([1, 2, 9, 9])));
        // The answer leaves from the other address.
        let mut answer = with_ports([0, 53, 1, 2]);
        let (from, to) = (answer[12..16].to_vec(), answer[16..20].to_vec());
        answer[12..20].copy_from_slice(&[to, from].concat());
        let answers = |bytes: &[u8]| Flow::of_answers(&Packet::new_checked(bytes).unwrap(), &identity);
        assert_eq!(answers(&answer), Some(traits(&query).flow));
        answer[9] = TCP;
        assert_eq!(answers(&answer), None, "only a SYN begins a connection");
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
