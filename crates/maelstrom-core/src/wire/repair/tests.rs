use proptest::prelude::*;

use std::ops::Range;

use super::super::{EXCEPTIONS_BUDGET, Half, Recipe, SEALED_HEADER, TAG, repair_overhead};
use super::*;
use fec::{BLOCK_C_MAX, STRIPES_MAX};

fn scheme_and_row() -> impl Strategy<Value = (Scheme, u8)> {
    prop_oneof![Just((Scheme::Layered, 0)), (0..BLOCK_C_MAX).prop_map(|row| (Scheme::ReedSolomon, row))]
}

fn entries(first: u64, stride: u16, fields: &[(u8, u8)]) -> Vec<Entry> {
    let entry = |(at, &(ttl, tos)): (usize, &(u8, u8))| Entry {
        seq: Seq(first + at as u64 * u64::from(stride)),
        name: Name(0xdead_0000 + at as u32),
        fields: MutableFields { ttl, tos },
    };
    fields.iter().enumerate().map(entry).collect()
}

fn lag() -> Lag {
    Lag::of(5_000)
}

fn written(recipe: &Recipe<'_>, symbol: &[u8]) -> Vec<u8> {
    let mut body = vec![0; recipe.wire_len()];
    assert_eq!(recipe.write(lag(), &mut body), recipe.wire_len());
    body.extend(symbol);
    body
}

fn coefficients(view: &RecipeView<'_>) -> Vec<u8> {
    let mut terms = Vec::new();
    view.terms(&mut terms);
    terms.iter().map(|term| term.coefficient).collect()
}

/// Three runs in order within a window, with at most 64 names.
fn runs(window: usize) -> impl Strategy<Value = [Range<u64>; RUNS]> {
    proptest::collection::vec(0..=window as u64, 2 * RUNS).prop_map(|mut ends| {
        ends.sort_unstable();
        let run = |at: usize| ends[2 * at]..ends[2 * at + 1].min(ends[2 * at] + 21);
        [run(0), run(1), run(2)]
    })
}

