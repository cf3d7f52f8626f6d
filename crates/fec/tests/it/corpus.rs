//! Replays the corpora of the fuzzers.
#![allow(missing_docs)]

use crate::replay::replay;

#[test]
fn decoder() {
    replay("fec_decoder", 10, 0, crate::fuzz::decoder);
}

#[test]
fn layered() {
    replay("fec_layered", 10, 0, crate::fuzz::layered);
}

#[test]
fn ring() {
    replay("fec_ring", 10, 0, crate::fuzz::ring);
}
