//! Detects whether the segments of a super-packet count their IPv4 identification up or share one.
//!
//! The kernel merges both kinds of flow (GRO) and remembers the kind, but reports it to nobody. Linux counts
//! up; some other systems send every "don't fragment" TCP segment with identification 0. So 0 with "don't
//! fragment" means a fixed identification, unless the flow was seen with another number: then its count has
//! wrapped to 0. The same holds for each IP header of a tunnel's super-packet.

use crate::header::TCP;
use crate::offload::Offload;
use crate::segment::each_ip_header;

const FLOWS: usize = 1024;

/// TCP flows, and pairs of addresses of tunnels, that were seen counting, unless others displaced them.
#[derive(Debug)]
pub struct Identifications {
    flows: Box<[u32; FLOWS]>,
}

impl Identifications {
    /// Begins without knowledge of any flow.
    pub fn new() -> Self {
        Self { flows: Box::new([0; FLOWS]) }
    }

    /// Records the flows of the packet's IP headers and sets `counting` of its offload.
    ///
    /// Only super-packets are searched for inner headers. A flow inside a tunnel whose count wraps was seen
    /// in super-packets before, or sends so slowly that none are merged.
    pub fn note(&mut self, packet: &[u8], offload: &mut Offload) {
        offload.counting = 0;
        if !offload.is_super() {
            self.is_counting(packet, true);
            return;
        }
        let (mut counting, mut bit) = (0, 1);
        each_ip_header(packet, offload, |header, is_innermost| {
            if self.is_counting(header, is_innermost) {
                counting |= bit;
            }
            bit <<= 1;
        });
        offload.counting = counting;
    }

    /// Records the flow of the packet at its outermost header, and returns whether it is known to count.
    fn is_counting(&mut self, packet: &[u8], is_innermost: bool) -> bool {
        let Some(header) = packet.first_chunk::<20>() else { return false };
        if header[0] >> 4 != 4 || header[6] & 0x40 == 0 || (is_innermost && header[9] != TCP) {
            return false;
        }
        // A tunnel counts for all flows inside, whatever the ports of its outer headers.
        let transport = usize::from(header[0] & 0x0f) * 4;
        let ports = if is_innermost { packet.get(transport..transport + 4) } else { Some(&[0; 4][..]) };
        let Some(ports) = ports else { return false };
        let (at, tag) = place_and_tag(&header[12..20], ports);
        if header[4..6] != [0, 0] {
            self.flows[at] = tag;
        }
        self.flows[at] == tag
    }
}

/// Returns a flow's place in the table and its tag. Two flows may share both; a wrong guess is rare and costs
/// one super-packet.
fn place_and_tag(addresses: &[u8], ports: &[u8]) -> (usize, u32) {
    let mut mixed = 0_u64;
    for four in addresses.chunks_exact(4).chain([ports]) {
        let word = u64::from(u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
        mixed = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^= mixed >> 32;
    }
    (mixed as usize % FLOWS, (mixed >> 16) as u32 | 1)
}

impl Default for Identifications {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::Gso;
    use crate::segment::shape::{Shape, plain};

    fn counting(ids: &mut Identifications, packet: &[u8], gso: Gso) -> u8 {
        let mut offload = Offload { gso, segment_size: 100, ..Offload::default() };
        ids.note(packet, &mut offload);
        offload.counting
    }

    fn packet(id: u16) -> Vec<u8> {
        plain().packet(id, 1, 0x10, &[0; 150])
    }

    #[test]
    fn only_a_flow_that_never_counted_has_a_fixed_identification() {
        let mut ids = Identifications::new();
        assert_eq!(counting(&mut ids, &packet(0), Gso::Tcp4), 0);
        assert_eq!(counting(&mut ids, &packet(0), Gso::Tcp4), 0);
        assert_eq!(counting(&mut ids, &packet(0), Gso::None), 0);
        assert_eq!(counting(&mut ids, &packet(65_535), Gso::None), 0);
        assert_eq!(counting(&mut ids, &packet(0), Gso::Tcp4), 1, "the count has wrapped");
    }

    /// VXLAN: 8 bytes and an Ethernet header.
    fn in_vxlan(outer: u16, inner: u16, inner_ports: u8) -> Vec<u8> {
        let mut inner = packet(inner);
        inner[21] = inner_ports;
        let ports = if inner_ports.is_multiple_of(2) { 1 } else { 2 };
        let mut whole = Shape { udp: true, ..plain() }.packet(outer, 0, 0, &[&[0; 22][..], &inner].concat());
        whole[21] = ports; // the source port of VXLAN depends on the inner flow
        whole
    }

    #[test]
    fn headers_of_a_tunnel_are_told_apart() {
        let mut ids = Identifications::new();
        let mut of = |outer, inner, ports| counting(&mut ids, &in_vxlan(outer, inner, ports), Gso::Udp4);
        assert_eq!(of(0, 0, 4), 0);
        assert_eq!(of(0, 7, 4), 2, "the flow inside counts");
        assert_eq!(of(0, 0, 4), 2, "its count has wrapped");
        assert_eq!(of(0, 0, 5), 0, "another flow inside does not count");
        assert_eq!(of(9, 0, 5), 1);
        assert_eq!(of(0, 0, 6), 1, "the tunnel counts for all flows inside");
    }
}
