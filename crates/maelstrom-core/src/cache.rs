//! The packets that left recently, kept at the egress to answer requests (Maelstrom §4.5).

use std::collections::VecDeque;

use crate::symbol::Symbol;
use crate::wire::Entry;
use foundation::Seq;

/// Maximum number of answers to requests for one packet.
pub(crate) const ANSWERS_MAX: u8 = 2;
/// Average size of packets for which there are slots, in bytes.
const BYTES_PER_SLOT: usize = 1_024;

/// A packet kept.
#[derive(Clone, Copy, Debug)]
struct Slot {
    entry: Entry,
    offset: usize,
    /// Length of the symbol; 0 if the packet must not be answered for.
    len: usize,
    at_us: u64,
    answers: u8,
}

/// A packet that is kept, with its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cached<'a> {
    pub(crate) symbol: &'a [u8],
    /// Time at which it left.
    pub(crate) at_us: u64,
    /// Number of answers with it.
    pub(crate) answers: u8,
}

/// A ring of the newest packets, bounded in bytes and in time. All memory is allocated when the time is first
/// set. Packets that are too old leave it with the next one, or at [`Cache::expire`].
///
/// The ring turns back to its start as soon as there is as much room there as it holds. A slow stream thus
/// touches a small part of the memory.
#[derive(Debug)]
pub(crate) struct Cache {
    /// Empty until packets are kept for some time.
    bytes: Vec<u8>,
    bytes_max: usize,
    /// Consecutive packets of the stream, oldest first.
    slots: VecDeque<Slot>,
    slots_max: usize,
    /// Position of the next symbol.
    head: usize,
    keep_us: u64,
}

/// Why a packet is not in the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It has left the cache, or does not belong to the stream.
    Gone,
    /// It was kept without its bytes.
    Excluded,
    /// It has been answered for [`ANSWERS_MAX`] times.
    Answered,
}

impl Cache {
    /// Creates a ring of at most `bytes` bytes; 0 keeps nothing.
    pub(crate) fn new(bytes: usize) -> Self {
        let slots_max = bytes / BYTES_PER_SLOT;
        Self { bytes: Vec::new(), bytes_max: bytes, slots: VecDeque::new(), slots_max, head: 0, keep_us: 0 }
    }

    /// Changes the number of bytes. Packets that were kept in another number are forgotten.
    pub(crate) fn resize(&mut self, bytes: usize) {
        if bytes != self.bytes_max {
            let keep_us = self.keep_us;
            *self = Self::new(bytes);
            self.set_keep_us(keep_us);
        }
    }

    /// Changes the time for which packets are kept.
    pub(crate) fn set_keep_us(&mut self, keep_us: u64) {
        self.keep_us = keep_us;
        if keep_us > 0 && self.bytes.len() != self.bytes_max {
            self.bytes = vec![0; self.bytes_max];
            self.slots = VecDeque::with_capacity(self.slots_max);
        }
    }

