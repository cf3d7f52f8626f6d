//! Whatever hosts of a LAN say about the groups that they are in.
#![no_main]

#[path = "../../crates/maelstrom-core/tests/it/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::reports(data));
