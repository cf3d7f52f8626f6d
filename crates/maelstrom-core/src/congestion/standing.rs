//! Whether the queue of the path stands full without a break.

use super::horizon::delay_of;

/// Time after which a full queue counts as standing.
const STANDING_US: u64 = 500_000;

/// Watches the delays of all datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    /// Time since which no datagram has met less than a full queue.
    since_us: Option<u64>,
    is_standing: bool,
}

impl Standing {
    /// Takes the delay of a datagram. `full`: the bin from which the queue counts as full, if it is known.
    pub(super) fn on_delay(&mut self, now_us: u64, delay_us: u64, full: Option<usize>) {
        // The queue varies by some packets while it is full.
        let is_full = full.is_some_and(|bin| delay_us >= delay_of(bin) / 8 * 7);
        self.since_us = is_full.then(|| self.since_us.map_or(now_us, |since_us| since_us.min(now_us)));
        self.is_standing = self.since_us.is_some_and(|since_us| now_us - since_us >= STANDING_US);
    }

    pub(super) fn is_standing(self) -> bool {
        self.is_standing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::horizon::bin_of;

    #[test]
    fn a_queue_stands_after_half_a_second_and_until_one_datagram_meets_less() {
        let (mut standing, full) = (Standing::default(), Some(bin_of(50_000)));
        let mut at = |ms: u64, delay_us, full| {
            standing.on_delay(ms * 1_000, delay_us, full);
            standing.is_standing()
        };
        assert!(!at(0, 50_000, None) && !at(600, 50_000, full) && !at(1_000, 46_000, full));
        assert!(at(1_100, 50_000, full) && at(9_000, 60_000, full));
        assert!(!at(9_001, 40_000, full) && !at(9_002, 50_000, full));
        assert!(at(9_600, 50_000, full));
        assert!(!at(9_601, 50_000, None), "the queue is not known any more");
        // A clock that jumps back begins the time again.
        assert!(!at(20_000, 50_000, full) && !at(5_000, 50_000, full) && at(5_500, 50_000, full));
    }
}
