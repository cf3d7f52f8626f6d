//! The source symbol: what of a packet enters the code (compare RFC 6363's ADUI).
//!
//! hash (8) ‖ length (2) ‖ mutable fields (2) ‖ the packet with its mutable fields zeroed. The hash makes every
//! recovered packet prove itself; the fields stand apart because the two ends see different ones.

use std::net::SocketAddr;

use crate::identity::{Identity, PacketHash};
use crate::packet::{MutableFields, Packet, StableHeader, restore};
use crate::prefixes::PrefixTable;

/// Bytes of a symbol before the packet.
pub const SYMBOL_HEADER: usize = 12;
const FIELDS_AT: usize = 10;
const FRONT_MAX: usize = SYMBOL_HEADER + 40;

/// A packet's symbol in two pieces: the front is made, the rest is the packet's own bytes.
pub struct Symbol<'a> {
    front: [u8; FRONT_MAX],
    front_len: usize,
    behind: &'a [u8],
}

impl<'a> Symbol<'a> {
    /// The symbol of `packet`, which hashes to `hash`; `fields` are zero where the packet was received, until a repair
    /// tells with which ones it was sent: [`set_fields`].
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

    /// The pieces, to be read one behind the other.
    pub fn pieces(&self) -> [&[u8]; 2] {
        [&self.front[..self.front_len], self.behind]
    }
}

/// The mutable fields that a symbol holds: those that its packet left the far site with, none before a repair told them.
pub fn fields_of(symbol: &[u8]) -> Option<MutableFields> {
    let &[ttl, tos] = symbol.get(FIELDS_AT..SYMBOL_HEADER)? else { return None };
    Some(MutableFields { ttl, tos })
}

/// Writes into a symbol with which fields its packet left the far site; equations are over whole symbols.
pub fn set_fields(symbol: &mut [u8], fields: MutableFields) {
    if let Some(place) = symbol.get_mut(FIELDS_AT..SYMBOL_HEADER) {
        place.copy_from_slice(&[fields.ttl, fields.tos]);
    }
}

/// The packet in a solved symbol, whole again, written to `packet`; `None` unless it has the identity that left the
/// far site.
pub fn verify<'p>(
    symbol: &[u8],
    identity: &Identity,
    packet: &'p mut [u8],
) -> Option<(PacketHash, &'p [u8])> {
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

/// A peer may bring back what comes from its own site, and nothing else.
pub(crate) fn may_inject(packet: &[u8], networks: &PrefixTable<()>, listen: SocketAddr) -> bool {
    let Ok(packet) = Packet::new_checked(packet) else { return false };
    networks.contains(packet.source()) && !packet.is_udp_to(listen)
}
