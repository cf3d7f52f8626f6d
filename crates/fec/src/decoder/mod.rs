//! The one decoder.
//!
//! A repair packet meets the functions of this file in this order: [`Decoder::repair`] refuses what is malformed and
//! drops what brings nothing new; with one symbol missing it is [solved](Decoder::solve_one) on the spot; with more it
//! is [stored](Decoder::store) as an equation of the [`System`]. A source packet that comes late meets
//! [`Decoder::source`].

mod columns;
mod system;

use crate::{SymbolId, Term, gf256};
use system::{Insert, System};
use thiserror::Error;

/// What the decoder needs of its owner, who keeps the symbols.
pub trait Window {
    /// The symbol if it is known, received or recovered; shorter than a payload means zero-padded.
    fn known(&self, id: SymbolId) -> Option<&[u8]>;

    /// Hands over a solved symbol, as long as the longest payload it came from.
    ///
    /// The owner verifies it, keeps it so that [`known`](Self::known) returns it, and answers true. False says that it
    /// is wrong: the symbol stays unknown and the equation that gave it is dropped.
    fn recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool;
}

/// Bounds of a [`Decoder`]; all memory follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderConfig {
    /// Most equations kept, 1 to 4,096; when full the oldest goes.
    pub equations: usize,
    /// Longest payload of a repair in bytes, 1 to 131,072.
    pub payload_max: usize,
    /// Most terms in a repair, 1 to 1,024.
    pub terms_max: usize,
}

impl Default for DecoderConfig {
    /// 256 equations of 1,536 bytes and 64 terms.
    fn default() -> Self {
        Self { equations: 256, payload_max: 1_536, terms_max: 64 }
    }
}

/// What is wrong with a [`DecoderConfig`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecoderConfigError {
    /// `equations` out of range.
    #[error("equations: expected 1 to 4096, saw {0}")]
    Equations(usize),
    /// `payload_max` out of range.
    #[error("payload_max: expected 1 to 131072, saw {0}")]
    PayloadMax(usize),
    /// `terms_max` out of range.
    #[error("terms_max: expected 1 to 1024, saw {0}")]
    TermsMax(usize),
}

impl DecoderConfig {
    /// Checks every range; the first mistake found is returned.
    pub fn check(&self) -> Result<(), DecoderConfigError> {
        if !(1..=4_096).contains(&self.equations) {
            return Err(DecoderConfigError::Equations(self.equations));
        }
        if !(1..=131_072).contains(&self.payload_max) {
            return Err(DecoderConfigError::PayloadMax(self.payload_max));
        }
        if !(1..=1_024).contains(&self.terms_max) {
            return Err(DecoderConfigError::TermsMax(self.terms_max));
        }
        Ok(())
    }
}

/// What a repair led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Outcome {
    /// It said nothing that is not known or stored already.
    Redundant,
    /// It led to so many symbols, at least one, that the owner accepted.
    Solved(usize),
    /// It is kept as an equation until more is known.
    Stored,
    /// It led to symbols, but the owner accepted none.
    Rejected,
    /// It is malformed and was not used.
    Refused(Refusal),
}

/// Why a repair was not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// No term, or more than `terms_max`.
    Terms,
    /// A payload longer than `payload_max`.
    Payload,
    /// A known symbol of it is longer than its payload.
    Symbol,
}

/// What happened so far. Each repair counts once among the first five.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecoderCounters {
    /// Repairs with [`Outcome::Redundant`].
    pub redundant: u64,
    /// Repairs with [`Outcome::Solved`].
    pub solved: u64,
    /// Repairs with [`Outcome::Stored`].
    pub stored: u64,
    /// Repairs with [`Outcome::Rejected`].
    pub rejected: u64,
    /// Repairs with [`Outcome::Refused`].
    pub refused: u64,
    /// Symbols the owner accepted.
    pub symbols_recovered: u64,
    /// Symbols the owner found wrong.
    pub symbols_rejected: u64,
    /// Equations dropped because there was no room.
    pub equations_evicted: u64,
    /// Equations dropped because a symbol in them will never come.
    pub equations_expired: u64,
    /// Equations dropped, and repairs found, to contradict what is known.
    pub equations_inconsistent: u64,
}

