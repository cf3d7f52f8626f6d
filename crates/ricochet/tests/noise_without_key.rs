//! A LAN on which an attacker sends random, replayed and forged datagrams: nodes without a key keep serving.
//!
//! In a process of its own, because the test measures the memory of the process.

mod common;
#[path = "common/noise.rs"]
mod noise;

use common::{join_all, numbers};
use noise::{attacked, lan_with_attacker};

#[test]
fn without_a_key_a_node_keeps_serving_and_counts_its_drops() {
    let Some((lan, attacker)) = lan_with_attacker("noise without a key") else { return };
    let outcome = attacked(&lan, &attacker, |builder| builder);
    for node in &outcome.nodes {
        let status = node.status();
        let dropped = &status.dropped;
        assert!(dropped["unknown"] > 100 && dropped["foreign"] > 10, "{status:#?}");
        assert!(status.malformed.values().sum::<u64>() > 10, "{status:#?}");
    }
    // Forgeries may spoil streams that the attacker has captured. Streams unknown to it are served.
    let subscriptions = join_all(&outcome.nodes, "afterwards");
    let sender = &outcome.nodes[0];
    (0..50u32).for_each(|number| assert!(sender.send("afterwards", &number.to_be_bytes()).is_ok()));
    for (node, subscription) in outcome.nodes.iter().zip(&subscriptions).skip(1) {
        let mut got = numbers(node, subscription, 50);
        got.sort_unstable();
        assert!(got.into_iter().eq(0..50));
    }
}
