//! Hostile and unusual repairs, and the behaviour without room.
#![allow(missing_docs)]

use crate::common::{Kept, Random};
use fec::{
    Decoder, DecoderConfig, LayeredConfig, LayeredEncoder, Outcome, Refusal, SymbolId, SymbolRing,
    SymbolStore, Term,
};

fn decoder() -> Decoder {
    Decoder::new(DecoderConfig { equations: 4, payload_max: 8, terms_max: 6 })
}

fn xor(ids: &[u64]) -> Vec<Term> {
    ids.iter().map(|&id| Term::xor(SymbolId(id))).collect()
}

fn kept(symbols: &[(u64, &[u8])]) -> Kept {
    Kept(symbols.iter().map(|&(id, symbol)| (SymbolId(id), symbol.to_vec())).collect())
}

#[test]
fn a_malformed_repair_is_refused() {
    let (mut decoder, mut kept) = (decoder(), kept(&[(1, &[1, 2, 3])]));
    assert_eq!(decoder.handle_repair(&mut kept, &[], &[1]), Outcome::Refused(Refusal::Terms));
    assert_eq!(decoder.handle_repair(&mut kept, &xor(&[2; 7]), &[1]), Outcome::Refused(Refusal::Terms));
    assert_eq!(decoder.handle_repair(&mut kept, &xor(&[2]), &[1; 9]), Outcome::Refused(Refusal::Payload));
    assert_eq!(decoder.handle_repair(&mut kept, &xor(&[1, 2]), &[1, 2]), Outcome::Refused(Refusal::Symbol));
    assert_eq!((decoder.counters().refused, decoder.equations(), decoder.pending()), (4, 0, 0));
    assert_eq!(kept.0.len(), 1);
}

#[test]
fn padding_beyond_the_payload_is_accepted() {
    let (mut decoder, mut kept) = (decoder(), kept(&[(1, &[1, 2, 0, 0])]));
    assert_eq!(decoder.handle_repair(&mut kept, &xor(&[1, 2]), &[5, 5]), Outcome::Solved(1));
    assert_eq!(kept.0[&SymbolId(2)], [4, 7]);
}

#[test]
fn coefficients_of_a_symbol_named_twice_add_up() {
    let (mut decoder, mut kept) = (decoder(), kept(&[(1, &[9])]));
    let term = |id, coefficient| Term { id: SymbolId(id), coefficient };
    // 3·x + 2·x = x
    assert_eq!(
        decoder.handle_repair(&mut kept, &[term(2, 3), term(1, 1), term(2, 2)], &[9 ^ 7]),
        Outcome::Solved(1)
    );
    assert_eq!(kept.0[&SymbolId(2)], [7]);
    assert_eq!(decoder.handle_repair(&mut kept, &xor(&[3, 1, 3]), &[9]), Outcome::Redundant, "3 cancels out");
    assert_eq!(decoder.handle_repair(&mut kept, &xor(&[3, 4, 3, 4]), &[0]), Outcome::Redundant);
    assert_eq!(decoder.handle_repair(&mut kept, &xor(&[3, 4, 3]), &[6]), Outcome::Solved(1));
    assert_eq!(kept.0[&SymbolId(4)], [6]);
    assert_eq!((decoder.equations(), decoder.pending()), (0, 0), "terms that cancel out take no room");
}

#[test]
fn a_term_with_coefficient_0_is_ignored() {
    let (mut decoder, mut kept) = (decoder(), kept(&[(1, &[9; 8])]));
    let term = |id, coefficient| Term { id: SymbolId(id), coefficient };
    assert_eq!(decoder.handle_repair(&mut kept, &[term(1, 0), term(2, 0)], &[]), Outcome::Redundant);
    assert_eq!(
        decoder.handle_repair(&mut kept, &[term(1, 0), term(2, 0), term(3, 1)], &[5]),
        Outcome::Solved(1)
    );
    assert_eq!(kept.0[&SymbolId(3)], [5]);
    assert!(kept.known(SymbolId(2)).is_none());
}

