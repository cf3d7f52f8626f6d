//! Notices that the process stood still: it was stopped, or the machine slept or had no time for it.
//!
//! Captures and datagrams that waited meanwhile are old. A packet that is recovered seconds after it was
//! lost does harm: its sender has sent it again, or nobody waits for it any more.
//!
//! The pulse counts time by CLOCK_BOOTTIME, which goes on while the machine sleeps, unlike CLOCK_MONOTONIC,
//! by which the gateway's timers and the tap's captures are timed. Neither clock changes when the time of day
//! is set.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Shortest time that counts as a stall. TCP sends a lost packet again after at least 200 ms.
const STALL_US: u64 = 250_000;

/// The time at which the loop was last known to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    beaten_us: u64,
    /// Time for which the loop meant to sleep since then.
    rest_us: u64,
}

impl Pulse {
    pub(crate) fn new(boot_us: u64) -> Self {
        Self { beaten_us: boot_us, rest_us: 0 }
    }

    /// Notes that the loop runs, and is about to sleep for up to `rest`. Returns the length of a stall that
    /// has just ended, if there was one.
    pub(crate) fn beat(&mut self, boot_us: u64, rest: Duration) -> Option<u64> {
        let stall_us = self.stall_us(boot_us);
        self.beaten_us = self.beaten_us.max(boot_us);
        self.rest_us = u64::try_from(rest.as_micros()).unwrap_or(u64::MAX);
        stall_us
    }

    /// Returns the length of a stall that has just ended, and that [`Pulse::beat`] has not returned yet.
    pub(crate) fn stall_us(&self, boot_us: u64) -> Option<u64> {
        let gap_us = boot_us.saturating_sub(self.beaten_us);
        (gap_us > self.rest_us.saturating_add(STALL_US)).then_some(gap_us)
    }
}

/// Reads the clock of the pulse, in microseconds.
pub(crate) fn boot_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has a clock of the time since boot");
    Duration::from(now).as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    #[test]
    fn a_gap_beyond_the_intended_sleep_is_a_stall() {
        let mut pulse = Pulse::new(1_000 * MS);
        assert_eq!(pulse.beat(1_100 * MS, Duration::from_millis(200)), None);
        assert_eq!(pulse.beat(1_400 * MS, Duration::ZERO), None, "it slept for as long as it wanted to");
        assert_eq!(pulse.beat(1_700 * MS, Duration::ZERO), Some(300 * MS));
        assert_eq!(pulse.beat(1_701 * MS, Duration::ZERO), None, "a stall is reported once");
        assert_eq!(pulse.beat(6_701 * MS, Duration::from_millis(200)), Some(5_000 * MS));
    }

    #[test]
    fn a_stall_is_seen_before_it_is_reported() {
        let mut pulse = Pulse::new(0);
        assert_eq!((pulse.stall_us(250 * MS), pulse.stall_us(251 * MS)), (None, Some(251 * MS)));
        assert_eq!(pulse.beat(251 * MS, Duration::ZERO), Some(251 * MS));
        assert_eq!(pulse.stall_us(252 * MS), None);
    }

    #[test]
    fn a_clock_that_goes_back_is_no_stall() {
        let mut pulse = Pulse::new(9_000 * MS);
        assert_eq!(pulse.beat(1_000 * MS, Duration::ZERO), None);
        assert_eq!(pulse.beat(9_100 * MS, Duration::ZERO), None);
    }
}
