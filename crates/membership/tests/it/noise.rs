//! Replayed, forged and random datagrams, in virtual time.

use crate::common::{Net, SECOND_US, address};
use membership::counters::Dropped;
use membership::wire::{Datagram, ListRequest, write_list_requests};
use membership::{GossipConfig, Membership};
use ricochet_core::NodeId;

const NODES: usize = 12;

fn cluster(seed: u64) -> Net {
    let mut net = Net::new(seed);
    net.record_max = 20_000;
    for place in 0..NODES {
        net.start_gossip(place, &[0]);
        net.set_groups(place, 0..200 + place as u64);
    }
    net.run_until_right(5 * SECOND_US);
    net
}

fn memory(net: &Net) -> usize {
    net.nodes().map(Membership::memory_bytes).max().expect("there are nodes")
}

#[test]
fn replayed_datagrams_change_no_view() {
    for seed in 0..10 {
        let mut net = cluster(seed);
        net.set_groups(3, [1, 2, 3]);
        net.crash(7);
        net.run_until_right(5 * SECOND_US);
        net.start_gossip(7, &[0]);
        net.run_until_right(5 * SECOND_US);
        net.run_us(2 * SECOND_US);
        let (recorded, memory_before) = (std::mem::take(&mut net.recorded), memory(&net));
        net.record_max = 0;
        let versions: Vec<u64> = net.nodes().map(Membership::version).collect();
        for (from, to, datagram) in recorded {
            net.inject(from, to, datagram);
            net.run_us(500);
        }
        assert_eq!(net.wrong(), [""; 0]);
        assert_eq!(
            net.nodes().map(Membership::version).collect::<Vec<_>>(),
            versions,
            "no member even flapped"
        );
        assert!(memory(&net) < 2 * memory_before);
    }
}

/// Without a cluster key, forgers can mislead a node for a while. The views must
/// become right again once they stop.
#[test]
fn forged_datagrams_do_no_lasting_harm() {
    for seed in 0..10 {
        let mut net = cluster(seed);
        let (recorded, memory_before) = (std::mem::take(&mut net.recorded), memory(&net));
        net.record_max = 0;
        for _ in 0..3_000 {
            let place = net.draw(recorded.len() as u64) as usize;
            let (from, to, mut datagram) = recorded[place].clone();
            for _ in 0..=net.draw(4) {
                let at = net.draw(datagram.len() as u64) as usize;
                datagram[at] = net.draw(256) as u8;
            }
            net.inject(from, to, datagram);
            net.run_us(1_000);
        }
        let memory_after = memory(&net);
        let took_us = net.run_until_right(60 * SECOND_US);
        eprintln!("seed {seed}: right again after {} ms", took_us / 1000);
        assert!(memory_after < 20 * memory_before, "{memory_before} bytes became {memory_after}");
    }
}

#[test]
fn random_datagrams_are_counted_and_change_nothing() {
    let mut net = cluster(1);
    let versions: Vec<u64> = net.nodes().map(Membership::version).collect();
    for round in 0..20_000u64 {
        let length = net.draw(1_500) as usize;
        let mut datagram: Vec<u8> = (0..length).map(|_| net.draw(256) as u8).collect();
        if let [first, kind, ..] = datagram.as_mut_slice() {
            (*first, *kind) = (0xb6, (round % 11) as u8);
        }
        let (from, to) = (net.draw(2 * NODES as u64) as usize, net.draw(NODES as u64) as usize);
        net.inject(address(from), address(to), datagram);
        net.run_us(100);
    }
    assert_eq!(net.nodes().map(Membership::version).collect::<Vec<_>>(), versions);
    let malformed: u64 =
        net.nodes().map(|node| node.counts().malformed.iter().map(|(_, count)| count).sum::<u64>()).sum();
    assert!(malformed > 15_000, "{malformed}");
}

