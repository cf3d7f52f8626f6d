//! Is a UDP super-packet one of a tunnel? And where is the packet inside a tunnel's packet?
//!
//! Both kinds bear an outer UDP header and a segment size, but UDP's own is cut at the outer payload (`gso_type`
//! `SKB_GSO_UDP_L4`), a tunnel's at the innermost one (`SKB_GSO_UDP_TUNNEL`), and neither an eBPF program nor a
//! virtio-net header tells which. The number of segments alone does not either: a short last segment hides the
//! inner headers' length. What does:
//!
//! - the kernel makes and merges segments of UDP itself only with a UDP checksum; tunnels often have none;
//! - the one unfinished checksum that a virtio-net header names is the innermost one;
//! - the inner packet of a tunnel's super-packet is as long as all segments together, so it ends where the
//!   super-packet ends. Datagrams that were merely sent or merged together have each their own.
//!
//! The last holds of every tunnel, whatever its port. The ports of well-known tunnels decide only where neither
//! the kernel's number of segments nor the place of the checksum speaks for UDP itself.

use super::{Sign, word};
use crate::Offload;
use crate::checksum::Sum;
use crate::header::{Layout, TCP, UDP};

/// VXLAN (RFC 7348 §5), VXLAN of early Linux, VXLAN-GPE and OTV, Geneve (RFC 8926 §3.3).
const PORTS: [u16; 4] = [4789, 8472, 4790, 6081];
/// What may stand between the outer UDP header and an inner IP header: Geneve with all options (8 + 252 bytes),
/// an Ethernet header with two tags.
const BETWEEN_MAX: usize = 260 + 22;
/// The same for single packets, which are many, of what is not known to be a tunnel: VXLAN, GRE with all fields and
/// Ethernet, Geneve with some options.
const BETWEEN: usize = 62;

const ETHERTYPE_V6: u16 = 0x86dd;
const GRE: u8 = 47;
const IPV4: u8 = 4;
const IPV6: u8 = 41;

/// Why this UDP super-packet is taken for one of a tunnel; `None` where it is not. `packet` ends where its IP
/// header says and holds the UDP header.
pub(super) fn sign(packet: &[u8], layout: &Layout, offload: &Offload) -> Option<Sign> {
    let at = layout.transport;
    if word(packet, at + 6) == 0 {
        return Some(Sign::NoChecksum);
    }
    let told = offload.needs_checksum && offload.checksum_start > 0;
    if told && usize::from(offload.checksum_start) != at {
        return Some(Sign::InnerChecksum);
    }
    if whole_ip(&packet[at + 8..], BETWEEN_MAX).is_some() {
        return Some(Sign::InnerPacket);
    }
    if told || offload.segment_count > 1 {
        return None;
    }
    port(packet, layout).map(Sign::Port)
}

/// The packet inside a tunnel's single packet: where it begins, and its layout. It ends where the outer packet does.
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

/// The port of a well-known tunnel that a UDP packet is from or to.
fn port(packet: &[u8], layout: &Layout) -> Option<u16> {
    let ports = [word(packet, layout.transport), word(packet, layout.transport + 2)];
    ports.into_iter().find(|port| PORTS.contains(port))
}

/// Where an IP packet begins, at most so many bytes from the start of the payload, that ends where the payload ends.
/// All headers are of even length.
fn whole_ip(payload: &[u8], between: usize) -> Option<usize> {
    let begins = |at: &usize| match payload.get(*at..) {
        Some(bytes) => is_whole_v4(bytes) || (is_whole_v6(bytes) && may_be_v6(payload, *at)),
        None => false,
    };
    (0..=between).step_by(2).find(begins)
}

/// Whether this looks like an IPv4 packet of just this length. Random bytes do at one place of 10^11.
fn is_whole_v4(bytes: &[u8]) -> bool {
    let Some(first) = bytes.first() else { return false };
    let header = usize::from(first & 15) * 4;
    first >> 4 == 4
        && header >= 20
        && bytes.len() > header
        && usize::from(word(bytes, 2)) == bytes.len()
        && Sum::of(&bytes[..header]).fold() == 0xffff
}

/// Whether this looks like an IPv6 packet of just this length. Random bytes do at one place of 3 * 10^7.
fn is_whole_v6(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first >> 4 == 6)
        && bytes.len() > 40
        && usize::from(word(bytes, 4)) == bytes.len() - 40
        // and extension headers
        && matches!(bytes[6], TCP | UDP | IPV4 | IPV6 | GRE | 0 | 43 | 60)
}

/// An IPv6 header has no checksum to know it by, but something before it says what follows: an Ethernet or GRE
/// header just before it, or the start of a Geneve header; or it is within the shortest headers (FOU, GUE, GRE).
fn may_be_v6(payload: &[u8], at: usize) -> bool {
    at <= 16 || word(payload, at - 2) == ETHERTYPE_V6 || word(payload, 2) == ETHERTYPE_V6
}
