//! A LAN on which somebody sends rubbish, replays what was said, and forges: he who does not know the key changes nothing.
//!
//! A process of its own, since it looks at the memory that it takes.

mod common;
#[path = "common/noise.rs"]
mod noise;

use noise::{attacked, stage};
use ricochet::ClusterKey;

#[test]
fn with_a_key_noise_changes_no_message() {
    let Some((lan, attacker)) = stage("noise with a key") else { return };
    let outcome = attacked(&lan, &attacker, |builder| builder.key(ClusterKey::new([9; 32])));
    for (at, taken) in outcome.taken.iter().enumerate() {
        for (from, sent) in outcome.sent.iter().enumerate().filter(|&(from, _)| from != at) {
            let mut got = taken.received[from].clone();
            got.sort_unstable();
            let (wanted, distinct) = (*sent as usize, got.iter().filter(|&&seq| seq < *sent).count());
            assert!(got.iter().copied().eq(0..*sent), "node {at} of {from}: {distinct} of {wanted}");
        }
        assert_eq!(taken.strange, 0, "altered or forged messages at node {at}");
    }
    for node in &outcome.nodes {
        assert!(node.status().dropped["not authentic"] > 100, "{:#?}", node.status());
    }
}
