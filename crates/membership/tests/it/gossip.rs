//! Nodes that gossip, in virtual time.

use crate::common::{Net, SECOND_US, address};
use membership::counters::Dropped;
use membership::{GossipConfig, Membership};

/// Number of random seeds that each scenario runs with.
const SEEDS: u64 = 20;

/// Nodes that start at the same time, each in a group of its own and in one that all share.
fn cluster(seed: u64, nodes: usize, loss: f64) -> Net {
    let mut net = Net::new(seed);
    net.loss = loss;
    for place in 0..nodes {
        net.start_gossip(place, &[0]);
        net.set_groups(place, [place as u64, 1_000]);
    }
    net
}

#[test]
fn nodes_find_each_other_through_one_seed_under_loss() {
    for seed in 0..SEEDS {
        let mut net = cluster(seed, 64, 0.05);
        let took_us = net.run_until_right(10 * SECOND_US);
        eprintln!("seed {seed}: {} ms, {} datagrams, {} bytes", took_us / 1000, net.sent, net.sent_bytes);
    }
}

#[test]
fn a_seed_that_starts_late_is_found() {
    let mut net = Net::new(1);
    for place in 1..8 {
        net.start_gossip(place, &[0, 99]);
    }
    net.run_us(3 * SECOND_US);
    assert!(net.nodes().all(|node| node.members().count() == 0));
    net.start_gossip(0, &[]);
    net.run_until_right(3 * SECOND_US);
}

#[test]
fn a_crash_is_noticed_by_all_and_a_leave_sooner() {
    for seed in 0..SEEDS {
        let mut net = cluster(seed, 64, 0.05);
        net.run_until_right(10 * SECOND_US);
        net.crash(7);
        let crash_us = net.run_until_right(5 * SECOND_US);
        net.leave(8);
        let leave_us = net.run_until_right(5 * SECOND_US);
        eprintln!("seed {seed}: crash {} ms, leave {} ms", crash_us / 1000, leave_us / 1000);
        assert!(leave_us < crash_us, "a node that says farewell is not suspected first");
    }
}

#[test]
fn a_quiet_cluster_is_stable_under_loss_and_costs_little() {
    for seed in 0..4 {
        let mut net = cluster(seed, 64, 0.05);
        net.run_until_right(10 * SECOND_US);
        net.run_us(5 * SECOND_US);
        let versions: Vec<u64> = net.nodes().map(Membership::version).collect();
        let (sent, sent_bytes) = (net.sent, net.sent_bytes);
        net.run_us(20 * SECOND_US);
        assert_eq!(net.nodes().map(Membership::version).collect::<Vec<_>>(), versions, "no member flaps");
        let (sent, sent_bytes) = ((net.sent - sent) / (20 * 64), (net.sent_bytes - sent_bytes) / (20 * 64));
        eprintln!("seed {seed}: a node sends {sent} datagrams and {sent_bytes} bytes in a second");
        assert!(sent <= 30 && sent_bytes <= 5_000);
    }
}

#[test]
fn a_restart_at_the_same_address_leaves_nothing_of_the_old_life() {
    for seed in 0..SEEDS {
        let mut net = cluster(seed, 24, 0.05);
        net.run_until_right(10 * SECOND_US);
        // First while all still consider the old life alive, then after it was declared down.
        for pause_us in [20_000, 5 * SECOND_US] {
            net.crash(5);
            net.run_us(pause_us);
            net.start_gossip(5, &[3]);
            net.set_groups(5, [77]);
            let took_us = net.run_until_right(8 * SECOND_US);
            eprintln!("seed {seed}: {} ms", took_us / 1000);
        }
        net.run_us(5 * SECOND_US);
        assert_eq!(net.wrong(), [""; 0], "and the old life does not return");
    }
}

