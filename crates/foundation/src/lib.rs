//! What both cores stand on: drops counted by reason ([`reasons!`]), and positions that do not wrap ([`Seq`]).
#![forbid(unsafe_code)]

mod counters;
mod seq;

#[doc(hidden)]
pub use thiserror;

pub use seq::Seq;
