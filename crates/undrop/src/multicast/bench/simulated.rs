//! The cluster in virtual time.

use std::io::{self, IsTerminal as _, Write as _};

use nix::time::{ClockId, clock_gettime};
use ricochet_lab::Setting;

use super::Run;

/// Runs a setting with `seeds` seeds, from its own on.
pub(super) fn run(setting: &Setting, seeds: u64) -> anyhow::Result<Vec<Run>> {
    let mut display = Display::new(seeds);
    let mut runs = Vec::new();
    for number in 0..seeds {
        let seed = setting.seed.wrapping_add(number);
        let setting = Setting { seed, clock: Some(thread_cpu_ns), ..setting.clone() };
        runs.push((seed, setting.run(&mut |share| display.show(number, share))?));
    }
    display.clear();
    Ok(runs)
}

/// Processor time of this thread, in nanoseconds; 0 where the kernel does not tell.
fn thread_cpu_ns() -> u64 {
    let read = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    read.map_or(0, |time| time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_nsec().cast_unsigned())
}

/// One line on stderr: on a terminal it is written anew, elsewhere it comes once for each tenth of the work.
struct Display {
    seeds: u64,
    is_terminal: bool,
    /// What was shown last, in percent of all.
    shown: Option<u64>,
}

impl Display {
    fn new(seeds: u64) -> Self {
        Self { seeds, is_terminal: io::stderr().is_terminal(), shown: None }
    }

    fn show(&mut self, done: u64, share: f64) {
        let percent = ((done as f64 + share) * 100.0 / self.seeds as f64) as u64;
        let step = if self.is_terminal { 1 } else { 10 };
        if self.shown.is_some_and(|shown| percent < shown + step) {
            return;
        }
        self.shown = Some(percent);
        let text = format!("seed {}/{}  {percent:>3} %", done + 1, self.seeds);
        // Progress that nobody can see is no failure.
        let _ = match self.is_terminal {
            true => write!(io::stderr(), "\r{text}\x1b[K"),
            false => writeln!(io::stderr(), "{text}"),
        };
    }

    fn clear(&mut self) {
        if self.is_terminal && self.shown.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
