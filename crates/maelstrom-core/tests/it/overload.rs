//! Gateways that protect a share of the flows.
//!
//! Tests that lose packets trust the path, because they lose no repairs.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use crate::fragments::fragments_of;
use crate::pair::{A, B, Pair, coin, config, payload, trusting, tunnel, udp};
use maelstrom_core::counters::{Unprotected, Withheld};
use maelstrom_core::outbox::Envelope;
use maelstrom_core::packet::Packet;
use maelstrom_core::share::{Share, flow_hash};
use maelstrom_core::{Config, Finding, Gateway, PeerConfig, PeerKey};

const FLOWS: u16 = 16;

/// Recovered packets, and lost packets with their flows.
type Fates = (HashSet<Vec<u8>>, Vec<(u16, Vec<u8>)>);

/// A packet of one of several flows from A's site to B's.
fn packet(flow: u16, n: u32) -> Vec<u8> {
    let hosts = (Ipv4Addr::new(10, 81, 1, 10), Ipv4Addr::new(10, 81, 2, 10));
    let payload: Vec<u8> = (0..200).map(|k| (k * 7 + n) as u8).chain(n.to_be_bytes()).collect();
    let mut packet = testkit::packet::udp4(hosts.0, hosts.1, 0, n as u16, &payload);
    packet[20..22].copy_from_slice(&(40_000 + flow).to_be_bytes());
    packet
}

fn hash(flow: u16) -> u16 {
    flow_hash(&Packet::new_checked(&packet(flow, 0)).unwrap())
}

/// The share that contains half of the flows.
fn half() -> Share {
    let mut hashes: Vec<u16> = (0..FLOWS).map(hash).collect();
    hashes.sort_unstable();
    Share(hashes[usize::from(FLOWS) / 2 - 1])
}

/// Sends packets of all flows for `us`, and returns the recovered and the lost ones. As a tap that sheds
/// would, B's gateway gets only packets within its share.
fn run(pair: &mut Pair, us: u64, seed: u64) -> Fates {
    let mut lose = coin(seed, 0.03);
    let mut lost = Vec::new();
    pair.recovered = Default::default();
    for step in 0..us / 200 {
        let (flow, n) = (step as u16 % FLOWS, step as u32 + 1_000_000 * seed as u32);
        let packet = packet(flow, n);
        let is_lost = lose();
        pair.captures[B] = pair.gateways[B].incoming_share();
        pair.send(A, &packet, is_lost);
        if is_lost {
            lost.push((flow, packet));
        }
        pair.advance(200);
    }
    pair.advance(1_000_000);
    let recovered: HashSet<_> = pair.recovered[B].drain(..).collect();
    let all: HashSet<_> = lost.iter().map(|(_, packet)| packet.clone()).collect();
    assert!(recovered.is_subset(&all), "a packet that arrived is delivered twice");
    (recovered, lost)
}

/// Counts recovered and lost packets of the flows within `share`, and of the others.
fn count(share: Share, (recovered, lost): &Fates) -> [(usize, usize); 2] {
    [true, false].map(|inside| {
        let of = |flow: u16| (hash(flow) <= share.0) == inside;
        let lost: Vec<_> = lost.iter().filter(|(flow, _)| of(*flow)).collect();
        (lost.iter().filter(|(_, packet)| recovered.contains(packet)).count(), lost.len())
    })
}

#[test]
fn an_overloaded_egress_protects_some_flows_whole_and_the_others_not_at_all() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    pair.delay_us = 20_000;
    let now_us = pair.now_us;
    pair.gateways[A].set_share(now_us, half());
    for seed in 0..3 {
        let [inside, outside] = count(half(), &run(&mut pair, 2_000_000, seed));
        assert!(inside.1 > 100 && inside.0 * 100 >= inside.1 * 98, "{inside:?}");
        assert!(outside.1 > 100 && outside.0 == 0, "{outside:?}");
    }
    assert!(pair.gateways[A].unprotected().count(Unprotected::Overload) > 10_000);
    assert_eq!(pair.gateways[B].incoming_share(), half(), "B captures no more than A protects");
    let now_us = pair.now_us;
    pair.gateways[A].set_share(now_us, Share::ALL);
    run(&mut pair, 500_000, 4);
    let [inside, outside] = count(half(), &run(&mut pair, 2_000_000, 5));
    assert!(inside.0 * 100 >= inside.1 * 98 && outside.0 * 100 >= outside.1 * 98, "{inside:?} {outside:?}");
}

#[test]
fn an_overloaded_ingress_makes_the_far_egress_protect_less() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    pair.delay_us = 20_000;
    let now_us = pair.now_us;
    pair.gateways[B].set_share(now_us, half());
    assert_eq!(pair.gateways[B].incoming_share(), Share::ALL, "A may still protect all flows");
    run(&mut pair, 2_500_000, 6);
    assert_eq!(pair.gateways[A].outgoing_share(), half());
    assert_eq!(pair.gateways[B].incoming_share(), half());
    let [inside, outside] = count(half(), &run(&mut pair, 2_000_000, 7));
    assert!(inside.0 * 100 >= inside.1 * 98 && outside.0 == 0, "{inside:?} {outside:?}");
}

#[test]
fn shares_that_change_deliver_nothing_twice() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    pair.delay_us = 20_000;
    for seed in 10..40 {
        let side = [A, B][seed as usize % 2];
        let share = [Share(9_000), half(), Share::ALL][seed as usize % 3];
        let now_us = pair.now_us;
        pair.gateways[side].set_share(now_us, share);
        run(&mut pair, 300_000 + 40_000 * (seed % 7), seed);
    }
    for side in [A, B] {
        let now_us = pair.now_us;
        pair.gateways[side].set_share(now_us, Share::ALL);
    }
    run(&mut pair, 500_000, 50);
    let [inside, outside] = count(half(), &run(&mut pair, 2_000_000, 51));
    assert!(inside.0 * 100 >= inside.1 * 98 && outside.0 * 100 >= outside.1 * 98, "{inside:?} {outside:?}");
}

