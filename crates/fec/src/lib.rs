//! Erasure codes for packet streams: no I/O, no clock, no allocation per packet.
//!
//! A *code* is a **schedule**: which source packets enter which repair packet, with which coefficients, and when it
//! leaves. **Decoding is one thing for all codes**: a repair is a linear equation over GF(256), the packets that are
//! known are subtracted, and what is left is solved by incremental elimination over the missing ones.
//!
//! | item | what it is |
//! |---|---|
//! | [`LayeredEncoder`] | the schedule of Maelstrom §4.3: XORs of r packets, i apart, for each interleave i |
//! | [`ReedSolomonEncoder`] | the schedule that Maelstrom §4.4 compares with: blocks, any r of r + c are enough |
//! | [`SlidingEncoder`] | the schedule of RFC 8681: random sums of the last packets |
//! | [`Code`], [`Encoder`] | any of these |
//! | [`Decoder`] | the one decoder, for any schedule |
//! | [`SymbolRing`] | bounded store of the last symbols, for the owner of a decoder |
//! | [`analysis`], [`simulate`](mod@simulate) | what a code recovers, by formula and by trial |
//! | [`gf256`] | the arithmetic, with run-time choice of vector instructions |
//!
//! A *symbol* is the bytes that are coded: whatever the owner makes of a packet (its length, its mutable header
//! fields, the packet). Symbols differ in length; in a sum each counts as if zero-padded to the longest.
#![deny(unsafe_code)]

pub mod analysis;
mod code;
mod decoder;
pub mod gf256;
mod layered;
mod limits;
pub mod names;
mod rate;
mod reed_solomon;
mod ring;
pub mod simulate;
mod sliding;
mod tinymt32;

pub use code::{Code, CodeError, CodedRepair, Draw, Encoder};
pub use decoder::{Decoder, DecoderConfig, DecoderConfigError, DecoderCounters, Outcome, Refusal, Window};
pub use layered::{
    ConfigError, INTERLEAVE_MAX, LAYERS_MAX, LayeredConfig, LayeredEncoder, R_MAX, Repair, Sending,
    first_size,
};
pub use limits::{DEADLINE_US_MAX, MEMORY_MAX, SYMBOL_MAX, SymbolTooLong};
pub use rate::{RATE_MAX, RateError, RepairRate};
pub use reed_solomon::{
    BLOCK_C_MAX, BLOCK_R_MAX, ReedSolomonConfig, ReedSolomonConfigError, ReedSolomonEncoder,
    ReedSolomonRepair, cauchy,
};
pub use ring::{SymbolHandle, SymbolRing};
pub use sliding::{
    DENSITY_FULL, SlidingConfig, SlidingConfigError, SlidingEncoder, SlidingRepair, WINDOW_MAX,
    coding_coefficients,
};
pub use tinymt32::TinyMt32;

/// Names a symbol by its position in the stream of source packets.
///
/// Smaller is older: [`Decoder::expire_before`] gives up everything below a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolId(pub u64);

/// One summand of a repair: `coefficient` times the symbol `id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// Which symbol.
    pub id: SymbolId,
    /// Its factor in GF(256); 1 where the code is a plain XOR. A term with 0 says nothing and is ignored.
    pub coefficient: u8,
}

impl Term {
    /// A term of a plain XOR: coefficient 1.
    pub const fn xor(id: SymbolId) -> Self {
        Self { id, coefficient: 1 }
    }
}
