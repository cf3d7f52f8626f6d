//! Repairs that wait a moment before the packets they miss count as lost.
//!
//! A repair can overtake the packets it was made of: a card's driver holds segments back to merge them and
//! lets a single datagram pass, queues differ, processors race. The wait adapts to the packets that arrive
//! late: it grows to the delays seen, and shrinks while no packet is late.
//!
//! Without late packets the wait is short ([`CALM_US`] at most). A packet that is later may have been
//! delivered twice, which is tolerable for one in [`FEW`]. Until as many others have arrived, repairs wait
//! for as long as the packet was late, and longer by a margin. On a slow stream that is a long time, so that
//! the first late packet of a path with much jitter teaches the wait for all of them.
//!
//! A packet that is later than [`OVERTAKEN_MAX_US`] took a slower path. Repairs do not wait for such packets,
//! because the wait would cost TCP as much as the loss, except on a *sparse* stream. There a few of them are
//! many, and no code brings a packet back within milliseconds.
//!
//! Where several paths of a tunnel carry packets, those on the slower one are overtaken without end. By how
//! much shows in the times of sending, so that this wait need not be learnt from packets that are late.

use crate::ledger::TICK_US;
use foundation::Seq;

/// Shortest wait in microseconds.
const WAIT_MIN_US: u64 = 60;
/// Longest wait without later packets. Beyond it, by our judgement, waiting costs TCP more than an occasional
/// duplicate.
const CALM_US: u64 = 200;
/// A packet that is later was not merely overtaken.
pub(crate) const OVERTAKEN_MAX_US: u64 = 25_000;
/// Interval between packets, on average, from which on a stream is sparse.
const SPARSE_US: u64 = 10_000;
/// A packet of a sparse stream that is later never arrives in time.
const SPARSE_LATE_MAX_US: u64 = 200_000;
/// One packet in this number of arrivals may be delivered twice.
const FEW: u64 = 1_024;
/// Number of ranges of lateness beyond [`CALM_US`], each twice as wide as the one before.
const RANGES: usize = 10;
/// Maximum number of repairs that wait.
const HELD_MAX: usize = 512;

/// A bounded queue of repairs in the order in which they are due.
pub(crate) struct Held {
    slots: Box<[Slot]>,
    first: usize,
    len: usize,
    /// Wait by the packets that are hardly late, up to [`CALM_US`].
    calm_us: u64,
    /// Wait by those that are later; 0 if there are none.
    late_us: u64,
    /// Wait by the delays of paths that carry packets; 0 if one carries them all.
    overtaken_us: u64,
    /// Number of packets that arrived.
    arrivals: u64,
    /// The same at the last tick.
    at_tick: u64,
    /// Interval between packets, on average, before the last tick.
    interval_us: u64,
    ranges: [Range; RANGES],
}

/// The packets of a range of lateness, while it matters.
#[derive(Clone, Copy, Default)]
struct Range {
    /// Number of the arrival from which on they are few.
    until: u64,
    count: u64,
    longest_us: u64,
}

struct Slot {
    due_us: u64,
    number: u32,
    body: Vec<u8>,
}

impl Held {
    /// Creates a queue for bodies of up to `body_max` bytes.
    pub(crate) fn new(body_max: usize) -> Self {
        let slots = (0..HELD_MAX).map(|_| Slot { due_us: 0, number: 0, body: Vec::with_capacity(body_max) });
        Self {
            slots: slots.collect(),
            first: 0,
            len: 0,
            calm_us: WAIT_MIN_US,
            late_us: 0,
            overtaken_us: 0,
            arrivals: 0,
            at_tick: 0,
            interval_us: 0,
            ranges: [Range::default(); RANGES],
        }
    }

    /// Whether there is no room for another repair.
    pub(crate) fn is_full(&self) -> bool {
        self.len == self.slots.len()
    }

