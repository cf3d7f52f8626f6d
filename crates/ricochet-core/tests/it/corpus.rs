//! Replays the fuzzers' corpora and random mutations of them in plain tests.

use crate::replay::replay;

#[test]
fn wire_readers_survive_the_corpus() {
    replay("ricochet_wire", 10, 3_000, crate::fuzz::wire);
}

#[test]
fn a_node_and_its_subscription_survive_the_corpus() {
    let mut most = (0, 0);
    replay("ricochet_node", 10, 300, |data| {
        let (packets, messages) = crate::fuzz::node(data);
        most = (most.0.max(packets), most.1.max(messages));
    });
    assert!(most.0 > 20 && most.1 > 1, "the corpus holds valid packets too: {most:?}");
}
