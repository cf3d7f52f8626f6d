//! Total order under faults. `cargo run -p sim --example total_order -- 200` runs more seeds.
#![allow(missing_docs)]

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use ricochet_core::order::OrderNews;
use sim::total::{Item, SplitScenario, TotalOutcome, TotalScenario, World};
use simnet::virtual_net::Conditions;

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

/// A member that acknowledges nothing, though the others see it alive, while a sender goes on at full speed.
#[test]
fn the_others_go_on_without_a_member_that_stands_still_and_lose_nothing_in_silence() {
    const MESSAGES: u64 = 30_000;
    let mut world = World::new(Conditions::default(), 7, false);
    (0..3).for_each(|_| world.join(1));
    world.update_views(&mut ChaCha8Rng::seed_from_u64(1), 1);
    world.run_for(3_000_000);
    world.set_side(2, 1);
    for _ in 0..MESSAGES / 10 {
        (0..10).for_each(|_| world.multicast(1, 20));
        world.run_for(1_000);
    }
    world.run_for(5_000_000);
    for at in [0, 1] {
        let (mut messages, mut missed) = (0, 0);
        for item in world.trace(at) {
            match item {
                Item::Message(..) => messages += 1,
                Item::Lost(.., count) => missed += count,
                Item::News(OrderNews::Missed { from, continues }) => missed += continues - from,
                Item::News(_) => {}
            }
        }
        assert_eq!(messages + missed, MESSAGES, "at member {at}");
        assert_eq!(missed, 0, "at member {at}: the others keep up");
    }
}
