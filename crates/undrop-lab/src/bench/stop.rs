//! Ctrl-C and SIGTERM: a request ends the traffic and the waits of a measurement, so that its gateways end
//! and its files are removed.

use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use netlab::traffic::Progress;
use undrop::interrupt::Interrupt;

/// Longest sleep between two looks.
const LOOK: Duration = Duration::from_millis(100);

static INTERRUPT: OnceLock<Interrupt> = OnceLock::new();

/// Listens for signals from the first call on, which must come before other threads are started.
///
/// # Errors
/// The kernel refused a signal descriptor or a thread.
pub(crate) fn listen() -> anyhow::Result<&'static Interrupt> {
    if let Some(interrupt) = INTERRUPT.get() {
        return Ok(interrupt);
    }
    let interrupt = Interrupt::listen().context("listening for Ctrl-C")?;
    Ok(INTERRUPT.get_or_init(|| interrupt))
}

/// Returns whether a stop was requested.
pub(crate) fn is_requested() -> bool {
    INTERRUPT.get().is_some_and(Interrupt::is_requested)
}

/// Checks for a stop request.
///
/// # Errors
/// [`Interrupted`](undrop::interrupt::Interrupted) if there was one.
pub(crate) fn check() -> anyhow::Result<()> {
    INTERRUPT.get().map_or(Ok(()), Interrupt::check)
}

/// Watches traffic, and ends it when a stop is requested.
pub(crate) fn watch(_: Progress) -> ControlFlow<()> {
    if is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Sleeps until the time is over, or a stop is requested.
///
/// # Errors
/// As of [`check`].
pub(crate) fn pause(time: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + time;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOOK));
    }
}
