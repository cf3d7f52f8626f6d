//! A view of one IP packet on the wire, with the facts that the gateway needs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::counters::Unprotected;

/// Longest IP packet without options for longer ones, in bytes.
pub(crate) const PACKET_BYTES_MAX: usize = 65_575;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP: u8 = 17;

// IPv6 extension headers
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
/// Maximum number of extension headers followed in one packet.
const EXTENSIONS_MAX: usize = 8;
/// Bit in the type of an option that may change on the way (RFC 8200 §4.2).
const OPTION_CHANGES: u8 = 0x20;

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
        let packet = Self::new_whole(bytes)?;
        let is_mutable = match packet.version {
            Version::V4 => has_mutable_ipv4_option(&bytes[IPV4_HEADER..usize::from(bytes[0] & 0x0f) * 4]),
            Version::V6 => has_mutable_ipv6_header(packet.bytes),
        };
        if is_mutable { Err(Unprotected::MutableOptions) } else { Ok(packet) }
    }

    /// As [`Packet::new_checked`], but takes packets with any options: those in a tunnel pass no router.
    ///
    /// # Errors
    /// The packet is not IP, or is shorter than it states.
    pub fn new_whole(bytes: &'a [u8]) -> Result<Self, Unprotected> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => Self::whole_v4(bytes),
            Some(6) => Self::whole_v6(bytes),
            _ => Err(Unprotected::NotIp),
        }
    }

    fn whole_v4(bytes: &'a [u8]) -> Result<Self, Unprotected> {
        if bytes.len() < IPV4_HEADER {
            return Err(Unprotected::Truncated);
        }
        let header = usize::from(bytes[0] & 0x0f) * 4;
        let total = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        if header < IPV4_HEADER || total < header || total > bytes.len() {
            return Err(Unprotected::Truncated);
        }
        Ok(Self { bytes: &bytes[..total], version: Version::V4 })
    }

    fn whole_v6(bytes: &'a [u8]) -> Result<Self, Unprotected> {
        if bytes.len() < IPV6_HEADER {
            return Err(Unprotected::Truncated);
        }
        let total = IPV6_HEADER + usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        if total > bytes.len() {
            return Err(Unprotected::Truncated);
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
        self.destination() == to.ip() && self.udp_destination() == Some(to)
    }

    /// Returns the destination of a UDP datagram, or of its first fragment.
    pub(crate) fn udp_destination(&self) -> Option<SocketAddr> {
        let (protocol, transport) = self.transport()?;
        let port = self.bytes.get(transport + 2..transport + 4).filter(|_| protocol == UDP)?;
        Some(SocketAddr::new(self.destination(), u16::from_be_bytes([port[0], port[1]])))
    }

    /// Returns protocol and offset of the transport header; `None` if the packet has none, as a later
    /// fragment.
    pub(crate) fn transport(&self) -> Option<(u8, usize)> {
        match self.version {
            Version::V4 => {
                let is_first = self.bytes[6] & 0x1f == 0 && self.bytes[7] == 0;
                is_first.then_some((self.bytes[9], usize::from(self.bytes[0] & 0x0f) * 4))
            }
            Version::V6 => {
                Extensions::of(self.bytes).find_map(|(kind, at)| (!is_extension(kind)).then_some((kind, at)))
            }
        }
    }

    /// Protocol of an IPv6 packet. Of a later fragment it is what the fragment header names: that of the
    /// first fragment, unless other extension headers follow there.
    pub(crate) fn protocol_v6(&self) -> Option<u8> {
        let (kind, at) = Extensions::of(self.bytes).last()?;
        let named = if kind == FRAGMENT { *self.bytes.get(at)? } else { kind };
        (!is_extension(named)).then_some(named)
    }

    /// Whether the IPv4 header checksum is right. The tap sees packets that the kernel refuses.
    pub(crate) fn is_intact(&self) -> bool {
        let header = &self.bytes[..usize::from(self.bytes[0] & 0x0f) * 4];
        self.version == Version::V6 || internet_checksum(header) == 0
    }

    /// Whether it is a report of an error by a host or router on the way.
    pub(crate) fn is_icmp_error(&self) -> bool {
        const ICMP: u8 = 1;
        const ICMP_V6: u8 = 58;
        let Some((protocol, at)) = self.transport() else { return false };
        match (protocol, self.as_slice().get(at)) {
            (ICMP, Some(kind)) => [3, 4, 5, 11, 12].contains(kind),
            (ICMP_V6, Some(kind)) => *kind < 128,
            _ => false,
        }
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

/// Bits of the type of service that tell of congestion (RFC 3168 §5), and their values.
const ECN: u8 = 0b11;
const CONGESTION_EXPERIENCED: u8 = 0b11;
const ECN_CAPABLE: u8 = 0b10;

/// Marks a packet as having experienced congestion, if its sender takes such a mark for a loss; returns
/// whether it is marked. A sender of ECT(1) takes it for less (RFC 9331 §4.3).
///
/// `packet` must have passed [`Packet::new_checked`].
pub fn mark_congestion(packet: &mut [u8]) -> bool {
    let Ok(checked) = Packet::new_checked(packet) else { return false };
    let fields = checked.mutable_fields();
    match fields.tos & ECN {
        CONGESTION_EXPERIENCED => true,
        ECN_CAPABLE => {
            restore(packet, MutableFields { tos: fields.tos | CONGESTION_EXPERIENCED, ..fields });
            true
        }
        _ => false,
    }
}

/// Writes `fields`, and the IPv4 header checksum, into a packet, whatever it has in their place.
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
            let others = u16::from_be_bytes([packet[0], packet[1]]) & 0xf00f;
            let word = others + (u16::from(fields.tos) << 4);
            packet[..2].copy_from_slice(&word.to_be_bytes());
            packet[7] = fields.ttl;
        }
    }
}