    /// Inserts a repair behind those that are due no later. There must be room. `number`: of its datagram.
    pub(crate) fn push(&mut self, due_us: u64, number: u32, body: &[u8]) {
        assert!(!self.is_full(), "a repair is held only where there is room");
        let mut at = self.slot(self.len);
        (self.slots[at].due_us, self.slots[at].number) = (due_us, number);
        self.slots[at].body.clear();
        self.slots[at].body.extend_from_slice(body);
        for place in (0..self.len).rev() {
            let before = self.slot(place);
            if self.slots[before].due_us <= due_us {
                break;
            }
            self.slots.swap(before, at);
            at = before;
        }
        self.len += 1;
    }

    fn slot(&self, place: usize) -> usize {
        (self.first + place) % self.slots.len()
    }

    /// Time at which the first repair is due.
    pub(crate) fn due_us(&self) -> Option<u64> {
        (self.len > 0).then(|| self.slots[self.first].due_us)
    }

    /// Moves the first body into `body` if it is due; returns the number of its datagram.
    pub(crate) fn pop_due(&mut self, now_us: u64, body: &mut Vec<u8>) -> Option<u32> {
        self.due_us().filter(|&due_us| due_us <= now_us)?;
        self.pop(body)
    }

    /// Moves the first body into `body`, due or not; returns the number of its datagram.
    pub(crate) fn pop(&mut self, body: &mut Vec<u8>) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let Slot { number, body: first, .. } = &mut self.slots[self.first];
        std::mem::swap(body, first);
        let number = *number;
        self.first = self.slot(1);
        self.len -= 1;
        Some(number)
    }

    /// Moves the first body into `body` to make room. Returns the number of its datagram if it is due, or
    /// nearly so: one that has long to wait for packets that are late must not be used.
    pub(crate) fn make_room(&mut self, now_us: u64, body: &mut Vec<u8>) -> Option<u32> {
        let is_due = self.due_us().is_some_and(|due_us| due_us <= now_us + CALM_US);
        self.pop(body).filter(|_| is_due)
    }

    /// Counts a packet that arrived.
    pub(crate) fn on_arrival(&mut self) {
        self.arrivals += 1;
    }

    /// Learns from a packet that arrived `late_us` after a repair had missed it.
    pub(crate) fn on_late_packet(&mut self, late_us: u64) {
        if late_us > self.late_max_us() {
            return;
        }
        if late_us <= CALM_US {
            self.calm_us = self.calm_us.max(late_us + late_us / 4).min(CALM_US);
            return;
        }
        let at = ((late_us - 1) / CALM_US).ilog2() as usize;
        // Those that a stream waits for only if it is sparse have ranges of their own.
        let at = if late_us > OVERTAKEN_MAX_US { at.max(RANGES - 3) } else { at };
        let range = &mut self.ranges[at.min(RANGES - 1)];
        range.until = self.arrivals + FEW;
        range.count += 1;
        range.longest_us = range.longest_us.max(late_us);
        self.update();
    }

    /// Latest packet for which repairs wait.
    fn late_max_us(&self) -> u64 {
        if self.interval_us >= SPARSE_US { SPARSE_LATE_MAX_US } else { OVERTAKEN_MAX_US }
    }

    /// Forgets ranges of lateness of which packets are few, and updates the wait.
    fn update(&mut self) {
        for range in &mut self.ranges {
            if range.until <= self.arrivals {
                *range = Range::default();
            }
        }
        let late_max_us = self.late_max_us();
        let ranges = || self.ranges.iter().filter(|range| range.longest_us <= late_max_us);
        let count: u64 = ranges().map(|range| range.count).sum();
        let longest_us = ranges().map(|range| range.longest_us).max().unwrap_or(0);
        // The longest of a few packets says little about the longest of many, and where packets are few, a
        // longer wait matters less than a duplicate.
        let margin_us = (longest_us / count.clamp(1, 4)).max(self.interval_us / 8);
        // A packet that is barely waited for, and the least margin.
        let latest_us = if longest_us > OVERTAKEN_MAX_US { SPARSE_LATE_MAX_US } else { OVERTAKEN_MAX_US };
        let wait_max_us = latest_us + latest_us / 4;
        self.late_us = if longest_us > 0 { (longest_us + margin_us).min(wait_max_us) } else { 0 };
    }

    /// Lets the wait decay. Must be called ten times a second.
    pub(crate) fn on_tick(&mut self) {
        self.calm_us = WAIT_MIN_US.max(self.calm_us - self.calm_us / 64);
        self.interval_us = TICK_US / (self.arrivals - self.at_tick).max(1);
        self.at_tick = self.arrivals;
        self.update();
    }

    /// Takes the time by which packets may be overtaken, because several paths carry them.
    pub(crate) fn set_overtaken(&mut self, overtaken_us: u64) {
        self.overtaken_us = overtaken_us;
    }

    /// Present wait.
    pub(crate) fn wait_us(&self) -> u64 {
        self.calm_us.max(self.late_us).max(self.overtaken_us)
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.body.capacity() + size_of::<Slot>()).sum()
    }
}

