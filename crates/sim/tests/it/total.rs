//! Total order under faults. `cargo run -p sim --example total_order -- 200` runs more seeds.
#![allow(missing_docs)]

use sim::total::{SplitScenario, TotalOutcome, TotalScenario};

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

#[test]
fn of_the_parts_of_a_group_that_is_cut_at_most_one_goes_on() {
    let (mut cuts, mut went_on, mut broken) = (0, 0, [0, 0]);
    for seed in 0..200 {
        let scenario = SplitScenario::of_seed(seed);
        let outcome =
            scenario.run().unwrap_or_else(|violation| panic!("seed {seed}: {violation}; {scenario:?}"));
        cuts += outcome.cuts;
        went_on += outcome.went_on;
        broken[usize::from(seed % 2 == 0)] += outcome.total.broken;
    }
    assert!(2 * went_on > cuts, "most cuts leave a majority: {went_on} of {cuts}");
    // With agreed delivery a part that stops has delivered what it takes back, with safe delivery nothing.
    assert!(broken[0] > 0 && broken[1] == 0, "{broken:?}");
}
