//! A view of one IP packet on the wire, with the facts that the gateway needs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::counters::Unprotected;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP: u8 = 17;

/// The header fields that routers change, and that a recovered packet must have as it left the far site.
///
/// IPv4: time to live and type of service. IPv6: hop limit and traffic class. The IPv4 header checksum is
/// computed again from the other fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MutableFields {
    /// IPv4 time to live or IPv6 hop limit.
    pub ttl: u8,
    /// IPv4 type of service or IPv6 traffic class, ECN bits included.
    pub tos: u8,
}

/// The fixed part of an IP header with its mutable fields zeroed, which is the same at both ends.
pub struct StableHeader {
    bytes: [u8; IPV6_HEADER],
    len: usize,
}

impl StableHeader {
    /// Returns the header's bytes: 20 for IPv4, 40 for IPv6.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A checked view of one IP packet, trimmed to the length its header states.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    V4,
    V6,
}

impl<'a> Packet<'a> {
    /// Checks `bytes`, which start at the IP header, and cuts off link-layer padding.
    ///
    /// # Errors
    /// The packet is not IP, is shorter than it states, or carries options that routers rewrite, so that the
    /// two ends would see different packets.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Unprotected> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => Self::checked_v4(bytes),
            Some(6) => Self::checked_v6(bytes),
            _ => Err(Unprotected::NotIp),
        }
    }

    fn checked_v4(bytes: &'a [u8]) -> Result<Self, Unprotected> {
        if bytes.len() < IPV4_HEADER {
            return Err(Unprotected::Truncated);
        }
        let header = usize::from(bytes[0] & 0x0f) * 4;
        let total = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        if header < IPV4_HEADER || total < header || total > bytes.len() {
            return Err(Unprotected::Truncated);
        }
        if has_mutable_ipv4_option(&bytes[IPV4_HEADER..header]) {
            return Err(Unprotected::MutableOptions);
        }
        Ok(Self { bytes: &bytes[..total], version: Version::V4 })
    }

    fn checked_v6(bytes: &'a [u8]) -> Result<Self, Unprotected> {
        if bytes.len() < IPV6_HEADER {
            return Err(Unprotected::Truncated);
        }
        let total = IPV6_HEADER + usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        if total > bytes.len() {
            return Err(Unprotected::Truncated);
        }
        // RFC 8200 §4.2, §4.4: hop-by-hop options may change en route and a routing header does.
        if matches!(bytes[6], 0 | 43) {
            return Err(Unprotected::MutableOptions);
        }
        Ok(Self { bytes: &bytes[..total], version: Version::V6 })
    }

    /// Returns the whole packet.
    pub fn as_slice(&self) -> &'a [u8] {
        self.bytes
    }

    /// Source address.
    pub fn source(&self) -> IpAddr {
        match self.version {
            Version::V4 => self.v4_address(12),
            Version::V6 => self.v6_address(8),
        }
    }

    /// Destination address.
    pub fn destination(&self) -> IpAddr {
        match self.version {
            Version::V4 => self.v4_address(16),
            Version::V6 => self.v6_address(24),
        }
    }

    fn v4_address(&self, at: usize) -> IpAddr {
        let octets: [u8; 4] = self.bytes[at..at + 4].try_into().expect("4 octets of a checked header");
        IpAddr::V4(Ipv4Addr::from(octets))
    }

    fn v6_address(&self, at: usize) -> IpAddr {
        let octets: [u8; 16] = self.bytes[at..at + 16].try_into().expect("16 octets of a checked header");
        IpAddr::V6(Ipv6Addr::from(octets))
    }

    /// Whether this is a UDP datagram to `to`. (The repair channel must not protect itself.)
    pub fn is_udp_to(&self, to: SocketAddr) -> bool {
        if self.destination() != to.ip() {
            return false;
        }
        let (protocol, transport) = match self.version {
            Version::V4 => (self.bytes[9], usize::from(self.bytes[0] & 0x0f) * 4),
            Version::V6 => (self.bytes[6], IPV6_HEADER),
        };
        let port = self.bytes.get(transport + 2..transport + 4);
        protocol == UDP && port == Some(&to.port().to_be_bytes()[..])
    }

    /// Returns the fields that routers change, as in this packet.
    pub fn mutable_fields(&self) -> MutableFields {
        match self.version {
            Version::V4 => MutableFields { ttl: self.bytes[8], tos: self.bytes[1] },
            Version::V6 => {
                MutableFields { ttl: self.bytes[7], tos: (self.bytes[0] << 4) | (self.bytes[1] >> 4) }
            }
        }
    }

    /// Returns the fixed header with its mutable fields zeroed.
    pub fn stable_header(&self) -> StableHeader {
        let mut stable = StableHeader { bytes: [0; IPV6_HEADER], len: self.fixed_header_len() };
        stable.bytes[..stable.len].copy_from_slice(&self.bytes[..stable.len]);
        write_mutable(&mut stable.bytes, self.version, MutableFields::default());
        stable
    }

    /// Returns the bytes behind the fixed header: options, transport header, payload.
    pub fn behind_header(&self) -> &'a [u8] {
        &self.bytes[self.fixed_header_len()..]
    }

    fn fixed_header_len(&self) -> usize {
        match self.version {
            Version::V4 => IPV4_HEADER,
            Version::V6 => IPV6_HEADER,
        }
    }
}

