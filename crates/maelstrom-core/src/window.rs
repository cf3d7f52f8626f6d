//! What a sliding window's repairs name, and which packets are too old to (`docs/adr/0007-names-of-a-sliding-window.md`).

use std::collections::VecDeque;
use std::ops::Range;

use fec::RepairRate;
use fec::names::{NAMES_MAX, Names, spread};
use foundation::Seq;

use crate::wire::TERMS_MAX;

const _: () = assert!(NAMES_MAX == TERMS_MAX, "a repair names as many packets as the wire lets it");

/// A packet leaves the window at this age, and the time more that it may wait for its first repair, for the far ingress
/// gives up what is missing for a second: a repair may reach back no further than its memory. Only streams of less than W
/// packets in this time notice.
const AGE_MAX_US: u64 = 500_000;

/// The last copy of a name travels a spread after the first, the second with the next repair.
fn distances(rate: RepairRate, window: u16) -> [usize; 2] {
    [1, spread(rate, window)]
}

/// Knows what each repair named, and which packets are too old.
pub(crate) struct Naming {
    window: u16,
    names: Names,
    age_max_us: u64,
    /// When the packets of the window left, oldest first.
    sent_us: VecDeque<u64>,
}

impl Naming {
    /// Before the first repair of a stream that stands at `next`, where a packet waits `max_delay_us` for a repair.
    pub(crate) fn new(rate: RepairRate, window: u16, max_delay_us: u64, next: Seq) -> Self {
        // A spread is at most the window and 1, or 2.
        let reach = usize::from(window) + 2;
        Self {
            window,
            names: Names::new(rate, distances(rate, window), reach, next.0),
            age_max_us: AGE_MAX_US + max_delay_us,
            sent_us: VecDeque::with_capacity(usize::from(window)),
        }
    }

    /// The rate is another from now on. Later copies that are still to come are named as there is room for them.
    pub(crate) fn set_rate(&mut self, rate: RepairRate) {
        self.names.set_rate(rate, distances(rate, self.window));
    }

    /// How many of the packets so far are young enough to stay in the window, if not all are.
    pub(crate) fn young(&mut self, now_us: u64) -> Option<usize> {
        let before = self.sent_us.len();
        while self.sent_us.front().is_some_and(|&sent_us| sent_us + self.age_max_us < now_us) {
            self.sent_us.pop_front();
        }
        let young = self.sent_us.len();
        (young < before).then_some(young)
    }

    /// A packet has entered the window.
    pub(crate) fn source(&mut self, now_us: u64) {
        if self.sent_us.len() == usize::from(self.window) {
            self.sent_us.pop_front();
        }
        self.sent_us.push_back(now_us);
    }

    /// Which packets the next repair names, whose window is `first` to `last`; in order of the stream.
    pub(crate) fn next(&mut self, first: Seq, last: Seq) -> [Range<Seq>; 3] {
        self.names.next(first.0, last.0).map(|run| Seq(run.start)..Seq(run.end))
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.names.memory_bytes() + self.sent_us.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_slow_stream_leave_the_window_by_age() {
        let mut naming = Naming::new("1/2".parse().unwrap(), 4, 20_000, Seq(0));
        let young = [0, 1, 2, 3, 4, 520_001, 520_003, 2_000_000].map(|now_us| {
            let young = naming.young(now_us);
            naming.source(now_us);
            young
        });
        assert_eq!(young, [None, None, None, None, None, None, Some(3), Some(0)]);
    }
}
