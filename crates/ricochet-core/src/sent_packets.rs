//! The packets that this node itself has sent lately. They are kept apart from those of others, so that
//! received traffic does not push them out.
//!
//! When all places are taken, the oldest packet leaves. A packet that readers still wait for stays for longer
//! and is then *overdue*. Overdue packets take at most half of the places, so that the newest packets always
//! have the other half.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::buffer::PacketKey;

#[derive(Clone, Copy, Debug)]
struct Place {
    key: PacketKey,
    /// Number of positions that it takes in its stream.
    count: u32,
    length: usize,
    is_overdue: bool,
}

/// The newest packets of this node, and older ones that readers wait for.
#[derive(Debug)]
pub(crate) struct SentPackets {
    /// Symbols, each at a multiple of `symbol_max`.
    bytes: Box<[u8]>,
    symbol_max: usize,
    places: Vec<Place>,
    places_max: usize,
    /// Places in the order in which their packets leave.
    order: VecDeque<u32>,
    at: HashMap<PacketKey, u32>,
    overdue: usize,
}

impl SentPackets {
    /// Makes room for `packets` symbols of up to `symbol_max` bytes.
    pub(crate) fn new(packets: usize, symbol_max: usize) -> Self {
        Self {
            // The system provides memory for what is used only.
            bytes: vec![0; packets * symbol_max].into_boxed_slice(),
            symbol_max,
            places: Vec::with_capacity(packets),
            places_max: packets,
            order: VecDeque::with_capacity(packets),
            // With twice the room the table rehashes in place and never grows.
            at: HashMap::with_capacity(2 * packets),
            overdue: 0,
        }
    }

    /// Keeps a packet that takes `count` positions, with its symbol given as consecutive pieces.
    /// `is_awaited` tells whether readers wait for an earlier packet, by its last position. A symbol that is
    /// too long is not kept.
    pub(crate) fn put(
        &mut self,
        key: PacketKey,
        count: u32,
        symbol: &[&[u8]],
        is_awaited: impl Fn(PacketKey) -> bool,
    ) {
        let length = symbol.iter().map(|piece| piece.len()).sum();
        if length > self.symbol_max {
            return;
        }
        let place = Place { key, count, length, is_overdue: false };
        let at = if self.places.len() < self.places_max {
            self.places.push(place);
            self.places.len() - 1
        } else {
            let at = self.make_room(is_awaited);
            self.places[at] = place;
            at
        };
        let mut begin = at * self.symbol_max;
        for piece in symbol {
            self.bytes[begin..begin + piece.len()].copy_from_slice(piece);
            begin += piece.len();
        }
        self.order.push_back(at as u32);
        self.at.insert(key, at as u32);
    }

    /// Returns the place of a packet, if it is here.
    pub(crate) fn place(&self, key: PacketKey) -> Option<u32> {
        self.at.get(&key).copied()
    }

    /// Returns the packet at a place, and its symbol.
    pub(crate) fn packet(&self, at: u32) -> Option<(PacketKey, &[u8])> {
        let Place { key, length, .. } = *self.places.get(at as usize)?;
        let begin = at as usize * self.symbol_max;
        Some((key, &self.bytes[begin..begin + length]))
    }

    /// Returns the memory held, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let lists = self.places.capacity() * size_of::<Place>() + self.order.capacity() * size_of::<u32>();
        self.bytes.len() + lists + self.at.allocation_size()
    }

    /// Frees a place, and returns it. Each packet that stays becomes overdue, so that the search ends.
    fn make_room(&mut self, is_awaited: impl Fn(PacketKey) -> bool) -> usize {
        loop {
            let first = self.order.pop_front().expect("all places are taken");
            let Self { places, overdue, .. } = self;
            let share = places.len() / 2;
            let place = &mut places[first as usize];
            let last = PacketKey { seq: place.key.seq.wrapping_add(place.count - 1), ..place.key };
            let stays = (place.is_overdue || *overdue < share) && is_awaited(last);
            if !stays {
                *overdue -= usize::from(place.is_overdue);
                self.at.remove(&place.key);
                return first as usize;
            }
            *overdue += usize::from(!std::mem::replace(&mut place.is_overdue, true));
            self.order.push_back(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{GroupId, NodeId, StreamKey};

    fn key(group: u64, seq: u32) -> PacketKey {
        PacketKey { stream: StreamKey { sender: NodeId(1), group: GroupId(group) }, seq }
    }

    /// Returns the numbers of a group's packets that are here.
    fn kept(sent: &SentPackets, group: u64) -> Vec<u32> {
        (0..10_000).filter(|&seq| sent.place(key(group, seq)).is_some()).collect()
    }

    #[test]
    fn the_oldest_packets_leave_first_and_memory_stays_constant() {
        let mut sent = SentPackets::new(8, 16);
        let before = sent.memory_bytes();
        for seq in 0..1_000 {
            sent.put(key(1, seq), 1, &[&seq.to_be_bytes(), b"rest"], |_| false);
            let place = sent.place(key(1, seq)).unwrap();
            let symbol = [&seq.to_be_bytes()[..], b"rest"].concat();
            assert_eq!(sent.packet(place), Some((key(1, seq), &symbol[..])));
        }
        assert_eq!(kept(&sent, 1), (992..1_000).collect::<Vec<_>>());
        assert_eq!(sent.memory_bytes(), before);
        sent.put(key(2, 0), 1, &[&[0; 17]], |_| false);
        assert_eq!(kept(&sent, 2), [], "it is too long");
    }

    #[test]
    fn awaited_packets_stay_while_they_take_at_most_half_of_the_places() {
        let mut sent = SentPackets::new(8, 16);
        let put = |sent: &mut SentPackets, group, seq, first_awaited| {
            sent.put(key(group, seq), 1, &[b"x"], |other| {
                other.stream.group == GroupId(1) && other.seq >= first_awaited
            });
        };
        (0..6).for_each(|seq| put(&mut sent, 1, seq, 0));
        (0..100).for_each(|seq| put(&mut sent, 2, seq, 0));
        assert_eq!((kept(&sent, 1), kept(&sent, 2)), (vec![0, 1, 2, 3], vec![96, 97, 98, 99]));
        (100..104).for_each(|seq| put(&mut sent, 2, seq, 2));
        assert_eq!(kept(&sent, 1), [2, 3]);
        (104..120).for_each(|seq| put(&mut sent, 2, seq, 9));
        assert_eq!((kept(&sent, 1).len(), kept(&sent, 2).len()), (0, 8));
    }

    #[test]
    fn a_packet_of_several_messages_stays_until_its_last_one_is_settled() {
        let mut sent = SentPackets::new(4, 16);
        sent.put(key(1, 0), 32, &[b"x"], |_| false);
        (0..10).for_each(|seq| sent.put(key(2, seq), 1, &[b"x"], |last| last == key(1, 31)));
        assert_eq!(kept(&sent, 1), [0]);
    }
}
