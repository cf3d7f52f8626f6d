//! Whatever is read as a datagram of a node.
#![no_main]

#[path = "../../crates/ricochet-core/tests/it/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::wire(data);
});
