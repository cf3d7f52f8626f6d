//! How far the bench is.

use std::io::{self, IsTerminal as _, Write as _};

/// One line on stderr: on a terminal it is written anew, elsewhere it comes once for each tenth of the work.
pub(super) struct Display {
    what: &'static str,
    seeds: u64,
    is_terminal: bool,
    /// What was shown last, in percent of all.
    shown: Option<u64>,
}

impl Display {
    /// Of so many seeds of something.
    pub(super) fn new(what: &'static str, seeds: u64) -> Self {
        Self { what, seeds, is_terminal: io::stderr().is_terminal(), shown: None }
    }

    /// So many seeds are done, and a share of the next.
    pub(super) fn show(&mut self, done: u64, share: f64) {
        let percent = ((done as f64 + share) * 100.0 / self.seeds as f64) as u64;
        let step = if self.is_terminal { 1 } else { 10 };
        if self.shown.is_some_and(|shown| percent < shown + step) {
            return;
        }
        self.shown = Some(percent);
        self.say(&format!("{}, seed {}/{}  {percent:>3} %", self.what, done + 1, self.seeds));
    }

    /// Something of which there is nothing to count.
    pub(super) fn say(&self, text: &str) {
        // Progress that nobody can see is no failure.
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
