//! Whether the queue of the path stands full without a break, or its route has become longer.
//!
//! Both look alike if the longer route loses packets: losses begin with the delay. But a queue that drops
//! packets ebbs, because senders slow down. Only senders that ignore losses keep it full, and they fill it
//! little by little. A route becomes longer in one leap, and stays so.

use super::horizon::delay_of;
use super::rise::Rise;

/// Time after which a full queue counts as standing.
const STANDING_US: u64 = 500_000;
/// Time after which a delay that leapt to that of a full queue, and never ebbed, is taken for that of a
/// longer route.
const ROUTE_US: u64 = 20_000_000;

/// Watches the delays of all datagrams.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    /// Time since which no datagram has met less than a full queue.
    since_us: Option<u64>,
    is_standing: bool,
    is_longer_route: bool,
    rise: Rise,
}

impl Standing {
    /// Takes the delay of a datagram. `full`: the bin from which the queue counts as full, if it is known.
    pub(super) fn on_delay(&mut self, now_us: u64, delay_us: u64, full: Option<usize>) {
        self.rise.on_delay(delay_us);
        // The queue varies by some packets while it is full.
        let full_us = full.map(|bin| delay_of(bin) / 8 * 7).filter(|&full_us| delay_us >= full_us);
        self.since_us = full_us.map(|_| self.since_us.map_or(now_us, |since_us| since_us.min(now_us)));
        let stands_us = self.since_us.map_or(0, |since_us| now_us - since_us);
        self.is_standing = stands_us >= STANDING_US;
        self.is_longer_route =
            stands_us >= ROUTE_US && full_us.is_some_and(|full_us| self.rise.is_leap(full_us));
    }

    pub(super) fn is_standing(&self) -> bool {
        self.is_standing
    }

    /// Whether the latest delay is that of a route that has become longer, and not that of a full queue.
    pub(super) fn is_longer_route(&self) -> bool {
        self.is_longer_route
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

    #[test]
    fn a_delay_that_leaps_and_never_ebbs_is_that_of_a_longer_route() {
        let full = Some(bin_of(50_000));
        let longer_at_ms = |delay_us: fn(u64) -> u64| {
            let mut standing = Standing::default();
            (0..100_000).step_by(10).find(|&ms| {
                standing.on_delay(ms * 1_000, delay_us(ms), full);
                standing.is_longer_route()
            })
        };
        assert_eq!(longer_at_ms(|ms| if ms < 5_000 { 0 } else { 50_000 }), Some(25_000));
        assert_eq!(longer_at_ms(|ms| if ms < 5_000 { 0 } else { 90_000 }), Some(25_000), "whatever is known");
        assert_eq!(longer_at_ms(|ms| if ms < 5_000 { 0 } else { 40_000 }), None, "no full queue");
        let filled = |ms: u64| (ms.saturating_sub(5_000) * 100).min(50_000);
        assert_eq!(longer_at_ms(filled), None, "a queue that fills and stands");
        let ebbs = |ms: u64| if ms < 5_000 || ms.is_multiple_of(19_000) { 0 } else { 50_000 };
        assert_eq!(longer_at_ms(ebbs), None, "a queue that ebbs");
    }
}
