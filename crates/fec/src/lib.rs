//! Erasure codes for packet streams: no I/O, no clock, no allocation per packet.
//!
//! A *code* is a **schedule**: which source packets enter which repair packet, with which coefficients, and
//! when the repair leaves. **One decoder serves all codes**: a repair is a linear equation over GF(256). The
//! decoder subtracts the known packets and solves what is left by incremental elimination over the missing
//! ones.
//!
//! | item | content |
//! |---|---|
//! | [`LayeredEncoder`] | the schedule of Maelstrom §4.3: XORs of r packets, i apart, for each interleave i |
//! | [`ReedSolomonEncoder`] | the schedule that Maelstrom §4.4 compares with: blocks, any r of r + c are enough |
//! | [`SlidingEncoder`] | the schedule of RFC 8681: random sums of the last packets |
//! | [`Code`], [`Encoder`] | a code of any scheme with its parameters, and its encoder |
//! | [`Repair`], [`Scheme`], [`ConfigError`] | types that all codes share |
//! | [`Decoder`] | the one decoder, for any schedule |
//! | [`SymbolRing`] | a bounded store of the last symbols, for the owner of a decoder |
//! | [`analysis`], [`simulate`](mod@simulate) | what a code recovers, by formula and by trial |
//! | [`gf256`] | the arithmetic, with run-time choice of vector instructions |
//!
//! A *symbol* is the string of bytes that is coded: whatever the owner makes of a packet (its length, its
//! mutable header fields, the packet). Symbols differ in length; in a sum each counts as if zero-padded to
//! the longest.
#![deny(unsafe_code)]

pub mod analysis;
mod code;
mod decoder;
mod encoder;
mod error;
pub mod gf256;
mod layered;
mod limits;
pub mod names;
mod rate;
mod reed_solomon;
mod repair;
mod ring;
mod scheme;
pub mod simulate;
mod sliding;
mod symbol;
mod tinymt32;

pub use code::Code;
pub use decoder::{Decoder, DecoderConfig, DecoderCounters, Outcome, Refusal, SymbolStore};
pub use encoder::Encoder;
pub use error::ConfigError;
pub use layered::{LAYERS_MAX, LayeredConfig, LayeredEncoder, R_MAX, first_size};
pub use limits::{DEADLINE_US_MAX, INTERLEAVE_MAX, MEMORY_MAX, SYMBOL_MAX, SymbolTooLong};
pub use rate::{RATE_MAX, RateError, RepairRate};
pub use reed_solomon::{BLOCK_C_MAX, BLOCK_R_MAX, ReedSolomonConfig, ReedSolomonEncoder, cauchy};
pub use repair::{Draw, Repair};
pub use ring::{SymbolHandle, SymbolRing};
pub use scheme::{Scheme, Sending, UnknownScheme};
pub use sliding::{
    DENSITY_FULL, STRIPES_MAX, SlidingConfig, SlidingEncoder, WINDOW_MAX, coding_coefficients, stripes_max,
};
pub use symbol::{SymbolId, Term};
pub use tinymt32::TinyMt32;
