//! Support for long-running processes.
//!
//! | file | content |
//! |---|---|
//! | `control.rs` | the control socket, which answers with the status of the process |
//! | `signals.rs` | SIGTERM, SIGINT and SIGHUP as events of a driver's loop |
#![forbid(unsafe_code)]

pub mod control;
pub mod signals;
