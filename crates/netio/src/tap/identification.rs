//! Detects whether the segments of a captured super-packet count their IPv4 identification up or share one.
//!
//! The kernel merges both kinds of flow (GRO) and remembers the kind, but reports it to no tap. Linux counts
//! up; some other systems send every "don't fragment" TCP segment with identification 0. So 0 with "don't
//! fragment" means a fixed identification, unless the flow was seen with another number: then its count has
//! wrapped to 0.

use crate::header::TCP;
use crate::offload::{Gso, Offload};

const FLOWS: usize = 1024;

/// TCP flows that were seen counting, unless another flow displaced them.
pub(super) struct Identifications {
    flows: Box<[u32; FLOWS]>,
}

impl Identifications {
    pub(super) fn new() -> Self {
        Self { flows: Box::new([0; FLOWS]) }
    }

    /// Records the packet's flow and sets `fixed_id` of its offload.
    pub(super) fn note(&mut self, packet: &[u8], offload: &mut Offload) {
        let Some(header) = packet.first_chunk::<20>() else { return };
        if header[0] >> 4 != 4 || header[9] != TCP || header[6] & 0x40 == 0 {
            return;
        }
        let transport = usize::from(header[0] & 0x0f) * 4;
        let Some(ports) = packet.get(transport..transport + 4) else { return };
        let (at, tag) = place_and_tag(&header[12..20], ports);
        if header[4..6] != [0, 0] {
            self.flows[at] = tag;
        } else if offload.gso == Gso::Tcp4 {
            offload.fixed_id = self.flows[at] != tag;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::shape::plain;

    fn fixed(ids: &mut Identifications, id: u16, gso: Gso) -> bool {
        let mut offload = Offload { gso, ..Offload::default() };
        ids.note(&plain().packet(id, 1, 0x10, &[0; 100]), &mut offload);
        offload.fixed_id
    }

    #[test]
    fn only_a_flow_that_never_counted_has_a_fixed_identification() {
        let mut ids = Identifications::new();
        assert!(fixed(&mut ids, 0, Gso::Tcp4));
        assert!(fixed(&mut ids, 0, Gso::Tcp4));
        assert!(!fixed(&mut ids, 0, Gso::None));
        assert!(!fixed(&mut ids, 65_535, Gso::Tcp4));
        assert!(!fixed(&mut ids, 0, Gso::Tcp4), "the count has wrapped");
    }
}
