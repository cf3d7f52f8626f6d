//! How far a figure is, and how long it still takes: one line on a terminal, written anew; elsewhere nothing.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const WIDTH: usize = 30;

/// The bar of one figure.
pub(super) struct Bar {
    heading: String,
    is_terminal: bool,
    state: Mutex<Option<State>>,
}

struct State {
    started: Instant,
    /// Done when it started: what was kept of a run that was stopped took none of our time.
    kept: usize,
    most: usize,
}

impl Bar {
    /// For a figure, its number among those of this command, and how many these are.
    pub(super) fn new(id: &str, number: usize, of: usize) -> Self {
        let heading = format!("{id:<12} figure {number}/{of}");
        Self { heading, is_terminal: io::stderr().is_terminal(), state: Mutex::new(None) }
    }

    /// So many runs are done.
    pub(super) fn show(&self, done: usize, of: usize) {
        let Ok(mut state) = self.state.lock() else { return };
        let is_first = state.is_none();
        let state = state.get_or_insert_with(|| State { started: Instant::now(), kept: done, most: done });
        // Threads may tell in another order than they were done in.
        if !self.is_terminal || (done <= state.most && !is_first) {
            return;
        }
        state.most = done;
        let full = WIDTH * done / of.max(1);
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full));
        let left = left_text(state.started.elapsed(), done - state.kept, of - done);
        // Progress that nobody can see is no failure.
        let _ = write!(io::stderr(), "\r{} [{bar}] {done}/{of} runs{left}\x1b[K", self.heading);
    }

    pub(super) fn clear(&self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// The time left, if those to come take as long as those that are done.
fn left_text(elapsed: Duration, done: usize, to_come: usize) -> String {
    if done == 0 || to_come == 0 {
        return String::new();
    }
    let seconds = (elapsed.as_secs_f64() * to_come as f64 / done as f64).ceil();
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
    fn the_time_left_is_told_in_seconds_then_in_minutes() {
        let elapsed = Duration::from_secs(10);
        assert_eq!(left_text(elapsed, 0, 5), "");
        assert_eq!(left_text(elapsed, 5, 0), "");
        assert_eq!(left_text(elapsed, 2, 3), ", 15 s left");
        assert_eq!(left_text(elapsed, 1, 60), ", 10 min left");
    }
}
