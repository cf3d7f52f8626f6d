//! A node that was cut off for longer than the others keep packets.

use std::collections::HashSet;

use ricochet_core::bins::Content;
use ricochet_core::{GroupId, NodeConfig, NodeId};

use crate::common::net::{Net, NetworkConditions};

const GROUP: GroupId = GroupId(7);
const KEPT: u64 = 512;
/// Messages of the time in which the node was cut off.
const MISSED: u64 = 2_000;

/// Cuts off node 3 while node 0 sends, and heals the network.
fn cut_off(nodes: usize, loss: f64, seed: u64, content: Content) -> Net {
    let grouping = vec![vec![GROUP]; nodes];
    let conditions = NetworkConditions { data_loss: loss, other_loss: loss, ..NetworkConditions::default() };
    let mut net = Net::new(&grouping, 3, conditions, seed, |config| NodeConfig {
        packets: KEPT as usize,
        content,
        ..NodeConfig::prompt(config.id)
    });
    let send = |net: &mut Net, count: u64| {
        for number in 0..count {
            net.multicast(0, GROUP, &number.to_be_bytes());
            net.advance(2_000);
        }
    };
    send(&mut net, 100);
    net.side[3] = 1;
    send(&mut net, MISSED);
    net.side[3] = 0;
    send(&mut net, 20);
    net
}

#[test]
fn what_anyone_holds_comes_back_and_the_rest_is_reported_soon() {
    for seed in 0..10 {
        for content in [Content::Names, Content::Xor] {
            let loss = if seed % 2 == 0 { 0.0 } else { 0.02 };
            let mut net = cut_off(6, loss, seed, content);
            let requests_before: u64 = net.nodes.iter().map(|node| node.counts().requests_sent).sum();
            net.advance(3_000_000);
            let application = &net.applications[3];
            let total = 100 + MISSED + 20;
            let got: HashSet<u64> = application.got.keys().map(|&(.., seq)| seq).collect();
            let lost: HashSet<u64> = application.lost.iter().map(|&(.., seq)| seq).collect();
            assert_eq!(got.len() + lost.len(), total as usize, "seed {seed}: all accounted for within 3 s");
            // The others hold the newest packets, less those that came since.
            let held_from = total - KEPT + 20;
            let missing = (held_from..total).filter(|seq| !got.contains(seq)).count();
            assert_eq!(missing, 0, "seed {seed}: what is held comes back");
            assert!(got.len() as u64 <= 100 + KEPT + 40, "seed {seed}: {}", got.len());
            let requests: u64 = net.nodes.iter().map(|node| node.counts().requests_sent).sum();
            assert!(
                requests - requests_before < 1_500,
                "seed {seed}: {} requests",
                requests - requests_before
            );
        }
    }
}

#[test]
fn a_packet_that_one_node_alone_holds_is_found_in_spite_of_denials() {
    for seed in 0..10 {
        let grouping = vec![vec![GROUP]; 8];
        let conditions =
            NetworkConditions { data_loss: 0.0, other_loss: 0.0, ..NetworkConditions::default() };
        let mut net = Net::new(&grouping, 0, conditions, seed, |config| NodeConfig::prompt(config.id));
        net.multicast(0, GROUP, b"all have it");
        net.advance(50_000);
        // The sender and one other node alone have the second packet, and the sender fails.
        (2..8).for_each(|node| net.side[node] = 1);
        net.multicast(0, GROUP, b"one has it");
        net.advance(1_000);
        net.down.insert(0);
        (2..8).for_each(|node| net.side[node] = 0);
        let view = ricochet_core::View::new(
            (1..8).map(|node| ricochet_core::Member::new(NodeId(node), vec![GROUP])),
        );
        (1..8).for_each(|node| net.change_view(node, &view));
        // A heartbeat that the sender could still send names it.
        let latest = [ricochet_core::wire::Latest { group: GROUP, seq: 1 }];
        let beat = ricochet_core::wire::Heartbeat { sender: NodeId(0), sender_seq: 1, latest: &latest };
        let beat = crate::common::written(|to| beat.write(to));
        (2..8).for_each(|node| net.forge(node, ricochet_core::message::Origin::Member, &beat));
        net.advance(3_000_000);
        for node in 2..8 {
            assert_eq!(net.applications[node].got.len(), 2, "seed {seed}, node {node}");
        }
        let denials: u64 = net.nodes.iter().map(|node| node.counts().denials_sent).sum();
        assert!(denials > 0);
    }
}
