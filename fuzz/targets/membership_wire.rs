//! Whatever is read as a datagram of the membership.
#![no_main]

#[path = "../../crates/membership/tests/it/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::wire(data));
