//! The buffer between the kernel's sockets and the node.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::wire::Peek;

use crate::key::Stamp;

/// A buffer for one datagram.
#[derive(Debug)]
pub(crate) struct Slot {
    bytes: Box<[u8]>,
    length: usize,
    from: SocketAddr,
    peek: Option<Peek>,
    stamp: Option<Stamp>,
}

impl Slot {
    /// Returns the datagram without its trailer.
    pub(crate) fn datagram(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Returns the fields that the filter read, of a datagram for the node.
    pub(crate) fn peek(&self) -> Option<Peek> {
        self.peek
    }

    /// Returns the stamp in the trailer, with a cluster key.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        self.stamp
    }

    /// Returns the source address.
    pub(crate) fn from(&self) -> SocketAddr {
        self.from
    }
}

/// A bounded number of datagrams in order of arrival.
///
/// A reader that can leave datagrams in the kernel checks [`has_room`](Self::has_room) first. Other datagrams
/// have a reserve. When that is full too, a random datagram is dropped for the next: a flood then costs all
/// streams alike, and no stream loses a burst (Ricochet §4.2.6).
#[derive(Debug)]
pub(crate) struct Ring {
    queue: VecDeque<Slot>,
    idle: Vec<Slot>,
    /// Number of slots allocated. A slot is allocated when it is first needed, and kept.
    made: usize,
    capacity: usize,
    /// Number of datagrams beyond `capacity` that are still taken.
    reserve: usize,
    slot_length: usize,
    dropped: u64,
    rng: ChaCha8Rng,
}

impl Ring {
    /// Creates a ring for `capacity` datagrams of up to `slot_length` bytes.
    pub(crate) fn new(capacity: usize, slot_length: usize, random_seed: u64) -> Self {
        Self {
            queue: VecDeque::with_capacity(capacity),
            idle: Vec::with_capacity(capacity),
            made: 0,
            capacity,
            reserve: 0,
            slot_length,
            dropped: 0,
            rng: ChaCha8Rng::seed_from_u64(random_seed),
        }
    }

    /// Adds room for datagrams that come while the ring is full.
    pub(crate) fn with_reserve(self, reserve: usize) -> Self {
        Self { reserve, ..self }
    }

    /// Allocates all slots, for tests that count allocations.
    #[cfg(test)]
    pub(crate) fn allocate(&mut self) {
        while self.made < self.capacity {
            let slot = Self::new_slot(self.slot_length, SocketAddr::from(([0; 4], 0)));
            self.idle.push(slot);
            self.made += 1;
        }
    }

    fn new_slot(length: usize, from: SocketAddr) -> Slot {
        Slot { bytes: vec![0; length].into_boxed_slice(), length: 0, from, peek: None, stamp: None }
    }

    /// Adds a datagram. Returns false if it is longer than a slot.
    pub(crate) fn push(
        &mut self,
        from: SocketAddr,
        peek: Option<Peek>,
        stamp: Option<Stamp>,
        datagram: &[u8],
    ) -> bool {
        if datagram.len() > self.slot_length {
            return false;
        }
        let mut slot = self.make_room(from);
        slot.bytes[..datagram.len()].copy_from_slice(datagram);
        (slot.length, slot.from, slot.peek, slot.stamp) = (datagram.len(), from, peek, stamp);
        self.queue.push_back(slot);
        true
    }

    /// Moves all datagrams of another ring, whose slots have the same length, to this one,
    /// in exchange for empty slots.
    pub(crate) fn append(&mut self, other: &mut Self) {
        while let Some(slot) = other.queue.pop_front() {
            let room = self.make_room(slot.from);
            other.idle.push(room);
            self.queue.push_back(slot);
        }
    }

    /// Moves up to `count` datagrams, the oldest first, to the end of `batch`.
    pub(crate) fn take(&mut self, count: usize, batch: &mut VecDeque<Slot>) {
        let count = count.min(self.queue.len());
        batch.extend(self.queue.drain(..count));
    }

