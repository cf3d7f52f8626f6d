//! Locks and atomic numbers by which threads wake one another.
//!
//! `cargo xtask assure` builds with `--cfg shuttle`, so that Shuttle schedules the threads of a test and
//! tries many orders of their steps (`interleavings.rs`).

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};
