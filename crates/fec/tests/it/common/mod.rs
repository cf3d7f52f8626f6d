//! Seeded losses for the tests, and tables of their effects.
#![allow(dead_code, unreachable_pub)]

pub mod sender;
pub mod table;

pub use testkit::Random;

use fec::{SymbolId, SymbolStore};
use std::collections::HashMap;

/// Loses packets in bursts of exactly `burst` at an overall `rate`; independently with a burst of 1.
#[derive(Debug, Clone)]
pub struct Loss {
    random: Random,
    /// Probability that a burst begins outside one.
    begin: f64,
    burst: u32,
    left: u32,
    /// Probability that a lost packet is the last of its burst, if bursts differ in length.
    end: Option<f64>,
}

impl Loss {
    pub fn new(rate: f64, burst: u32, seed: u64) -> Self {
        // The mean number of packets between bursts, (1 - begin) / begin, must be burst · (1 - rate) / rate.
        let gap = f64::from(burst) * (1.0 - rate) / rate;
        let begin = if burst == 1 { rate } else { 1.0 / (1.0 + gap) };
        Self { random: Random(seed), begin, burst, left: 0, end: None }
    }

    /// Loses packets in bursts of a geometric length with this mean, at an overall `rate`.
    pub fn markov(rate: f64, mean: f64, seed: u64) -> Self {
        let begin = rate / (mean * (1.0 - rate));
        Self { random: Random(seed), begin, burst: 1, left: 0, end: Some(1.0 / mean) }
    }

    pub fn lose(&mut self) -> bool {
        if let Some(end) = self.end {
            // `left` is 1 during a burst.
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

/// An owner that keeps every symbol.
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
