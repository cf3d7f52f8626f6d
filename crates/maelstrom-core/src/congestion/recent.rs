//! The delays of the queue in the last second, by the time at which datagrams were sent.
//!
//! An egress that is short of time sends a repair long after its packets. The queue that the repair meets is
//! not theirs: behind a burst that overfilled it, it may have drained. So a repair is asked for the delays
//! since its newest packet left.

use std::collections::VecDeque;

use crate::wire::SendTime;

/// Number of moments, and the length of one in microseconds.
const MOMENTS: usize = 512;
const MOMENT_US: i64 = 2_000;

/// The longest delay of each moment, in order of time.
#[derive(Clone, Debug)]
pub(super) struct Recent(VecDeque<(SendTime, u64)>);

impl Recent {
    pub(super) fn new() -> Self {
        Self(VecDeque::with_capacity(MOMENTS))
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Notes the delay of a datagram that was sent at this time.
    pub(super) fn push(&mut self, sent: SendTime, delay_us: u64) {
        if let Some((begun, longest_us)) = self.0.back_mut() {
            let since_us = sent.since_us(*begun);
            if since_us < MOMENT_US {
                // One that was overtaken says nothing of this moment.
                if since_us > -MOMENT_US {
                    *longest_us = delay_us.max(*longest_us);
                }
                return;
            }
        }
        if self.0.len() == MOMENTS {
            self.0.pop_front();
        }
        self.0.push_back((sent, delay_us));
    }

    /// Returns the longest delay of the datagrams that were sent in the time of `lag_us` before `sent`, and
    /// of those just before that time.
    pub(super) fn longest_us(&self, sent: SendTime, lag_us: u64) -> u64 {
        let lag_us = i64::try_from(lag_us).unwrap_or(i64::MAX);
        let mut longest_us = 0;
        for &(at, delay_us) in self.0.iter().rev() {
            let before_us = sent.since_us(at);
            if before_us >= -MOMENT_US {
                longest_us = delay_us.max(longest_us);
            }
            if before_us > lag_us {
                break;
            }
        }
        longest_us
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<(SendTime, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_repair_meets_another_queue_than_its_packets() {
        for start_us in [5_000, SendTime::PERIOD_US - 40_000] {
            let at = |ms: u64| SendTime::at(start_us + 1_000 * ms);
            let mut recent = Recent::new();
            assert_eq!(recent.longest_us(at(0), 64_000), 0);
            // The queue is full until 60 ms, and has drained at 70 ms.
            (0..200).for_each(|ms| {
                recent.push(at(ms), if ms < 60 { 100_000 } else { 70_000 - 1_000 * ms.min(70) });
            });
            assert_eq!(recent.longest_us(at(80), 64_000), 100_000);
            assert_eq!([recent.longest_us(at(80), 8_000), recent.longest_us(at(199), 64_000)], [0; 2]);
            // Datagrams that were overtaken, and those of a stall.
            recent.push(at(10), 90_000);
            assert_eq!(recent.longest_us(at(199), 1_000), 0);
            recent.push(at(300), 0);
            assert_eq!(recent.longest_us(at(300), 1_000), 0);
        }
    }

    #[test]
    fn the_last_second_is_kept() {
        let mut recent = Recent::new();
        (0..10_000_u64).for_each(|ms| recent.push(SendTime::at(1_000 * ms), if ms < 9_100 { 9 } else { 0 }));
        assert_eq!(recent.longest_us(SendTime::at(9_999_000), 1_024_000), 9);
        assert!(recent.0.len() <= MOMENTS && recent.memory_bytes() < 16_384);
    }
}
