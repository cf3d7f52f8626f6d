//! A node, an ordered subscription behind it, and peers that say anything.
#![no_main]

#[path = "../../crates/ricochet-core/tests/it/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::node(data);
});
