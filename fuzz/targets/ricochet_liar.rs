//! A multicast node among liars, whose view changes: it says a bounded amount, and goes on serving.
#![no_main]

#[path = "../../crates/ricochet-core/tests/it/liar/mod.rs"]
mod liar;

libfuzzer_sys::fuzz_target!(|data: &[u8]| liar::node(data));
