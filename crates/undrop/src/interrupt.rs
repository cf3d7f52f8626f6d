//! Ctrl-C and SIGTERM: the first signal requests an orderly stop, the second ends the process at once.

use std::io::{self, Write as _};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use daemon::signals::Signals;
use netio::poll::{Interest, Poller};

/// Exit code of an interrupted command: what a shell reports of a process that SIGINT has ended.
pub const EXIT_INTERRUPTED: u8 = 130;

/// Error of a command that the user has stopped.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// A flag that a signal sets.
pub struct Interrupt {
    requested: Arc<AtomicBool>,
}

impl Interrupt {
    /// Starts to listen for signals. Must be called before other threads are started.
    ///
    /// # Errors
    /// The kernel refused a signal descriptor or a thread.
    pub fn listen() -> io::Result<Self> {
        let signals = Signals::new()?;
        let requested = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&requested);
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            // If this fails, the command still ends by itself.
            let _ = wait_for_signals(&signals, &flag);
        })?;
        Ok(Self { requested })
    }

    /// Whether a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Checks for a stop request.
    ///
    /// # Errors
    /// [`Interrupted`] if there was one.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.is_requested() { Err(Interrupted.into()) } else { Ok(()) }
    }
}

fn wait_for_signals(signals: &Signals, requested: &AtomicBool) -> io::Result<()> {
    let mut poller = Poller::new()?;
    poller.add(signals, 0, Interest::Readable)?;
    loop {
        let _ = poller.wait(None)?;
        while signals.next()?.is_some() {
            if requested.swap(true, Ordering::Relaxed) {
                // The kernel ends child processes and namespaces with this process.
                process::exit(EXIT_INTERRUPTED.into());
            }
            // The reader of stderr may be gone.
            let _ = writeln!(io::stderr(), "\nstopping; a second signal ends the process at once");
        }
    }
}
