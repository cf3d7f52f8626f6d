//! Runs random scenarios of total order, and groups that are cut into parts:
//! `cargo run -p sim --example total_order -- [seeds] [first]`.

use sim::total::{SplitScenario, TotalScenario};

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (seeds, first) = (arguments.next().unwrap_or(200), arguments.next().unwrap_or(0));
    let (mut broken, mut dead, mut failed) = (0, 0, 0);
    for seed in first..first + seeds {
        let scenario = TotalScenario::of_seed(seed);
        match scenario.run() {
            Ok(outcome) => {
                broken += outcome.broken;
                dead += u32::from(!outcome.is_alive);
                println!("seed {seed}: {outcome}");
            }
            Err(violation) => {
                failed += 1;
                println!("seed {seed}: VIOLATION: {violation}; {scenario:?}");
            }
        }
    }
    for seed in first..first + seeds {
        let scenario = SplitScenario::of_seed(seed);
        match scenario.run() {
            Ok(outcome) => {
                let (went_on, cuts, total) = (outcome.went_on, outcome.cuts, outcome.total);
                println!("seed {seed}: one part went on after {went_on} of {cuts} cuts; {total}");
            }
            Err(violation) => {
                failed += 1;
                println!("seed {seed}: VIOLATION: {violation}; {scenario:?}");
            }
        }
    }
    println!(
        "{seeds} seeds: {failed} violations, {broken} times broken, {dead} without a majority at the end"
    );
    if failed > 0 {
        std::process::exit(1);
    }
}
