//! Bounds that all encoders have.

use thiserror::Error;

/// Longest deadline: a minute.
pub const DEADLINE_US_MAX: u64 = 60_000_000;
/// Longest symbol: a whole IP packet and what the owner puts before it.
pub const SYMBOL_MAX: usize = 1 << 17;
/// Most memory of an encoder's sums and symbols in bytes.
pub const MEMORY_MAX: usize = 256 << 20;

/// A symbol was longer than the configuration's `symbol_max` and entered nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("symbol: expected at most {symbol_max} bytes, saw {length}")]
pub struct SymbolTooLong {
    /// Length of the symbol.
    pub length: usize,
    /// Longest length that is accepted.
    pub symbol_max: usize,
}

/// Gives back a deadline that is out of range.
pub(crate) fn check_deadline(deadline_us: Option<u64>) -> Result<(), u64> {
    match deadline_us {
        Some(us) if !(1..=DEADLINE_US_MAX).contains(&us) => Err(us),
        _ => Ok(()),
    }
}

/// Gives back a length of the longest symbol that is out of range.
pub(crate) fn check_symbol(symbol_max: usize) -> Result<(), usize> {
    if (1..=SYMBOL_MAX).contains(&symbol_max) { Ok(()) } else { Err(symbol_max) }
}

/// The length of a symbol given in pieces, if it is not too long.
pub(crate) fn symbol_length(symbol: &[&[u8]], symbol_max: usize) -> Result<usize, SymbolTooLong> {
    let length = symbol.iter().map(|piece| piece.len()).sum();
    if length > symbol_max { Err(SymbolTooLong { length, symbol_max }) } else { Ok(length) }
}