#[test]
fn a_restart_with_the_clock_set_back_is_accepted() {
    let mut net = cluster(3, 8, 0.0);
    net.run_until_right(5 * SECOND_US);
    net.crash(5);
    let seeds = [address(0)];
    net.start(5, |me, chance| {
        let me = membership::Me { life: me.life - 400 * 86_400 * SECOND_US, ..me };
        Membership::Gossip(membership::Gossip::new(GossipConfig::lan(), me, &seeds, chance).unwrap())
    });
    net.run_until_right(10 * SECOND_US);
}

#[test]
fn a_partition_heals_by_itself() {
    for seed in 0..SEEDS {
        let mut net = cluster(seed, 32, 0.02);
        net.run_until_right(10 * SECOND_US);
        let ids: Vec<_> = (0..32).map(|place| net.node(place).members().count()).collect();
        assert!(ids.iter().all(|&count| count == 31));
        for place in 0..12 {
            net.sides.insert(address(place * 2), 1);
        }
        net.run_us(10 * SECOND_US);
        assert_eq!(net.node(0).members().count(), 11, "the other side was declared down");
        assert_eq!(net.node(1).members().count(), 19);
        net.set_groups(1, [5, 6, 7]);
        net.sides.clear();
        // The ids stay the same: no stream has ended.
        let took_us = net.run_until_right(10 * SECOND_US);
        let rejoined: u64 = net.nodes().map(|node| node.counts().rejoined).sum();
        eprintln!("seed {seed}: {} ms, {rejoined} rejoined", took_us / 1000);
        net.run_us(5 * SECOND_US);
        assert_eq!(net.wrong(), [""; 0], "and the views stay right");
    }
}

#[test]
fn a_node_cut_off_for_long_rejoins_although_forgotten() {
    let config = GossipConfig { forget_down_us: 3 * SECOND_US, ..GossipConfig::lan() };
    let mut net = Net::new(9);
    for place in 0..6 {
        // The first node has no seed address, and forgets all members.
        net.start_gossip_with(place, if place == 0 { &[] } else { &[0] }, config);
    }
    net.run_until_right(5 * SECOND_US);
    net.sides.insert(address(0), 1);
    net.run_us(20 * SECOND_US);
    net.sides.clear();
    net.run_until_right(8 * SECOND_US);
}

#[test]
fn a_node_that_slept_rarely_declares_others_down() {
    let mut declared_down = 0;
    for seed in 0..SEEDS {
        let mut net = cluster(seed, 16, 0.02);
        net.run_until_right(10 * SECOND_US);
        for _ in 0..5 {
            net.put_to_sleep(3, 2 * SECOND_US);
            net.run_us(6 * SECOND_US);
        }
        assert_eq!(net.wrong(), [""; 0]);
        assert!(net.node(3).counts().rejoined > 0, "it was declared down itself");
        let others: u64 =
            (0..16).filter(|&place| place != 3).map(|place| net.node(place).counts().rejoined).sum();
        declared_down += others;
    }
    assert!(declared_down <= 3, "{declared_down} in a hundred sleeps");
}