/// Computes the checksum of RFC 1071 over a header whose checksum field is zero. Over a header with the right
/// checksum, it is 0.
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

/// Kinds and offsets of the headers behind an IPv6 header, up to the first that is no extension. A chain that
/// breaks off or is too long ends early. Behind the header of a later fragment nothing follows.
struct Extensions<'a> {
    packet: &'a [u8],
    next: Option<(u8, usize)>,
    left: usize,
}

impl<'a> Extensions<'a> {
    fn of(packet: &'a [u8]) -> Self {
        Self { packet, next: Some((packet[6], IPV6_HEADER)), left: EXTENSIONS_MAX }
    }
}

impl Iterator for Extensions<'_> {
    type Item = (u8, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let (kind, at) = self.next.take()?;
        if is_extension(kind) {
            self.left = self.left.checked_sub(1)?;
            let header = self.packet.get(at..at + 8)?;
            let length = match kind {
                FRAGMENT => 8,
                AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
                _ => (usize::from(header[1]) + 1) * 8,
            };
            let is_later_fragment = kind == FRAGMENT && u16::from_be_bytes([header[2], header[3]]) >> 3 != 0;
            self.next = Some((header[0], at + length)).filter(|_| !is_later_fragment);
        }
        Some((kind, at))
    }
}

fn is_extension(kind: u8) -> bool {
    matches!(kind, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS)
}

/// Whether the packet has an extension header that changes on the way (RFC 8200 §4.2, §4.4): hop-by-hop
/// options, a routing header, wherever it stands, or destination options that say so. So does a chain that
/// cannot be followed to its end.
fn has_mutable_ipv6_header(packet: &[u8]) -> bool {
    let mut last = None;
    for (kind, at) in Extensions::of(packet) {
        let changes = match kind {
            HOP_BY_HOP | ROUTING => true,
            DESTINATION_OPTIONS => has_changing_option(&packet[at..]),
            _ => false,
        };
        if changes {
            return true;
        }
        last = Some(kind);
    }
    // Behind a fragment header the rest may be in another fragment.
    last.is_none_or(|kind| is_extension(kind) && kind != FRAGMENT)
}

