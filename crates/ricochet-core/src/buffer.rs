//! The data buffer: packets that this node lately sent, received or recovered, and packets that repairs have
//! shown to be missing (Ricochet §4.2).
//!
//! Packets of others are numbered in the order in which this node learned of them; the decoder knows them by
//! these ids. The node's own packets are kept apart ([`SentPackets`]), and their ids are not in that order.

use fec::{SymbolHandle, SymbolRing};
use hashbrown::HashMap;

use crate::ids::{NodeId, StreamKey};
use crate::sent_packets::SentPackets;
use crate::wire::{Data, JOINT_MAX, Name};

/// Bit of the ids of this node's own packets.
const SENT: u64 = 1 << 63;

/// Identifies a packet within a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PacketKey {
    pub(crate) stream: StreamKey,
    /// Low 32 bits of its sequence number.
    pub(crate) seq: u32,
}

impl PacketKey {
    pub(crate) fn name(self) -> Name {
        Name { sender: self.stream.sender, group: self.stream.group.tag(), seq: self.seq }
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    id: u64,
    key: PacketKey,
    /// `None` while the packet is missing.
    symbol: Option<SymbolHandle>,
}

/// Result of [`Buffer::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Put {
    pub(crate) id: u64,
    /// Whether a repair had named the packet, so that equations may wait for it.
    pub(crate) was_wanted: bool,
}

/// The newest packets of others, of which the oldest leaves first, and those of this node.
#[derive(Debug)]
pub(crate) struct Buffer {
    me: NodeId,
    sent: SentPackets,
    ring: SymbolRing,
    /// Indexed by id modulo length.
    places: Box<[Option<Place>]>,
    ids: HashMap<PacketKey, u64>,
    next: u64,
    /// Number of places whose packet has not come, at most half of all.
    missing: usize,
}

impl Buffer {
    /// Makes a buffer of the node `me` for `packets` symbols of others of up to `symbol_max` bytes, for as
    /// many missing packets, and for as many of its own.
    pub(crate) fn new(me: NodeId, packets: usize, symbol_max: usize) -> Self {
        Self {
            me,
            sent: SentPackets::new(packets, symbol_max),
            // One symbol more, since the ring may leave up to one symbol's length idle at its end.
            ring: SymbolRing::new(packets, (packets + 1) * symbol_max),
            places: vec![None; 2 * packets].into_boxed_slice(),
            // With twice the room the table rehashes in place and never grows.
            ids: HashMap::with_capacity(4 * packets),
            next: 0,
            missing: 0,
        }
    }

    /// Keeps a packet of this node that takes `count` positions. `is_awaited` tells whether readers wait for
    /// an earlier one, by its last position.
    pub(crate) fn put_sent(
        &mut self,
        key: PacketKey,
        count: u32,
        symbol: &[&[u8]],
        is_awaited: impl Fn(PacketKey) -> bool,
    ) {
        self.sent.put(key, count, symbol, is_awaited);
    }

    /// Keeps the symbol of another node's packet, given as consecutive pieces. `None` if it is longer than
    /// the whole buffer.
    pub(crate) fn put(&mut self, key: PacketKey, symbol: &[&[u8]]) -> Option<Put> {
        debug_assert!(key.stream.sender != self.me, "an own packet is put elsewhere");
        let handle = self.ring.push(symbol)?;
        let (id, was_wanted) = match self.ids.get(&key) {
            Some(&id) => (id, true),
            None => (self.add(key), false),
        };
        if let Some(place) = self.place_mut(id) {
            let came = place.symbol.replace(handle).is_none();
            self.missing -= usize::from(came);
        }
        Some(Put { id, was_wanted })
    }

    /// Returns the id of a packet. An unknown packet of another node gets an id and counts as missing; `None`
    /// if the maximum number of packets is missing already. The bound keeps mere names from pushing out
    /// packets.
    pub(crate) fn want(&mut self, key: PacketKey) -> Option<u64> {
        if key.stream.sender == self.me {
            return self.held(key);
        }
        match self.ids.get(&key) {
            Some(&id) => Some(id),
            None if self.missing >= self.places.len() / 2 => None,
            None => Some(self.add(key)),
        }
    }

    /// Returns the packet with an id, if it is missing.
    pub(crate) fn wanted(&self, id: u64) -> Option<PacketKey> {
        self.place(id).filter(|place| self.symbol_of(place).is_none()).map(|place| place.key)
    }

    /// Returns the id of a packet, if its symbol is here.
    pub(crate) fn held(&self, key: PacketKey) -> Option<u64> {
        if key.stream.sender == self.me {
            return self.sent.place(key).map(|at| SENT | u64::from(at));
        }
        self.ids.get(&key).copied().filter(|&id| self.symbol(id).is_some())
    }

    /// Returns the id of the packet that holds a position of a stream, if it is here. Only a packet with
    /// several messages holds positions after its own.
    pub(crate) fn covering(&self, key: PacketKey) -> Option<u64> {
        for back in 0..JOINT_MAX as u32 {
            let first = PacketKey { seq: key.seq.wrapping_sub(back), ..key };
            let Some(id) = self.held(first) else { continue };
            let data = |symbol| Data::from_symbol(first.name(), key.stream.group, symbol).ok();
            let count =
                if back == 0 { 1 } else { self.symbol(id).and_then(data).map_or(1, |data| data.count()) };
            return (back < count).then_some(id);
        }
        None
    }

