//! Loss models of a packet link: which packets are lost, seeded and reproducible on every machine.
//!
//! Pure: no socket and no clock, so that both the product (`undrop fec simulate`) and the laboratory use it.
//!
//! | file | content |
//! |---|---|
//! | `model.rs` | uniform, bursty and Markov loss, and their text form |
//! | `trace.rs` | recorded losses, replayed over and over |
//! | `error.rs` | why a text is no loss model |
//! | `chance.rs` | seeded random draws |
#![forbid(unsafe_code)]

pub mod chance;
mod error;
mod model;
mod trace;

pub use error::LossError;
pub use model::{Loss, LossModel, parse_rate, start_share};
pub use trace::{Trace, TraceRecorder};
