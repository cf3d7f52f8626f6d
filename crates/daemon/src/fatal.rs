//! The end of a process whose own code has failed: a line in the log, and an exit code that a supervisor
//! knows.

use std::io::Write as _;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::process;
use std::thread;

use tracing::{Level, enabled, error};

use crate::log::LogLines;

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
    last_words(&format!("internal error at {place}, thread {thread}: {reason}"));
}

/// Logs the reason why the process ends, also if the log is switched off.
pub(crate) fn last_words(reason: &str) {
    let line = format!("{reason}; the process ends with exit code {EXIT_INTERNAL}");
    if enabled!(Level::ERROR) {
        error!("{line}");
    } else {
        // The writer counts lines that cannot be written, and does not fail.
        let _ = writeln!(LogLines, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::watchdog::Watchdog;

    const FAULT: &str = "UNDROP_TEST_FAULT";

    /// Runs this test again in a process of its own, which fails in this way; returns its exit code and
    /// stderr.
    fn fail(fault: &str) -> (Option<i32>, String) {
        let name = "fatal::tests::a_panic_on_any_thread_and_a_hung_loop_end_the_process_with_a_line";
        let mut command = Command::new(env::current_exe().unwrap());
        let output = command.args(["--exact", name, "--nocapture"]).env(FAULT, fault).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    #[test]
    fn a_panic_on_any_thread_and_a_hung_loop_end_the_process_with_a_line() {
        match env::var(FAULT).as_deref() {
            Ok("main") => run(|| panic!("no way out")),
            Ok("thread") => {
                run(|| {
                    thread::Builder::new()
                        .name("worker".into())
                        .spawn(|| panic!("no way out"))
                        .unwrap()
                        .join()
                })
                .unwrap_err();
            }
            Ok("hang") => {
                let watchdog = Watchdog::start(Duration::from_millis(200)).unwrap();
                watchdog.turn();
                // Nobody ever writes to this end of the pipe.
                let (mut reader, _writer) = std::io::pipe().unwrap();
                let _ = std::io::Read::read(&mut reader, &mut [0]);
            }
            Ok("turn") => {
                // Long enough for a busy machine, which may let a thread wait.
                let limit = Duration::from_secs(3);
                let watchdog = Watchdog::start(limit).unwrap();
                for _ in 0..350 {
                    watchdog.turn();
                    thread::sleep(Duration::from_millis(10));
                }
                drop(watchdog);
                thread::sleep(limit + Duration::from_millis(500));
            }
            _ => {
                let code = Some(i32::from(EXIT_INTERNAL));
                for (fault, line) in [
                    ("main", ": no way out; the process ends with exit code 70"),
                    ("thread", "thread worker: no way out; the process ends with exit code 70"),
                    ("hang", "the main loop has not turned for 0.2 s; the process ends with exit code 70"),
                ] {
                    let (ended, said) = fail(fault);
                    assert_eq!(ended, code, "{fault}: {said}");
                    assert!(said.contains(line), "{fault}: {said}");
                }
                assert_eq!(fail("turn").0, Some(0), "a loop that turns, or has ended, is left alone");
            }
        }
    }
}
