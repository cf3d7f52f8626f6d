//! Whole nodes in virtual time: delivery, recovery and reports of losses.
#![allow(missing_docs)]

use crate::common::net::{Net, NetworkConditions};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::bins::Content;
use ricochet_core::message::{How, Origin};
use ricochet_core::node::NakConfig;
use ricochet_core::{GroupId, NodeConfig};

/// Sends `packets` packets to random groups from random members, one every `interval_us`.
fn traffic(net: &mut Net, grouping: &[Vec<GroupId>], packets: u32, interval_us: u64, seed: u64) {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    for n in 0..packets {
        let from = dice.next_u64() as usize % grouping.len();
        let group = grouping[from][dice.next_u64() as usize % grouping[from].len()];
        if !net.down.contains(&from) {
            let length = dice.next_u64() as usize % 300;
            let payload: Vec<u8> = (0..length).map(|k| (k as u32 * 7 + n) as u8).collect();
            net.multicast(from, group, &payload);
        }
        net.advance(interval_us);
    }
}

fn grouping(seed: u64, n: usize, d: usize, s: usize) -> Vec<Vec<GroupId>> {
    crate::common::grouping(&mut ChaCha8Rng::seed_from_u64(seed), n, d, s)
}

fn without_requests(config: NodeConfig) -> NodeConfig {
    let nak = NakConfig { enabled: false, ..config.nak };
    NodeConfig { nak, ..config }
}

#[test]
fn every_member_gets_every_packet_once() {
    for seed in 0..20 {
        let grouping = grouping(seed, 16, 8, 6);
        let conditions = NetworkConditions {
            data_loss: 0.05,
            other_loss: 0.05,
            repeat: 0.01,
            delay_us: 100,
            jitter_us: 300,
        };
        let mut net = Net::new(&grouping, 5, conditions, seed, |config| config);
        traffic(&mut net, &grouping, 2_000, 200, seed);
        net.advance(5_000_000);
        let unaccounted = net.unaccounted();
        assert!(
            unaccounted.is_empty(),
            "seed {seed}: {} of them: {:?}",
            unaccounted.len(),
            &unaccounted[..5]
        );
        assert_eq!(net.reported_lost(), 0, "seed {seed}");
        assert!(net.count(How::Repaired) > net.count(How::Requested), "seed {seed}");
        net.check_order();
    }
}

#[test]
fn messages_longer_than_a_packet_come_whole_and_in_order_or_are_lost() {
    for seed in 0..20 {
        let grouping = grouping(seed, 8, 4, 6);
        let conditions = NetworkConditions {
            data_loss: 0.05,
            other_loss: 0.05,
            repeat: 0.01,
            delay_us: 100,
            jitter_us: 300,
        };
        // In every fifth run some packets are given up.
        let nak = NakConfig { enabled: seed % 5 > 0, give_up_us: 200_000, ..NakConfig::default() };
        let mut net = Net::new(&grouping, 5, conditions, seed, |config| NodeConfig { nak, ..config });
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        for n in 0..300u32 {
            let from = dice.next_u64() as usize % grouping.len();
            let group = grouping[from][dice.next_u64() as usize % grouping[from].len()];
            let length = [20, 1_338, 1_339, 2_660, 20_000][dice.next_u64() as usize % 5];
            let payload: Vec<u8> = (0..length).map(|k: u32| (k * 7 + n + k / 1_330) as u8).collect();
            net.multicast(from, group, &payload);
            net.advance(1_000);
        }
        net.advance(20_000_000);
        assert!(net.unaccounted().is_empty(), "seed {seed}: {:?}", net.unaccounted());
        assert_eq!(net.reported_lost() > 0, seed % 5 == 0, "seed {seed}: {}", net.reported_lost());
        net.check_order();
        let whole: u64 = net.nodes.iter().map(|node| node.fragments().messages).sum();
        assert!(whole > 500, "seed {seed}: {whole}");
    }
}

#[test]
fn digests_recover_losses_by_one_request_to_a_neighbour() {
    for seed in 0..5 {
        let grouping = grouping(seed, 16, 8, 6);
        let mut net = Net::new(&grouping, 5, NetworkConditions::default(), seed, |config| NodeConfig {
            content: Content::Names,
            ..config
        });
        traffic(&mut net, &grouping, 2_000, 200, seed);
        net.advance(5_000_000);
        assert!(net.unaccounted().is_empty() && net.reported_lost() == 0, "seed {seed}");
        let mut late: Vec<u64> = net
            .applications
            .iter()
            .flat_map(|application| application.recovered_us.iter().copied())
            .collect();
        late.sort_unstable();
        assert!(late.len() > 50 && late[late.len() / 2] < 10_000, "seed {seed}: {late:?}");
    }
}

#[test]
fn repairs_alone_recover_nearly_all_losses_with_the_papers_settings() {
    let grouping = grouping(1, 64, 64, 10);
    let mut net = Net::new(&grouping, 5, NetworkConditions::default(), 1, without_requests);
    // 1,000 packets a second arrive at each node.
    traffic(&mut net, &grouping, 12_800, 156, 1);
    net.end_losses();
    traffic(&mut net, &grouping, 6_400, 156, 2);
    net.advance(1_000_000);
    let repaired = net.count(How::Repaired);
    let missing = net.unaccounted().len() + net.reported_lost();
    let share = repaired as f64 / (repaired + missing) as f64;
    assert!(repaired > 800 && share > 0.98, "{repaired} repaired, {missing} missing");
    assert_eq!(net.count(How::Requested), 0);
}