    /// Takes back slots whose datagrams have been processed.
    pub(crate) fn give_back(&mut self, slots: &mut Vec<Slot>) {
        self.idle.append(slots);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether fewer datagrams wait than the ring is meant to hold.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() < self.capacity
    }

    /// Returns the number of datagrams that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of datagrams dropped to make room for others.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns an empty slot. Drops a random datagram for it if the ring is full.
    fn make_room(&mut self, from: SocketAddr) -> Slot {
        if self.queue.len() >= self.capacity + self.reserve {
            let at = (self.rng.next_u64() % self.queue.len() as u64) as usize;
            if let Some(slot) = self.queue.remove(at) {
                self.dropped += 1;
                return slot;
            }
        }
        self.idle.pop().unwrap_or_else(|| {
            self.made += 1;
            Self::new_slot(self.slot_length, from)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from() -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], 7))
    }

    fn drained(ring: &mut Ring) -> Vec<u8> {
        let mut batch = VecDeque::new();
        ring.take(usize::MAX, &mut batch);
        let bytes = batch.iter().map(|slot| slot.datagram()[0]).collect();
        let mut slots: Vec<_> = batch.into();
        ring.give_back(&mut slots);
        bytes
    }

    #[test]
    fn datagrams_keep_their_order_and_slots_are_reused() {
        let mut ring = Ring::new(8, 4, 1);
        for round in 0..100u8 {
            for step in 0..5 {
                assert!(ring.push(from(), None, None, &[round, step]));
            }
            assert_eq!(drained(&mut ring), [round; 5]);
        }
        assert_eq!((ring.made, ring.dropped()), (5, 0));
        assert!(!ring.push(from(), None, None, &[0; 5]), "longer than a slot");
    }

    #[test]
    fn a_ring_takes_over_the_datagrams_of_another() {
        let [mut ring, mut other] = [1, 2].map(|seed| Ring::new(8, 4, seed));
        for round in 0..50u8 {
            ring.push(from(), None, None, &[round]);
            (1..4).for_each(|step| assert!(other.push(from(), None, None, &[round + step])));
            ring.append(&mut other);
            assert!(other.is_empty());
            assert_eq!(drained(&mut ring), [round, round + 1, round + 2, round + 3]);
        }
        assert!(ring.made + other.made <= 7, "slots go back and forth");
    }

    #[test]
    fn a_ring_without_room_still_takes_what_cannot_wait_elsewhere() {
        let mut ring = Ring::new(4, 1, 1).with_reserve(2);
        (0..4).for_each(|number| assert!(ring.has_room() && ring.push(from(), None, None, &[number])));
        assert!(!ring.has_room());
        (4..6).for_each(|number| assert!(ring.push(from(), None, None, &[number])));
        assert_eq!(ring.dropped(), 0);
        ring.push(from(), None, None, &[6]);
        assert_eq!((ring.dropped(), drained(&mut ring).len()), (1, 6));
    }

    #[test]
    fn a_full_ring_drops_at_random_and_always_takes_the_newest() {
        let mut ring = Ring::new(16, 1, 1);
        let mut survivors = [0u32; 200];
        for _ in 0..500 {
            for number in 0..=199 {
                ring.push(from(), None, None, &[number]);
            }
            let left = drained(&mut ring);
            assert_eq!(left.len(), 16);
            assert!(left.is_sorted());
            assert_eq!(left.last(), Some(&199));
            left.iter().for_each(|&number| survivors[usize::from(number)] += 1);
        }
        assert_eq!(ring.dropped(), 500 * (200 - 16));
        assert_eq!(ring.made, 16);
        // Neither the oldest nor the newest block survives as a whole.
        assert!(survivors[150..190].iter().sum::<u32>() > 1_000);
        assert!(survivors[180..190].iter().all(|&times| times < 450));
    }
}
