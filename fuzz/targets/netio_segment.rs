//! Cutting and joining a packet with whatever offload.
#![no_main]

#[path = "../../crates/netio/tests/it/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::segment(data));
