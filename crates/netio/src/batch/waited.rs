//! The times at which the kernel received datagrams, by the clock that is never set.
//!
//! The kernel states them by the clock of the day. A time that is too early would look like a shorter path,
//! so that all doubts count the other way: nothing arrived before the socket was last found empty, and while
//! the clock of the day is set, datagrams count as arrived when they are read.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Difference between the two clocks that no adjustment causes within a moment.
const SET_MIN: Duration = Duration::from_millis(1);

/// The time at which a socket was last found empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited {
    empty: Now,
}

impl Waited {
    /// Begins with an empty socket.
    pub(crate) fn new() -> Self {
        Self { empty: Now::read() }
    }

    /// Notes that the socket was found empty by a call that began at this time.
    pub(crate) fn on_empty(&mut self, began: Now) {
        self.empty = began;
    }

    /// Returns the time since boot at which a datagram arrived that the kernel received at `stamp`, and that
    /// was read before `now`.
    pub(crate) fn arrived(&self, stamp: Option<Duration>, now: Now) -> Duration {
        let waited = stamp.map_or(Duration::ZERO, |stamp| now.of_day.saturating_sub(stamp));
        let since_empty = now.since_boot.saturating_sub(self.empty.since_boot);
        let of_day = now.of_day.saturating_sub(self.empty.of_day);
        let is_set = now.of_day < self.empty.of_day || of_day.abs_diff(since_empty) > SET_MIN;
        let waited = if is_set { Duration::ZERO } else { waited.min(since_empty) };
        now.since_boot.saturating_sub(waited)
    }
}

/// One moment by two clocks. If the process is stopped between the two readings, the one since boot is late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    of_day: Duration,
    since_boot: Duration,
}

impl Now {
    pub(crate) fn read() -> Self {
        let read = |clock| clock_gettime(clock).map_or(Duration::ZERO, Duration::from);
        Self { of_day: read(ClockId::CLOCK_REALTIME), since_boot: read(ClockId::CLOCK_MONOTONIC) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 s after boot the socket was empty, and it is read at 107 s, when the clock of the day says `day`.
    fn arrived(stamp: Option<u64>, day: u64) -> u64 {
        let at = |day: u64, boot: u64| Now {
            of_day: Duration::from_secs(day),
            since_boot: Duration::from_secs(boot),
        };
        let waited = Waited { empty: at(4_993, 100) };
        waited.arrived(stamp.map(Duration::from_secs), at(day, 107)).as_secs()
    }

    #[test]
    fn a_datagram_arrived_when_the_kernel_received_it() {
        assert_eq!([4_995, 4_997, 5_000].map(|stamp| arrived(Some(stamp), 5_000)), [102, 104, 107]);
        assert_eq!(arrived(None, 5_000), 107);
    }

    #[test]
    fn no_datagram_arrived_before_the_socket_was_empty_nor_after_it_was_read() {
        assert_eq!([1, 4_000, 5_001].map(|stamp| arrived(Some(stamp), 5_000)), [100, 100, 107]);
    }

    #[test]
    fn while_the_clock_of_the_day_is_set_datagrams_arrive_when_they_are_read() {
        for day in [4_990, 4_995, 5_001, 9_000] {
            assert_eq!(arrived(Some(4_996), day), 107, "{day}");
        }
    }
}
