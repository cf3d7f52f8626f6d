//! The delay of datagrams in the queues of the path, from the times at which they were sent.
//!
//! The clocks of the two ends differ by an unknown constant and drift apart. Only differences count: a delay
//! is measured from the shortest one of the last five minutes. A drift of 50 µs a second thus adds a constant
//! of at most 16 ms, which moves all delays alike. While a queue stands full, no datagram shows the shortest
//! delay, which then stays known for longer, unless the route has become longer.

use crate::wire::SendTime;

/// Number of periods of which the shortest delay is kept.
const PERIODS: usize = 32;
/// Length of a period.
const PERIOD_US: u64 = 10_000_000;

/// Measures delays from the shortest one.
#[derive(Clone, Debug)]
pub(super) struct QueueDelay {
    /// Difference of the clocks at the first datagram. Others are measured from it, so that they do not wrap.
    reference_us: Option<u64>,
    /// Shortest delay of each period, relative to the reference.
    shortest_us: [i64; PERIODS],
    at: usize,
    until_us: u64,
    /// The shortest of all periods.
    base_us: i64,
}

impl Default for QueueDelay {
    fn default() -> Self {
        Self { reference_us: None, shortest_us: [i64::MAX; PERIODS], at: 0, until_us: 0, base_us: i64::MAX }
    }
}

impl QueueDelay {
    /// Takes a datagram that arrived `elapsed_us` after its time of sending, on two clocks and modulo
    /// [`SendTime::PERIOD_US`]. Returns its delay beyond the shortest one. `is_standing`: whether the queue
    /// stands full.
    pub(super) fn on_datagram(&mut self, now_us: u64, elapsed_us: u64, is_standing: bool) -> u64 {
        let reference_us = *self.reference_us.get_or_insert(elapsed_us);
        let delay_us = SendTime::difference_us(elapsed_us, reference_us);
        if now_us >= self.until_us {
            self.begin_period(now_us, is_standing);
        }
        self.shortest_us[self.at] = self.shortest_us[self.at].min(delay_us);
        self.base_us = self.base_us.min(delay_us);
        delay_us.abs_diff(self.base_us)
    }

    fn begin_period(&mut self, now_us: u64, is_standing: bool) {
        let is_long_ago = now_us >= self.until_us + PERIODS as u64 * PERIOD_US;
        if is_long_ago {
            self.shortest_us = [i64::MAX; PERIODS];
        }
        self.at = (self.at + 1) % PERIODS;
        self.shortest_us[self.at] = if is_standing { self.base_us } else { i64::MAX };
        self.until_us = now_us + PERIOD_US;
        self.base_us = self.shortest_us.into_iter().min().unwrap_or(i64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// Returns the elapsed time of a datagram whose sender's clock differs by `offset_us`.
    fn elapsed(delay_us: i64, offset_us: i64) -> u64 {
        (delay_us + offset_us).rem_euclid(SendTime::PERIOD_US as i64) as u64
    }

    #[test]
    fn a_delay_is_measured_from_the_shortest_whatever_the_clocks_say() {
        for offset_us in [0, -50_000, 77 * SECOND as i64, SendTime::PERIOD_US as i64 - 30_000] {
            let mut delay = QueueDelay::default();
            let seen = [50_000, 80_000, 150_000, 50_000, 40_000, 50_000]
                .map(|delay_us| delay.on_datagram(SECOND, elapsed(delay_us, offset_us), false));
            assert_eq!(seen, [0, 30_000, 100_000, 0, 0, 10_000], "clocks {offset_us} us apart");
        }
    }

    #[test]
    fn clocks_that_drift_apart_add_a_small_constant() {
        for drift_ppm in [-100, -20, 20, 100] {
            let mut delay = QueueDelay::default();
            let mut seen = Vec::new();
            for second in 0..1_200 {
                let of = |delay_us: i64| elapsed(delay_us, drift_ppm * second);
                delay.on_datagram(second as u64 * SECOND, of(50_000), false);
                seen.push(delay.on_datagram(second as u64 * SECOND + 9, of(150_000), false));
            }
            let late = &seen[400..];
            let (least, most) = (late.iter().min().unwrap(), late.iter().max().unwrap());
            assert!(*least >= 100_000 && *most <= 100_000 + 32_100, "{least} to {most} at {drift_ppm} ppm");
            assert!(most - least <= 1_100, "{least} to {most} at {drift_ppm} ppm");
        }
    }

    #[test]
    fn a_shorter_route_counts_at_once_and_a_longer_one_after_minutes() {
        let mut delay = QueueDelay::default();
        let mut at = |second: u64, delay_us| delay.on_datagram(second * SECOND, elapsed(delay_us, -9), false);
        assert_eq!([at(0, 50_000), at(1, 20_000), at(2, 25_000)], [0, 0, 5_000]);
        let longer: Vec<_> = (3..400).map(|second| at(second, 90_000)).collect();
        assert_eq!((longer[0], longer[longer.len() - 1]), (70_000, 0));
        assert_eq!(at(5_000, 200_000), 0, "a silence of hours");
    }

    #[test]
    fn the_shortest_delay_stays_known_while_the_queue_stands_full() {
        let mut delay = QueueDelay::default();
        let mut at = |second: u64, delay_us, is_standing| {
            delay.on_datagram(second * SECOND, elapsed(delay_us, 5), is_standing)
        };
        assert_eq!(at(0, 20_000, false), 0);
        let full: Vec<_> = (1..4_000).map(|second| at(second, 70_000, true)).collect();
        assert!(full.iter().all(|&seen| seen == 50_000));
        let later: Vec<_> = (4_000..4_400).map(|second| at(second, 70_000, false)).collect();
        assert_eq!((later[0], later[399]), (50_000, 0), "a longer route");
    }
}
