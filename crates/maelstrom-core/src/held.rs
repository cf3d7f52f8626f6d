//! Repairs that wait a moment before the packets they miss count as lost.
//!
//! A repair can overtake the packets it was made of: a card's driver holds segments back to merge them and
//! lets a single datagram pass, queues differ, processors race. The wait adapts to the packets that arrive
//! late: it grows to the delays seen, and shrinks while no packet is late.
//!
//! Quick recovery is worth an occasional duplicate, so the wait stays short ([`CALM_US`]) while few packets
//! are later than that. If many are, the repairs' path is faster than the packets', and repairs wait for as
//! long as packets are late.

use foundation::Seq;

/// Shortest wait in microseconds.
const WAIT_MIN_US: u64 = 60;
/// Longest wait while few packets are overtaken by more. Beyond it, by our judgement, waiting costs TCP more
/// than an occasional duplicate.
const CALM_US: u64 = 200;
/// Longest wait in any case. A packet that is later was not merely overtaken.
pub(crate) const OVERTAKEN_MAX_US: u64 = 25_000;
/// Few packets means at most one in this number of arrivals.
const FEW: u64 = 128;
/// Maximum number of repairs that wait.
const HELD_MAX: usize = 512;

/// A bounded queue of repairs in the order in which they are due.
pub(crate) struct Held {
    slots: Box<[Slot]>,
    first: usize,
    len: usize,
    wait_us: u64,
    /// Present upper limit of `wait_us`.
    limit_us: u64,
    /// Packets that arrived since the limit was last updated.
    arrivals: u64,
    /// Those of them that were overtaken by more than [`CALM_US`].
    overtaken: u64,
    /// Longest time by which one of these was overtaken.
    longest_us: u64,
}

struct Slot {
    due_us: u64,
    body: Vec<u8>,
}

impl Held {
    /// Creates a queue for bodies of up to `body_max` bytes.
    pub(crate) fn new(body_max: usize) -> Self {
        let slots = (0..HELD_MAX).map(|_| Slot { due_us: 0, body: Vec::with_capacity(body_max) });
        Self {
            slots: slots.collect(),
            first: 0,
            len: 0,
            wait_us: WAIT_MIN_US,
            limit_us: CALM_US,
            arrivals: 0,
            overtaken: 0,
            longest_us: 0,
        }
    }

    /// Whether there is no room for another repair.
    pub(crate) fn is_full(&self) -> bool {
        self.len == self.slots.len()
    }

    /// Inserts a repair behind those that are due no later. There must be room.
    pub(crate) fn push(&mut self, due_us: u64, body: &[u8]) {
        assert!(!self.is_full(), "a repair is held only where there is room");
        let mut at = self.slot(self.len);
        self.slots[at].due_us = due_us;
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

    /// Forgets the repairs that wait.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Time at which the first repair is due.
    pub(crate) fn due_us(&self) -> Option<u64> {
        (self.len > 0).then(|| self.slots[self.first].due_us)
    }

    /// Moves the first body into `body` if it is due; returns whether it was.
    pub(crate) fn pop_due(&mut self, now_us: u64, body: &mut Vec<u8>) -> bool {
        self.due_us().is_some_and(|due_us| due_us <= now_us) && self.pop(body)
    }

    /// Moves the first body into `body`, due or not; returns false if there is none.
    pub(crate) fn pop(&mut self, body: &mut Vec<u8>) -> bool {
        if self.len == 0 {
            return false;
        }
        std::mem::swap(body, &mut self.slots[self.first].body);
        self.first = self.slot(1);
        self.len -= 1;
        true
    }

    /// Counts a packet that arrived.
    pub(crate) fn on_arrival(&mut self) {
        self.arrivals += 1;
    }

    /// Learns from a packet that arrived `late_us` after a repair had missed it.
    pub(crate) fn on_late_packet(&mut self, late_us: u64) {
        if late_us > OVERTAKEN_MAX_US {
            return;
        }
        if late_us > CALM_US {
            self.overtaken += 1;
            self.longest_us = self.longest_us.max(late_us);
        }
        self.wait_us = self.wait_us.max(with_margin(late_us)).min(self.limit_us);
    }

    /// Lets the wait decay, and updates its limit. Must be called ten times a second.
    pub(crate) fn on_tick(&mut self) {
        self.wait_us = WAIT_MIN_US.max(self.wait_us - self.wait_us / 64);
        if self.arrivals < FEW {
            return;
        }
        self.limit_us = if self.overtaken > self.arrivals / FEW {
            self.limit_us.max(with_margin(self.longest_us)).min(OVERTAKEN_MAX_US)
        } else {
            CALM_US.max(self.limit_us - self.limit_us / 64)
        };
        self.wait_us = self.wait_us.min(self.limit_us);
        (self.arrivals, self.overtaken, self.longest_us) = (0, 0, 0);
    }

    /// Present wait.
    pub(crate) fn wait_us(&self) -> u64 {
        self.wait_us
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

fn with_margin(late_us: u64) -> u64 {
    late_us + late_us / 4
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
                held.push(start_us + due_us, name);
            }
            assert_eq!(held.due_us(), Some(start_us + 100));
            assert!(!held.pop_due(start_us + 99, &mut body));
            for name in [b"a", b"b", b"c"] {
                assert!(held.pop_due(start_us + 165, &mut body) && body == name);
            }
            assert!(!held.pop_due(start_us + 165, &mut body));
            assert!(held.pop(&mut body) && body == b"d" && !held.pop(&mut body));
        }
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut held = Held::new(1);
        for due_us in 0..HELD_MAX as u64 {
            assert!(!held.is_full());
            held.push(due_us, b"x");
        }
        assert!(held.is_full());
        assert!(held.pop(&mut Vec::new()) && !held.is_full());
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
        held.on_late_packet(900);
        assert_eq!(held.wait_us(), CALM_US);
        for _ in 0..2_000 {
            held.on_tick();
        }
        assert!(held.wait_us() < 130, "{}", held.wait_us());
    }

    #[test]
    fn the_wait_grows_as_far_as_needed_only_while_many_packets_are_overtaken() {
        let run = |held: &mut Held, seconds: u32, overtaken_in_a_tick: u32| {
            for _ in 0..10 * seconds {
                (0..1_000).for_each(|_| held.on_arrival());
                (0..overtaken_in_a_tick).for_each(|_| held.on_late_packet(3_000));
                held.on_tick();
            }
            held.wait_us()
        };
        let mut held = Held::new(1);
        assert!(run(&mut held, 10, 5) <= CALM_US, "0.5 % is few");
        assert!((3_000..=3_750).contains(&run(&mut held, 10, 300)));
        assert!((3_000..=3_750).contains(&run(&mut held, 60, 300)), "for as long as it lasts");
        assert!(run(&mut held, 60, 0) <= CALM_US);
    }
}
