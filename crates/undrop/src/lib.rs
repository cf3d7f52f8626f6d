//! What the `undrop` command shares with its benchmarks.

pub mod code;
