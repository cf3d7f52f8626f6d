//! Ricochet for C: the functions of `ricochet.h`, a thin layer over the library of the same name.
//!
//! | file | content |
//! |---|---|
//! | `outcome.rs` | result codes, the text of the last error, and the guard that stops panics |
//! | `pointers.rs` | pointers of the caller as Rust values: all that is assumed of them |
//! | `options.rs`, `node.rs`, `sender.rs`, `subscription.rs`, `received.rs` | the handles and their functions |
//!
//! The documentation of each function is also that of the header, which a test generates from these files and
//! compares with `include/ricochet.h`. All pointers of a caller are NULL or valid for their purpose, and a
//! handle is freed once, after its last use.
#![allow(
    non_camel_case_types,
    clippy::missing_safety_doc,
    reason = "these are names of C, and the header says once for all what a caller must ensure"
)]

pub mod node;
pub mod options;
pub mod outcome;
mod pointers;
pub mod received;
pub mod sender;
pub mod subscription;
