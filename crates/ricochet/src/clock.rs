//! The clocks. No other file of this crate reads them.

use nix::time::{ClockId, clock_gettime};

/// Returns the microseconds of the monotonic clock.
pub(crate) fn now_us() -> u64 {
    micros(ClockId::CLOCK_MONOTONIC)
}

/// Returns the microseconds since 1970.
pub(crate) fn since_1970_us() -> u64 {
    micros(ClockId::CLOCK_REALTIME)
}

fn micros(clock: ClockId) -> u64 {
    // Linux has both clocks, and a clock that stands still would do no harm.
    let Ok(time) = clock_gettime(clock) else { return 0 };
    time.tv_sec().cast_unsigned() * 1_000_000 + time.tv_nsec().cast_unsigned() / 1_000
}
