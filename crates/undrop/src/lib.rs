//! What the `undrop` command shares with its tests and benchmarks.

#[allow(clippy::disallowed_methods, reason = "waits for processes of the real world")]
pub mod lab;
