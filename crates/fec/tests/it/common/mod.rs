//! Seeded losses for the tests, and tables of what they do.
#![allow(dead_code, unreachable_pub)]

pub mod sender;
pub mod table;

use fec::{SymbolId, SymbolStore};
use std::collections::HashMap;

/// splitmix64: the same numbers everywhere, for ever.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    pub fn chance(&mut self, p: f64) -> bool {
        ((self.next() >> 11) as f64) < p * (1u64 << 53) as f64
    }
}

/// Loses packets in bursts of exactly `burst`, at `rate` overall; with a burst of 1, independently.
#[derive(Debug, Clone)]
pub struct Loss {
    random: Random,
    /// Probability that a burst begins where none is.
    begin: f64,
    burst: u32,
    left: u32,
    /// Probability that a lost packet is the last of its burst, where bursts differ in length.
    end: Option<f64>,
}

impl Loss {
    pub fn new(rate: f64, burst: u32, seed: u64) -> Self {
        // Between bursts lie (1 - begin) / begin packets in the mean, which must be burst · (1 - rate) / rate.
        let gap = f64::from(burst) * (1.0 - rate) / rate;
        let begin = if burst == 1 { rate } else { 1.0 / (1.0 + gap) };
        Self { random: Random(seed), begin, burst, left: 0, end: None }
    }

    /// Bursts of a geometric length with this mean, at `rate` overall.
    pub fn markov(rate: f64, mean: f64, seed: u64) -> Self {
        let begin = rate / (mean * (1.0 - rate));
        Self { random: Random(seed), begin, burst: 1, left: 0, end: Some(1.0 / mean) }
    }

    pub fn lose(&mut self) -> bool {
        if let Some(end) = self.end {
            // `left` is 1 while a burst goes on.
            let chance = if self.left > 0 { 1.0 - end } else { self.begin };
            self.left = u32::from(self.random.chance(chance));
            return self.left > 0;
        }
        if self.left == 0 && self.random.chance(self.begin) {
            self.left = self.burst;
        }
        let lost = self.left > 0;
        self.left = self.left.saturating_sub(1);
        lost
    }
}

/// An owner that keeps everything.
#[derive(Debug, Default)]
pub struct Kept(pub HashMap<SymbolId, Vec<u8>>);

impl SymbolStore for Kept {
    fn known(&self, id: SymbolId) -> Option<&[u8]> {
        self.0.get(&id).map(Vec::as_slice)
    }

    fn on_recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool {
        let before = self.0.insert(id, symbol.to_vec());
        assert!(before.is_none(), "{id:?} recovered although known");
        true
    }
}
