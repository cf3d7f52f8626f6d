//! The clocks: the one room of this crate that reads them.

use nix::time::{ClockId, clock_gettime};

/// Microseconds of the clock that never goes back.
pub(crate) fn now_us() -> u64 {
    micros(ClockId::CLOCK_MONOTONIC)
}

/// Microseconds since 1970.
pub(crate) fn since_1970_us() -> u64 {
    micros(ClockId::CLOCK_REALTIME)
}

fn micros(clock: ClockId) -> u64 {
    // Linux has both; and a clock at rest would harm nobody.
    let Ok(time) = clock_gettime(clock) else { return 0 };
    time.tv_sec().cast_unsigned() * 1_000_000 + time.tv_nsec().cast_unsigned() / 1_000
}
