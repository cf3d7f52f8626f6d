//! Progress of a figure and its remaining time, in one line of a terminal; nothing elsewhere.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const WIDTH: usize = 30;

/// The progress bar of one figure.
pub(super) struct Bar {
    heading: String,
    is_terminal: bool,
    state: Mutex<Option<State>>,
}

struct State {
    started: Instant,
    /// Runs that were finished at the start, which took no time.
    kept: usize,
    most: usize,
}

impl Bar {
    /// Returns the bar of a figure, with its number among those of this command.
    pub(super) fn new(id: &str, number: usize, of: usize) -> Self {
        let heading = format!("{id:<12} figure {number}/{of}");
        Self { heading, is_terminal: io::stderr().is_terminal(), state: Mutex::new(None) }
    }

    /// Shows the number of finished runs.
    pub(super) fn show(&self, done: usize, of: usize) {
        let Ok(mut state) = self.state.lock() else { return };
        let is_first = state.is_none();
        let state = state.get_or_insert_with(|| State { started: Instant::now(), kept: done, most: done });
        // Threads may report out of order.
        if !self.is_terminal || (done <= state.most && !is_first) {
            return;
        }
        state.most = done;
        let full = WIDTH * done / of.max(1);
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full));
        let left = left_text(state.started.elapsed(), done - state.kept, of - done);
        // Progress that cannot be written is no failure.
        let _ = write!(io::stderr(), "\r{} [{bar}] {done}/{of} runs{left}\x1b[K", self.heading);
    }

    pub(super) fn clear(&self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Returns the remaining time, if each further run takes as long as the finished ones.
fn left_text(elapsed: Duration, done: usize, remaining: usize) -> String {
    if done == 0 || remaining == 0 {
        return String::new();
    }
    let seconds = (elapsed.as_secs_f64() * remaining as f64 / done as f64).ceil();
    if seconds < 90.0 {
        format!(", {seconds:.0} s left")
    } else {
        format!(", {:.0} min left", seconds / 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_is_in_seconds_then_in_minutes() {
        let elapsed = Duration::from_secs(10);
        assert_eq!(left_text(elapsed, 0, 5), "");
        assert_eq!(left_text(elapsed, 5, 0), "");
        assert_eq!(left_text(elapsed, 2, 3), ", 15 s left");
        assert_eq!(left_text(elapsed, 1, 60), ", 10 min left");
    }
}
