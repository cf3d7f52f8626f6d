//! Times of the real machine.

use std::fs;
use std::time::Instant;

use nix::time::{ClockId, clock_gettime};

/// Microseconds since its creation; copies agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "not a core: real nodes need the clock")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now_us(self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }
}

/// Returns the processor time of this thread in nanoseconds; 0 if the kernel does not report it.
pub fn thread_cpu_ns() -> u64 {
    let read = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    read.map_or(0, |time| time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_nsec().cast_unsigned())
}

/// Returns the processor time of all nodes' threads in this process in nanoseconds; 0 if the kernel does not
/// report it.
pub(crate) fn nodes_cpu_ns() -> u64 {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return 0 };
    let of_task = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let times = fs::read_to_string(task.path().join("schedstat")).ok()?;
        // The node's thread, and its draining thread if there is one.
        let on_cpu = times.split_whitespace().next().filter(|_| name.starts_with("ricochet"))?;
        on_cpu.parse::<u64>().ok()
    };
    tasks.flatten().filter_map(of_task).sum()
}
