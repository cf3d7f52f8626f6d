//! Packets of several feeds in any order, read by one reader.
#![no_main]
#![allow(dead_code, reason = "the target reads")]

#[path = "../../crates/undrop/src/multicast/moldudp64/fuzzed.rs"]
mod fuzzed;
#[path = "../../crates/undrop/src/multicast/moldudp64/packet.rs"]
mod packet;
#[path = "../../crates/undrop/src/multicast/moldudp64/reader.rs"]
mod reader;
#[path = "../../crates/undrop/src/multicast/moldudp64/sequence.rs"]
mod sequence;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzzed::reader(data);
});