/// Writes `fields`, and the IPv4 header checksum, into a packet whose mutable fields are zero.
///
/// `packet` must have passed [`Packet::new_checked`].
pub fn restore(packet: &mut [u8], fields: MutableFields) {
    if packet[0] >> 4 == 6 {
        write_mutable(packet, Version::V6, fields);
        return;
    }
    write_mutable(packet, Version::V4, fields);
    let header = usize::from(packet[0] & 0x0f) * 4;
    let checksum = internet_checksum(&packet[..header]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn write_mutable(packet: &mut [u8], version: Version, fields: MutableFields) {
    match version {
        Version::V4 => {
            packet[1] = fields.tos;
            packet[8] = fields.ttl;
            packet[10..12].fill(0);
        }
        Version::V6 => {
            packet[0] = (packet[0] & 0xf0) | (fields.tos >> 4);
            packet[1] = (packet[1] & 0x0f) | (fields.tos << 4);
            packet[7] = fields.ttl;
        }
    }
}

/// Computes the checksum of RFC 1071 over a header whose checksum field is zero.
fn internet_checksum(header: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in header.chunks_exact(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Whether a header has options that routers rewrite (RFC 791 §3.1): record route, timestamp, loose and
/// strict source route. Malformed options count as mutable.
fn has_mutable_ipv4_option(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        match kind {
            0 => return false,
            1 => options = rest,
            7 | 68 | 131 | 137 => return true,
            _ => match rest.first() {
                Some(&len) if len >= 2 && usize::from(len) <= options.len() => {
                    options = &options[usize::from(len)..];
                }
                _ => return true,
            },
        }
    }
    false
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An IPv4 UDP packet with the given IP ID and payload.
    pub(crate) fn udp4(source: [u8; 4], destination: [u8; 4], id: u16, payload: &[u8]) -> Vec<u8> {
        testkit::packet::udp4(source.into(), destination.into(), 7, id, payload)
    }

    pub(crate) use testkit::packet::udp6;

    #[test]
    fn zeroing_and_restoring_the_fields_gives_the_same_packet() {
        let mut v4 = udp4([10, 0, 0, 1], [10, 0, 1, 1], 77, b"hello");
        v4[1] = 0x2a;
        let v6 = udp6("fd00::1".parse().unwrap(), "fd00:1::1".parse().unwrap(), b"hello");
        for mut sent in [v4, v6] {
            let fields = Packet::new_checked(&sent).unwrap().mutable_fields();
            restore(&mut sent, fields);
            let packet = Packet::new_checked(&sent).unwrap();
            let mut rebuilt = [packet.stable_header().as_slice(), packet.behind_header()].concat();
            assert_ne!(rebuilt, sent);
            restore(&mut rebuilt, fields);
            assert_eq!(rebuilt, sent);
        }
    }

    #[test]
    fn padding_behind_the_packet_is_cut_off() {
        let packet = udp4([10, 0, 0, 1], [10, 0, 1, 1], 77, b"x");
        let padded = [packet.clone(), vec![0; 17]].concat();
        assert_eq!(Packet::new_checked(&padded).unwrap().as_slice(), packet);
    }

    #[test]
    fn packets_that_differ_between_the_two_ends_are_refused() {
        let mut options = udp4([10, 0, 0, 1], [10, 0, 1, 1], 77, &[7, 4, 4, 0, 0, 0, 0, 0]);
        options.copy_within(28..36, 20);
        options[0] = 0x47;
        assert_eq!(Packet::new_checked(&options).err(), Some(Unprotected::MutableOptions));
        let mut hop = udp6("fd00::1".parse().unwrap(), "fd00:1::1".parse().unwrap(), b"hello");
        hop[6] = 0;
        assert_eq!(Packet::new_checked(&hop).err(), Some(Unprotected::MutableOptions));
        assert_eq!(Packet::new_checked(&[0x45, 0]).err(), Some(Unprotected::Truncated));
        assert_eq!(Packet::new_checked(&[]).err(), Some(Unprotected::NotIp));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic_the_parser(bytes: Vec<u8>) {
            if let Ok(packet) = Packet::new_checked(&bytes) {
                let fields = packet.mutable_fields();
                let _ = (packet.source(), packet.destination(), packet.is_udp_to("[::1]:7".parse().unwrap()));
                let mut rebuilt = [packet.stable_header().as_slice(), packet.behind_header()].concat();
                restore(&mut rebuilt, fields);
            }
        }
    }
}
