//! The one decoder.
//!
//! The path of a repair packet: [`Decoder::handle_repair`] refuses malformed repairs and drops redundant
//! ones. A repair with one missing symbol is [solved](Decoder::solve_one) at once. A repair with several is
//! [stored](Decoder::store) as an equation of the [`System`]. A source packet that arrives late enters by
//! [`Decoder::handle_source`].

mod columns;
mod config;
mod outcome;
mod store;
mod system;

use crate::gf256;
use crate::symbol::{SymbolId, Term};
use system::{Insert, System};

pub use config::DecoderConfig;
pub use outcome::{DecoderCounters, Outcome, Refusal};
pub use store::SymbolStore;

/// Solves repairs for the symbols that are missing.
///
/// Every repair is a linear equation over GF(256). Symbols that the owner knows are subtracted at once.
/// Equations with more than one unknown are kept in reduced row echelon form, so that a symbol is recovered
/// as soon as the repairs and sources received determine it: whatever elimination can solve is solved.
///
/// The owner reports every source packet that arrives after a repair may have missed it
/// ([`handle_source`](Self::handle_source)), and gives up old ones ([`expire_before`](Self::expire_before)).
///
/// Bounds: all memory is allocated at construction. With E equations of P payload bytes, and at most C
/// unknowns (`terms_max` and 2·E, rounded up to 64), one call costs at most 2·E additions of rows of P + C
/// bytes, and E calls of [`SymbolStore::on_recovered`]. With 256 dense equations of 1,300 bytes that is about
/// 25 µs with AVX-512, and 1 ms byte by byte. At ordinary loss there are a few sparse equations, and a call
/// costs less than a microsecond. A redundant repair costs one look per term.
///
/// A repair with a wrong payload (which an authenticated channel rules out) yields wrong symbols, which the
/// owner must detect. It may spoil equations stored beside it, but never known symbols.
///
/// ```
/// use fec::{Decoder, DecoderConfig, Outcome, SymbolId, SymbolStore, Term};
/// use std::collections::HashMap;
///
/// struct Kept(HashMap<SymbolId, Vec<u8>>);
/// impl SymbolStore for Kept {
///     fn known(&self, id: SymbolId) -> Option<&[u8]> {
///         self.0.get(&id).map(Vec::as_slice)
///     }
///     fn on_recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool {
///         self.0.insert(id, symbol.to_vec());
///         true
///     }
/// }
///
/// let mut kept = Kept(HashMap::from([(SymbolId(1), vec![1, 2])]));
/// let mut decoder = Decoder::new(DecoderConfig::default());
/// let terms = [Term::xor(SymbolId(1)), Term::xor(SymbolId(2))];
/// assert_eq!(decoder.handle_repair(&mut kept, &terms, &[1, 2 ^ 7, 9]), Outcome::Solved(1));
/// assert_eq!(kept.known(SymbolId(2)), Some(&[0, 7, 9][..]));
/// ```
#[derive(Debug)]
pub struct Decoder {
    config: DecoderConfig,
    system: System,
    counters: DecoderCounters,
}

/// Number of known symbols subtracted from a payload in one pass.
const BATCH: usize = 16;

impl Decoder {
    /// Creates a decoder without equations.
    ///
    /// # Panics
    /// If [`DecoderConfig::check`] finds a mistake.
    pub fn new(config: DecoderConfig) -> Self {
        if let Err(mistake) = config.check() {
            panic!("decoder configuration: {mistake}");
        }
        Self { config, system: System::new(&config), counters: DecoderCounters::default() }
    }