    /// Returns the symbol of the packet with an id, if it is here.
    pub(crate) fn symbol(&self, id: u64) -> Option<&[u8]> {
        self.packet(id).map(|(_, symbol)| symbol)
    }

    /// Returns the packet with an id and its symbol, if that is here.
    pub(crate) fn packet(&self, id: u64) -> Option<(PacketKey, &[u8])> {
        if id & SENT != 0 {
            return self.sent.packet(id as u32);
        }
        let place = self.place(id)?;
        self.symbol_of(place).map(|symbol| (place.key, symbol))
    }

    /// Returns the first id of the packets of others that is not yet forgotten.
    pub(crate) fn first_id(&self) -> u64 {
        self.next.saturating_sub(self.places.len() as u64)
    }

    /// Returns the memory held, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let others = self.ring.memory_bytes() + size_of_val(&*self.places) + self.ids.allocation_size();
        others + self.sent.memory_bytes()
    }

    fn add(&mut self, key: PacketKey) -> u64 {
        let id = self.next;
        self.next += 1;
        let at = (id % self.places.len() as u64) as usize;
        self.missing += 1;
        if let Some(old) = self.places[at].replace(Place { id, key, symbol: None }) {
            self.missing -= usize::from(old.symbol.is_none());
            self.ids.remove(&old.key);
        }
        self.ids.insert(key, id);
        id
    }

    fn place(&self, id: u64) -> Option<&Place> {
        self.places[(id % self.places.len() as u64) as usize].as_ref().filter(|place| place.id == id)
    }

    fn place_mut(&mut self, id: u64) -> Option<&mut Place> {
        let at = (id % self.places.len() as u64) as usize;
        self.places[at].as_mut().filter(|place| place.id == id)
    }

    fn symbol_of(&self, place: &Place) -> Option<&[u8]> {
        self.ring.get(place.symbol?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{GroupId, NodeId};

    const ME: NodeId = NodeId(2);

    fn key(seq: u32) -> PacketKey {
        PacketKey { stream: StreamKey { sender: NodeId(1), group: GroupId(7) }, seq }
    }

    fn own(seq: u32) -> PacketKey {
        PacketKey { stream: StreamKey { sender: ME, group: GroupId(7) }, seq }
    }

    #[test]
    fn a_wanted_packet_keeps_its_id_when_it_comes() {
        let mut buffer = Buffer::new(ME, 8, 16);
        let first = buffer.put(key(0), &[b"zero"]).unwrap();
        assert_eq!(first, Put { id: 0, was_wanted: false });
        let wanted = buffer.want(key(1)).unwrap();
        assert_eq!((buffer.wanted(wanted), buffer.held(key(1))), (Some(key(1)), None));
        assert_eq!(buffer.put(key(1), &[b"o", b"ne"]), Some(Put { id: wanted, was_wanted: true }));
        assert_eq!((buffer.wanted(wanted), buffer.held(key(1))), (None, Some(wanted)));
        assert_eq!(buffer.packet(wanted), Some((key(1), &b"one"[..])));
        assert_eq!(buffer.want(key(0)), Some(0), "a packet that is here is not missing");
    }

    #[test]
    fn names_alone_push_out_no_packet() {
        let mut buffer = Buffer::new(ME, 8, 16);
        (0..8).for_each(|seq| assert!(buffer.put(key(seq), &[b"here"]).is_some()));
        let wanted = (1_000..9_000).filter(|&seq| buffer.want(key(seq)).is_some()).count();
        assert_eq!(wanted, 8);
        assert!((0..8).all(|seq| buffer.held(key(seq)).is_some()));
        // Missing packets age with those that come.
        (100..120).for_each(|seq| assert!(buffer.put(key(seq), &[b"here"]).is_some()));
        assert!(buffer.want(key(9_999)).is_some());
    }

    #[test]
    fn packets_of_others_push_out_none_of_this_node_and_the_other_way_round() {
        let mut buffer = Buffer::new(ME, 8, 16);
        buffer.put(key(0), &[b"theirs"]).unwrap();
        (0..100).for_each(|seq| buffer.put_sent(own(seq), 1, &[b"own"], |_| false));
        assert_eq!((buffer.held(key(0)), buffer.first_id()), (Some(0), 0));
        (1..100).for_each(|seq| assert!(buffer.put(key(seq), &[b"theirs"]).is_some()));
        assert!((92..100).all(|seq| buffer.held(own(seq)).is_some()));
        let id = buffer.want(own(99)).unwrap();
        assert_eq!((buffer.packet(id), buffer.wanted(id)), (Some((own(99), &b"own"[..])), None));
        assert_eq!(buffer.want(own(0)), None, "an own packet that has left does not come again");
        assert_eq!(buffer.covering(own(99)), Some(id));
    }

    #[test]
    fn the_oldest_leave_first_and_memory_stays_constant() {
        let mut buffer = Buffer::new(ME, 8, 16);
        let before = buffer.memory_bytes();
        for seq in 0..10_000 {
            buffer.put(key(seq), &[&[seq as u8; 16]]).unwrap();
            assert!(buffer.held(key(seq)).is_some());
            assert!(seq < 8 || buffer.held(key(seq - 8)).is_none());
        }
        assert_eq!(buffer.first_id(), 10_000 - 16);
        assert_eq!(buffer.memory_bytes(), before);
        assert!(buffer.put(key(0), &[&[0; 1_000]]).is_none());
    }
}
