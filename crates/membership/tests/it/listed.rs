//! Nodes that know the others from a file, in virtual time.

use std::fmt::Write as _;

use crate::common::{Net, SECOND_US, address};
use membership::counters::Dropped;
use membership::wire::Presence;
use membership::{MemberFile, Membership};
use ricochet_core::{GroupId, NodeId};

const SEEDS: u64 = 20;

fn file(nodes: usize) -> MemberFile {
    let mut text = String::new();
    for place in 0..nodes {
        write!(text, "[[member]]\naddress = \"{}\"\ngroups = [\"all\", \"own/{place}\"]\n", address(place))
            .unwrap();
    }
    MemberFile::parse(&text).unwrap()
}

fn cluster(seed: u64, nodes: usize, loss: f64) -> (Net, MemberFile) {
    let (mut net, file) = (Net::new(seed), file(nodes));
    net.loss = loss;
    for place in 0..nodes {
        net.start_static(place, &file);
        net.set_groups(place, [place as u64, 1_000]);
    }
    (net, file)
}

#[test]
fn listed_nodes_learn_each_others_ids_and_groups() {
    for seed in 0..SEEDS {
        let (mut net, _) = cluster(seed, 16, 0.05);
        let took_us = net.run_until_right(6 * SECOND_US);
        eprintln!("seed {seed}: {} ms", took_us / 1000);
    }
}

#[test]
fn the_groups_of_the_file_need_not_travel() {
    let (mut net, file) = (Net::new(1), file(4));
    for place in 0..4 {
        net.start_static(place, &file);
        net.set_group_ids(place, file.members()[place].group_ids());
    }
    net.run_until_right(4 * SECOND_US);
    // Each node took the others' lists from the file.
    assert_eq!(net.nodes().map(|node| node.counts().lists).sum::<u64>(), 0);
    assert_eq!(
        net.node(1)
            .members()
            .map(|member| member.groups.contains(&GroupId::of_name("all")))
            .collect::<Vec<_>>(),
        [true; 3]
    );
}

#[test]
fn silence_a_leave_and_a_new_life_change_the_view() {
    for seed in 0..SEEDS {
        let (mut net, file) = cluster(seed, 12, 0.05);
        net.run_until_right(6 * SECOND_US);
        net.crash(3);
        let silent_us = net.run_until_right(8 * SECOND_US);
        assert!(silent_us > 3 * SECOND_US, "five seconds after the last presence datagram");
        net.leave(4);
        let leave_us = net.run_until_right(8 * SECOND_US);
        net.crash(5);
        net.start_static(5, &file);
        net.set_groups(5, [55]);
        let again_us = net.run_until_right(4 * SECOND_US);
        eprintln!(
            "seed {seed}: silence {} ms, leave {} ms, again {} ms",
            silent_us / 1000,
            leave_us / 1000,
            again_us / 1000
        );
        net.run_us(10 * SECOND_US);
        assert_eq!(net.wrong(), [""; 0]);
    }
}

#[test]
fn a_partition_heals_and_changes_made_in_it_arrive() {
    for seed in 0..SEEDS {
        let (mut net, _) = cluster(seed, 12, 0.02);
        net.run_until_right(6 * SECOND_US);
        net.sides.extend((0..5).map(|place| (address(place), 1)));
        net.run_us(2 * SECOND_US);
        net.set_groups(2, 0..500);
        net.run_us(8 * SECOND_US);
        assert_eq!(net.node(0).members().count(), 4);
        net.sides.clear();
        net.run_until_right(5 * SECOND_US);
    }
}

#[test]
fn nodes_that_a_changed_file_lists_are_found_and_those_that_it_lacks_are_gone() {
    for seed in 0..SEEDS {
        let mut net = Net::new(seed);
        net.loss = 0.05;
        for place in 0..4 {
            net.start_static(place, &file(3));
        }
        net.run_us(6 * SECOND_US);
        assert_eq!(net.node(0).members().count(), 2, "seed {seed}");
        assert_eq!(net.node(3).members().count(), 0, "seed {seed}: nobody listens to it");
        (0..4).for_each(|place| net.change_file(place, &file(4)));
        net.run_until_right(4 * SECOND_US);
        net.run_us(4 * SECOND_US);
        let versions: Vec<u64> = net.nodes().map(Membership::version).collect();
        (0..4).for_each(|place| net.change_file(place, &file(4)));
        net.run_us(SECOND_US);
        assert!(
            net.nodes().map(Membership::version).eq(versions),
            "seed {seed}: the same file changes nothing"
        );
        (0..4).for_each(|place| net.change_file(place, &file(2)));
        let left: Vec<NodeId> = net.node(0).members().map(|member| member.id).collect();
        assert_eq!(left, [net.id(1)], "seed {seed}");
        net.run_us(10 * SECOND_US);
        assert_eq!(net.node(0).members().count(), 1, "seed {seed}: it is not believed again");
    }
}

#[test]
fn only_listed_addresses_are_believed() {
    let (mut net, _) = cluster(1, 4, 0.0);
    net.run_until_right(4 * SECOND_US);
    let before = net.node(0).counts().dropped.count(Dropped::NotMember);
    let presence = Presence {
        id: NodeId(9),
        life: 1 << 53,
        number: 1,
        version: 1,
        check: 0,
        leaving: false,
        answer: true,
    };
    net.inject(address(77), address(0), presence.to_wire().to_vec());
    net.run_us(SECOND_US);
    assert_eq!(net.wrong(), [""; 0]);
    assert_eq!(net.node(0).counts().dropped.count(Dropped::NotMember), before + 1);
}

#[test]
fn a_replayed_presence_datagram_does_not_revive_its_node() {
    let (mut net, file) = (Net::new(5), file(3));
    net.record_max = usize::MAX;
    for place in 0..3 {
        net.start_static(place, &file);
    }
    net.run_us(3 * SECOND_US);
    net.crash(1);
    net.start_static(1, &file);
    net.run_until_right(3 * SECOND_US);
    for (from, to, datagram) in net.recorded.clone() {
        net.inject(from, to, datagram);
        net.run_us(1_000);
        assert_eq!(net.wrong(), [""; 0]);
    }
    // Replays do not keep a crashed node alive either.
    net.crash(1);
    let recorded = net.recorded.clone();
    for _ in 0..8 {
        for (from, to, datagram) in &recorded {
            net.inject(*from, *to, datagram.clone());
        }
        net.run_us(SECOND_US);
    }
    net.recorded.clear();
    net.run_us(6 * SECOND_US);
    assert_eq!(net.wrong(), [""; 0]);
}
