//! How many packets a digest names where packets come densely: more, so that fewer digests are sent.
//!
//! A digest is hardly longer with 32 names than with eight, but each one costs its sender and its receivers
//! as much work as a packet of data. Where r packets come within a fraction of a millisecond, no receiver
//! gains from hearing of a loss that soon. So a digest waits for as many packets as come within
//! [`FILLING_US`], r at least and [`STRETCH`] times r at most (`docs/adr/0046`). An XOR always has r packets,
//! since it recovers only one of them.

use crate::wire::NAMES_MAX;

/// Time within which a digest may fill, in microseconds: a quarter of the usual longest wait of a bin.
const FILLING_US: f32 = 1_000.0;
/// Factor by which a digest may exceed r.
const STRETCH: usize = 4;
/// Number of bins over which the interval between packets is averaged. Few bins fill in one burst, and the
/// pause after it counts too.
const SMOOTHING: f32 = 8.0;
/// Longest interval that counts, in microseconds, so that one silence does not outweigh all that follows.
const INTERVAL_US_MAX: f32 = 10_000.0;

/// Returns the number of names that a digest may have.
pub(super) fn names_max(r: u8) -> usize {
    (STRETCH * usize::from(r)).min(NAMES_MAX)
}

/// Intervals between the packets of an instance, smoothed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Density {
    interval_us: f32,
}

impl Density {
    /// Density of an instance that has measured nothing: packets come slowly.
    pub(super) const NONE: Self = Self { interval_us: INTERVAL_US_MAX };

    /// Notes that a bin begins, `after_us` after the bin before it, which had this number of packets.
    pub(super) fn on_begin(&mut self, after_us: u64, packets: u8) {
        if packets > 0 {
            let interval_us = (after_us as f32 / f32::from(packets)).min(INTERVAL_US_MAX);
            self.interval_us += (interval_us - self.interval_us) / SMOOTHING;
        }
    }

    /// Returns the number of packets for a digest.
    pub(super) fn names(&self, r: u8) -> u8 {
        let within = (FILLING_US / self.interval_us.max(1.0)) as usize;
        within.clamp(usize::from(r), names_max(r)) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: u8 = 8;

    /// Returns the number of names after bins with these numbers of packets, each with its time after the
    /// one before.
    fn names(bins: impl IntoIterator<Item = (u8, u64)>) -> u8 {
        let mut density = Density::NONE;
        bins.into_iter().for_each(|(packets, after_us)| density.on_begin(after_us, packets));
        density.names(R)
    }

    #[test]
    fn digests_grow_with_the_packets_that_come_within_a_millisecond() {
        assert_eq!(names([]), R, "nothing is known");
        // 5,000, 16,000 and 100,000 packets a second.
        assert_eq!(names([(R, 1_600); 100]), R);
        assert_eq!(names([(16, 960); 100]), 16);
        assert_eq!(names([(32, 320); 100]), 32);
        assert_eq!(names([(64, 0); 100]), 32, "at most four times r");
    }

    #[test]
    fn short_bursts_get_digests_at_once() {
        // Bursts of 64 packets each tenth of a second: seven bins in no time, then a pause.
        let bursts = (0..80).map(|at| (R, if at % 8 == 0 { 100_000 } else { 0 }));
        assert!(names(bursts) <= R, "the pauses count");
        // Dense traffic that stops.
        assert_eq!(names([(32, 320); 100].into_iter().chain([(1, 20_000); 8])), R);
    }

    #[test]
    fn a_digest_never_has_more_names_than_its_format() {
        assert_eq!((names_max(1), names_max(8), names_max(64)), (4, 32, NAMES_MAX));
    }
}
