//! Replays the corpus of a node among liars and random mutations of them, so that a plain test run keeps what fuzzing found.

use crate::replay::replay;

#[test]
fn a_node_survives_whatever_it_hears() {
    replay("ricochet_liar", 10, 1_500, crate::liar::node);
}
