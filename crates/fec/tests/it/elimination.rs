//! Every symbol that elimination can solve is recovered, bit for bit, in any order of arrival.
#![allow(missing_docs)]

use crate::common::Kept;
use fec::{
    Decoder, DecoderConfig, LayeredConfig, LayeredEncoder, Outcome, Sending, SymbolId, SymbolStore, Term,
    gf256,
};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use std::collections::BTreeSet;

/// A repair in transit.
#[derive(Debug, Clone)]
struct Equation {
    terms: Vec<Term>,
    payload: Vec<u8>,
}

/// Returns the sum of the terms, longer than the longest symbol by `padding`.
fn equation(terms: Vec<Term>, symbols: &[Vec<u8>], padding: usize) -> Equation {
    let of = |term: &Term| &symbols[term.id.0 as usize];
    let length = terms.iter().map(|term| of(term).len()).max().unwrap_or(0) + padding;
    let mut payload = vec![0; length];
    for term in &terms {
        for (sum, &byte) in payload.iter_mut().zip(of(term)) {
            *sum ^= gf256::product(term.coefficient, byte);
        }
    }
    Equation { terms, payload }
}

/// Returns the unknowns that the equations determine, by textbook elimination over a dense matrix without
/// payloads.
fn determined(equations: &[&Equation], known: &BTreeSet<u64>, symbols: usize) -> BTreeSet<u64> {
    let mut matrix: Vec<Vec<u8>> = Vec::new();
    for equation in equations {
        let mut row = vec![0; symbols];
        for term in equation.terms.iter().filter(|term| !known.contains(&term.id.0)) {
            row[term.id.0 as usize] ^= term.coefficient;
        }
        matrix.push(row);
    }
    let mut done = 0;
    for column in 0..symbols {
        let Some(pivot) = (done..matrix.len()).find(|&row| matrix[row][column] != 0) else { continue };
        matrix.swap(done, pivot);
        let scale = gf256::inverse(matrix[done][column]);
        matrix[done].iter_mut().for_each(|c| *c = gf256::product(*c, scale));
        let pivot = matrix[done].clone();
        for (at, row) in matrix.iter_mut().enumerate() {
            let factor = row[column];
            if at != done && factor != 0 {
                row.iter_mut().zip(&pivot).for_each(|(c, &p)| *c ^= gf256::product(factor, p));
            }
        }
        done += 1;
    }
    let single = |row: &Vec<u8>| row.iter().filter(|&&c| c != 0).count() == 1;
    matrix
        .iter()
        .filter(|row| single(row))
        .map(|row| row.iter().position(|&c| c != 0).unwrap() as u64)
        .collect()
}

/// An arrival at the decoder.
#[derive(Debug, Clone, Copy)]
enum Event {
    Source(usize),
    Repair(usize),
}

fn config(equations: usize) -> DecoderConfig {
    DecoderConfig { equations, payload_max: 200, terms_max: 64 }
}

/// Plays the events, and compares after each the known symbols with those that elimination determines.
fn play(symbols: &[Vec<u8>], equations: &[Equation], events: &[Event]) -> Result<(), TestCaseError> {
    let mut decoder = Decoder::new(config(equations.len().max(1) * 2));
    let mut kept = Kept::default();
    let mut arrived = BTreeSet::new();
    let mut seen: Vec<&Equation> = Vec::new();
    for event in events {
        match *event {
            Event::Source(n) => {
                let id = SymbolId(n as u64);
                arrived.insert(id.0);
                if kept.known(id).is_none() {
                    kept.0.insert(id, symbols[n].clone());
                }
                decoder.handle_source(&mut kept, id);
            }
            Event::Repair(n) => {
                seen.push(&equations[n]);
                let outcome = decoder.handle_repair(&mut kept, &equations[n].terms, &equations[n].payload);
                prop_assert!(!matches!(outcome, Outcome::Rejected | Outcome::Refused(_)), "{outcome:?}");
            }
        }
        let mut expected = determined(&seen, &arrived, symbols.len());
        expected.extend(&arrived);
        let known: BTreeSet<u64> = kept.0.keys().map(|id| id.0).collect();
        prop_assert_eq!(known, expected, "after {:?}", event);
    }
    for (id, symbol) in &kept.0 {
        let (own, padding) = symbol.split_at(symbols[id.0 as usize].len());
        prop_assert_eq!(own, &symbols[id.0 as usize][..]);
        prop_assert!(padding.iter().all(|&byte| byte == 0), "only padding follows");
    }
    prop_assert_eq!(decoder.counters().equations_inconsistent, 0);
    prop_assert_eq!(decoder.counters().equations_evicted, 0);
    Ok(())
}

