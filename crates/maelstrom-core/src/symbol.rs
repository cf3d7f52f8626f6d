//! The source symbol: what of a packet enters the code (compare RFC 6363's ADUI).
//!
//! hash (8) ‖ length (2) ‖ mutable fields (2) ‖ the packet with its mutable fields zeroed. The hash makes every
//! recovered packet prove itself; the fields stand apart because the two ends see different ones.

use crate::identity::{Identity, PacketHash};
use crate::packet::{MutableFields, Packet, StableHeader, restore};

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
    /// The symbol of `packet`, which hashes to `hash`; `fields` are zero where the packet was received, since the
    /// equation is over what was sent.
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

/// Takes the fields that a recipe names out of a coded symbol, so that the equation is over packets alone.
pub fn subtract_fields(coded: &mut [u8], coefficient: u8, fields: MutableFields) {
    fec::gf256::mul_add(&mut coded[FIELDS_AT..SYMBOL_HEADER], coefficient, &[fields.ttl, fields.tos]);
}

/// The packet in a solved symbol, whole again, written to `packet`; `None` unless it has the identity that left the
/// far site. `named` are the fields that its recipe says; what the symbol still holds of fields is added to them.
pub fn verify<'p>(
    symbol: &[u8],
    named: MutableFields,
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
    restore(packet, MutableFields { ttl: front[10] ^ named.ttl, tos: front[11] ^ named.tos });
    Some((hash, packet))
}
