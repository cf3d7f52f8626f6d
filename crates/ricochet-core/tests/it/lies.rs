//! Replays the corpus of a node among lying nodes, and random mutations of it, in a plain test.

use crate::replay::replay;

#[test]
fn a_node_survives_the_corpus() {
    replay("ricochet_liar", 10, 1_500, crate::liar::node);
}