fn symbols(count: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), count)
}

/// Random combinations of `symbols` symbols: few or many terms, plain XORs or not, repeated terms,
/// coefficients of 0.
fn terms(symbols: usize) -> impl Strategy<Value = Vec<Term>> {
    let coefficient = prop_oneof![4 => Just(1u8), 4 => any::<u8>(), 1 => Just(0u8)];
    let term =
        (0..symbols as u64, coefficient).prop_map(|(id, coefficient)| Term { id: SymbolId(id), coefficient });
    prop_oneof![proptest::collection::vec(term.clone(), 1..4), proptest::collection::vec(term, 1..20)]
}

/// Some sources and some repairs in any order, some twice.
fn events(sources: usize, repairs: usize) -> impl Strategy<Value = Vec<Event>> {
    let all: Vec<Event> = (0..sources).map(Event::Source).chain((0..repairs).map(Event::Repair)).collect();
    let some = proptest::sample::subsequence(all, 0..=sources + repairs);
    (some.clone(), some).prop_flat_map(|(mut once, twice)| {
        once.extend(twice.into_iter().step_by(4));
        Just(once).prop_shuffle()
    })
}

/// Symbols, combinations of them, and an order of arrival with few sources.
fn arrivals() -> impl Strategy<Value = (Vec<Vec<u8>>, Vec<Equation>, Vec<Event>)> {
    (1..24usize, 1..30usize).prop_flat_map(|(sources, repairs)| {
        let equations = proptest::collection::vec((terms(sources), 0..3usize), repairs);
        (symbols(sources), equations, events(sources, repairs)).prop_map(|(symbols, terms, events)| {
            let equations =
                terms.into_iter().map(|(terms, padding)| equation(terms, &symbols, padding)).collect();
            (symbols, equations, events)
        })
    })
}

