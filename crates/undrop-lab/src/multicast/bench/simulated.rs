//! The cluster in virtual time.

use std::process;

use sim::Setting;
use stage::nodes::thread_cpu_ns;

use super::Run;
use super::display::Display;
use undrop::interrupt::{EXIT_INTERRUPTED, Interrupt};

/// Runs a setting with a number of random seeds, from its own on.
pub(super) fn run(setting: &Setting, seeds: u64) -> anyhow::Result<Vec<Run>> {
    let mut display = Display::new("simulated", seeds);
    let mut runs = Vec::new();
    for number in 0..seeds {
        let seed = setting.seed.wrapping_add(number);
        let setting = Setting { seed, clock: Some(thread_cpu_ns), ..setting.clone() };
        runs.push((seed, setting.run(&mut |share| display.show(number, share))?));
    }
    Ok(runs)
}

/// Runs a setting with its own seed, after real nodes have ended. An interrupt ends the process, which has
/// nothing left to clean up.
pub(super) fn run_one(setting: &Setting, interrupt: &Interrupt) -> anyhow::Result<Run> {
    let mut display = Display::new("simulated", 1);
    let setting = Setting { clock: Some(thread_cpu_ns), ..setting.clone() };
    let figures = setting.run(&mut |share| {
        if interrupt.is_requested() {
            process::exit(EXIT_INTERRUPTED.into());
        }
        display.show(0, share);
    })?;
    Ok((setting.seed, figures))
}