#[test]
fn a_member_gets_no_more_bytes_than_its_allowance() {
    let mut net = cluster(2);
    let member = net.node(0).members().next().expect("a member").address;
    let requests: Vec<ListRequest> = (net.node(0).members())
        .map(|member| ListRequest { id: member.id, have: 0, version: 0, first: 0, mask: 0xff })
        .collect();
    let mut datagram = vec![0; 1_400];
    let length = write_list_requests(&requests, &mut datagram);
    datagram.truncate(length);
    let before = net.sent_bytes;
    for _ in 0..2_000 {
        net.inject(member, address(0), datagram.clone());
        net.run_us(1_000);
    }
    let bytes = net.sent_bytes - before;
    // A second's allowance each second and the initial quarter, and the regular traffic.
    assert!(bytes < 2_500_000, "{bytes}");
    assert!(net.node(0).counts().dropped.count(Dropped::RateLimit) > 0);
    // A node that is not a member gets nothing.
    let before = net.node(0).counts().sent_bytes;
    net.inject(address(99), address(0), datagram);
    net.run_us(100);
    assert!(net.node(0).counts().sent_bytes - before < 1_000);
}

#[test]
fn forged_members_fill_no_more_than_the_allowed_room() {
    let config = GossipConfig { members_max: 64, ..GossipConfig::lan() };
    let mut net = Net::new(3);
    net.record_max = 10_000;
    for place in 0..4 {
        net.start_gossip_with(place, &[0], config);
    }
    net.run_until_right(5 * SECOND_US);
    // A message with an update about another node, with a newly forged address each time.
    let recorded = std::mem::take(&mut net.recorded);
    let (from, to, template) = (recorded.iter())
        .find(|(_, _, datagram)| matches!(Datagram::read(datagram), Ok(Datagram::Swim(swim)) if swim.updates() == 1))
        .cloned()
        .expect("an update travelled");
    let at = template.len() - 22;
    let mut most = 0;
    for round in 0..20_000u32 {
        let mut datagram = template.clone();
        datagram[at] = 4;
        datagram[at + 1..at + 5].copy_from_slice(&[10, 9, (round >> 8) as u8, round as u8]);
        datagram[at + 7..at + 11].copy_from_slice(&round.to_be_bytes());
        // Every other one is declared down.
        datagram[at + 21] = (round % 2 * 2) as u8;
        net.inject(from, to, datagram);
        net.run_us(200);
        most = most.max(net.nodes().map(|node| node.members().count()).max().unwrap_or(0));
    }
    assert!(most <= 64, "{most} members");
    assert!(memory(&net) < 200_000, "{}", memory(&net));
    net.run_until_right(60 * SECOND_US);
}

#[test]
fn lists_beyond_the_allowed_room_are_refused() {
    let mut config = GossipConfig::lan();
    config.lists.total_groups_max = 1_000;
    config.lists.groups_max = 600;
    let mut net = Net::new(6);
    net.start_gossip_with(0, &[], config);
    for place in 1..4 {
        net.start_gossip(place, &[0]);
    }
    net.set_groups(1, 0..500);
    net.set_groups(2, 0..700);
    net.set_groups(3, 0..500);
    net.run_us(10 * SECOND_US);
    let node = net.node(0);
    let known: Vec<usize> = node.members().map(|member| member.groups.len()).collect();
    assert_eq!(known.iter().filter(|&&count| count == 500).count(), 2, "{known:?}");
    assert_eq!(known.iter().filter(|&&count| count == 0).count(), 1, "{known:?}");
    assert!(node.counts().dropped.count(Dropped::GroupsMax) > 0);
    net.set_groups(2, 0..100);
    net.run_us(3 * SECOND_US);
    assert!(net.node(0).counts().dropped.count(Dropped::TotalFull) > 0);
    let member = net.node(0).members().find(|member| member.id != NodeId(0) && member.groups.is_empty());
    assert!(member.is_some(), "still a member, though its groups are unknown");
    net.set_groups(3, 0..100);
    net.run_us(5 * SECOND_US);
    assert_eq!(net.node(0).members().map(|member| member.groups.len()).sum::<usize>(), 700);
}
