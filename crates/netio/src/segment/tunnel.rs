//! Detects super-packets of tunnels, and finds the packet inside a tunnel's packet.
//!
//! Both UDP's own and a tunnel's super-packet have an outer UDP header and a segment size. The kernel cuts
//! the former at the outer payload (`gso_type` `SKB_GSO_UDP_L4`), the latter at the innermost payload
//! (`SKB_GSO_UDP_TUNNEL`). Neither an eBPF program nor a virtio-net header shows which it is. The number of
//! segments does not suffice: a short last segment hides the inner headers' length. Three signs do:
//!
//! - the kernel makes and merges segments of UDP itself only with a UDP checksum; tunnels often have none;
//! - the one unfinished checksum that a virtio-net header names is the innermost one;
//! - the inner packet of a tunnel's super-packet is as long as all segments together, so it ends where the
//!   super-packet ends. Datagrams that were merely sent or merged together each have their own inner packet.
//!
//! The last sign holds for every tunnel, whatever its port. The ports of well-known tunnels decide only if
//! neither the kernel's number of segments nor the place of the checksum indicates UDP itself.

use crate::checksum::Sum;
use crate::header::{Layout, TCP, UDP, word};
use crate::offload::Offload;

/// VXLAN (RFC 7348 §5), VXLAN of early Linux, VXLAN-GPE and OTV, Geneve (RFC 8926 §3.3).
const PORTS: [u16; 4] = [4789, 8472, 4790, 6081];
/// Maximum distance of an inner IP header from the outer UDP header: Geneve with all options (8 + 252 bytes)
/// and an Ethernet header with two tags.
const BETWEEN_MAX: usize = 260 + 22;
/// The same for single packets outside known tunnels, which are frequent: VXLAN, GRE with all fields and
/// Ethernet, Geneve with some options.
const BETWEEN: usize = 62;

pub(super) const ETHERTYPE_V6: u16 = 0x86dd;
pub(super) const GRE: u8 = 47;
pub(super) const IPV4: u8 = 4;
pub(super) const IPV6: u8 = 41;

/// Sign by which a UDP super-packet was recognized as a tunnel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sign {
    /// The packet has no UDP checksum. Segments of UDP itself always have one.
    NoChecksum,
    /// The unfinished checksum is not that of the outer UDP header.
    InnerChecksum,
    /// An IP packet inside extends to the end, over all segments.
    InnerPacket,
    /// Source or destination port is that of a tunnel, and no sign indicates UDP itself.
    Port(u16),
}

impl std::fmt::Display for Sign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoChecksum => f.write_str("it has no checksum"),
            Self::InnerChecksum => f.write_str("its unfinished checksum is an inner one"),
            Self::InnerPacket => f.write_str("an inner packet extends to its end"),
            Self::Port(port) => write!(f, "port {port}"),
        }
    }
}

/// Returns the sign that this UDP super-packet belongs to a tunnel, or `None`. `packet` ends where its IP
/// header says, includes the UDP header, and lies behind `outer` bytes of other headers.
pub(super) fn sign(packet: &[u8], layout: &Layout, outer: usize, offload: &Offload) -> Option<Sign> {
    let at = layout.transport;
    if word(packet, at + 6) == 0 {
        return Some(Sign::NoChecksum);
    }
    let has_place = offload.needs_checksum && offload.checksum_start > 0;
    if has_place && usize::from(offload.checksum_start) != outer + at {
        return Some(Sign::InnerChecksum);
    }
    if over_udp(packet, layout).is_some() {
        return Some(Sign::InnerPacket);
    }
    if has_place || offload.segment_count > 1 {
        return None;
    }
    port(packet, layout).map(Sign::Port)
}

/// Finds the packet inside a tunnel over UDP: its offset. It ends where the outer packet ends.
pub(super) fn over_udp(packet: &[u8], layout: &Layout) -> Option<usize> {
    let start = layout.transport + 8;
    Some(start + whole_ip(&packet[start..layout.total], BETWEEN_MAX)?)
}

/// Finds the packet inside a tunnel's single packet: its offset and layout. It ends where the outer packet
/// ends.
pub(super) fn inner_packet(packet: &[u8], layout: &Layout) -> Option<(usize, Layout)> {
    if layout.fragment {
        return None;
    }
    let (start, between) = match layout.protocol {
        UDP if layout.checksum_offset().is_none() => return None,
        UDP if port(packet, layout).is_some() => (layout.transport + 8, BETWEEN_MAX),
        UDP => (layout.transport + 8, BETWEEN),
        GRE | IPV4 | IPV6 => (layout.transport, BETWEEN),
        _ => return None,
    };
    let at = start + whole_ip(&packet[start..layout.total], between)?;
    Some((at, Layout::of(&packet[at..layout.total])?))
}

/// Returns the port of a well-known tunnel that a UDP packet comes from or goes to.
fn port(packet: &[u8], layout: &Layout) -> Option<u16> {
    let ports = [word(packet, layout.transport), word(packet, layout.transport + 2)];
    ports.into_iter().find(|port| PORTS.contains(port))
}

/// Finds an IP packet that begins within the first `between` bytes of the payload and ends where the payload
/// ends. All headers have even lengths.
fn whole_ip(payload: &[u8], between: usize) -> Option<usize> {
    let begins = |at: &usize| match payload.get(*at..) {
        Some(bytes) => is_whole_v4(bytes) || (is_whole_v6(bytes) && may_be_v6(payload, *at)),
        None => false,
    };
    (0..=between).step_by(2).find(begins)
}

/// Returns whether this looks like an IPv4 packet of exactly this length. Random bytes do at one position in
/// 10^11.
fn is_whole_v4(bytes: &[u8]) -> bool {
    let Some(first) = bytes.first() else { return false };
    let header = usize::from(first & 15) * 4;
    first >> 4 == 4
        && header >= 20
        && bytes.len() > header
        && usize::from(word(bytes, 2)) == bytes.len()
        && Sum::of(&bytes[..header]).fold() == 0xffff
}

/// Returns whether this looks like an IPv6 packet of exactly this length. Random bytes do at one position in
/// 3 * 10^7.
fn is_whole_v6(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first >> 4 == 6)
        && bytes.len() > 40
        && usize::from(word(bytes, 4)) == bytes.len() - 40
        // and extension headers
        && matches!(bytes[6], TCP | UDP | IPV4 | IPV6 | GRE | 0 | 43 | 60)
}

/// An IPv6 header has no checksum. Instead, a header before it must announce it: an Ethernet or GRE header
/// just before, or the start of a Geneve header. The shortest headers (FOU, GUE, GRE) are accepted without.
fn may_be_v6(payload: &[u8], at: usize) -> bool {
    at <= 16 || word(payload, at - 2) == ETHERTYPE_V6 || word(payload, 2) == ETHERTYPE_V6
}
