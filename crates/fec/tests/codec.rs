//! Encoder and decoder together.
#![allow(missing_docs)]

use fec::{Decoder, DecoderConfig, LayeredConfig, LayeredEncoder, Outcome, SymbolId, Term, Window};
use std::collections::HashMap;

#[derive(Default)]
struct Kept(HashMap<SymbolId, Vec<u8>>);

impl Window for Kept {
    fn known(&self, id: SymbolId) -> Option<&[u8]> {
        self.0.get(&id).map(Vec::as_slice)
    }
    fn recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool {
        let before = self.0.insert(id, symbol.to_vec());
        assert!(before.is_none());
        true
    }
}

#[test]
fn every_single_loss_is_recovered() {
    let config = LayeredConfig::default();
    let mut encoder = LayeredEncoder::new(&config).unwrap();
    let mut decoder = Decoder::new(DecoderConfig::default());
    let mut kept = Kept::default();
    let mut repairs = Vec::new();
    let symbol = |n: u64| vec![(n * 7 + 1) as u8; 10 + (n % 50) as usize];
    for n in 0..2_000u64 {
        if n % 50 != 17 {
            kept.0.insert(SymbolId(n), symbol(n));
            decoder.source(&mut kept, SymbolId(n));
        }
        let mut emit = |repair: fec::Repair<'_, SymbolId>| {
            let terms: Vec<Term> = repair.names.iter().map(|&id| Term::xor(id)).collect();
            repairs.push((terms, repair.payload.to_vec()));
        };
        encoder.push(n, SymbolId(n), &[&symbol(n)], &mut emit).unwrap();
        for (terms, payload) in repairs.drain(..) {
            let outcome = decoder.repair(&mut kept, &terms, &payload);
            assert!(!matches!(outcome, Outcome::Refused(_)));
        }
    }
    for n in 0..1_900u64 {
        let known = kept.known(SymbolId(n)).unwrap_or_else(|| panic!("{n} lost"));
        assert_eq!(&known[..symbol(n).len()], symbol(n));
        assert!(known[symbol(n).len()..].iter().all(|&b| b == 0));
    }
}