proptest! {
    #[test]
    fn a_recipe_survives_the_wire(
        first in 0u64..1 << 40,
        stride in 1u16..1024,
        fields in proptest::collection::vec((62u8..64, 0u8..2), 1..=TERMS_MAX),
        symbol in proptest::collection::vec(any::<u8>(), SYMBOL_HEADER + 1..100),
        (scheme, row) in scheme_and_row(),
    ) {
        let entries = entries(first, stride, &fields);
        let body = written(&Recipe::Named { scheme, row, stride, entries: &entries }, &symbol);
        let view = RecipeView::read(&body, Seq(first)).unwrap();
        prop_assert_eq!(view.entries().collect::<Vec<_>>(), entries.clone());
        prop_assert!(view.packets().eq(entries.iter().map(|entry| entry.seq)));
        prop_assert!(view.entries().rev().eq(entries.iter().rev().copied()));
        let sum = if scheme == Scheme::Layered { Sum::Layer } else { Sum::Block { row } };
        prop_assert_eq!((view.sum(), view.lag), (sum, lag()));
        prop_assert_eq!(view.symbol, &symbol[..]);
        let coefficients = coefficients(&view);
        prop_assert_eq!(coefficients.len(), entries.len());
        prop_assert!(coefficients.iter().all(|&one| one != 0 && (row > 0 || one == 1)));
        for cut in 0..body.len() - symbol.len() + SYMBOL_HEADER {
            prop_assert!(RecipeView::read(&body[..cut], Seq(first)).is_err());
        }
    }

    #[test]
    fn a_window_survives_the_wire(
        first in 0u64..1 << 40,
        (fields, runs) in (1..=usize::from(WINDOW_MAX)).prop_flat_map(|window| {
            (proptest::collection::vec((62u8..64, 0u8..2), window), runs(window))
        }),
        symbol in proptest::collection::vec(any::<u8>(), SYMBOL_HEADER + 1..100),
        (seed, density) in (any::<u16>(), 0..=DENSITY_FULL),
        stripes in 1..=STRIPES_MAX,
    ) {
        let draw = Draw { seed, density };
        let mut window = entries(first, 1, &fields);
        let stride = usize::from(stripes);
        window.truncate((window.len() - 1) / stride * stride + 1);
        let within = |at: u64| Seq(first + at.min(window.len() as u64));
        let named = runs.map(|run| within(run.start)..within(run.end));
        let expected: Vec<Entry> =
            window.iter().filter(|entry| named.iter().any(|run| run.contains(&entry.seq))).copied().collect();
        let body = written(&Recipe::Window { draw, stripes, window: &window, named }, &symbol);
        let view = RecipeView::read(&body, Seq(first)).unwrap();
        let count = window.len().div_ceil(stride);
        let sum = Sum::Window { first: Seq(first), stride: stripes.into(), count: count as u16, draw };
        prop_assert_eq!((view.sum(), view.lag), (sum, lag()));
        prop_assert_eq!(view.entries().collect::<Vec<_>>(), expected.clone());
        prop_assert!(view.entries().rev().eq(expected.into_iter().rev()));
        prop_assert!(view.packets().eq(window.iter().step_by(stride).map(|entry| entry.seq)));
        prop_assert_eq!((view.first(), view.last()), (Seq(first), window[window.len() - 1].seq));
        let mut drawn = vec![0; count];
        coding_coefficients(seed, density, &mut drawn);
        drawn.retain(|&coefficient| coefficient != 0);
        prop_assert_eq!(coefficients(&view), drawn);
        prop_assert_eq!(view.symbol, &symbol[..]);
        for cut in 0..body.len() - symbol.len() + SYMBOL_HEADER {
            prop_assert!(RecipeView::read(&body[..cut], Seq(first)).is_err());
        }
    }

    #[test]
    fn no_bytes_panic_the_readers(mut body: Vec<u8>, newest: u64) {
        let near = Seq(newest >> 1);
        if let Ok(view) = RecipeView::read(&body, near) {
            prop_assert!(view.entries().count() <= TERMS_MAX);
        }
        for (scheme, rows) in [(1, 1), (2, BLOCK_C_MAX)] {
            for row in [0, rows - 1, rows, u8::MAX] {
                body.splice(0..body.len().min(4), [1, scheme, 8, row]);
                if let Ok(view) = RecipeView::read(&body, near) {
                    prop_assert!(row < rows && view.entries().count() == 8);
                    prop_assert!(coefficients(&view).len() == 8);
                }
            }
        }
        let _ = Half::read(&body);
    }

    /// Tries windows with plausible headers and arbitrary rests.
    #[test]
    fn no_window_panics_its_reader(
        (count, spread, last) in (0u16..600, any::<u8>(), 0u32..700),
        runs in proptest::array::uniform3((0u16..600, 0u8..70)),
        tail in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut body = vec![1, 3];
        body.extend(count.to_be_bytes());
        body.extend([9, 9, spread]);
        body.extend(last.to_be_bytes());
        body.extend([63, 0, tail.first().map_or(0, |&byte| byte % 3)]);
        body.extend(&tail[..tail.len().min(usize::from(body[13]) * EXCEPTION)]);
        for (before, names) in runs {
            body.extend(before.to_be_bytes());
            body.push(names);
        }
        body.extend(&tail);
        let Ok(view) = RecipeView::read(&body, Seq(0)) else { return Ok(()) };
        let seqs: Vec<Seq> = view.entries().map(|entry| entry.seq).collect();
        prop_assert!(seqs.len() <= TERMS_MAX && seqs.is_sorted_by(|one, next| one < next));
        prop_assert!(seqs.iter().all(|seq| (view.first()..=view.last()).contains(seq)));
        let stripes = usize::from(spread >> 4) + 1;
        prop_assert!(view.packets().count() == usize::from(count).div_ceil(stripes) && count <= WINDOW_MAX);
        prop_assert_eq!(view.last().0 - view.first().0 + 1, u64::from(count));
        prop_assert!(coefficients(&view).len() <= usize::from(count));
    }
}

