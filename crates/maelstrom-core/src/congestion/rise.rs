//! How the delay came to be as long as it is: little by little, as a queue fills, or in one leap, as a route
//! becomes longer.

use super::horizon::{BINS, bin_of};

/// Number of datagrams of which the shortest delay counts. A single one may be late by chance.
const ROW: u32 = 3;

/// Watches the delays of all datagrams, in rows.
#[derive(Clone, Debug)]
pub(super) struct Rise {
    /// Delay of the row behind which the next one last reached each bin, or one above it.
    from_us: [u64; BINS],
    /// Delay of the last row.
    last_us: u64,
    /// Number of datagrams in the present row, and the shortest of their delays.
    len: u32,
    shortest_us: u64,
}

impl Default for Rise {
    fn default() -> Self {
        Self { from_us: [0; BINS], last_us: 0, len: 0, shortest_us: u64::MAX }
    }
}

impl Rise {
    pub(super) fn on_delay(&mut self, delay_us: u64) {
        self.shortest_us = self.shortest_us.min(delay_us);
        self.len += 1;
        if self.len < ROW {
            return;
        }
        let [last, present] = [self.last_us, self.shortest_us].map(bin_of);
        if last < present {
            self.from_us[last + 1..=present].fill(self.last_us);
        }
        (self.last_us, self.len, self.shortest_us) = (self.shortest_us, 0, u64::MAX);
    }

    /// Whether the delay rose by more than a quarter of this one at once when it last rose to it.
    pub(super) fn is_leap(&self, to_us: u64) -> bool {
        self.from_us[bin_of(to_us)] < to_us / 4 * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rise(delays_us: impl IntoIterator<Item = u64>) -> Rise {
        let mut rise = Rise::default();
        delays_us.into_iter().for_each(|delay_us| rise.on_delay(delay_us));
        rise
    }

    #[test]
    fn a_queue_fills_little_by_little_and_a_route_becomes_longer_at_once() {
        let full = [50_000; 9];
        let queue = rise((0..50).map(|ms| 1_000 * ms).chain(full));
        assert!(!queue.is_leap(50_000) && !queue.is_leap(40_000) && !queue.is_leap(10_000));
        for before in [0, 1, 2, 30] {
            let route = rise([0; 30].into_iter().take(before).chain(full));
            assert!(route.is_leap(50_000) && route.is_leap(2_000), "{before} datagrams before it");
        }
    }

    #[test]
    fn the_last_rise_counts() {
        let up = || (0..50).map(|ms| 1_000 * ms).chain([50_000; 9]);
        let down = [0; 9];
        assert!(!rise([50_000; 9].into_iter().chain(down).chain(up())).is_leap(50_000));
        assert!(rise(up().chain(down).chain([50_000; 9])).is_leap(50_000));
        // To a part of it, and back.
        assert!(!rise(up().chain([45_000; 9]).chain([50_000; 9])).is_leap(50_000));
        assert!(rise(up().chain([30_000; 9]).chain([50_000; 9])).is_leap(50_000));
    }

    #[test]
    fn single_datagrams_that_are_late_are_no_way_up() {
        let late = [0, 20_000, 0, 38_000, 30_000, 0, 45_000, 0, 0, 46_000, 47_000, 0];
        assert!(rise(late.into_iter().chain([50_000; 9])).is_leap(50_000));
        // Nor do they hide a way up.
        let queue = (0..60).map(|ms| if ms % 3 == 0 { 90_000 } else { 1_000 * ms.min(50) });
        assert!(!rise(queue.chain([50_000; 9])).is_leap(45_000));
    }
}
