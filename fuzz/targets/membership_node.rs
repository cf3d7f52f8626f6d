//! A node of each kind of membership, and a peer that says anything.
#![no_main]

#[path = "../../crates/membership/tests/it/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz::node(data);
});