#[test]
fn when_full_the_oldest_equation_is_dropped() {
    let (mut decoder, mut kept) = (decoder(), Kept::default());
    for n in 0..6 {
        assert_eq!(
            decoder.handle_repair(&mut kept, &xor(&[10 * n, 10 * n + 1]), &[n as u8]),
            Outcome::Stored
        );
    }
    assert_eq!((decoder.equations(), decoder.counters().equations_evicted), (4, 2));
    for n in 0..6 {
        kept.0.insert(SymbolId(10 * n), vec![0]);
        assert_eq!(decoder.handle_source(&mut kept, SymbolId(10 * n)), usize::from(n >= 2));
    }
    assert_eq!((decoder.equations(), decoder.pending()), (0, 0));
}

#[test]
fn with_too_many_unknowns_the_oldest_equations_are_dropped() {
    // At most 64 columns here: eleven repairs of six unknowns do not fit.
    let mut decoder = Decoder::new(DecoderConfig { equations: 20, payload_max: 8, terms_max: 6 });
    let mut kept = Kept::default();
    for n in 0..200u64 {
        let ids: Vec<u64> = (6 * n..6 * n + 6).collect();
        assert_eq!(decoder.handle_repair(&mut kept, &xor(&ids), &[n as u8]), Outcome::Stored);
        assert!(decoder.pending() <= 64 && decoder.equations() <= 20);
        assert!(decoder.waits_for(SymbolId(6 * n)), "the newest is kept");
    }
    assert_eq!(decoder.counters().equations_evicted, 200 - decoder.equations() as u64);
    assert!(decoder.equations() >= 7);
}

#[test]
fn a_contradiction_is_dropped_and_counted() {
    let (mut decoder, mut kept) = (decoder(), Kept::default());
    assert_eq!(decoder.handle_repair(&mut kept, &xor(&[1, 2]), &[5]), Outcome::Stored);
    assert_eq!(decoder.handle_repair(&mut kept, &xor(&[1, 2]), &[5]), Outcome::Redundant);
    assert_eq!(decoder.counters().equations_inconsistent, 0);
    assert_eq!(decoder.handle_repair(&mut kept, &xor(&[1, 2]), &[6]), Outcome::Redundant);
    assert_eq!((decoder.counters().equations_inconsistent, decoder.equations()), (1, 1));
    // A symbol longer than the payload it was part of.
    kept.0.insert(SymbolId(1), vec![1, 1]);
    assert_eq!(decoder.handle_source(&mut kept, SymbolId(1)), 0);
    assert_eq!(
        (decoder.counters().equations_inconsistent, decoder.equations(), decoder.pending()),
        (2, 0, 0)
    );
}

/// An owner that rejects every symbol.
struct Sceptic;

impl SymbolStore for Sceptic {
    fn known(&self, _: SymbolId) -> Option<&[u8]> {
        None
    }

    fn on_recovered(&mut self, _: SymbolId, _: &[u8]) -> bool {
        false
    }
}

#[test]
fn a_symbol_that_the_owner_rejects_stays_unknown() {
    let mut decoder = decoder();
    assert_eq!(decoder.handle_repair(&mut Sceptic, &xor(&[1]), &[5]), Outcome::Rejected);
    assert_eq!(decoder.handle_repair(&mut Sceptic, &xor(&[1, 2]), &[5]), Outcome::Stored);
    assert_eq!(decoder.handle_repair(&mut Sceptic, &xor(&[2, 3]), &[6]), Outcome::Stored);
    let first = Term { id: SymbolId(1), coefficient: 1 };
    let third = Term { id: SymbolId(3), coefficient: 2 };
    assert_eq!(
        decoder.handle_repair(&mut Sceptic, &[first, third], &[1]),
        Outcome::Rejected,
        "three unknowns, all wrong"
    );
    assert_eq!((decoder.equations(), decoder.pending()), (0, 0));
    let counters = decoder.counters();
    assert_eq!((counters.symbols_rejected, counters.symbols_recovered, counters.rejected), (4, 0, 2));
}

#[test]
fn a_rejected_symbol_is_recovered_from_a_correct_repair() {
    struct Owner(Kept);
    impl SymbolStore for Owner {
        fn known(&self, id: SymbolId) -> Option<&[u8]> {
            self.0.known(id)
        }
        fn on_recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool {
            symbol == [id.0 as u8] && self.0.on_recovered(id, symbol)
        }
    }
    let (mut decoder, mut owner) = (decoder(), Owner(kept(&[(1, &[1])])));
    assert_eq!(decoder.handle_repair(&mut owner, &xor(&[1, 2]), &[99]), Outcome::Rejected);
    assert_eq!(decoder.handle_repair(&mut owner, &xor(&[1, 2]), &[1 ^ 2]), Outcome::Solved(1));
    assert_eq!(owner.known(SymbolId(2)), Some(&[2][..]));
}

