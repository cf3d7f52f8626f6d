//! Replays the fuzzers' corpora and random mutations of them, so that a plain test run keeps what fuzzing found.

use crate::replay::replay;

#[test]
fn wire_readers_take_all_that_fuzzing_found() {
    replay("ricochet_wire", 10, 3_000, crate::fuzz::wire);
}

#[test]
fn a_node_and_its_subscription_stand_whatever_is_said_to_them() {
    let mut most = (0, 0);
    replay("ricochet_node", 10, 300, |data| {
        let (packets, messages) = crate::fuzz::node(data);
        most = (most.0.max(packets), most.1.max(messages));
    });
    assert!(most.0 > 20 && most.1 > 1, "the corpus holds true packets too: {most:?}");
}
