//! Sources, true and forged repairs, and expiry, against an owner that can tell a wrong symbol.
#![no_main]

#[path = "../../crates/fec/tests/it/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::decoder(data));
