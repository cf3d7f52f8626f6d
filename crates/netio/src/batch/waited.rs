//! The time for which datagrams have waited in a socket, from the times at which the kernel received them.
//!
//! The kernel states these by the clock of the day, which may be set. A datagram has waited at most since the
//! socket was last found empty, by a clock that is never set.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time at which a socket was last found empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited {
    empty_at: Duration,
}

impl Waited {
    /// Begins with an empty socket.
    pub(crate) fn new() -> Self {
        Self { empty_at: Now::read().since_boot }
    }

    /// Notes that the socket was found empty.
    pub(crate) fn on_empty(&mut self) {
        self.empty_at = Now::read().since_boot;
    }

    /// Returns how long a datagram has waited that the kernel received at `stamp`; zero if that is not known.
    pub(crate) fn since(&self, stamp: Option<Duration>, now: Now) -> Duration {
        let waited = stamp.map_or(Duration::ZERO, |stamp| now.of_day.saturating_sub(stamp));
        waited.min(now.since_boot.saturating_sub(self.empty_at))
    }
}

/// One moment by two clocks.
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

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_datagram_has_waited_since_the_kernel_received_it_whatever_is_done_to_the_clock_of_the_day() {
        let waited = Waited { empty_at: 100 * SECOND };
        let now = Now { of_day: 5_000 * SECOND, since_boot: 107 * SECOND };
        let since = |stamp: Option<u32>| waited.since(stamp.map(|seconds| seconds * SECOND), now);
        assert_eq!([since(Some(4_997)), since(Some(5_000))], [3 * SECOND, Duration::ZERO]);
        assert_eq!(since(None), Duration::ZERO);
        assert_eq!(since(Some(1_000)), 7 * SECOND, "the clock was set forward");
        assert_eq!(since(Some(9_000)), Duration::ZERO, "the clock was set back");
    }
}