/// Whether any of the destination options may change on the way. Malformed options count as such.
fn has_changing_option(header: &[u8]) -> bool {
    let length = header.get(1).map_or(0, |units| (usize::from(*units) + 1) * 8);
    let Some(mut options) = header.get(2..length) else { return true };
    while let [kind, rest @ ..] = options {
        if kind & OPTION_CHANGES != 0 {
            return true;
        }
        options = match (kind, rest) {
            (0, _) => rest,
            (_, [length, rest @ ..]) if usize::from(*length) <= rest.len() => &rest[usize::from(*length)..],
            _ => return true,
        };
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
        let mut v6 = udp6("fd00::1".parse().unwrap(), "fd00:1::1".parse().unwrap(), b"hello");
        v6[..2].copy_from_slice(&[0x6a, 0xb5]);
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

    /// An IPv6 packet with these extension headers, each 8 bytes, before its UDP header.
    fn with_extensions(kinds: &[u8], fill: impl Fn(u8) -> [u8; 6]) -> Vec<u8> {
        let plain = udp6("fd00::1".parse().unwrap(), "fd00:1::1".parse().unwrap(), b"hello");
        let following = kinds.iter().skip(1).copied().chain([UDP]);
        let chain: Vec<u8> = kinds
            .iter()
            .zip(following)
            .flat_map(|(kind, next)| [&[next, 0][..], &fill(*kind)].concat())
            .collect();
        let mut packet = [&plain[..40], &chain, &plain[40..]].concat();
        packet[6] = kinds[0];
        let length = u16::try_from(packet.len() - 40).unwrap();
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        packet
    }

    #[test]
    fn ipv6_headers_that_change_on_the_way_are_refused_wherever_they_stand() {
        // PadN of four bytes; a routing header with one segment left is all the same here.
        let pad = |_| [1, 4, 0, 0, 0, 0];
        let check = |packet: &[u8]| Packet::new_checked(packet).err();
        assert_eq!(check(&with_extensions(&[DESTINATION_OPTIONS], pad)), None);
        assert_eq!(check(&with_extensions(&[DESTINATION_OPTIONS, FRAGMENT], |_| [0; 6])), None);
        for kinds in [
            &[ROUTING][..],
            &[HOP_BY_HOP],
            &[DESTINATION_OPTIONS, ROUTING],
            &[DESTINATION_OPTIONS, DESTINATION_OPTIONS, ROUTING, DESTINATION_OPTIONS],
            &[DESTINATION_OPTIONS; 9],
        ] {
            assert_eq!(check(&with_extensions(kinds, pad)), Some(Unprotected::MutableOptions), "{kinds:?}");
        }
        for options in [[0x21, 4, 0, 0, 0, 0], [0, 0, 0x3e, 2, 0, 0], [1, 5, 0, 0, 0, 0]] {
            let packet = with_extensions(&[DESTINATION_OPTIONS], |_| options);
            assert_eq!(check(&packet), Some(Unprotected::MutableOptions), "{options:?}");
        }
        // The chain points behind the end.
        let mut packet = with_extensions(&[DESTINATION_OPTIONS], pad);
        packet[41] = 200;
        assert_eq!(check(&packet), Some(Unprotected::MutableOptions));
    }

    #[test]
    fn a_repair_behind_extension_headers_is_recognized() {
        let packet = with_extensions(&[DESTINATION_OPTIONS], |_| [1, 4, 0, 0, 0, 0]);
        let port = u16::from_be_bytes([packet[50], packet[51]]);
        let to = SocketAddr::new("fd00:1::1".parse().unwrap(), port);
        assert!(Packet::new_checked(&packet).unwrap().is_udp_to(to));
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
