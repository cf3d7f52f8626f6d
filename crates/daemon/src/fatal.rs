//! The end of a process whose own code has failed: a line in the log, and an exit code that a supervisor
//! knows.

use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::process;
use std::thread;

use tracing::error;

/// Exit code after a panic, or when the main loop hangs (`EX_SOFTWARE` of BSD's `sysexits.h`).
pub const EXIT_INTERNAL: u8 = 70;

/// Runs `main` on the calling thread, which must be the main thread. A panic on any thread is logged and ends
/// the process with [`EXIT_INTERNAL`]. On the main thread, values are dropped first.
pub fn run<T>(main: impl FnOnce() -> T) -> T {
    let main_thread = thread::current().id();
    panic::set_hook(Box::new(move |panic| {
        log(panic);
        if thread::current().id() != main_thread {
            process::exit(EXIT_INTERNAL.into());
        }
    }));
    panic::catch_unwind(AssertUnwindSafe(main)).unwrap_or_else(|_| process::exit(EXIT_INTERNAL.into()))
}

fn log(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let reason = panic.payload_as_str().unwrap_or("no reason given");
    let thread = thread::current();
    let thread = thread.name().unwrap_or("without a name");
    error!(
        "internal error at {place}, thread {thread}: {reason}; the process ends with exit code {EXIT_INTERNAL}"
    );
}
