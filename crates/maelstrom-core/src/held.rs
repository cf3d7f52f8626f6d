//! Repairs that wait a moment before what they miss is taken for lost.
//!
//! A repair can overtake the packets it was made of: a card's driver holds segments back to merge them and lets a lone
//! datagram pass, queues differ, processors race. How long a moment must be shows in the packets that still come: the
//! wait grows to what was seen, and shrinks again where nothing comes late.
//!
//! To be quick is worth a duplicate now and then, so the wait stays short ([`CALM_US`]) as long as few packets come later
//! than that. Where many do, repairs travel by a quicker road than packets, and wait for them as long as it takes.

/// Shortest wait in microseconds.
const WAIT_MIN_US: u64 = 60;
/// Longest wait while few packets are overtaken by more: a judgement that beyond it waiting costs TCP more than a
/// duplicate now and then.
const CALM_US: u64 = 200;
/// A packet that came later than this was not merely overtaken; no repair waits longer.
const OVERTAKEN_MAX_US: u64 = 25_000;
/// Few packets: one of so many arrivals.
const FEW: u64 = 128;
/// Repairs that wait at a time.
const HELD_MAX: usize = 512;

/// A bounded queue of repairs, first in, first out.
pub(crate) struct Held {
    slots: Box<[Slot]>,
    first: usize,
    len: usize,
    wait_us: u64,
    /// What `wait_us` may grow to at present.
    limit_us: u64,
    /// Since the limit was last looked at: packets that arrived, and of them those overtaken by more than [`CALM_US`].
    arrivals: u64,
    overtaken: u64,
    /// By how much the most of these.
    longest_us: u64,
}

struct Slot {
    due_us: u64,
    body: Vec<u8>,
}

impl Held {
    /// For bodies of up to `body_max` bytes.
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

    /// Keeps a repair for the present wait. False if there is no room.
    pub(crate) fn push(&mut self, now_us: u64, body: &[u8]) -> bool {
        if self.len == self.slots.len() {
            return false;
        }
        let at = (self.first + self.len) % self.slots.len();
        self.slots[at].due_us = now_us + self.wait_us;
        self.slots[at].body.clear();
        self.slots[at].body.extend_from_slice(body);
        self.len += 1;
        true
    }

    /// Forgets the repairs that wait.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// When the first of them has waited long enough.
    pub(crate) fn due_us(&self) -> Option<u64> {
        (self.len > 0).then(|| self.slots[self.first].due_us)
    }

    /// Moves the first body into `body` if it has waited long enough.
    pub(crate) fn pop_due(&mut self, now_us: u64, body: &mut Vec<u8>) -> bool {
        if self.due_us().is_none_or(|due_us| due_us > now_us) {
            return false;
        }
        std::mem::swap(body, &mut self.slots[self.first].body);
        self.first = (self.first + 1) % self.slots.len();
        self.len -= 1;
        true
    }

    /// A packet arrived.
    pub(crate) fn count_arrival(&mut self) {
        self.arrivals += 1;
    }

    /// A packet came `late_us` after a repair had missed it.
    pub(crate) fn learn(&mut self, late_us: u64) {
        if late_us > OVERTAKEN_MAX_US {
            return;
        }
        if late_us > CALM_US {
            self.overtaken += 1;
            self.longest_us = self.longest_us.max(late_us);
        }
        self.wait_us = self.wait_us.max(with_margin(late_us)).min(self.limit_us);
    }

    /// Forgets a little of what was learnt; to be called ten times a second.
    pub(crate) fn tick(&mut self) {
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

    /// How long repairs wait at present.
    pub(crate) fn wait_us(&self) -> u64 {
        self.wait_us
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.body.capacity() + size_of::<Slot>()).sum()
    }
}

fn with_margin(late_us: u64) -> u64 {
    late_us + late_us / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_leave_in_order_when_due() {
        let (mut held, mut body) = (Held::new(8), Vec::new());
        assert!(held.push(100, b"one") && held.push(110, b"two"));
        assert_eq!(held.due_us(), Some(100 + WAIT_MIN_US));
        assert!(!held.pop_due(100, &mut body));
        assert!(held.pop_due(1_000, &mut body) && body == b"one");
        assert!(held.pop_due(1_000, &mut body) && body == b"two");
        assert!(!held.pop_due(1_000, &mut body));
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut held = Held::new(1);
        assert!((0..HELD_MAX).all(|_| held.push(0, b"x")));
        assert!(!held.push(0, b"x"));
    }

    #[test]
    fn the_wait_follows_what_comes_late_and_forgets_it() {
        let mut held = Held::new(1);
        held.learn(120);
        assert_eq!(held.wait_us(), 150);
        held.learn(80_000);
        assert_eq!(held.wait_us(), 150, "that one was not overtaken, it took another road");
        held.learn(900);
        assert_eq!(held.wait_us(), CALM_US);
        for _ in 0..2_000 {
            held.tick();
        }
        assert!(held.wait_us() < 130, "{}", held.wait_us());
    }

    #[test]
    fn the_wait_grows_as_far_as_needed_where_many_packets_are_overtaken_and_only_there() {
        let run = |held: &mut Held, seconds: u32, overtaken_in_a_tick: u32| {
            for _ in 0..10 * seconds {
                (0..1_000).for_each(|_| held.count_arrival());
                (0..overtaken_in_a_tick).for_each(|_| held.learn(3_000));
                held.tick();
            }
            held.wait_us()
        };
        let mut held = Held::new(1);
        assert!(run(&mut held, 10, 5) <= CALM_US, "0.5 % are few");
        assert!((3_000..=3_750).contains(&run(&mut held, 10, 300)));
        assert!((3_000..=3_750).contains(&run(&mut held, 60, 300)), "for as long as it lasts");
        assert!(run(&mut held, 60, 0) <= CALM_US);
    }
}
