//! A LAN on which an attacker sends random, replayed and forged datagrams: without the
//! key the attack has no effect.
//!
//! In a process of its own, because the test measures the memory of the process.

mod common;
#[path = "common/noise.rs"]
mod noise;

use noise::{attacked, lan_with_attacker};
use ricochet::ClusterKey;

#[test]
fn with_a_key_noise_changes_no_message() {
    let Some((lan, attacker)) = lan_with_attacker("noise with a key") else { return };
    let outcome = attacked(&lan, &attacker, |builder| builder.key(ClusterKey::new([9; 32])));
    for (at, received) in outcome.received.iter().enumerate() {
        for (from, sent) in outcome.sent.iter().enumerate().filter(|&(from, _)| from != at) {
            let mut got = received.genuine[from].clone();
            got.sort_unstable();
            let (wanted, distinct) = (*sent as usize, got.iter().filter(|&&seq| seq < *sent).count());
            assert!(got.iter().copied().eq(0..*sent), "node {at} of {from}: {distinct} of {wanted}");
        }
        assert_eq!(received.forged, 0, "altered or forged messages at node {at}");
    }
    for node in &outcome.nodes {
        assert!(node.status().dropped["unauthentic"] > 100, "{:#?}", node.status());
    }
}
