//! Progress of the demo: one line that changes on a terminal, a line every two seconds elsewhere.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write as _};

use netlab::traffic::Progress;

/// Ticks over which the rate is shown: a second.
const TICKS_SHOWN: usize = 10;

/// Time between two lines where there is no terminal, in microseconds.
const PLAIN_EVERY_US: u64 = 2_000_000;

/// The progress of one act. Goes to stderr, so that stdout holds results only.
pub(super) struct Display {
    heading: String,
    is_terminal: bool,
    /// The present stage; the rate restarts with it.
    stage: &'static str,
    recent: VecDeque<Progress>,
    plain_due_us: u64,
}

impl Display {
    /// Returns the display of an act, with its number and title.
    pub(super) fn new(number: usize, of: usize, title: &str) -> Self {
        Self {
            heading: format!("act {number}/{of}  {title}"),
            is_terminal: io::stderr().is_terminal(),
            stage: "",
            recent: VecDeque::with_capacity(TICKS_SHOWN + 1),
            plain_due_us: 0,
        }
    }

    /// Shows that a stage begins.
    pub(super) fn stage(&mut self, stage: &'static str) {
        self.stage = stage;
        self.recent.clear();
        self.plain_due_us = 0;
        self.say(&format!("{}  {stage}", self.heading));
    }

    /// Shows the progress of traffic.
    pub(super) fn tick(&mut self, progress: Progress) {
        self.recent.push_back(progress);
        if self.recent.len() > TICKS_SHOWN + 1 {
            self.recent.pop_front();
        }
        if !self.is_terminal {
            if progress.elapsed_us < self.plain_due_us + PLAIN_EVERY_US {
                return;
            }
            self.plain_due_us = progress.elapsed_us;
        }
        let (elapsed_s, mbps) = (progress.elapsed_us as f64 / 1e6, rate_mbps(&self.recent));
        self.say(&format!("{}  {}  {elapsed_s:4.1} s  {mbps:7.1} Mbit/s", self.heading, self.stage));
    }

    fn say(&self, text: &str) {
        // Progress that cannot be written is no failure.
        let mut stderr = io::stderr().lock();
        let _ = if self.is_terminal { write!(stderr, "\r\x1b[K{text}") } else { writeln!(stderr, "{text}") };
        let _ = stderr.flush();
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Returns the rate between the first and the last tick.
fn rate_mbps(recent: &VecDeque<Progress>) -> f64 {
    let (Some(first), Some(last)) = (recent.front(), recent.back()) else { return 0.0 };
    // A single tick counts from the beginning.
    let (from_us, from_bytes) =
        if recent.len() > 1 { (first.elapsed_us, first.received_bytes) } else { (0, 0) };
    let elapsed_us = last.elapsed_us.saturating_sub(from_us);
    if elapsed_us == 0 {
        return 0.0;
    }
    (last.received_bytes.saturating_sub(from_bytes) * 8) as f64 / elapsed_us as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_second() {
        let at = |elapsed_us, received_bytes| Progress { elapsed_us, received_bytes };
        assert_eq!(rate_mbps(&VecDeque::new()), 0.0);
        assert_eq!(rate_mbps(&VecDeque::from([at(100_000, 125_000)])), 10.0);
        assert_eq!(rate_mbps(&VecDeque::from([at(1_000_000, 1), at(2_000_000, 125_001)])), 1.0);
        assert_eq!(rate_mbps(&VecDeque::from([at(5, 1), at(5, 2)])), 0.0);
    }
}
