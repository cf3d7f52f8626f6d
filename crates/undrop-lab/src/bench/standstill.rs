//! Standstills: time in which a processor does not run even the most urgent thread, because the host took it.
//!
//! The kernel's ticks cannot tell. They count idle time exactly and busy time by samples, so that work in
//! short bursts is missing from their sum although the machine ran.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use netlab::process::become_urgent;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Time between two looks at the clock.
const NAP: Duration = Duration::from_millis(2);
/// Oversleeping up to here is the kernel's own: interrupts, and timers that share a wake-up.
const SLACK: Duration = Duration::from_millis(1);

/// Time in microseconds in which processors stood still, of all of them together, since the first call.
///
/// The first call starts a thread on each processor. The sum stays 0 where such threads may not have
/// real-time priority, as without it they would wait for the measurement itself.
pub(super) fn total_us() -> u64 {
    static TOTAL_US: OnceLock<&'static AtomicU64> = OnceLock::new();
    let total = TOTAL_US.get_or_init(|| {
        let total: &'static AtomicU64 = Box::leak(Box::default());
        let processors = thread::available_parallelism().map_or(1, usize::from);
        for processor in 0..processors {
            // Without a thread nothing is added.
            let _ =
                thread::Builder::new().name("standstill".to_owned()).spawn(move || watch(processor, total));
        }
        total
    });
    total.load(Ordering::Relaxed)
}

/// Adds the time that a nap on a processor took too long, for as long as the program runs.
fn watch(processor: usize, total_us: &AtomicU64) {
    let mut only = CpuSet::new();
    if only.set(processor).is_err()
        || sched_setaffinity(Pid::from_raw(0), &only).is_err()
        || become_urgent().is_err()
    {
        return;
    }
    loop {
        let before = Instant::now();
        thread::sleep(NAP);
        let over = before.elapsed().saturating_sub(NAP);
        if over > SLACK {
            total_us.fetch_add(over.as_micros() as u64, Ordering::Relaxed);
        }
    }
}
