//! Packets whose time to live ends before or at the far gateway.
//!
//! The path is trusted, so that nothing but the time to live decides.

use maelstrom_core::counters::{Unprotected, Withheld};
use maelstrom_core::packet::{MutableFields, Packet, restore};
use maelstrom_core::{Config, Requests, Schedule};

use crate::pair::{A, B, Pair, config, payload, trusting, udp};

/// Packet `n` as it leaves site A, with this time to live.
fn sent(n: u16, ttl: u8) -> Vec<u8> {
    let mut packet = udp(A, n, &payload(u32::from(n)));
    restore(&mut packet, MutableFields { ttl, tos: 0 });
    packet
}

/// Sends packet `n` over `routers` routers, which drop it if its time to live ends, or over a link that loses
/// it.
fn send(pair: &mut Pair, n: u16, ttl: u8, routers: u8, is_lost: bool) {
    let packet = sent(n, ttl);
    pair.gateways[A].handle_outgoing(pair.now_us, &packet, &mut pair.out[A]);
    if let Some(left) = ttl.checked_sub(routers).filter(|&left| left > 0 && !is_lost) {
        let mut routed = packet;
        restore(&mut routed, MutableFields { ttl: left, tos: 0 });
        pair.arrive(B, &routed);
    }
    pair.advance(1_000);
}

/// Time to live and identification of the packets that B recovered.
fn recovered(pair: &Pair) -> Vec<(u16, u8)> {
    let id = |packet: &Vec<u8>| u16::from_be_bytes([packet[4], packet[5]]);
    pair.recovered[B].iter().map(|packet| (id(packet), packet[8])).collect()
}

#[test]
fn a_packet_that_a_router_dropped_is_not_recovered_and_does_not_count_as_lost() {
    for routers in [1, 3] {
        let mut pair = Pair::up([trusting(A), trusting(B)]);
        // Every tenth packet is a traceroute's, and reaches the last router before B at best.
        for n in 0..400 {
            let ttl = if n % 10 == 5 { 1 + (n / 10) as u8 % routers } else { 40 };
            send(&mut pair, n, ttl, routers, false);
        }
        pair.advance(3_000_000);
        assert_eq!(recovered(&pair), []);
        let (lost, withheld) = pair.status(B, |peer| (peer.report.lost, *peer.withheld));
        assert_eq!(lost, 0);
        let expected = if routers > 1 { 20 } else { 0 };
        assert!(withheld.count(Withheld::Expired) >= expected, "{withheld:?}");
    }
}

#[test]
fn a_recovered_packet_has_the_time_to_live_that_the_original_would_have_had() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    let ttl = |n: u16| if n % 80 == 27 { 4 } else { 40 };
    for n in 0..400 {
        send(&mut pair, n, ttl(n), 3, n % 40 == 27);
    }
    pair.advance(3_000_000);
    let expected: Vec<_> = (0..400).filter(|n| n % 40 == 27).map(|n| (n, ttl(n) - 3)).collect();
    let mut found = recovered(&pair);
    found.sort_unstable();
    assert_eq!(found, expected);
    for packet in &pair.recovered[B] {
        let fields = Packet::new_checked(packet).unwrap().mutable_fields();
        let mut again = packet.clone();
        restore(&mut again, fields);
        assert_eq!(again, *packet, "the header's checksum is right");
    }
}

#[test]
fn a_packet_that_the_next_router_drops_is_not_protected() {
    let mut pair = Pair::up([config(A), config(B)]);
    for (n, ttl) in (0..).zip([0, 1, 2, 64]) {
        send(&mut pair, n, ttl, 0, false);
    }
    assert_eq!(pair.gateways[A].unprotected().count(Unprotected::Expiring), 2);
    assert_eq!(pair.status(A, |peer| peer.egress.source_packets), 2);
}

#[test]
fn nothing_that_may_have_expired_is_recovered_before_the_path_is_known() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    // The first packets of the session are a traceroute's, and none arrives.
    (0..24).for_each(|n| send(&mut pair, n, 2 + n as u8 / 3, 30, false));
    pair.advance(3_000_000);
    assert_eq!(recovered(&pair), []);
}

#[test]
fn hop_limits_of_ipv6_are_treated_alike() {
    let with_v6 = |side: usize| {
        let mut config: Config = trusting(side);
        config.peers[0].networks.push(format!("fd81:{}::/32", 2 - side).parse().unwrap());
        config
    };
    let mut pair = Pair::up([with_v6(A), with_v6(B)]);
    let packet = |n: u32, ttl: u8| {
        let ends = ["fd81:1::7", "fd81:2::7"].map(|end| end.parse().unwrap());
        let mut packet = testkit::packet::udp6(ends[0], ends[1], &payload(n));
        packet[7] = ttl;
        packet
    };
    let mut lost = Vec::new();
    for n in 0..400 {
        // Two routers lie between. Every tenth packet expires there, and the link loses every fortieth.
        let ttl = if n % 10 == 5 { 2 } else { 40 };
        let (left, is_lost) = (ttl - 2, n % 40 == 27);
        pair.gateways[A].handle_outgoing(pair.now_us, &packet(n, ttl), &mut pair.out[A]);
        if is_lost {
            lost.push(packet(n, left));
        } else if left > 0 {
            pair.arrive(B, &packet(n, left));
        }
        pair.advance(1_000);
    }
    pair.gateways[A].handle_outgoing(pair.now_us, &packet(400, 1), &mut pair.out[A]);
    pair.advance(3_000_000);
    let mut recovered = pair.recovered[B].clone();
    recovered.sort_by_key(|packet| lost.iter().position(|lost| lost == packet));
    assert_eq!(recovered, lost);
    assert_eq!(pair.status(B, |peer| peer.report.lost), lost.len() as u64);
    assert_eq!(pair.gateways[A].unprotected().count(Unprotected::Expiring), 1);
}

/// More of them than the code could recover. The path is not trusted.
#[test]
fn packets_that_expire_on_the_way_are_no_evidence_for_another_path_and_are_not_requested() {
    let schedule = Schedule::Sliding { rate: "1/8".parse().unwrap(), window: 256, density: 15 };
    let requesting = |side| Config { schedule: schedule.clone(), requests: Requests::All, ..config(side) };
    let mut pair = Pair::new([requesting(A), requesting(B)]);
    pair.delay_us = 5_000;
    pair.run_until_up();
    pair.advance(1_000_000);
    for n in 0..4_000 {
        let ttl = if n > 400 && n % 2 == 0 { 3 } else { 40 };
        send(&mut pair, n, ttl, 3, false);
        assert!(pair.status(B, |peer| peer.findings.is_empty()), "packet {n}");
    }
    assert!(pair.recovered[B].is_empty() && pair.status(B, |peer| peer.is_recovering));
    assert_eq!(pair.status(B, |peer| peer.ingress.requests.packets), 0);
}