    /// Takes the repair whose `payload` is the sum of `terms`, in any order. A symbol listed twice counts
    /// with the sum of its coefficients.
    pub fn handle_repair<S: SymbolStore>(
        &mut self,
        store: &mut S,
        terms: &[Term],
        payload: &[u8],
    ) -> Outcome {
        let outcome = self.take(store, terms, payload);
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

    fn take<S: SymbolStore>(&mut self, store: &mut S, terms: &[Term], payload: &[u8]) -> Outcome {
        if terms.is_empty() || terms.len() > self.config.terms_max {
            return Outcome::Refused(Refusal::Terms);
        }
        if payload.len() > self.config.payload_max {
            return Outcome::Refused(Refusal::Payload);
        }
        let missing = |term: &&Term| term.coefficient != 0 && store.known(term.id).is_none();
        let Some(first) = terms.iter().find(missing) else {
            return Outcome::Redundant;
        };
        let known = terms.iter().filter(|term| term.coefficient != 0).filter_map(|term| store.known(term.id));
        if !known.into_iter().all(|symbol| fits(symbol, payload.len())) {
            return Outcome::Refused(Refusal::Symbol);
        }
        let id = first.id;
        if terms.iter().filter(missing).all(|term| term.id == id) {
            let same = terms.iter().filter(|term| term.id == id);
            let coefficient = same.fold(0, |sum, term| sum ^ term.coefficient);
            return self.solve_one(store, Term { id, coefficient }, terms, payload);
        }
        self.store(store, terms, payload)
    }

    /// Solves a repair with one missing symbol: the payload minus the known symbols is that symbol.
    fn solve_one<S: SymbolStore>(
        &mut self,
        store: &mut S,
        missing: Term,
        terms: &[Term],
        payload: &[u8],
    ) -> Outcome {
        if missing.coefficient == 0 {
            return Outcome::Redundant;
        }
        let symbol = self.system.begin(payload);
        subtract_known(symbol, store, terms);
        if missing.coefficient != 1 {
            gf256::mul(symbol, gf256::inverse(missing.coefficient));
        }
        if !store.on_recovered(missing.id, symbol) {
            self.counters.symbols_rejected += 1;
            return Outcome::Rejected;
        }
        self.counters.symbols_recovered += 1;
        Outcome::Solved(1 + self.handle_source(store, missing.id))
    }

    /// Stores a repair with several missing symbols: the payload minus the known symbols is an equation for
    /// them.
    fn store<S: SymbolStore>(&mut self, store: &mut S, terms: &[Term], payload: &[u8]) -> Outcome {
        let missing = |term: &&Term| term.coefficient != 0 && store.known(term.id).is_none();
        let evicted = self.system.make_room(&terms.iter().filter(missing).map(|term| term.id));
        self.counters.equations_evicted += evicted as u64;
        subtract_known(self.system.begin(payload), store, terms);
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
        match self.deliver(store) {
            0 if self.counters.symbols_rejected > rejected => Outcome::Rejected,
            0 => Outcome::Stored,
            solved => Outcome::Solved(solved),
        }
    }

    /// Takes the report that the symbol became known to the owner by arrival; returns the number of other
    /// symbols that this recovered.
    ///
    /// A symbol that no equation waits for, which is the common case, costs one look.
    pub fn handle_source<S: SymbolStore>(&mut self, store: &mut S, id: SymbolId) -> usize {
        if !self.system.waits_for(id) {
            return 0;
        }
        let Some(symbol) = store.known(id) else { return 0 };
        self.counters.equations_inconsistent += self.system.substitute(id, symbol) as u64;
        self.deliver(store)
    }

    /// Gives up all symbols below `id`.
    ///
    /// Each is eliminated with one equation, which is then dropped. The other equations keep their terms of
    /// newer symbols.
    pub fn expire_before(&mut self, id: SymbolId) {
        self.counters.equations_expired += self.system.expire_before(id) as u64;
    }

    /// Hands the owner every symbol that an equation determines; returns the number accepted.
    ///
    /// In reduced form such a symbol occurs in no other equation, so accepting one cannot determine a further
    /// one.
    fn deliver<S: SymbolStore>(&mut self, store: &mut S) -> usize {
        let mut accepted = 0;
        let mut from = 0;
        while let Some(at) = self.system.next_solved(from) {
            let (id, symbol) = self.system.symbol(at);
            if store.on_recovered(id, symbol) {
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

    /// Number of equations kept at present.
    pub fn equations(&self) -> usize {
        self.system.equations()
    }

    /// Number of symbols that equations wait for at present.
    pub fn pending(&self) -> usize {
        self.system.unknowns()
    }

    /// Symbols that equations wait for, in any order, each with whether an equation determines it by the
    /// others. If those that no equation determines became known, so would all.
    pub fn unknowns(&self) -> impl Iterator<Item = (SymbolId, bool)> + '_ {
        self.system.ids()
    }

    /// Whether an equation waits for the symbol.
    #[inline]
    pub fn waits_for(&self, id: SymbolId) -> bool {
        self.system.waits_for(id)
    }

    /// Counts since construction.
    pub fn counters(&self) -> &DecoderCounters {
        &self.counters
    }

    /// Bytes of memory held, constant after construction.
    pub fn memory_bytes(&self) -> usize {
        self.system.memory_bytes()
    }
}

/// Whether the symbol is all padding beyond `length`.
fn fits(symbol: &[u8], length: usize) -> bool {
    symbol.len() <= length || symbol[length..].iter().all(|&byte| byte == 0)
}

/// Adds the known symbols of `terms`, times their coefficients, to `payload`.
fn subtract_known<S: SymbolStore>(payload: &mut [u8], store: &S, terms: &[Term]) {
    let mut xors: [&[u8]; BATCH] = [&[]; BATCH];
    let mut products: [(u8, &[u8]); BATCH] = [(0, &[]); BATCH];
    let (mut xors_used, mut products_used) = (0, 0);
    for term in terms.iter().filter(|term| term.coefficient != 0) {
        let Some(symbol) = store.known(term.id) else { continue };
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