/// Solves repairs for the symbols that are missing.
///
/// Every repair is a linear equation over GF(256). What the owner knows is subtracted at once; equations with more than
/// one unknown are kept in reduced row echelon form, so that a symbol is recovered as soon as the repairs and sources
/// seen so far determine it: whatever elimination can solve is solved.
///
/// The owner reports every source packet that arrives while it may be missed ([`source`](Self::source)), and gives up
/// on old ones ([`expire_before`](Self::expire_before)).
///
/// Bounds: memory is taken at construction. With E equations of P payload bytes, and C = 2·E + `terms_max` unknowns at
/// most (rounded up to 64), one call costs at most 2·E additions of rows of P + C bytes, and E calls of
/// [`Window::recovered`]: with 256 dense equations of 1,300 bytes some 25 µs by AVX-512, 1 ms byte by byte. At ordinary
/// loss there are a few sparse ones, and a call costs less than a microsecond; a repair that is redundant costs one look
/// per term.
///
/// A repair with a wrong payload (which an authenticated channel rules out) yields wrong symbols, which the owner must
/// notice; it may spoil equations stored beside it, never symbols that are known.
///
/// ```
/// use fec::{Decoder, DecoderConfig, Outcome, SymbolId, Term, Window};
/// use std::collections::HashMap;
///
/// struct Kept(HashMap<SymbolId, Vec<u8>>);
/// impl Window for Kept {
///     fn known(&self, id: SymbolId) -> Option<&[u8]> {
///         self.0.get(&id).map(Vec::as_slice)
///     }
///     fn recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool {
///         self.0.insert(id, symbol.to_vec());
///         true
///     }
/// }
///
/// let mut kept = Kept(HashMap::from([(SymbolId(1), vec![1, 2])]));
/// let mut decoder = Decoder::new(DecoderConfig::default());
/// let terms = [Term::xor(SymbolId(1)), Term::xor(SymbolId(2))];
/// assert_eq!(decoder.repair(&mut kept, &terms, &[1, 2 ^ 7, 9]), Outcome::Solved(1));
/// assert_eq!(kept.known(SymbolId(2)), Some(&[0, 7, 9][..]));
/// ```
#[derive(Debug)]
pub struct Decoder {
    config: DecoderConfig,
    system: System,
    counters: DecoderCounters,
}

/// Known symbols are subtracted from a payload so many in one pass.
const BATCH: usize = 16;

impl Decoder {
    /// A decoder without equations.
    ///
    /// # Panics
    /// If [`DecoderConfig::check`] finds a mistake.
    pub fn new(config: DecoderConfig) -> Self {
        if let Err(mistake) = config.check() {
            panic!("decoder configuration: {mistake}");
        }
        Self { config, system: System::new(&config), counters: DecoderCounters::default() }
    }

    /// Takes the repair whose `payload` is the sum of `terms`, in any order; a symbol named twice counts with the sum
    /// of its coefficients.
    pub fn repair<W: Window>(&mut self, window: &mut W, terms: &[Term], payload: &[u8]) -> Outcome {
        let outcome = self.take(window, terms, payload);
        let counter = match outcome {
            Outcome::Redundant => &mut self.counters.redundant,
            Outcome::Solved(_) => &mut self.counters.solved,
            Outcome::Stored => &mut self.counters.stored,
            Outcome::Rejected => &mut self.counters.rejected,
            Outcome::Refused(_) => &mut self.counters.refused,
        };
        *counter += 1;
        outcome
    }

    fn take<W: Window>(&mut self, window: &mut W, terms: &[Term], payload: &[u8]) -> Outcome {
        if terms.is_empty() || terms.len() > self.config.terms_max {
            return Outcome::Refused(Refusal::Terms);
        }
        if payload.len() > self.config.payload_max {
            return Outcome::Refused(Refusal::Payload);
        }
        let missing = |term: &&Term| term.coefficient != 0 && window.known(term.id).is_none();
        let Some(first) = terms.iter().find(missing) else {
            return Outcome::Redundant;
        };
        let known =
            terms.iter().filter(|term| term.coefficient != 0).filter_map(|term| window.known(term.id));
        if !known.into_iter().all(|symbol| fits(symbol, payload.len())) {
            return Outcome::Refused(Refusal::Symbol);
        }
        let id = first.id;
        if terms.iter().filter(missing).all(|term| term.id == id) {
            let same = terms.iter().filter(|term| term.id == id);
            let coefficient = same.fold(0, |sum, term| sum ^ term.coefficient);
            return self.solve_one(window, Term { id, coefficient }, terms, payload);
        }
        self.store(window, terms, payload)
    }

    /// One symbol is missing: the payload less what is known is that symbol.
    fn solve_one<W: Window>(
        &mut self,
        window: &mut W,
        missing: Term,
        terms: &[Term],
        payload: &[u8],
    ) -> Outcome {
        if missing.coefficient == 0 {
            return Outcome::Redundant;
        }
        let symbol = self.system.begin(payload);
        subtract_known(symbol, window, terms);
        if missing.coefficient != 1 {
            gf256::mul(symbol, gf256::inverse(missing.coefficient));
        }
        if !window.recovered(missing.id, symbol) {
            self.counters.symbols_rejected += 1;
            return Outcome::Rejected;
        }
        self.counters.symbols_recovered += 1;
        Outcome::Solved(1 + self.source(window, missing.id))
    }