#[test]
fn a_row_beyond_those_of_the_scheme_is_refused() {
    let entries = entries(0, 1, &[(63, 0); 8]);
    let recipe = Recipe::Named { scheme: Scheme::Layered, row: 0, stride: 1, entries: &entries };
    let mut body = written(&recipe, &[0; SYMBOL_HEADER + 1]);
    for (scheme, row, expected) in [
        (1, 0, Ok(Sum::Layer)),
        (1, 1, Err(Rejected::Malformed)),
        (2, BLOCK_C_MAX - 1, Ok(Sum::Block { row: BLOCK_C_MAX - 1 })),
        (2, BLOCK_C_MAX, Err(Rejected::Malformed)),
        (2, u8::MAX, Err(Rejected::Malformed)),
        (0, 0, Err(Rejected::UnknownScheme)),
        (4, 0, Err(Rejected::UnknownScheme)),
    ] {
        (body[1], body[3]) = (scheme, row);
        assert_eq!(RecipeView::read(&body, Seq(7)).map(|view| view.sum()), expected, "{scheme}, {row}");
    }
}

#[test]
fn a_malformed_window_is_refused() {
    let window = entries(1_000, 1, &[(63, 0); 200]);
    let named = [Seq(1_010)..Seq(1_012), Seq(1_020)..Seq(1_022), Seq(1_198)..Seq(1_200)];
    let draw = Draw { seed: 1, density: 15 };
    let good = written(&Recipe::Window { draw, stripes: 1, window: &window, named }, &[0; 400]);
    assert!(RecipeView::read(&good, Seq(1_199)).is_ok());
    for (what, changes) in [
        ("an empty window", vec![(3, 0)]),
        ("a window beyond the limit", vec![(2, 4), (3, 1)]),
        ("a window that begins before the stream", vec![(9, 0), (10, 100)]),
        ("a window that does not begin with a packet of its stripe", vec![(6, 0x1f)]),
        ("a run before the window", vec![(15, 200)]),
        ("runs that overlap", vec![(19, 11)]),
        ("runs out of order", vec![(15, 170)]),
        ("a run longer than the distance to the window's start", vec![(16, 13)]),
        ("more names than allowed", vec![(22, 62)]),
    ] {
        let mut body = good.clone();
        changes.into_iter().for_each(|(at, byte)| body[at] = byte);
        let read = RecipeView::read(&body, Seq(100)).map(|view| view.sum());
        assert_eq!(read, Err(Rejected::Malformed), "{what}");
    }
    let mut with_exceptions = good.clone();
    with_exceptions.splice(13..14, [5].into_iter().chain([0, 9, 9].repeat(5)));
    assert!(RecipeView::read(&with_exceptions, Seq(1_199)).is_ok());
    with_exceptions.splice(13..14, [6, 0, 9, 9]);
    assert!(
        RecipeView::read(&with_exceptions, Seq(1_199)).is_err(),
        "at least one packet has the common fields"
    );
}

#[test]
fn the_stated_overhead_is_what_goes_over_the_link() {
    let fields: Vec<_> = (0..20).map(|at| (if at < EXCEPTIONS_BUDGET as u8 { 60 } else { 63 }, 0)).collect();
    let entries = entries(0, 1, &fields);
    let (scheme, window) = (Scheme::Layered, Scheme::Sliding);
    let named = [Seq(0)..Seq(5), Seq(8)..Seq(8), Seq(10)..Seq(20)];
    for (scheme, names, recipe) in [
        (scheme, 20, Recipe::Named { scheme, row: 0, stride: 1, entries: &entries }),
        (
            window,
            15,
            Recipe::Window { draw: Draw { seed: 0, density: 15 }, stripes: 1, window: &entries, named },
        ),
    ] {
        let datagram = SEALED_HEADER + recipe.wire_len() + SYMBOL_HEADER + TAG;
        assert_eq!(repair_overhead(scheme, names, false), 28 + datagram);
        assert_eq!(repair_overhead(scheme, names, true), 48 + datagram);
    }
}