#[test]
fn the_last_packet_of_a_burst_is_found_missing() {
    let grouping = vec![vec![GroupId(9)]; 3];
    let conditions = NetworkConditions { data_loss: 0.0, other_loss: 0.0, ..NetworkConditions::default() };
    let mut net = Net::new(&grouping, 1, conditions, 1, |config| config);
    net.multicast(0, GroupId(9), b"first");
    net.advance(1_000_000);
    net.side[2] = 1;
    net.multicast(0, GroupId(9), b"last");
    net.advance(1_000);
    net.side[2] = 0;
    net.advance(1_000_000);
    assert!(net.unaccounted().is_empty());
    assert_eq!(net.count(How::Requested), 1);
}

#[test]
fn a_packet_that_no_node_holds_is_reported_lost() {
    let grouping = vec![vec![GroupId(9)]; 3];
    let conditions = NetworkConditions { data_loss: 0.0, other_loss: 0.0, ..NetworkConditions::default() };
    let mut net = Net::new(&grouping, 1, conditions, 1, |config| config);
    net.multicast(0, GroupId(9), b"first");
    net.advance(100_000);
    net.down.extend([1, 2]);
    net.multicast(0, GroupId(9), b"heard by nobody");
    net.advance(1_000_000);
    net.down.clear();
    net.multicast(0, GroupId(9), b"after it");
    net.advance(1_000);
    net.down.insert(0);
    net.advance(20_000_000);
    assert!(net.unaccounted().is_empty());
    assert_eq!(net.reported_lost(), 2, "both members get a report");
    net.check_order();
}

#[test]
fn a_partition_heals_and_a_dead_node_stops_no_other() {
    for seed in 0..5 {
        let grouping = grouping(seed, 16, 8, 6);
        let mut net = Net::new(&grouping, 5, NetworkConditions::default(), seed, |config| config);
        traffic(&mut net, &grouping, 500, 1_000, seed);
        (8..16).for_each(|node| net.side[node] = 1);
        traffic(&mut net, &grouping, 500, 1_000, seed + 1);
        net.side.fill(0);
        traffic(&mut net, &grouping, 500, 1_000, seed + 2);
        net.down.insert(3);
        traffic(&mut net, &grouping, 500, 1_000, seed + 3);
        net.advance(20_000_000);
        let living = net.unaccounted().into_iter().filter(|&(member, _)| member != 3).collect::<Vec<_>>();
        assert!(living.is_empty(), "seed {seed}: {living:?}");
        net.check_order();
    }
}

#[test]
fn memory_is_bounded() {
    let grouping = grouping(1, 8, 8, 4);
    let conditions = NetworkConditions { data_loss: 0.2, ..NetworkConditions::default() };
    let mut net = Net::new(&grouping, 5, conditions, 1, |config| NodeConfig { packets: 256, ..config });
    let before: Vec<usize> = net.nodes.iter().map(ricochet_core::Node::memory_bytes).collect();
    traffic(&mut net, &grouping, 20_000, 100, 1);
    let after: Vec<usize> = net.nodes.iter().map(ricochet_core::Node::memory_bytes).collect();
    assert_eq!(before, after);
}

#[test]
fn no_packet_is_lost_when_neighbours_come_and_go() {
    let grouping = grouping(4, 16, 8, 6);
    let mut net = Net::new(&grouping, 5, NetworkConditions::default(), 4, |config| config);
    for round in 0..20usize {
        let mut known = grouping.clone();
        known[round % 16].clear();
        let view = crate::common::view(&known);
        (0..16).for_each(|at| net.change_view(at, &view));
        traffic(&mut net, &grouping, 100, 300, round as u64);
    }
    net.advance(5_000_000);
    assert!(net.unaccounted().is_empty() && net.reported_lost() == 0);
}

#[test]
fn no_datagram_stops_a_node() {
    let grouping = grouping(2, 6, 4, 4);
    let mut net = Net::new(&grouping, 5, NetworkConditions::default(), 2, |config| config);
    traffic(&mut net, &grouping, 200, 300, 2);
    let mut dice = ChaCha8Rng::seed_from_u64(3);
    struct Nowhere;
    impl ricochet_core::message::Output for Nowhere {
        fn send(&mut self, _: ricochet_core::message::To, _: &[u8]) {}
        fn deliver(&mut self, _: &ricochet_core::message::Message<'_>) {}
        fn on_lost(&mut self, _: &ricochet_core::tracker::Lost) {}
    }
    for round in 0..50_000u64 {
        let mut datagram: Vec<u8> = (0..dice.next_u64() % 200).map(|_| dice.next_u64() as u8).collect();
        if let Some(first) = datagram.first_mut() {
            *first = 0xb0 | (round % 9) as u8;
        }
        // Every second datagram has names and groups that exist.
        if datagram.len() > 40 && round % 2 == 0 {
            datagram[2] = 1 + (round % 3) as u8;
            datagram[3..7].copy_from_slice(&((round % 6) as u32).to_be_bytes());
            let group = grouping[0][round as usize % grouping[0].len()];
            datagram[11..15].copy_from_slice(&group.tag().0.to_be_bytes());
        }
        net.nodes[0].handle_datagram(net.now_us + round, Origin::Member, &datagram, &mut Nowhere);
        net.nodes[0].handle_timeout(net.now_us + round, &mut Nowhere);
    }
}
