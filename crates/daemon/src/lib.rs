//! Support for long-running processes.
//!
//! | file | content |
//! |---|---|
//! | `control.rs` | the control socket, which answers with the status of the process |
//! | `signals.rs` | SIGTERM, SIGINT and SIGHUP as events of a driver's loop |
//! | `log.rs` | a log on stderr that never stops the process |
//! | `fatal.rs` | the end of the process after a panic |
//! | `watchdog.rs` | the end of the process when its loop hangs |
//! | `supervisor.rs` | messages to the service manager (`sd_notify`) |
#![forbid(unsafe_code)]

pub mod control;
pub mod fatal;
pub mod http;
pub mod log;
pub mod openmetrics;
pub mod signals;
pub mod supervisor;
pub mod watchdog;
