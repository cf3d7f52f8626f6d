//! Is a UDP super-packet one of a tunnel?
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
    if inner_packet_fills(&packet[at + 8..]) {
        return Some(Sign::InnerPacket);
    }
    if told || offload.segment_count > 1 {
        return None;
    }
    let ports = [word(packet, at), word(packet, at + 2)];
    ports.into_iter().find(|port| PORTS.contains(port)).map(Sign::Port)
}

/// Whether an IP packet begins near the start of the payload and ends where the payload ends. All headers are
/// of even length.
fn inner_packet_fills(payload: &[u8]) -> bool {
    (0..=BETWEEN_MAX).step_by(2).map_while(|at| payload.get(at..)).any(is_whole_ip)
}

/// Whether this looks like an IP packet of just this length. Random bytes do at one place of 10^11 (IPv4) or of
/// 3 * 10^7 (IPv6), and then one super-packet is not cut.
fn is_whole_ip(bytes: &[u8]) -> bool {
    match bytes.first().map(|byte| byte >> 4) {
        Some(4) => {
            let header = usize::from(bytes[0] & 15) * 4;
            header >= 20
                && bytes.len() > header
                && usize::from(word(bytes, 2)) == bytes.len()
                && Sum::of(&bytes[..header]).fold() == 0xffff
        }
        Some(6) => {
            bytes.len() > 40
                && usize::from(word(bytes, 4)) == bytes.len() - 40
                // IPv4, IPv6, GRE, and what Layout follows
                && matches!(bytes[6], TCP | UDP | 0 | 4 | 41 | 43 | 47 | 60)
        }
        _ => false,
    }
}
