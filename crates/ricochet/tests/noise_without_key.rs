//! A LAN on which somebody sends rubbish, replays what was said, and forges: nodes without a key keep serving.
//!
//! A process of its own, since it looks at the memory that it takes.

mod common;
#[path = "common/noise.rs"]
mod noise;

use common::{join_all, numbers};
use noise::{attacked, stage};

#[test]
fn without_a_key_a_node_keeps_serving_and_says_what_it_dropped() {
    let Some((lan, attacker)) = stage("noise without a key") else { return };
    let outcome = attacked(&lan, &attacker, |builder| builder);
    for node in &outcome.nodes {
        let status = node.status();
        let dropped = &status.dropped;
        assert!(dropped["unknown first byte"] > 100 && dropped["of other groups"] > 10, "{status:#?}");
        assert!(status.malformed.values().sum::<u64>() > 10, "{status:#?}");
    }
    // Who forges may spoil a stream whose names he knows. What he did not know of is served.
    let subscriptions = join_all(&outcome.nodes, "afterwards");
    let sender = &outcome.nodes[0];
    (0..50u32).for_each(|number| assert!(sender.send("afterwards", &number.to_be_bytes()).is_ok()));
    for (node, subscription) in outcome.nodes.iter().zip(&subscriptions).skip(1) {
        let mut got = numbers(node, subscription, 50);
        got.sort_unstable();
        assert!(got.into_iter().eq(0..50));
    }
}
