//! Simulated figures at the least scale: each must have the shape that its source claims, or the one that it is known to have
//! instead.

use std::path::Path;

use figures::{Claim, Figure, Made, Runner, Scale, Store, run};

fn figure(id: &str) -> Figure {
    figures::all().into_iter().find(|figure| figure.id == id).unwrap_or_else(|| panic!("no figure {id}"))
}

/// Memory that simultaneous simulations may use.
const MEMORY_BYTES: u64 = 1 << 30;

/// The reason why a figure is not as expected.
fn fault(figure: &Figure) -> Option<String> {
    let start = std::time::Instant::now();
    let runner = Runner {
        threads: 2,
        memory_bytes: MEMORY_BYTES,
        program: Err("no measured figure runs here".to_owned()),
        is_stopped: &|| false,
        on_progress: &|_, _| {},
    };
    let outcome = runner.run(figure, Scale::Least, None).unwrap();
    let is_whole =
        outcome.panels.iter().flat_map(|panel| &panel.series).all(|series| !series.points.is_empty());
    let Claim { theirs, ours, holds, .. } = &outcome.claim;
    println!("{}: holds {holds}: {ours} {:?}", figure.id, start.elapsed());
    (!is_whole || !figure.is_as_expected(&outcome))
        .then(|| format!("{}: expected {theirs}; saw {ours}", figure.id))
}

#[test]
fn all_simulated_figures_have_the_shape_that_is_expected_of_them() {
    let all = figures::all();
    let simulated = all.iter().filter(|figure| figure.made(Scale::Least) == [Made::Simulated]);
    // In one test, one after another: each uses all processors.
    let faults: Vec<String> = simulated.filter_map(fault).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn who_is_known_to_differ_says_so() {
    let known: Vec<&str> =
        figures::all().iter().filter(|figure| figure.is_known_to_differ()).map(|figure| figure.id).collect();
    assert_eq!(
        known,
        ["3.11", "3.12", "3.14", "4.6.6", "4.14", "4.15", "slingshot-3"],
        "a list that only grows by somebody's decision"
    );
}

#[test]
fn every_figure_has_a_number_of_its_own_and_a_set_up_that_can_be_told_from_others() {
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

/// The published figures, as of the page: their texts have a value for every placeholder, and verdicts are as expected.
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
fn what_is_kept_is_found_again_and_not_for_another_scale() {
    let folder = std::env::temp_dir().join(format!("figures-{}", std::process::id()));
    let (figure, store) = (figure("3.16"), Store::new(&folder));
    assert!(store.load(&figure, Scale::Quick).is_none());
    let outcome = run(&figure, Scale::Quick, 2, &|_, _| {}).unwrap();
    store.save(&figure, &outcome).unwrap();
    let kept = store.load(&figure, Scale::Quick).expect("it was kept");
    // Numbers come back from text but for their last bit.
    assert_eq!((kept.fingerprint, kept.claim), (outcome.fingerprint, outcome.claim));
    assert!(store.load(&figure, Scale::Full).is_none());
    assert!(folder.join("thesis-3.16.svg").exists());
    std::fs::remove_dir_all(&folder).unwrap();
}
