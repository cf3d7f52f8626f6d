//! Replays the fuzzers' corpora and random mutations of them, so that a plain test
//! run keeps what fuzzing found.

use crate::replay::replay;

#[test]
fn wire_readers_take_all_that_fuzzing_found() {
    replay("membership_wire", 10, 3_000, crate::fuzz::wire);
}

#[test]
fn a_node_survives_a_member_that_lies() {
    let mut learnt = 0;
    replay("membership_node", 10, 3_000, |data| learnt = learnt.max(crate::fuzz::node(data)));
    assert!(learnt > 500, "expected the node to learn from honest datagrams, saw {learnt} groups");
}
