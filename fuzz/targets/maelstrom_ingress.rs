//! Whatever reaches a gateway's ingress.
#![no_main]

#[path = "../../crates/maelstrom-core/tests/it/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::ingress(data));
