//! The source symbol: the form in which a packet enters the code (compare RFC 6363's ADUI).
//!
//! hash (8) ‖ length (2) ‖ mutable fields (2) ‖ the packet with its mutable fields zeroed. The hash
//! authenticates every recovered packet. The fields are separate because the two ends see different ones.

use std::net::SocketAddr;

use crate::identity::{Identity, PacketHash};
use crate::packet::{MutableFields, Packet, StableHeader, restore};
use crate::prefixes::PrefixTable;

/// Length of a symbol's header in bytes.
pub const SYMBOL_HEADER: usize = 12;
const FIELDS_AT: usize = 10;
const FRONT_MAX: usize = SYMBOL_HEADER + 40;

/// A packet's symbol in two pieces: a composed front, and the rest of the packet's own bytes.
pub struct Symbol<'a> {
    front: [u8; FRONT_MAX],
    front_len: usize,
    behind: &'a [u8],
}

impl<'a> Symbol<'a> {
    /// Creates the symbol of `packet`, which hashes to `hash`. The receiver passes zero `fields` and sets
    /// them when a repair states those with which the packet was sent ([`set_fields`]).
    pub fn new(packet: &Packet<'a>, hash: PacketHash, fields: MutableFields) -> Self {
        let header: StableHeader = packet.stable_header();
        let header = header.as_slice();
        let mut front = [0; FRONT_MAX];
        front[..8].copy_from_slice(&hash.0.to_be_bytes());
        front[8..10].copy_from_slice(&(packet.as_slice().len() as u16).to_be_bytes());
        front[FIELDS_AT..SYMBOL_HEADER].copy_from_slice(&[fields.ttl, fields.tos]);
        front[SYMBOL_HEADER..SYMBOL_HEADER + header.len()].copy_from_slice(header);
        Self { front, front_len: SYMBOL_HEADER + header.len(), behind: packet.behind_header() }
    }

    /// Creates the symbol of a packet in a tunnel, which arrives as it was sent: no hash and no fields, and
    /// the whole packet as it is.
    pub fn whole(packet: &'a [u8]) -> Self {
        let mut front = [0; FRONT_MAX];
        front[8..10].copy_from_slice(&(packet.len() as u16).to_be_bytes());
        Self { front, front_len: SYMBOL_HEADER, behind: packet }
    }

    /// Returns the two consecutive pieces.
    pub fn pieces(&self) -> [&[u8]; 2] {
        [&self.front[..self.front_len], self.behind]
    }
}

/// Returns the mutable fields in a symbol: those with which its packet left the far site, or zeros while
/// unknown.
pub fn fields_of(symbol: &[u8]) -> Option<MutableFields> {
    let &[ttl, tos] = symbol.get(FIELDS_AT..SYMBOL_HEADER)? else { return None };
    Some(MutableFields { ttl, tos })
}

/// Writes into a symbol the fields with which its packet left the far site. Equations need whole symbols.
pub fn set_fields(symbol: &mut [u8], fields: MutableFields) {
    if let Some(place) = symbol.get_mut(FIELDS_AT..SYMBOL_HEADER) {
        place.copy_from_slice(&[fields.ttl, fields.tos]);
    }
}

/// Restores the packet of a solved symbol into `packet`; `None` unless it has the identity that left the far
/// site.
pub fn verify<'p>(
    symbol: &[u8],
    identity: &Identity,
    packet: &'p mut [u8],
) -> Option<(PacketHash, &'p mut [u8])> {
    let (front, body) = symbol.split_at_checked(SYMBOL_HEADER)?;
    let hash = PacketHash(u64::from_be_bytes(*front.first_chunk()?));
    let len = usize::from(u16::from_be_bytes([front[8], front[9]]));
    let bytes = body.get(..len)?;
    let packet = packet.get_mut(..len)?;
    packet.copy_from_slice(bytes);
    let checked = Packet::new_checked(packet).ok()?;
    if checked.as_slice().len() != len || identity.hash(&checked) != hash {
        return None;
    }
    restore(packet, fields_of(front)?);
    Some((hash, packet))
}

/// Returns the packet of a tunnel's solved symbol; `None` if it is none. Repairs are authenticated, so this
/// only finds contradictions between them.
pub fn whole_packet(symbol: &[u8]) -> Option<Packet<'_>> {
    let (front, body) = symbol.split_at_checked(SYMBOL_HEADER)?;
    let len = usize::from(u16::from_be_bytes([front[8], front[9]]));
    let is_plain = front[..8] == [0; 8] && front[FIELDS_AT..] == [0; 2];
    let packet = Packet::new_whole(body.get(..len).filter(|_| is_plain)?).ok()?;
    (packet.as_slice().len() == len).then_some(packet)
}

/// Whether a recovered packet may be injected: it must come from the peer's site and not be a repair.
pub(crate) fn may_inject(packet: &[u8], networks: &PrefixTable<()>, listen: SocketAddr) -> bool {
    let Ok(packet) = Packet::new_checked(packet) else { return false };
    networks.contains(packet.source()) && !packet.is_udp_to(listen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::udp4;

    #[test]
    fn only_packets_of_the_far_site_that_are_no_repairs_may_be_injected() {
        let networks = PrefixTable::new([("10.0.1.0/24".parse().unwrap(), ())]);
        let (to, listen) = ([10, 0, 2, 1], SocketAddr::from(([10, 0, 2, 1], 4700)));
        let may = |from: [u8; 4], port: u16| {
            let mut packet = udp4(from, to, 77, b"hello");
            packet[22..24].copy_from_slice(&port.to_be_bytes());
            may_inject(&packet, &networks, listen)
        };
        assert!(may([10, 0, 1, 9], 4701));
        assert!(!may([10, 0, 1, 9], 4700), "a repair");
        assert!(!may([10, 0, 3, 9], 4701), "from elsewhere");
        assert!(!may_inject(&[0x45; 9], &networks, listen));
    }
}
