//! Whatever arrives on a carrier of split connections.
#![no_main]

#[path = "../../crates/maelstrom-core/tests/it/fuzz/split.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::split(data));
