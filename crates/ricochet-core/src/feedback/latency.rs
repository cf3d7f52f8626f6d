//! Times of recoveries, in buckets.

/// Binary logarithm of the end of the first bucket, in microseconds.
const SHORTEST_BITS: u32 = 6;
/// Binary logarithm of the number of buckets to an octave.
const PARTS_BITS: u32 = 2;
/// Number of buckets: 20 octaves from 64 µs to 67 s, and one bucket below.
const BUCKETS: usize = 1 + (20 << PARTS_BITS);

/// Histogram of times with four buckets to an octave from 64 µs to 67 s, so that quantiles are accurate
/// within 12 %.
///
/// ```
/// use ricochet_core::feedback::Latencies;
/// let mut latencies = Latencies::default();
/// (1..=100).for_each(|ms| latencies.add(ms * 1_000));
/// let median_us = latencies.quantile_us(0.5).unwrap();
/// assert!((44_000..=56_000).contains(&median_us));
/// assert_eq!((latencies.count(), latencies.mean_us(), latencies.max_us()), (100, Some(50_500), 100_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    counts: [u32; BUCKETS],
    sum_us: u64,
    max_us: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], sum_us: 0, max_us: 0 }
    }
}

impl Latencies {
    /// Counts a time in microseconds.
    pub fn add(&mut self, us: u64) {
        let count = &mut self.counts[bucket(us)];
        *count = count.saturating_add(1);
        self.sum_us = self.sum_us.saturating_add(us);
        self.max_us = self.max_us.max(us);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, others: &Self) {
        for (count, other) in self.counts.iter_mut().zip(&others.counts) {
            *count = count.saturating_add(*other);
        }
        self.sum_us = self.sum_us.saturating_add(others.sum_us);
        self.max_us = self.max_us.max(others.max_us);
    }

    /// Returns the number of times counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// Returns the mean in microseconds.
    pub fn mean_us(&self) -> Option<u64> {
        self.sum_us.checked_div(self.count())
    }

    /// Returns the longest time in microseconds; 0 if there is none.
    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// Returns the time in microseconds that a share of the times, from 0 to 1, does not exceed: the middle
    /// of its bucket.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let rank = ((self.count() as f64 * share.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        let mut buckets = self.buckets();
        buckets.find_map(|(low_us, high_us, count)| {
            seen += count;
            (seen >= rank).then_some((low_us.midpoint(high_us)).min(self.max_us))
        })
    }

    /// Returns the buckets that are not empty: lower and upper end in microseconds, and count. Times longer
    /// than 67 s are in the last bucket.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let buckets = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        buckets.map(|(at, &count)| (floor_us(at), floor_us(at + 1), u64::from(count)))
    }
}

fn bucket(us: u64) -> usize {
    let Some(octave) = us.checked_ilog2().and_then(|bits| bits.checked_sub(SHORTEST_BITS)) else { return 0 };
    let part = (us >> (octave + SHORTEST_BITS - PARTS_BITS)) & ((1 << PARTS_BITS) - 1);
    (1 + ((octave as usize) << PARTS_BITS) + part as usize).min(BUCKETS - 1)
}

/// Returns the lower end of a bucket.
fn floor_us(bucket: usize) -> u64 {
    let Some(at) = bucket.checked_sub(1) else { return 0 };
    let (octave, part) = (at >> PARTS_BITS, at as u64 & ((1 << PARTS_BITS) - 1));
    ((1 << PARTS_BITS) + part) << (octave as u32 + SHORTEST_BITS - PARTS_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        assert_eq!((floor_us(0), floor_us(1), floor_us(2), floor_us(5)), (0, 64, 80, 128));
        for at in 0..BUCKETS {
            assert_eq!(bucket(floor_us(at)), at);
            assert_eq!(bucket(floor_us(at + 1) - 1), at);
        }
        assert_eq!((floor_us(BUCKETS), bucket(u64::MAX)), (1 << 26, BUCKETS - 1));
    }

    proptest::proptest! {
        #[test]
        fn quantiles_are_accurate_within_an_eighth(mut times in proptest::collection::vec(64u64..60_000_000, 1..200), share in 0.0..1.0f64) {
            let mut latencies = Latencies::default();
            times.iter().for_each(|&us| latencies.add(us));
            times.sort_unstable();
            let exact = times[((times.len() as f64 * share).ceil() as usize).max(1) - 1];
            let reported = latencies.quantile_us(share).unwrap();
            proptest::prop_assert!(reported.abs_diff(exact) * 8 <= exact + 8, "{reported} for {exact}");
        }
    }
}