fn seeds_kept() -> ProptestConfig {
    ProptestConfig {
        cases: 400,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(seeds_kept())]

    #[test]
    fn any_combinations_in_any_order((symbols, equations, events) in arrivals()) {
        play(&symbols, &equations, &events)?;
    }

    #[test]
    fn any_losses_of_the_layered_code(
        r in 1..10u8,
        interleaves in proptest::sample::subsequence(vec![1u16, 2, 3, 5, 7], 1..=3),
        delayed in any::<bool>(),
        symbols in symbols(60),
        order in events(60, 1),
        lost in proptest::collection::vec(proptest::bool::weighted(0.2), 400),
    ) {
        let sending = if delayed { Sending::Delayed } else { Sending::Immediate };
        let code = LayeredConfig { r, interleaves, sending, ..LayeredConfig::default() };
        let mut encoder = LayeredEncoder::new(&code).unwrap();
        let mut equations = Vec::new();
        let mut events = Vec::new();
        let mut fates = lost.into_iter();
        for (n, symbol) in symbols.iter().enumerate() {
            if fates.next() == Some(false) {
                events.push(Event::Source(n));
            }
            let mut emit = |repair: fec::Repair<'_, SymbolId>| {
                if fates.next() == Some(false) {
                    events.push(Event::Repair(equations.len()));
                }
                let terms = repair.packets.iter().map(|&id| Term::xor(id)).collect();
                equations.push(Equation { terms, payload: repair.payload.to_vec() });
            };
            let (head, tail) = symbol.split_at(symbol.len() / 3);
            encoder.push(0, SymbolId(n as u64), &[head, &[], tail], &mut emit).unwrap();
            if n + 1 == symbols.len() {
                encoder.flush(&mut emit);
            }
        }
        for made in &equations {
            prop_assert_eq!(&made.payload, &equation(made.terms.clone(), &symbols, 0).payload);
        }
        // Late sources: some of those lost, or duplicates.
        events.extend(order.into_iter().filter(|event| matches!(event, Event::Source(_))).take(20));
        play(&symbols, &equations, &events)?;
    }

    #[test]
    fn expiry_keeps_what_equations_say_of_newer_symbols(
        (symbols, equations, _) in arrivals(),
        horizon in 0..24u64,
    ) {
        // All equations first, then the horizon, then all but one source above it.
        let mut decoder = Decoder::new(config(64));
        let mut kept = Kept::default();
        for equation in &equations {
            let _ = decoder.handle_repair(&mut kept, &equation.terms, &equation.payload);
        }
        let before: BTreeSet<u64> = kept.0.keys().map(|id| id.0).collect();
        decoder.expire_before(SymbolId(horizon));
        prop_assert!((0..horizon).all(|n| !decoder.waits_for(SymbolId(n))));
        prop_assert!((0..horizon.min(1)).all(|n| decoder.handle_source(&mut kept, SymbolId(n)) == 0));
        let mut arrived = before;
        let all: Vec<&Equation> = equations.iter().collect();
        for n in horizon..symbols.len() as u64 {
            if n % 3 != 0 {
                arrived.insert(n);
                if kept.known(SymbolId(n)).is_none() {
                    kept.0.insert(SymbolId(n), symbols[n as usize].clone());
                }
                decoder.handle_source(&mut kept, SymbolId(n));
            }
        }
        // Elimination with the old symbols included finds no more of the new ones.
        let mut expected = determined(&all, &arrived, symbols.len());
        expected.retain(|&n| n >= horizon);
        expected.extend(&arrived);
        let known: BTreeSet<u64> = kept.0.keys().map(|id| id.0).collect();
        prop_assert_eq!(known, expected);
    }

    #[test]
    fn wrong_symbols_are_refused_and_nothing_known_is_spoilt(
        (symbols, mut equations, events) in arrivals(),
        forged in any::<proptest::sample::Index>(),
    ) {
        // One repair is wrong; the owner detects wrong symbols.
        let forged = forged.index(equations.len());
        if let Some(byte) = equations[forged].payload.last_mut() {
            *byte ^= 0x55;
        }
        let mut decoder = Decoder::new(config(64));
        let mut owner = Careful { symbols: &symbols, kept: Kept::default() };
        for event in events {
            match event {
                Event::Source(n) => {
                    owner.kept.0.insert(SymbolId(n as u64), symbols[n].clone());
                    decoder.handle_source(&mut owner, SymbolId(n as u64));
                }
                Event::Repair(n) => {
                    let _ = decoder.handle_repair(&mut owner, &equations[n].terms, &equations[n].payload);
                }
            }
        }
        for (id, symbol) in &owner.kept.0 {
            prop_assert_eq!(symbol, &symbols[id.0 as usize]);
        }
    }
}

/// An owner that detects wrong symbols, like one that keeps a hash of each.
struct Careful<'a> {
    symbols: &'a [Vec<u8>],
    kept: Kept,
}

impl SymbolStore for Careful<'_> {
    fn known(&self, id: SymbolId) -> Option<&[u8]> {
        self.kept.known(id)
    }

    fn on_recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool {
        let own = &self.symbols[id.0 as usize];
        let right = symbol.len() >= own.len()
            && &symbol[..own.len()] == own
            && symbol[own.len()..].iter().all(|&byte| byte == 0);
        right && self.kept.on_recovered(id, own)
    }
}
