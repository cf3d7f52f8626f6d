//! Types that both cores share: drops counted by reason ([`reasons!`]), positions that do not wrap ([`Seq`]),
//! and the fields of datagrams ([`bytes`]).
#![forbid(unsafe_code)]

pub mod bytes;
mod counters;
mod seq;

#[doc(hidden)]
pub use counters::{snake, snake_len};
#[doc(hidden)]
pub use thiserror;

pub use counters::Reason;
pub use seq::Seq;