#[test]
fn the_same_random_seed_gives_the_same_trace() {
    let trace = |seed| {
        let mut net = cluster(seed, 16, 0.1);
        net.record_max = usize::MAX;
        net.run_us(2 * SECOND_US);
        net.crash(3);
        net.run_us(4 * SECOND_US);
        net.recorded
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}

#[test]
fn of_two_nodes_with_one_id_all_see_one() {
    let mut net = cluster(1, 6, 0.0);
    net.run_until_right(5 * SECOND_US);
    let id = net.node(1).members().next().expect("a member").id;
    net.start(6, |me, chance| {
        let me = membership::Me { id, ..me };
        Membership::Gossip(membership::Gossip::new(GossipConfig::lan(), me, &[address(0)], chance).unwrap())
    });
    net.run_us(3 * SECOND_US);
    let seen: Vec<_> = (1..6).filter_map(|place| net.node(place).address(id)).collect();
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
    assert!(net.node(2).counts().dropped.count(Dropped::DuplicateId) > 0);
    net.crash(6);
    net.run_until_right(5 * SECOND_US);
}

#[test]
fn a_storm_passes() {
    for seed in 0..SEEDS {
        let mut net = cluster(seed, 24, 0.0);
        net.run_until_right(10 * SECOND_US);
        // Few datagrams arrive, and late: nodes declare many others down, which
        // rejoin and are declared down again.
        (net.loss, net.delay_us) = (0.7, 1_000..200_000);
        net.run_us(20 * SECOND_US);
        net.set_groups(3, 0..300);
        let rejoined: u64 = net.nodes().map(|node| node.counts().rejoined).sum();
        assert!(rejoined > 10, "{rejoined}");
        (net.loss, net.delay_us) = (0.02, 50..400);
        let took_us = net.run_until_right(10 * SECOND_US);
        eprintln!("seed {seed}: {} ms, {rejoined} rejoined", took_us / 1000);
    }
}

#[test]
fn lists_of_a_thousand_groups_reach_all_nodes_and_their_changes_cost_little() {
    for seed in 0..5 {
        let mut net = Net::new(seed);
        net.loss = 0.02;
        let groups = |place: usize| (0..1_024u64).map(move |group| group * 7 + place as u64 % 5);
        for place in 0..32 {
            net.start_gossip(place, &[0]);
            net.set_groups(place, groups(place));
        }
        let start_us = net.run_until_right(20 * SECOND_US);
        net.run_us(3 * SECOND_US);
        // Cost of a second without changes.
        let before = net.sent_bytes;
        net.run_us(SECOND_US);
        let quiet_bytes = net.sent_bytes - before;
        let (mut worst_us, before) = (0, net.sent_bytes);
        for change in 0..10 {
            net.set_groups(4, groups(4).skip(1 + change).chain([5_000_000]));
            worst_us = worst_us.max(net.run_until_right(2 * SECOND_US));
            net.run_us(SECOND_US - 50_000);
        }
        let change_bytes = ((net.sent_bytes - before) / 10).saturating_sub(quiet_bytes);
        eprintln!(
            "seed {seed}: start {} ms, a change {} ms, {change_bytes} bytes",
            start_us / 1000,
            worst_us / 1000
        );
        assert!(worst_us <= SECOND_US, "{worst_us} us");
        // All nodes together: each sends each change twelve times.
        assert!(change_bytes < 100_000, "{change_bytes} bytes for one more group");
    }
}

#[test]
fn quick_changes_converge_to_the_last_one() {
    for seed in 0..SEEDS {
        let mut net = cluster(seed, 24, 0.05);
        net.run_until_right(10 * SECOND_US);
        for round in 0..100 {
            for place in [2, 9, 17] {
                let first = net.draw(50);
                net.set_groups(place, (first..first + 20 + round % 7).chain([9_000 + round]));
            }
            let pause_us = net.draw(40_000);
            net.run_us(pause_us);
        }
        // A change too large for a step, in the middle of the others.
        net.set_groups(9, 0..3_000);
        net.set_groups(2, [1]);
        let took_us = net.run_until_right(5 * SECOND_US);
        eprintln!("seed {seed}: {} ms", took_us / 1000);
    }
}

#[test]
fn the_longest_list_travels() {
    let mut net = Net::new(4);
    net.loss = 0.01;
    for place in 0..3 {
        net.start_gossip(place, &[0]);
    }
    net.set_groups(1, 0..65_536);
    let took_us = net.run_until_right(20 * SECOND_US);
    eprintln!("{} ms", took_us / 1000);
}

#[test]
fn no_more_members_are_admitted_than_allowed() {
    let config = GossipConfig { members_max: 20, ..GossipConfig::lan() };
    let mut net = Net::new(2);
    for place in 0..40 {
        net.start_gossip_with(place, &[0], config);
    }
    net.run_us(10 * SECOND_US);
    for node in net.nodes() {
        assert!(node.members().count() <= 20);
    }
    assert!(net.node(0).counts().dropped.count(Dropped::MembersFull) > 0);
}
