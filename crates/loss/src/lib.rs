//! Loss models of a packet link, seeded and reproducible on every machine.
//!
//! Pure, without sockets and clocks, so that both the product (`undrop fec simulate`) and the laboratory use
//! it.
//!
//! | file | content |
//! |---|---|
//! | `model.rs` | uniform, bursty and Markov loss, and their text form |
//! | `trace.rs` | recorded losses, replayed in a loop |
//! | `error.rs` | errors of parsing a model |
//! | `chance.rs` | seeded random draws |
#![forbid(unsafe_code)]

pub mod chance;
mod error;
mod model;
mod trace;

pub use error::LossError;
pub use model::{Loss, LossModel, parse_rate, start_share};
pub use trace::{Trace, TraceRecorder};
