//! Total order under faults. `cargo run -p sim --example total_order -- 200` runs more seeds.
#![allow(missing_docs)]

use sim::total::{TotalOutcome, TotalScenario};

fn run(seeds: std::ops::Range<u64>) -> TotalOutcome {
    let mut all = TotalOutcome::default();
    for seed in seeds {
        let scenario = TotalScenario::of_seed(seed);
        let outcome =
            scenario.run().unwrap_or_else(|violation| panic!("seed {seed}: {violation}; {scenario:?}"));
        all.delivered += outcome.delivered;
        all.lost += outcome.lost;
        all.broken += outcome.broken;
        all.epochs += outcome.epochs;
    }
    all
}

#[test]
fn members_deliver_the_same_sequence_whatever_fails() {
    let all = run(0..24);
    assert!(all.delivered > 10_000 && all.epochs > 40, "the runs show something: {all:?}");
}
