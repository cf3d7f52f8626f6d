//! Types that both products share: drops counted by reason ([`reasons!`]), positions that do not wrap
//! ([`Seq`]), the fields of datagrams ([`bytes`]), and counts of the last seconds, minutes and hour
//! ([`windows`]).
#![forbid(unsafe_code)]

pub mod bytes;
mod counters;
mod seq;
pub mod windows;

#[doc(hidden)]
pub use counters::{snake, snake_len};
#[doc(hidden)]
pub use thiserror;

pub use counters::Reason;
pub use seq::Seq;
