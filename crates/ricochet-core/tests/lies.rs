//! Replays the corpus of a node among liars and random mutations of them, so that a plain test run keeps what fuzzing found.

mod liar;
#[path = "../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn a_node_survives_whatever_it_hears() {
    replay("ricochet_liar", 10, 1_500, liar::node);
}
