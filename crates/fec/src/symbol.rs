//! Symbols by position, and the terms of an equation.

/// Identifies a symbol by its position in the stream of source packets.
///
/// Smaller is older: [`Decoder::expire_before`](crate::Decoder::expire_before) gives up everything below a
/// position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolId(pub u64);

/// One term of a repair: `coefficient` times the symbol `id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// The symbol.
    pub id: SymbolId,
    /// Factor in GF(256); 1 where the code is a plain XOR. A term with factor 0 is ignored.
    pub coefficient: u8,
}

impl Term {
    /// A term of a plain XOR: coefficient 1.
    pub const fn xor(id: SymbolId) -> Self {
        Self { id, coefficient: 1 }
    }
}
