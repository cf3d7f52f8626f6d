//! Feedback: what nodes report to their applications about the network.
#![allow(missing_docs)]

use crate::common::net::{Net, NetworkConditions};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::feedback::{Latencies, Reception};
use ricochet_core::node::NakConfig;
use ricochet_core::{Feedback, GroupId, NodeConfig, NodeId};

fn traffic(net: &mut Net, grouping: &[Vec<GroupId>], packets: u32, seed: u64) {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..packets {
        let from = dice.next_u64() as usize % grouping.len();
        let group = grouping[from][dice.next_u64() as usize % grouping[from].len()];
        net.multicast(from, group, &[7; 200]);
        net.advance(500);
    }
}

fn sum<'a>(all: impl Iterator<Item = &'a Reception>) -> Reception {
    all.fold(Reception::default(), |mut sum, one| {
        sum.data.packets += one.data.packets;
        sum.data.bytes += one.data.bytes;
        sum.messages += one.messages;
        sum.discovered += one.discovered;
        sum.repaired += one.repaired;
        sum.requested += one.requested;
        sum.lost += one.lost;
        sum.duplicates += one.duplicates;
        sum.latencies.merge(&one.latencies);
        sum
    })
}

fn all(net: &Net) -> Vec<Feedback> {
    net.nodes.iter().map(|node| node.feedback(net.now_us)).collect()
}

#[test]
fn groups_and_peers_add_up_to_what_the_node_has_done() {
    for seed in 0..5 {
        let grouping = crate::common::grouping(&mut ChaCha8Rng::seed_from_u64(seed), 12, 6, 6);
        let conditions = NetworkConditions {
            data_loss: 0.1,
            other_loss: 0.1,
            repeat: 0.01,
            delay_us: 100,
            jitter_us: 300,
        };
        let nak = NakConfig { tries_max: 1, ..NakConfig::default() };
        let mut net = Net::new(&grouping, 3, conditions, seed, |config| NodeConfig { nak, ..config });
        traffic(&mut net, &grouping, 2_000, seed);
        net.advance(20_000_000);
        for (node, feedback) in net.nodes.iter().zip(all(&net)) {
            let counts = node.counts();
            let by_group = sum(feedback.groups.iter().map(|group| &group.reception));
            assert_eq!(by_group, sum(feedback.peers.iter().map(|peer| &peer.reception)), "seed {seed}");
            assert_eq!(by_group.data.packets, counts.delivered);
            assert_eq!((by_group.repaired, by_group.requested), (counts.repaired, counts.requested));
            assert_eq!((by_group.discovered, by_group.duplicates), (counts.discovered, counts.duplicates));
            assert_eq!(by_group.latencies.count(), counts.repaired + counts.requested);
            // Each packet has one message.
            let messages = by_group.data.packets + by_group.repaired + by_group.requested;
            assert_eq!(by_group.messages, messages);
            let of_groups = feedback.groups.iter();
            assert!(of_groups.clone().all(|group| group.messages_sent == group.sent.packets));
            let sent: u64 = feedback.groups.iter().map(|group| group.sent.packets).sum();
            assert_eq!((sent, feedback.sent.data.packets), (counts.sent, counts.sent));
            assert_eq!(
                (feedback.sent.repairs.packets, feedback.received.repairs.packets),
                (counts.repairs_sent, counts.repairs)
            );
            assert_eq!(feedback.sent.requests.packets, counts.requests_sent);
            assert_eq!(feedback.sent.retransmissions.packets, counts.answered);
            assert_eq!(feedback.sent.heartbeats.packets, counts.heartbeats_sent);
            assert_eq!(feedback.peers.iter().map(|peer| peer.asked).sum::<u64>(), counts.asked);
            assert!(feedback.received.overhead().is_some_and(|overhead| overhead > 0.2), "{feedback:?}");
            assert_eq!((feedback.unrecorded, feedback.slow().count()), (0, 0));
        }
        let lost: u64 =
            all(&net).iter().flat_map(|feedback| &feedback.groups).map(|group| group.reception.lost).sum();
        assert!(lost > 0 && lost as usize == net.reported_lost(), "seed {seed}: {lost}");
    }
}

#[test]
fn a_node_that_loses_and_requests_many_packets_is_slow() {
    let grouping = crate::common::grouping(&mut ChaCha8Rng::seed_from_u64(7), 8, 4, 6);
    // Without repairs all lost packets are requested.
    let mut net = Net::new(
        &grouping,
        0,
        NetworkConditions { data_loss: 0.001, ..NetworkConditions::default() },
        7,
        |config| config,
    );
    net.deaf = Some((3, 0.3));
    traffic(&mut net, &grouping, 4_000, 7);
    for (at, feedback) in all(&net).iter().enumerate().filter(|&(at, _)| at != 3) {
        let slow: Vec<NodeId> = feedback.slow().map(|peer| peer.peer).collect();
        let peer = feedback.peers.iter().find(|peer| peer.peer == NodeId(3)).expect("all know it");
        assert_eq!(slow, [NodeId(3)], "{at}: {peer:?}");
    }
    net.deaf = None;
    traffic(&mut net, &grouping, 60_000, 8);
    assert!(all(&net).iter().all(|feedback| feedback.slow().count() == 0), "it has caught up");
}

#[test]
fn recovery_times_are_counted() {
    let grouping = crate::common::grouping(&mut ChaCha8Rng::seed_from_u64(9), 12, 6, 6);
    let mut net = Net::new(
        &grouping,
        5,
        NetworkConditions { data_loss: 0.02, ..NetworkConditions::default() },
        9,
        |config| config,
    );
    traffic(&mut net, &grouping, 4_000, 9);
    net.advance(1_000_000);
    let mut latencies = Latencies::default();
    all(&net)
        .iter()
        .flat_map(|feedback| &feedback.groups)
        .for_each(|group| latencies.merge(&group.reception.latencies));
    let median_us = latencies.quantile_us(0.5).expect("some were recovered");
    assert!(latencies.count() > 100 && median_us < 100_000, "{median_us}");
    assert!(latencies.quantile_us(1.0) <= Some(latencies.max_us()));
}

#[test]
fn made_up_peers_are_bounded() {
    let grouping = vec![vec![GroupId(9)]; 2];
    let mut net = Net::new(&grouping, 1, NetworkConditions::default(), 1, |config| NodeConfig {
        feedback_peers: 8,
        ..config
    });
    for sender in 100..1_000 {
        let data = crate::common::packet(NodeId(sender), GroupId(9), 0, b"forged");
        net.inject(0, &crate::common::written(|to| data.write(to)));
    }
    let feedback = net.nodes[0].feedback(net.now_us);
    assert!(feedback.peers.len() == 8 && feedback.unrecorded > 800, "{}", feedback.unrecorded);
    assert_eq!(feedback.groups[0].reception.data.packets, 900);
    net.advance(31_000_000);
    net.multicast(1, GroupId(9), b"a peer");
    net.advance(1_000);
    let feedback = net.nodes[0].feedback(net.now_us);
    assert!(feedback.peers.len() == 8 && feedback.peers.iter().any(|peer| peer.peer == NodeId(1)));
}
