//! Progress of the bench.

use std::io::{self, IsTerminal as _, Write as _};

/// One line on stderr, which changes on a terminal; elsewhere a line for each tenth of the work.
pub(super) struct Display {
    what: &'static str,
    seeds: u64,
    is_terminal: bool,
    /// The last shown progress, in percent.
    shown: Option<u64>,
}

impl Display {
    /// Returns the display for a number of seeds.
    pub(super) fn new(what: &'static str, seeds: u64) -> Self {
        Self { what, seeds, is_terminal: io::stderr().is_terminal(), shown: None }
    }

    /// Shows the finished seeds and a share of the next one.
    pub(super) fn show(&mut self, done: u64, share: f64) {
        let percent = ((done as f64 + share) * 100.0 / self.seeds as f64) as u64;
        let step = if self.is_terminal { 1 } else { 10 };
        if self.shown.is_some_and(|shown| percent < shown + step) {
            return;
        }
        self.shown = Some(percent);
        self.say(&format!("{}, seed {}/{}  {percent:>3} %", self.what, done + 1, self.seeds));
    }

    /// Shows a text.
    pub(super) fn say(&self, text: &str) {
        // Progress that cannot be written is no failure.
        let _ = match self.is_terminal {
            true => write!(io::stderr(), "\r{text}\x1b[K"),
            false => writeln!(io::stderr(), "{text}"),
        };
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
