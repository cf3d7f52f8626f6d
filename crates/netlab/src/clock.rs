//! The machine's monotonic clock, the same for every process on it.

use nix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in microseconds; two processes of one machine can compare theirs.
pub fn now_us() -> u64 {
    micros(ClockId::CLOCK_MONOTONIC)
}

/// Processor time of the calling thread, in microseconds.
pub(crate) fn thread_cpu_us() -> u64 {
    micros(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn micros(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("Linux has the monotonic and the thread clock");
    time.tv_sec().cast_unsigned() * 1_000_000 + time.tv_nsec().cast_unsigned() / 1_000
}
