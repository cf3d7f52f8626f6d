//! Progress of a run, and how its workers wait and stop.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::clock::now_us;

/// Interval of progress reports, and maximum sleep of a worker between checks of the stop flag.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time since traffic began, in microseconds.
    pub elapsed_us: u64,
    /// Payload delivered so far, in bytes; the sum of both directions.
    pub received_bytes: u64,
}

/// Receives the progress ten times a second. [`ControlFlow::Break`] ends the traffic early, with a report up
/// to then.
pub type Watcher<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// A watcher that never ends the traffic.
pub fn unwatched(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Stops the workers, even if the watching thread panics.
#[derive(Debug, Default)]
pub(super) struct Stop(AtomicBool);

impl Stop {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn on_drop(&self) -> StopOnDrop<'_> {
        StopOnDrop(self)
    }
}

#[must_use]
pub(super) struct StopOnDrop<'a>(&'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Returns whether a socket operation merely timed out.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Sleeps until `due_us`, in steps, and returns false as soon as `stop` is set.
pub(super) fn sleep_until(due_us: u64, stop: &Stop) -> bool {
    loop {
        if stop.is_set() {
            return false;
        }
        let left_us = due_us.saturating_sub(now_us());
        if left_us == 0 {
            return true;
        }
        thread::sleep(Duration::from_micros(left_us).min(TICK));
    }
}

/// Returns a duration in microseconds.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Reports progress every tick, until `end_us`, or the watcher breaks, or `done` returns true. Returns
/// whether the watcher broke.
pub(super) fn watch(
    start_us: u64,
    end_us: u64,
    watcher: Watcher<'_>,
    received: impl Fn() -> u64,
    done: impl Fn() -> bool,
) -> bool {
    let mut next_us = now_us();
    while now_us() < end_us && !done() {
        next_us += micros(TICK);
        let now = now_us();
        thread::sleep(Duration::from_micros(next_us.min(end_us).saturating_sub(now)));
        let progress = Progress { elapsed_us: now_us() - start_us, received_bytes: received() };
        if watcher(progress).is_break() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_ends_the_watch() {
        let mut reports = 0;
        let start_us = now_us();
        let mut watcher = |progress: Progress| {
            reports += 1;
            assert_eq!(progress.received_bytes, 5);
            if reports == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        assert!(watch(start_us, u64::MAX, &mut watcher, || 5, || false));
        assert_eq!(reports, 2);
    }

    #[test]
    fn sleep_ends_when_stopped() {
        let stop = Stop::default();
        assert!(sleep_until(now_us() + 10, &stop));
        drop(stop.on_drop());
        assert!(!sleep_until(u64::MAX, &stop));
    }
}
