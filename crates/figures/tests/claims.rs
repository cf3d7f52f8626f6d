//! Simulated figures at the smallest scale: each must have the shape that its source claims, or the one that
//! it is known to have instead.

use std::env;
use std::path::Path;
use std::process::Command;

use figures::{Claim, Figure, Made, Runner, Scale, Store, run};

fn figure(id: &str) -> Figure {
    figures::all().into_iter().find(|figure| figure.id == id).unwrap_or_else(|| panic!("no figure {id}"))
}

/// Memory that simultaneous simulations may use.
const MEMORY_BYTES: u64 = 1 << 30;
/// Name of the variable with the figure that a child process runs.
const ONE: &str = "UNDROP_TEST_FIGURE";

/// Runs a figure; fails if it is not as expected.
fn expect_figure(figure: &Figure) {
    let runner = Runner {
        threads: 2,
        memory_bytes: MEMORY_BYTES,
        program: Err("no measured figure runs here".to_owned()),
        is_stopped: &|| false,
        on_progress: &|_, _| {},
    };
    let outcome = runner.run(figure, Scale::Smallest, None).unwrap();
    let is_whole =
        outcome.panels.iter().flat_map(|panel| &panel.series).all(|series| !series.points.is_empty());
    let Claim { theirs, ours, holds, .. } = &outcome.claim;
    println!("{}: holds {holds}: {ours}", figure.id);
    assert!(is_whole && figure.is_as_expected(&outcome), "{}: expected {theirs}; saw {ours}", figure.id);
}

/// Each figure has a process of its own, whose end returns the memory that the allocator keeps of past
/// simulations.
#[test]
fn all_simulated_figures_have_the_shape_that_is_expected_of_them() {
    if let Ok(id) = env::var(ONE) {
        expect_figure(&figure(&id));
        return;
    }
    let all = figures::all();
    let simulated = all.iter().filter(|figure| figure.made(Scale::Smallest) == [Made::Simulated]);
    let mut faults = Vec::new();
    for figure in simulated {
        let mut child = Command::new(env::current_exe().unwrap());
        let name = "all_simulated_figures_have_the_shape_that_is_expected_of_them";
        let output = child.args(["--exact", name, "--nocapture"]).env(ONE, figure.id).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter(|line| line.contains(": holds ")).for_each(|line| println!("{line}"));
        if !output.status.success() {
            faults.push(text + &String::from_utf8_lossy(&output.stderr));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_list_of_figures_known_to_differ_is_deliberate() {
    let known: Vec<&str> =
        figures::all().iter().filter(|figure| figure.is_known_to_differ()).map(|figure| figure.id).collect();
    assert_eq!(
        known,
        ["3.11", "3.12", "3.13", "3.14", "4.6.6", "4.14", "4.15", "slingshot-3"],
        "only a decision changes this list"
    );
}

#[test]
fn every_figure_has_its_own_number_and_a_set_up_that_differs_by_scale() {
    let all = figures::all();
    let mut slugs: Vec<String> = all.iter().map(Figure::slug).collect();
    slugs.sort_unstable();
    slugs.dedup();
    assert_eq!(slugs.len(), all.len());
    for figure in &all {
        assert_ne!(figure.fingerprint(Scale::Quick), figure.fingerprint(Scale::Full), "{}", figure.id);
        assert_eq!(figure.fingerprint(Scale::Quick), figure.fingerprint(Scale::Quick), "{}", figure.id);
    }
}

/// The published figures, as of the page: their texts have a value for every placeholder, and verdicts are as
/// expected.
#[test]
fn published_figures_are_whole_and_as_expected() {
    let store = Store::new(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures")));
    for figure in figures::all() {
        let Some(outcome) = store.load(&figure, Scale::Full) else { continue };
        let Claim { theirs, ours, ours_brief, why, .. } = &outcome.claim;
        for text in [theirs, ours, ours_brief, why] {
            assert!(!text.contains(['{', '}']), "{}: {text}", figure.id);
        }
        assert!(figure.is_as_expected(&outcome), "{}: {}", figure.id, outcome.claim.ours);
        assert_eq!(figure.prose.differs.is_some(), figure.is_known_to_differ(), "{}", figure.id);
    }
}

#[test]
fn a_stored_outcome_is_found_again_and_not_for_another_scale() {
    let folder = env::temp_dir().join(format!("figures-{}", std::process::id()));
    let (figure, store) = (figure("3.16"), Store::new(&folder));
    assert!(store.load(&figure, Scale::Quick).is_none());
    let outcome = run(&figure, Scale::Quick, 2, &|_, _| {}).unwrap();
    store.save(&figure, &outcome).unwrap();
    let kept = store.load(&figure, Scale::Quick).expect("it was kept");

    assert_eq!((kept.fingerprint, kept.claim), (outcome.fingerprint, outcome.claim));
    assert!(store.load(&figure, Scale::Full).is_none());
    assert!(folder.join("thesis-3.16.svg").exists());
    std::fs::remove_dir_all(&folder).unwrap();
}
