//! The cluster in virtual time.

use ricochet_lab::Setting;

use super::Run;
use super::clock::thread_cpu_ns;
use super::display::Display;

/// Runs a setting with `seeds` seeds, from its own on.
pub(super) fn run(setting: &Setting, seeds: u64) -> anyhow::Result<Vec<Run>> {
    let mut display = Display::new("simulated", seeds);
    let mut runs = Vec::new();
    for number in 0..seeds {
        let seed = setting.seed.wrapping_add(number);
        runs.push(run_seed(&Setting { seed, ..setting.clone() }, number, &mut display)?);
    }
    Ok(runs)
}

/// Runs a setting with its own seed alone.
pub(super) fn run_one(setting: &Setting) -> anyhow::Result<Run> {
    run_seed(setting, 0, &mut Display::new("simulated", 1))
}

fn run_seed(setting: &Setting, number: u64, display: &mut Display) -> anyhow::Result<Run> {
    let setting = Setting { clock: Some(thread_cpu_ns), ..setting.clone() };
    Ok((setting.seed, setting.run(&mut |share| display.show(number, share))?))
}
