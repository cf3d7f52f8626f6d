//! Repairs that choose between sums and digests by the network.
#![allow(missing_docs)]

use crate::common::net::{Net, NetworkConditions};
use ricochet_core::bins::Content;
use ricochet_core::{GroupId, NodeConfig};

/// Returns the number of symbols added for each repair, once eight nodes in one group with a message each
/// half millisecond have measured the network.
fn sums(conditions: NetworkConditions, length: usize) -> f64 {
    sums_at(conditions, length, 500)
}

/// The same with a message at each interval.
fn sums_at(conditions: NetworkConditions, length: usize, interval_us: u64) -> f64 {
    let grouping = vec![vec![GroupId(9)]; 8];
    let auto = |config: NodeConfig| NodeConfig { content: Content::Auto, ..NodeConfig::prompt(config.id) };
    let mut net = Net::new(&grouping, 5, conditions, 1, auto);
    let mut before = (0, 0);
    for n in 0..4_000 {
        net.multicast(n % 8, GroupId(9), &vec![n as u8; length]);
        net.advance(interval_us);
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

#[test]
fn quiet_groups_get_digests_on_long_round_trips_too() {
    let far = NetworkConditions { delay_us: 10_000, ..NetworkConditions::default() };
    let sums = sums_at(far, 1_024, 20_000);
    assert!(sums < 0.1, "a copy of each packet for five members: {sums}");
}

#[test]
fn the_number_of_repairs_follows_the_loss() {
    let repairs = |data_loss| {
        let group = GroupId(9);
        let auto =
            |config: NodeConfig| NodeConfig { content: Content::Auto, ..NodeConfig::prompt(config.id) };
        let conditions = NetworkConditions { data_loss, ..NetworkConditions::default() };
        let mut net = Net::new(&vec![vec![group]; 8], 5, conditions, 1, auto);
        for n in 0..4_000 {
            net.multicast(n % 8, group, b"payload");
            net.advance(500);
        }
        net.advance(1_000_000);
        assert!(net.unaccounted().is_empty(), "{}", net.unaccounted().len());
        let wanted = net.nodes.iter().map(|node| {
            let index = node.groups().index(group).expect("it is in the group");
            node.bins().plan().repairs(index)
        });
        wanted.sum::<f64>() / 8.0
    };
    let [little, some, much] = [0.0005, 0.01, 0.1].map(repairs);
    assert!(little < 3.0 && (3.0..=4.5).contains(&some) && much == 5.0, "{little} {some} {much}");
}