/// The newest place known at two moments, at least one wait apart. It tells since when a place has been known
/// that no repair has named.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    older: Mark,
    newer: Mark,
}

/// All places before `end` were known at `at_us`.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    end: u64,
    at_us: u64,
}

impl Reach {
    /// Notes the newest place after a repair arrived.
    pub(crate) fn on_repair(&mut self, now_us: u64, wait_us: u64, newest: Seq) {
        if now_us >= self.newer.at_us + wait_us {
            self.older = std::mem::replace(&mut self.newer, Mark { end: newest.0 + 1, at_us: now_us });
        }
    }

    /// Returns the latest time by which a place was known.
    pub(crate) fn since_us(&self, now_us: u64, seq: Seq) -> u64 {
        let marks = [self.older, self.newer];
        marks.into_iter().find(|mark| seq.0 < mark.end).map_or(now_us, |mark| mark.at_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_leave_in_the_order_in_which_they_are_due() {
        let (mut held, mut body) = (Held::new(8), Vec::new());
        // Also where the queue wraps around its end.
        for round in 0..HELD_MAX as u64 {
            let start_us = 1_000 * round;
            for (due_us, name) in [(160, b"b"), (170, b"d"), (100, b"a"), (160, b"c")] {
                held.push(start_us + due_us, u32::from(name[0]), name);
            }
            assert_eq!(held.due_us(), Some(start_us + 100));
            assert_eq!(held.pop_due(start_us + 99, &mut body), None);
            for name in [b"a", b"b", b"c"] {
                assert_eq!(held.pop_due(start_us + 165, &mut body), Some(u32::from(name[0])));
                assert_eq!(body, name);
            }
            assert_eq!(held.pop_due(start_us + 165, &mut body), None);
            assert!(held.pop(&mut body).is_some() && body == b"d" && held.pop(&mut body).is_none());
        }
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut held = Held::new(1);
        for due_us in 0..HELD_MAX as u64 {
            assert!(!held.is_full());
            held.push(due_us, 0, b"x");
        }
        assert!(held.is_full());
        assert!(held.pop(&mut Vec::new()).is_some() && !held.is_full());
    }

    #[test]
    fn room_is_made_by_a_repair_that_is_due_and_not_by_using_one_that_has_long_to_wait() {
        let (mut held, mut body) = (Held::new(1), Vec::new());
        for (due_us, name) in [(1_000, b"a"), (9_000, b"b")] {
            held.push(due_us, 7, name);
        }
        assert!(held.make_room(1_000 - CALM_US, &mut body) == Some(7) && body == b"a");
        assert!(held.make_room(8_999 - CALM_US, &mut body).is_none() && body == b"b");
        assert!(held.make_room(9_000, &mut body).is_none(), "nothing is left");
    }

    #[test]
    fn a_place_is_known_since_the_first_mark_beyond_it() {
        let mut reach = Reach::default();
        reach.on_repair(1_000, 60, Seq(9));
        reach.on_repair(1_030, 60, Seq(12));
        assert_eq!(reach.since_us(1_040, Seq(9)), 1_000);
        assert_eq!(reach.since_us(1_040, Seq(10)), 1_040, "a place beyond the marks counts as new");
        reach.on_repair(1_060, 60, Seq(15));
        reach.on_repair(1_120, 60, Seq(20));
        assert_eq!(
            [9, 15, 16, 20, 21].map(|at| reach.since_us(1_130, Seq(at))),
            [1_060, 1_060, 1_120, 1_120, 1_130]
        );
    }

    #[test]
    fn the_wait_follows_late_packets_and_decays() {
        let mut held = Held::new(1);
        held.on_late_packet(120);
        assert_eq!(held.wait_us(), 150);
        held.on_late_packet(80_000);
        assert_eq!(held.wait_us(), 150, "a packet that late was not overtaken: it took another path");
        held.on_late_packet(CALM_US);
        assert_eq!(held.wait_us(), CALM_US);
        for _ in 0..2_000 {
            held.on_tick();
        }
        assert!(held.wait_us() < 130, "{}", held.wait_us());
    }

    #[test]
    fn the_wait_is_that_of_the_latest_packet_until_such_packets_are_few() {
        for late_us in [CALM_US + 1, 3_000, 14_000, OVERTAKEN_MAX_US] {
            let mut held = Held::new(1);
            held.on_late_packet(late_us);
            let first_us = (2 * late_us).min(OVERTAKEN_MAX_US + OVERTAKEN_MAX_US / 4);
            assert_eq!(held.wait_us(), first_us, "the margin is wide after one of {late_us} us");
            (0..3).for_each(|_| held.on_late_packet(late_us));
            assert_eq!(held.wait_us(), late_us + late_us / 4);
            (1..FEW).for_each(|_| held.on_arrival());
            held.on_tick();
            assert!(held.wait_us() > late_us);
            held.on_arrival();
            held.on_tick();
            assert!(held.wait_us() <= CALM_US);
        }
    }

    #[test]
    fn the_margin_is_wide_where_packets_are_few() {
        let mut held = Held::new(1);
        (0..2).for_each(|_| held.on_arrival());
        held.on_tick();
        (0..4).for_each(|_| held.on_late_packet(300));
        assert_eq!(held.wait_us(), 300 + 50_000 / 8);
    }

    #[test]
    fn sparse_streams_wait_for_packets_of_a_slower_path() {
        let mut held = Held::new(1);
        // Arrivals of the first tick are still unknown.
        held.on_tick();
        held.on_late_packet(SPARSE_LATE_MAX_US + 1);
        assert_eq!(held.wait_us(), WAIT_MIN_US, "it would be of no use");
        held.on_late_packet(60_000);
        assert_eq!(held.wait_us(), 120_000);
        (0..3).for_each(|_| held.on_late_packet(130_000));
        assert_eq!(held.wait_us(), 130_000 + 130_000 / 4);
        // A faster stream does not wait, and a sparse one does again.
        (0..200).for_each(|_| held.on_arrival());
        held.on_tick();
        assert_eq!(held.wait_us(), WAIT_MIN_US);
        held.on_tick();
        assert_eq!(held.wait_us(), 130_000 + 130_000 / 4);
        (0..FEW).for_each(|_| held.on_arrival());
        (0..2).for_each(|_| held.on_tick());
        assert_eq!(held.wait_us(), WAIT_MIN_US);
    }

    #[test]
    fn packets_on_the_slower_of_several_paths_are_waited_for() {
        let mut held = Held::new(1);
        held.set_overtaken(40_000);
        held.on_late_packet(500);
        assert_eq!(held.wait_us(), 40_000);
        held.set_overtaken(0);
        assert_eq!(held.wait_us(), 1_000);
    }

    #[test]
    fn a_packet_that_is_hardly_late_does_not_prolong_a_long_wait() {
        let mut held = Held::new(1);
        (0..4).for_each(|_| held.on_late_packet(14_000));
        for _ in 0..FEW / 64 {
            (0..64).for_each(|_| held.on_arrival());
            held.on_late_packet(500);
            held.on_tick();
        }
        assert_eq!(held.wait_us(), 500 + TICK_US / 64 / 8);
    }
}
