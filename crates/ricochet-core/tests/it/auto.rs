//! Repairs that choose between sums and digests by the network.
#![allow(missing_docs)]

use crate::common::net::{Net, NetworkConditions};
use ricochet_core::bins::Content;
use ricochet_core::{GroupId, NodeConfig};

/// Returns the number of symbols added for each repair, once eight nodes in one group have measured the
/// network.
fn sums(conditions: NetworkConditions, length: usize) -> f64 {
    let grouping = vec![vec![GroupId(9)]; 8];
    let auto = |config: NodeConfig| NodeConfig { content: Content::Auto, ..NodeConfig::prompt(config.id) };
    let mut net = Net::new(&grouping, 5, conditions, 1, auto);
    let mut before = (0, 0);
    for n in 0..4_000 {
        net.multicast(n % 8, GroupId(9), &vec![n as u8; length]);
        net.advance(500);
        if n == 2_000 {
            before = counted(&net);
        }
    }
    net.advance(1_000_000);
    assert!(net.unaccounted().is_empty(), "{}", net.unaccounted().len());
    let after = counted(&net);
    (after.0 - before.0) as f64 / (after.1 - before.1) as f64
}

/// Returns the numbers of symbols added to sums and of repairs made.
fn counted(net: &Net) -> (u64, u64) {
    let counts = net.nodes.iter().map(|node| *node.bins().counts());
    counts.fold((0, 0), |sum, counts| (sum.0 + counts.additions, sum.1 + counts.repairs))
}

#[test]
fn large_packets_on_a_quick_network_get_digests() {
    assert!(sums(NetworkConditions::default(), 1_024) < 0.1);
}

#[test]
fn tiny_packets_get_sums() {
    assert!(sums(NetworkConditions::default(), 16) > 1.0);
}

#[test]
fn long_round_trips_get_sums() {
    assert!(sums(NetworkConditions { delay_us: 10_000, ..NetworkConditions::default() }, 1_024) > 1.0);
}

#[test]
fn heavy_loss_gets_sums() {
    assert!(
        sums(NetworkConditions { data_loss: 0.2, other_loss: 0.2, ..NetworkConditions::default() }, 1_024)
            > 1.0
    );
}
