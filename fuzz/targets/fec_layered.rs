//! Any configuration, any packets, any clock: repairs are the sums of what they name.
#![no_main]

#[path = "../../crates/fec/tests/it/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::layered(data));
