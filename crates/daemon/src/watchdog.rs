//! A thread that ends the process when its main loop no longer turns, so that a supervisor starts it again.
//!
//! The thread counts its own steps, and not the time: a process that was stopped, or whose machine was
//! paused, finds that much time has passed but has hung nowhere.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::fatal::{self, EXIT_INTERNAL};

/// Number of steps of the thread without a turn of the loop after which the loop hangs.
const STEPS: u32 = 10;
/// Longest time for the log line and an orderly exit, which may hang as well.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Number of turns that means that the loop has ended.
const ENDED: u64 = u64::MAX;

/// A watch over one loop. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watchdog {
    turns: Arc<AtomicU64>,
}

impl Watchdog {
    /// Starts a watch over a loop that turns more often than once in `limit`.
    ///
    /// # Errors
    /// The system refused a thread.
    pub fn start(limit: Duration) -> io::Result<Self> {
        let turns = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&turns);
        thread::Builder::new().name("watchdog".to_owned()).spawn(move || watch(&seen, limit))?;
        Ok(Self { turns })
    }

    /// Notes that the loop has turned.
    pub fn turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.turns.store(ENDED, Ordering::Relaxed);
    }
}

fn watch(turns: &AtomicU64, limit: Duration) {
    let (mut before, mut still) = (0, 0);
    while still < STEPS {
        thread::sleep(limit / STEPS);
        let now = turns.load(Ordering::Relaxed);
        if now == ENDED {
            return;
        }
        still = if now == before { still + 1 } else { 0 };
        before = now;
    }
    end(limit);
}

/// Ends the process. The log line and the exit run on a thread of their own, because they may hang as the
/// loop does.
fn end(limit: Duration) {
    let last_words = move || {
        let limit = limit.as_secs_f64();
        fatal::last_words(&format!("internal error: the main loop has not turned for {limit} s"));
        process::exit(EXIT_INTERNAL.into())
    };
    if thread::Builder::new().spawn(last_words).is_ok() {
        thread::sleep(LAST_WORDS);
    }
    process::abort();
}
