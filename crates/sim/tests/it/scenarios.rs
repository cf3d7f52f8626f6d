//! Two hundred random scenarios, given by their seeds.
//!
//! `RICOCHET_SEED=17 cargo test -p sim one_seed -- --nocapture` repeats one.
#![allow(missing_docs)]

use sim::Scenario;

/// Prints the seed if the run panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!("repeat with: RICOCHET_SEED={seed} cargo test -p sim one_seed -- --nocapture");
        }
    }
}

fn run(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let guard = Seed(seed);
        let _ = Scenario::of_seed(guard.0).run();
    }
}

#[test]
fn seeds_0_to_49() {
    run(0..50);
}

#[test]
fn seeds_50_to_99() {
    run(50..100);
}

#[test]
fn seeds_100_to_149() {
    run(100..150);
}

#[test]
fn seeds_150_to_199() {
    run(150..200);
}

#[test]
fn one_seed() {
    let Ok(seed) = std::env::var("RICOCHET_SEED") else { return };
    let scenario = Scenario::of_seed(seed.parse().expect("RICOCHET_SEED: expected a number"));
    println!("{scenario:#?}");
    println!("{}", scenario.run());
}

/// Seeds of past failures are kept, each with the failure.
#[test]
fn the_first_packets_of_a_stream_are_requested_even_if_nothing_else_is_missing() {
    // A stream that lacked its first packets set no timer: they were neither requested nor given up.
    for seed in [1, 105, 179, 195, 205] {
        run(seed..seed + 1);
    }
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    for seed in [3, 5, 8] {
        assert_eq!(Scenario::of_seed(seed).run(), Scenario::of_seed(seed).run());
    }
}

#[test]
fn scenarios_cover_all_fates() {
    let outcomes: Vec<_> = (0..40).map(|seed| Scenario::of_seed(seed).run()).collect();
    for kind in 0..4 {
        let scenarios = outcomes.iter().filter(|outcome| outcome.fates[kind] > 0).count();
        assert!(scenarios > 3, "expected fate {kind} in more than 3 of 40 scenarios, saw {scenarios}");
    }
    assert!(outcomes.iter().any(|outcome| outcome.late > 0));
}