#[test]
fn an_unknown_source_report_changes_nothing() {
    let (mut decoder, mut kept) = (decoder(), Kept::default());
    assert_eq!(decoder.handle_repair(&mut kept, &xor(&[1, 2]), &[5]), Outcome::Stored);
    assert_eq!(decoder.handle_source(&mut kept, SymbolId(1)), 0, "the owner does not know it after all");
    assert_eq!(decoder.handle_source(&mut kept, SymbolId(7)), 0);
    assert_eq!(decoder.equations(), 1);
}

/// Repairs of arbitrary terms and bytes, and sources of any bytes, over a small decoder: nothing may panic,
/// and the bounds hold.
#[test]
fn arbitrary_repairs_stay_within_bounds() {
    let mut random = Random(5);
    for round in 0..200 {
        let equations = 1 + random.below(20) as usize;
        let config = DecoderConfig { equations, payload_max: 8, terms_max: 6 };
        let mut decoder = Decoder::new(config);
        let mut kept = Kept::default();
        for n in 0..300u64 {
            let end = [4, 40, u64::MAX][random.below(3) as usize];
            match random.below(4) {
                0 => {
                    let id = SymbolId(random.below(end));
                    kept.0.entry(id).or_insert_with(|| vec![n as u8; (n % 9) as usize]);
                    decoder.handle_source(&mut kept, id);
                }
                1 if round % 2 == 0 => decoder.expire_before(SymbolId(n / 8)),
                _ => {
                    let count = random.below(8) as usize;
                    let coefficient = if round % 3 == 0 { 1 } else { random.draw() as u8 };
                    let terms: Vec<Term> =
                        (0..count).map(|_| Term { id: SymbolId(random.below(end)), coefficient }).collect();
                    let payload = random.draw().to_le_bytes();
                    let _ = decoder.handle_repair(&mut kept, &terms, &payload[..random.below(9) as usize]);
                }
            }
            assert!(decoder.equations() <= equations);
            assert!(decoder.pending() >= decoder.equations(), "equations are independent");
        }
        decoder.expire_before(SymbolId(u64::MAX));
        assert!(decoder.equations() <= 1, "all but one with the last id there is");
    }
}

#[test]
fn a_bad_decoder_configuration_is_named() {
    let mistake = |change: fn(&mut DecoderConfig)| {
        let mut config = DecoderConfig::default();
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    assert!(DecoderConfig::default().check().is_ok());
    assert_eq!(mistake(|c| c.equations = 0), "equations: expected 1 to 4096, saw 0");
    assert_eq!(mistake(|c| c.equations = 4_097), "equations: expected 1 to 4096, saw 4097");
    assert_eq!(mistake(|c| c.payload_max = 0), "payload_max: expected 1 to 131072, saw 0");
    assert_eq!(mistake(|c| c.payload_max = 131_073), "payload_max: expected 1 to 131072, saw 131073");
    assert_eq!(mistake(|c| c.terms_max = 0), "terms_max: expected 1 to 1024, saw 0");
    assert_eq!(mistake(|c| c.terms_max = 1_025), "terms_max: expected 1 to 1024, saw 1025");
}

#[test]
#[should_panic(expected = "decoder configuration: equations: expected 1 to 4096, saw 0")]
fn a_decoder_checks_its_configuration() {
    Decoder::new(DecoderConfig { equations: 0, ..DecoderConfig::default() });
}

#[test]
fn the_default_footprint_is_less_than_that_of_the_paper() {
    // Maelstrom §4.7: "for 1500 byte packets and 1024 entries this occupies around 3 MB" at the receiver.
    // Ours: 2.1 MB.
    let ring = SymbolRing::new(1_024, 1_024 * 1_500).memory_bytes();
    let decoder = Decoder::new(DecoderConfig::default()).memory_bytes();
    let encoder = LayeredEncoder::<u64>::new(&LayeredConfig::default()).unwrap().memory_bytes();
    println!("ring {ring}, decoder {decoder}, encoder {encoder} bytes");
    assert!((2_000_000..2_200_000).contains(&(ring + decoder)), "ring {ring}, decoder {decoder}");
    assert!((50_000..60_000).contains(&encoder), "encoder {encoder}");
}
