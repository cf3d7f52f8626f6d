//! Bounds that all encoders share.

use thiserror::Error;

/// Longest deadline: one minute.
pub const DEADLINE_US_MAX: u64 = 60_000_000;
/// Longest symbol in bytes: a whole IP packet and what the owner puts in front of it.
pub const SYMBOL_MAX: usize = 1 << 17;
/// Most memory for an encoder's sums and symbols, in bytes.
pub const MEMORY_MAX: usize = 256 << 20;
/// Largest interleave of a layer, and most blocks fed in turn.
pub const INTERLEAVE_MAX: u16 = 1024;

/// Refusal of a symbol longer than the configuration's `symbol_max`; it entered no repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("symbol: expected at most {symbol_max} bytes, saw {length}")]
pub struct SymbolTooLong {
    /// Length of the symbol.
    pub length: usize,
    /// Longest length accepted.
    pub symbol_max: usize,
}

/// The length of a symbol given in pieces, unless it is too long.
pub(crate) fn symbol_length(symbol: &[&[u8]], symbol_max: usize) -> Result<usize, SymbolTooLong> {
    let length = symbol.iter().map(|piece| piece.len()).sum();
    if length > symbol_max { Err(SymbolTooLong { length, symbol_max }) } else { Ok(length) }
}
