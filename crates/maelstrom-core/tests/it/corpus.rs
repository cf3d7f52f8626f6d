//! Replays the fuzzers' corpora and random mutations of them, so that a plain test run keeps what fuzzing
//! found.

use crate::replay::replay;

#[test]
fn wire_readers_take_all_that_fuzzing_found() {
    replay("maelstrom_wire", 10, 1_500, crate::fuzz::wire);
}

#[test]
fn an_ingress_survives_a_peer_that_lies() {
    replay("maelstrom_ingress", 5, 1_500, crate::fuzz::ingress);
}
