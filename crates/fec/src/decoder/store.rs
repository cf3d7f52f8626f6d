//! The interface between the decoder and its owner.

use crate::symbol::SymbolId;

/// The symbols that the owner of a decoder keeps.
pub trait SymbolStore {
    /// Returns the symbol if it is known, received or recovered. A symbol shorter than a payload counts as
    /// zero-padded.
    fn known(&self, id: SymbolId) -> Option<&[u8]>;

    /// Takes over a solved symbol, as long as the longest payload that it was computed from.
    ///
    /// The owner verifies the symbol, keeps it so that [`known`](Self::known) returns it, and returns true.
    /// False means that it is wrong: the symbol stays unknown, and the equation that gave it is dropped.
    fn on_recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool;
}
