//! Ctrl-C and SIGTERM: the first asks a command to take everything down, the second ends it at once.

use std::io::{self, Write as _};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use daemon::signals::Signals;
use netio::poll::{Interest, Poller};

/// As a shell reports a process that SIGINT has ended.
pub const EXIT_INTERRUPTED: u8 = 130;

/// The user has asked to stop.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Whether the user has asked to stop.
pub struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens from now on; to be called before other threads are started.
    pub fn listen() -> io::Result<Self> {
        let signals = Signals::new()?;
        let asked = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&asked);
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            // Without signals the command still ends by itself, or by the second one.
            let _ = wait_for_signals(&signals, &flag);
        })?;
        Ok(Self { asked })
    }

    /// Whether it is time to stop.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// An error when it is time to stop: [`Interrupted`].
    pub fn check(&self) -> anyhow::Result<()> {
        if self.is_asked() { Err(Interrupted.into()) } else { Ok(()) }
    }
}

fn wait_for_signals(signals: &Signals, asked: &AtomicBool) -> io::Result<()> {
    let mut poller = Poller::new()?;
    poller.add(signals, 0, Interest::Readable)?;
    loop {
        let _ = poller.wait(None)?;
        while signals.next()?.is_some() {
            if asked.swap(true, Ordering::Relaxed) {
                // The kernel ends the gateways, and the namespaces with us.
                process::exit(EXIT_INTERRUPTED.into());
            }
            // Whoever read our stderr may be gone.
            let _ = writeln!(io::stderr(), "\nstopping; once more ends at once");
        }
    }
}