    /// Several are missing: the payload less what is known is an equation for them.
    fn store<W: Window>(&mut self, window: &mut W, terms: &[Term], payload: &[u8]) -> Outcome {
        let missing = |term: &&Term| term.coefficient != 0 && window.known(term.id).is_none();
        let evicted = self.system.make_room(&terms.iter().filter(missing).map(|term| term.id));
        self.counters.equations_evicted += evicted as u64;
        subtract_known(self.system.begin(payload), window, terms);
        for term in terms.iter().filter(missing) {
            self.system.add_unknown(term.id, term.coefficient);
        }
        match self.system.insert() {
            Insert::Redundant => return Outcome::Redundant,
            Insert::Inconsistent => {
                self.counters.equations_inconsistent += 1;
                return Outcome::Redundant;
            }
            Insert::Stored => {}
            Insert::StoredForOldest => self.counters.equations_evicted += 1,
        }
        let rejected = self.counters.symbols_rejected;
        match self.deliver(window) {
            0 if self.counters.symbols_rejected > rejected => Outcome::Rejected,
            0 => Outcome::Stored,
            solved => Outcome::Solved(solved),
        }
    }

    /// Reports that the symbol became known to the owner by arrival; returns how many others this recovered.
    ///
    /// For a symbol that no equation waits for, which is the common case, this costs one look.
    pub fn source<W: Window>(&mut self, window: &mut W, id: SymbolId) -> usize {
        if !self.system.waits_for(id) {
            return 0;
        }
        let Some(symbol) = window.known(id) else { return 0 };
        self.counters.equations_inconsistent += self.system.substitute(id, symbol) as u64;
        self.deliver(window)
    }

    /// Gives up on all symbols below `id`: they will never come.
    ///
    /// Each is eliminated with one equation, which is then dropped; what the others say of newer symbols is kept.
    pub fn expire_before(&mut self, id: SymbolId) {
        self.counters.equations_expired += self.system.expire_before(id) as u64;
    }

    /// Hands the owner every symbol that an equation now determines; returns how many it accepted.
    ///
    /// In reduced form such a symbol stands in no other equation, so accepting one cannot determine a further one.
    fn deliver<W: Window>(&mut self, window: &mut W) -> usize {
        let mut accepted = 0;
        let mut from = 0;
        while let Some(at) = self.system.next_solved(from) {
            let (id, symbol) = self.system.symbol(at);
            if window.recovered(id, symbol) {
                accepted += 1;
            } else {
                self.counters.symbols_rejected += 1;
            }
            self.system.remove(at);
            from = at;
        }
        self.counters.symbols_recovered += accepted as u64;
        accepted
    }

    /// Equations kept at present.
    pub fn equations(&self) -> usize {
        self.system.equations()
    }

    /// Symbols that equations wait for at present.
    pub fn pending(&self) -> usize {
        self.system.unknowns()
    }

    /// Whether an equation waits for the symbol.
    #[inline]
    pub fn waits_for(&self, id: SymbolId) -> bool {
        self.system.waits_for(id)
    }

    /// What happened so far.
    pub fn counters(&self) -> &DecoderCounters {
        &self.counters
    }

    /// Memory held, from construction on.
    pub fn memory_bytes(&self) -> usize {
        self.system.memory_bytes()
    }
}

/// Whether the symbol has nothing but padding beyond `length`.
fn fits(symbol: &[u8], length: usize) -> bool {
    symbol.len() <= length || symbol[length..].iter().all(|&byte| byte == 0)
}

/// Adds the known symbols of `terms`, times their coefficients, to `payload`.
fn subtract_known<W: Window>(payload: &mut [u8], window: &W, terms: &[Term]) {
    let mut xors: [&[u8]; BATCH] = [&[]; BATCH];
    let mut products: [(u8, &[u8]); BATCH] = [(0, &[]); BATCH];
    let (mut xors_used, mut products_used) = (0, 0);
    for term in terms.iter().filter(|term| term.coefficient != 0) {
        let Some(symbol) = window.known(term.id) else { continue };
        let symbol = &symbol[..symbol.len().min(payload.len())];
        if term.coefficient == 1 {
            xors[xors_used] = symbol;
            xors_used += 1;
        } else {
            products[products_used] = (term.coefficient, symbol);
            products_used += 1;
        }
        if xors_used == BATCH {
            gf256::xor_many(payload, &xors);
            xors_used = 0;
        }
        if products_used == BATCH {
            gf256::mul_add_many(payload, &products);
            products_used = 0;
        }
    }
    gf256::xor_many(payload, &xors[..xors_used]);
    gf256::mul_add_many(payload, &products[..products_used]);
}
