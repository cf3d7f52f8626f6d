//! The cheapest figures, quick: each must have the shape that its source claims. All of them: `undrop figures --quick`.

use figures::{Figure, Scale, run};

const CHEAPEST: [&str; 4] = ["3.10", "3.16", "3.17", "slingshot-3"];

fn figure(id: &str) -> Figure {
    figures::all().into_iter().find(|figure| figure.id == id).unwrap_or_else(|| panic!("no figure {id}"))
}

#[test]
fn the_cheapest_figures_have_the_shape_that_their_sources_claim() {
    for id in CHEAPEST {
        let outcome = run(&figure(id), Scale::Quick, 2, &|_, _| {}).unwrap();
        assert!(outcome.claim.holds, "{id}: {}: {}", outcome.claim.theirs, outcome.claim.ours);
        assert!(
            outcome.panels.iter().flat_map(|panel| &panel.series).all(|series| !series.points.is_empty())
        );
    }
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
        for text in [figure.title, figure.source, figure.setup, figure.claim, figure.why] {
            assert!(!text.is_empty() && !text.contains('|'), "{}: {text:?}", figure.id);
        }
    }
}

#[test]
fn what_is_kept_is_found_again_and_not_for_another_scale() {
    let folder = std::env::temp_dir().join(format!("figures-{}", std::process::id()));
    let (figure, store) = (figure("3.16"), figures::Store::new(&folder));
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