    /// Forgets all packets.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.head = 0;
    }

    /// Forgets the packets that have been kept for their time.
    pub(crate) fn expire(&mut self, now_us: u64) {
        while self.slots.front().is_some_and(|slot| slot.at_us + self.keep_us < now_us) {
            self.slots.pop_front();
        }
    }

    /// Keeps the next packet of the stream, without its bytes if it `is_excluded`.
    pub(crate) fn push(&mut self, now_us: u64, entry: Entry, symbol: &Symbol<'_>, is_excluded: bool) {
        self.expire(now_us);
        if self.slots_max == 0 || self.keep_us == 0 {
            return;
        }
        if self.slots.len() == self.slots_max {
            self.slots.pop_front();
        }
        // A packet that could not be coded leaves a gap, and the cache holds consecutive packets only.
        if self.slots.back().is_some_and(|newest| newest.entry.seq.plus(1) != entry.seq) {
            self.clear();
        }
        let pieces = symbol.pieces();
        let len = if is_excluded { 0 } else { pieces.iter().map(|piece| piece.len()).sum() };
        let Some(offset) = self.make_room(len) else { return };
        let mut at = offset;
        for piece in pieces.iter().filter(|_| len > 0) {
            self.bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        self.head = offset + len;
        self.slots.push_back(Slot { entry, offset, len, at_us: now_us, answers: 0 });
    }

    /// Finds room for a symbol, and drops the oldest packets where it needs theirs.
    fn make_room(&mut self, len: usize) -> Option<usize> {
        if len > self.bytes.len() / 2 {
            return None;
        }
        loop {
            let Some(oldest) = self.slots.front().map(|slot| slot.offset) else { return Some(0) };
            if oldest > self.head {
                // The packets lie around the end of the ring.
                if self.head + len < oldest {
                    return Some(self.head);
                }
            } else if oldest > len && oldest >= self.head - oldest {
                return Some(0);
            } else if self.head + len <= self.bytes.len() {
                return Some(self.head);
            } else if oldest > len {
                return Some(0);
            }
            self.slots.pop_front();
        }
    }

    /// Length of the symbol of a packet, if it is kept.
    pub(crate) fn len_of(&self, seq: Seq) -> Option<usize> {
        self.slots.get(self.position(seq)?).map(|slot| slot.len)
    }

    /// The packets with their bytes that are not too old, oldest first.
    pub(crate) fn iter(&self, now_us: u64) -> impl Iterator<Item = Cached<'_>> {
        let is_kept = move |slot: &&Slot| slot.len > 0 && slot.at_us + self.keep_us >= now_us;
        self.slots.iter().filter(is_kept).map(|slot| Cached {
            symbol: &self.bytes[slot.offset..slot.offset + slot.len],
            at_us: slot.at_us,
            answers: slot.answers,
        })
    }

    /// Maximum number of bytes, and the time for which packets are kept at most.
    pub(crate) fn bounds(&self) -> (usize, u64) {
        (self.bytes_max, self.keep_us)
    }

    fn position(&self, seq: Seq) -> Option<usize> {
        let first = self.slots.front()?.entry.seq;
        usize::try_from(seq.0.checked_sub(first.0)?).ok()
    }

    /// Returns the slot of a packet that may be answered.
    ///
    /// # Errors
    /// The reason why it may not.
    pub(crate) fn check(&self, seq: Seq) -> Result<usize, Absent> {
        let at = self.position(seq).ok_or(Absent::Gone)?;
        match self.slots.get(at).ok_or(Absent::Gone)? {
            Slot { len: 0, .. } => Err(Absent::Excluded),
            Slot { answers: ANSWERS_MAX, .. } => Err(Absent::Answered),
            _ => Ok(at),
        }
    }

    /// Returns a packet and its symbol, and counts an answer for it.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) fn answer(&mut self, seq: Seq) -> Result<(Entry, &[u8]), Absent> {
        let at = self.check(seq)?;
        let slot = &mut self.slots[at];
        slot.answers += 1;
        Ok((slot.entry, &self.bytes[slot.offset..slot.offset + slot.len]))
    }

    /// Bytes of memory held, or to be held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes_max + self.slots_max * size_of::<Slot>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Name, PacketHash};
    use crate::packet::tests::udp4;
    use crate::packet::{MutableFields, Packet};

    fn push(cache: &mut Cache, now_us: u64, n: u64, len: usize) {
        let packet = udp4([10, 0, 0, 1], [10, 0, 1, 1], n as u16, &vec![n as u8; len]);
        let packet = Packet::new_checked(&packet).unwrap();
        let entry = Entry { seq: Seq(n), name: Name(n as u32), fields: MutableFields::default() };
        cache.push(
            now_us,
            entry,
            &Symbol::new(&packet, PacketHash(n), MutableFields::default()),
            n % 10 == 9,
        );
    }

    /// The numbers of the packets kept, after checking that each has its own bytes.
    fn kept(cache: &mut Cache, until: u64) -> Vec<u64> {
        let mut kept = Vec::new();
        for n in 0..until {
            if let Ok((entry, symbol)) = cache.answer(Seq(n)) {
                assert_eq!((entry.seq, symbol[..8].to_vec()), (Seq(n), n.to_be_bytes().to_vec()));
                assert_eq!(symbol.last(), Some(&(n as u8)), "packet {n}");
                kept.push(n);
            }
        }
        kept
    }

    #[test]
    fn the_newest_packets_are_kept_whole_within_the_bytes() {
        let mut cache = Cache::new(100_000);
        cache.set_keep_us(1_000_000);
        for n in 0..1_000u64 {
            push(&mut cache, n, n, (n * 97 % 1_400) as usize + 1);
            let kept = kept(
                &mut Cache { bytes: cache.bytes.clone(), slots: cache.slots.clone(), ..Cache::new(0) },
                n + 1,
            );
            let newest = n - u64::from(n % 10 == 9);
            assert!(n == 9 || kept.last() == Some(&newest), "after {n}: {kept:?}");
            assert!(n < 200 || kept.len() > 40, "after {n}: {}", kept.len());
        }
    }

    #[test]
    fn packets_are_kept_for_their_time_and_a_slow_stream_touches_little_memory() {
        let mut cache = Cache::new(10_000_000);
        cache.set_keep_us(10_000);
        let mut highest = 0;
        for n in 0..20_000 {
            push(&mut cache, 1_000 * n, n, 1_000);
            highest = highest.max(cache.head);
        }
        assert_eq!(kept(&mut cache, 20_000).len(), 9, "11 in 10 ms, two of them without bytes");
        assert!(highest < 60_000, "{highest} bytes used for 11 packets");
    }

    #[test]
    fn packets_leave_when_their_time_is_over_though_no_further_one_comes() {
        let mut cache = Cache::new(1 << 16);
        cache.set_keep_us(10_000);
        (0..3).for_each(|n| push(&mut cache, 1_000 * n, n, 10));
        for (now_us, count) in [(10_000, 3), (11_000, 2), (12_000, 1), (12_001, 0)] {
            assert_eq!(cache.iter(now_us).count(), count, "{now_us}");
            cache.expire(now_us);
            assert_eq!(cache.slots.len(), count, "{now_us}");
        }
        assert_eq!(cache.answer(Seq(2)).map(|_| ()), Err(Absent::Gone));
        push(&mut cache, 20_000, 3, 10);
        // Nothing is kept while the round-trip time is not known.
        cache.set_keep_us(0);
        assert_eq!(cache.iter(20_001).count(), 0);
    }

    #[test]
    fn another_size_holds_from_the_next_packet_on() {
        let mut cache = Cache::new(1 << 16);
        cache.set_keep_us(1_000_000);
        push(&mut cache, 0, 7, 10);
        cache.resize(1 << 16);
        assert_eq!(kept(&mut cache, 10), [7], "the same size changes nothing");
        for (bytes, most) in [(1 << 14, 16), (1 << 18, 256)] {
            cache.resize(bytes);
            assert!(kept(&mut cache, 10).is_empty() && cache.memory_bytes() < 2 * bytes);
            (0..1_000).for_each(|n| push(&mut cache, n, n, 900));
            assert!((most / 2..=most).contains(&cache.slots.len()), "{} of {bytes}", cache.slots.len());
        }
    }

    #[test]
    fn a_packet_is_answered_for_twice() {
        let mut cache = Cache::new(1 << 16);
        push(&mut cache, 0, 7, 10);
        assert_eq!(cache.answer(Seq(7)).map(|_| ()), Err(Absent::Gone), "nothing is kept without a time");
        cache.set_keep_us(1_000);
        (7..10).for_each(|n| push(&mut cache, 0, n, 10));
        let answers = [7, 7, 7, 8, 9, 10, 6].map(|n| cache.answer(Seq(n)).map(|(entry, _)| entry.seq.0));
        let (gone, excluded, answered) = (Err(Absent::Gone), Err(Absent::Excluded), Err(Absent::Answered));
        assert_eq!(answers, [Ok(7), Ok(7), answered, Ok(8), excluded, gone, gone]);
        cache.clear();
        assert_eq!(cache.answer(Seq(8)).map(|_| ()), gone.map(|_: u64| ()));
    }
}
