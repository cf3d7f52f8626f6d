//! Replays the corpora of the fuzzers.
#![allow(missing_docs)]

mod fuzz;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn decoder() {
    replay("fec_decoder", 10, 0, fuzz::decoder);
}

#[test]
fn layered() {
    replay("fec_layered", 10, 0, fuzz::layered);
}

#[test]
fn ring() {
    replay("fec_ring", 10, 0, fuzz::ring);
}
