//! The symbol ring against a queue without bounds of its own.
#![no_main]

#[path = "../../crates/fec/tests/it/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::ring(data));