#[test]
fn a_tunnel_has_all_flows_however_little_time_either_end_has() {
    let mut pair = Pair::up([tunnel(A), tunnel(B)]);
    let now_us = pair.now_us;
    pair.gateways.iter_mut().for_each(|gateway| gateway.set_share(now_us, half()));
    for n in 0..2_000 {
        pair.send_by_tunnel(A, &[udp(A, n as u16, &payload(n))]);
        pair.advance(2_000);
    }
    assert_eq!(pair.recovered[B].len(), 2_000);
    let seen = [A, B].map(|side| pair.status(side, |peer| peer.share));
    assert_eq!(seen, [Share::ALL; 2], "each end would tell that it protects a part of the flows");
}

#[test]
fn the_share_of_passive_peers_is_theirs_alone_beside_a_tunnel() {
    let tunnelled = PeerConfig {
        address: ([10, 81, 9, 10], 4700).into(),
        networks: vec!["10.82.1.0/24".parse().unwrap()],
        key: PeerKey::new([6; 32]),
        ..tunnel(A).peers[0].clone()
    };
    let both = |last| Config { peers: vec![trusting(A).peers[0].clone(), last], ..trusting(A) };
    let mut pair = Pair::up([both(tunnelled.clone()), trusting(B)]);
    let now_us = pair.now_us;
    pair.gateways[A].set_share(now_us, half());
    run(&mut pair, 2_500_000, 8);
    let shares = |pair: &Pair| pair.gateways[A].peers().map(|peer| peer.share).collect::<Vec<_>>();
    assert_eq!(shares(&pair), [half(), Share::ALL]);
    assert_eq!(pair.gateways[A].outgoing_share(), half(), "the tap need not show the others");
    pair.gateways[B].set_share(pair.now_us, Share(half().0 / 2));
    run(&mut pair, 2_500_000, 9);
    assert_eq!(pair.gateways[A].incoming_share(), Share(half().0 / 2));
    // A tunnel that a reload adds has them all too.
    let other = PeerConfig { networks: vec!["10.82.2.0/24".parse().unwrap()], ..tunnelled };
    pair.gateways[A].reconfigure(both(other)).unwrap();
    assert_eq!(shares(&pair)[1], Share::ALL);
}

/// A full outbox ends a round. The peers that were not reached come first in the next.
#[test]
fn the_output_of_one_peer_never_keeps_others_waiting_for_good() {
    let peer = |n: u8| PeerConfig {
        address: ([10, 81, 9, 10 + n], 4700).into(),
        whereabouts: Default::default(),
        networks: vec![format!("10.82.{n}.0/24").parse().unwrap()],
        key: PeerKey::new([n + 1; 32]),
        ..config(A).peers[0].clone()
    };
    let config = Config { peers: (0..8).map(peer).collect(), ..config(A) };
    let mut gateway = Gateway::new(config, [1; 32]).unwrap();
    let mut out = gateway.outbox();
    let mut served = HashSet::new();
    for round in 1..=16_u64 {
        // Nearly full: one more datagram ends the round.
        while !out.is_nearly_full() {
            out.datagrams.reserve(1).unwrap();
            out.datagrams.commit(Envelope::to(99), 1);
        }
        let filled = out.datagrams.len();
        out.datagrams.clear();
        for _ in 0..filled - 1 {
            out.datagrams.reserve(1).unwrap();
            out.datagrams.commit(Envelope::to(99), 1);
        }
        // Each peer says Hello again in each round.
        gateway.handle_timeout(round * 1_000_000, &mut out);
        served.extend(out.datagrams.iter().map(|(envelope, _)| envelope.peer).filter(|&peer| peer != 99));
        out.datagrams.clear();
    }
    assert_eq!(served.len(), 8);
}

/// The hash of fragments has no ports, so that those of a packet in the share may lie outside.
#[test]
fn packets_in_the_share_that_a_router_fragments_are_not_delivered_twice() {
    let pieces_of = |n: u32, flow: u16| fragments_of(&packet(flow, n), 120);
    let piece = flow_hash(&Packet::new_checked(&pieces_of(0, 0)[0]).unwrap());
    let share = Share(piece - 1);
    let flows: Vec<u16> = (0..FLOWS).filter(|&flow| hash(flow) <= share.0).collect();
    assert!(flows.len() >= 4, "{flows:?} of the share {share:?}");
    let mut pair = Pair::up([config(A), config(B)]);
    let now_us = pair.now_us;
    pair.gateways[A].set_share(now_us, share);
    for n in 0..12_000u32 {
        pair.captures[B] = pair.gateways[B].incoming_share();
        let flow = flows[n as usize % flows.len()];
        if n > 8_000 && n % 20 == 0 {
            pair.leave(A, &packet(flow, n));
            pieces_of(n, flow).into_iter().for_each(|piece| pair.fly(B, piece));
        } else {
            pair.send(A, &packet(flow, n), false);
        }
        pair.advance(500);
    }
    pair.advance(1_000_000);
    assert_eq!(pair.gateways[B].incoming_share(), share);
    assert_eq!(pair.recovered[B].len(), 0, "packets twice");
    assert!(pair.status(B, |peer| peer.withheld.count(Withheld::Fragmented)) > 100);
    assert!(pair.status(B, |peer| peer.findings.contains(Finding::Fragmented)));
}
