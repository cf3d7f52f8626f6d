//! The machine's monotonic clock, which all its processes share.

use nix::time::{ClockId, clock_gettime};

/// Returns CLOCK_MONOTONIC in microseconds; two processes of one machine can compare their values.
pub fn now_us() -> u64 {
    micros(ClockId::CLOCK_MONOTONIC)
}

/// Returns the processor time of the calling thread in microseconds.
pub(crate) fn thread_cpu_us() -> u64 {
    micros(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn micros(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("Linux has the monotonic and the thread clock");
    time.tv_sec().cast_unsigned() * 1_000_000 + time.tv_nsec().cast_unsigned() / 1_000
}
