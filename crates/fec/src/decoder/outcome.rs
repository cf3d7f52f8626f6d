//! Results of repairs, and counts of them.

/// Result of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Outcome {
    /// It contains nothing that is not known or stored already.
    Redundant,
    /// It led to this number of symbols, at least one, that the owner accepted.
    Solved(usize),
    /// It is stored as an equation until more symbols are known.
    Stored,
    /// It led to symbols, of which the owner accepted none.
    Rejected,
    /// It is malformed and was not used.
    Refused(Refusal),
}

/// Reason why a repair was not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It has no term, or more than `terms_max`.
    Terms,
    /// Its payload is longer than `payload_max`.
    Payload,
    /// A known symbol in it is longer than its payload.
    Symbol,
}

/// Counts since construction. Each repair counts once among the first five.
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
    /// Equations dropped because a symbol in them was given up.
    pub equations_expired: u64,
    /// Equations and repairs dropped because they contradict known symbols or other equations.
    pub equations_inconsistent: u64,
}
