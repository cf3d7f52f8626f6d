//! Packets that travel inside datagrams of the gateways, with their positions.

use std::collections::HashSet;
use std::net::IpAddr;

use crate::fuzz::Liar;
use crate::pair::{A, B, Pair, coin, config, payload, tunnel, udp};
use maelstrom_core::counters::{Rejected, Unprotected};
use maelstrom_core::wire::BodyKind;
use maelstrom_core::{Class, Config, Match, PeerConfig, Protect, Requests, Schedule, Trouble};

fn packet(from: usize, n: u32) -> Vec<u8> {
    udp(from, n as u16, &payload(n))
}

/// Sends packets one by one, a millisecond apart.
fn send(pair: &mut Pair, from: usize, numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    let packets: Vec<_> = numbers.map(|n| packet(from, n)).collect();
    for packet in &packets {
        pair.send_by_tunnel(from, std::slice::from_ref(packet));
        pair.advance(1_000);
    }
    packets
}

fn sorted(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut packets = packets.to_vec();
    packets.sort();
    packets
}

fn schedules() -> [Schedule; 4] {
    [
        Schedule::Auto,
        Schedule::Sliding { rate: "1/8".parse().unwrap(), window: 256, density: 15 },
        Schedule::layered(),
        Schedule::ReedSolomon { r: 8, c: 3, interleave: 4 },
    ]
}

#[test]
fn every_packet_arrives_once_and_bit_for_bit_although_datagrams_are_lost() {
    for schedule in schedules() {
        let with = |side| Config { schedule: schedule.clone(), ..tunnel(side) };
        let mut pair = Pair::up([with(A), with(B)]);
        pair.lose_datagram = Box::new(coin(3, 0.01));
        let sent = [A, B].map(|from| send(&mut pair, from, 0..4_000));
        pair.lose_datagram = Box::new(|| false);
        pair.advance(2_000_000);
        for (from, sent) in sent.iter().enumerate() {
            let arrived = &pair.recovered[1 - from];
            assert_eq!(sorted(arrived), sorted(sent), "{schedule:?}");
            let counts = pair.status(1 - from, |peer| *peer.ingress);
            assert!(counts.recovered_packets > 25, "{counts:?}");
            assert_eq!(counts.source_packets + counts.recovered_packets, 4_000 + counts.late, "{schedule:?}");
            let report = pair.status(1 - from, |peer| peer.report);
            assert_eq!((report.lost, report.recovered), (counts.recovered_packets, counts.recovered_packets));
        }
    }
}

#[test]
fn datagrams_that_overtake_each_other_deliver_nothing_twice() {
    let mut pair = Pair::up([tunnel(A), tunnel(B)]);
    let (mut late, mut far) = (coin(5, 0.2), coin(6, 0.01));
    pair.extra_us = Box::new(move |_, _| {
        if far() {
            300_000
        } else if late() {
            7_000
        } else {
            0
        }
    });
    let sent = send(&mut pair, A, 0..4_000);
    pair.advance(2_000_000);
    assert_eq!(sorted(&pair.recovered[B]), sorted(&sent));
    assert!(pair.status(B, |peer| peer.ingress.late) > 500);
}

#[test]
fn a_loss_is_known_with_the_next_packet_and_requested_where_no_repair_comes() {
    let with = |side| {
        let schedule = Schedule::Sliding { rate: "1/64".parse().unwrap(), window: 128, density: 15 };
        Config { requests: Requests::All, schedule, ..tunnel(side) }
    };
    let mut pair = Pair::up([with(A), with(B)]);
    pair.delay_us = 10_000;
    send(&mut pair, A, 0..2_000);
    pair.advance(1_000_000);
    let before = pair.recovered[B].len();
    assert_eq!(before, 2_000);
    // Three packets in a row: one repair cannot bring them back.
    pair.lose_datagram = Box::new(|| true);
    send(&mut pair, A, 2_000..2_003);
    pair.lose_datagram = Box::new(|| false);
    send(&mut pair, A, 2_003..2_060);
    // Within three round trips all are there but those on the way.
    let arrived: HashSet<_> = pair.recovered[B].iter().cloned().collect();
    assert!((2_000..2_050).all(|n| arrived.contains(&packet(A, n))), "{}", arrived.len());
    assert!(pair.status(B, |peer| peer.ingress.requests.answered) > 0);
}

#[test]
fn the_last_packet_before_a_silence_is_recovered_too() {
    let mut pair = Pair::up([tunnel(A), tunnel(B)]);
    send(&mut pair, A, 0..200);
    pair.lose_datagram = Box::new(|| true);
    pair.send_by_tunnel(A, &[packet(A, 200)]);
    pair.lose_datagram = Box::new(|| false);
    pair.advance(200_000);
    assert_eq!(pair.recovered[B].len(), 201);
}

#[test]
fn packets_as_long_as_the_device_carries_get_repairs_of_one_piece() {
    for schedule in schedules() {
        let with = |side| Config { schedule: schedule.clone(), ..tunnel(side) };
        let mut pair = Pair::up([with(A), with(B)]);
        let longest = 1_500 - schedule.overhead_toward(true, false);
        for n in 0..400 {
            pair.send_by_tunnel(A, &[udp(A, n, &vec![n as u8; longest - 28])]);
            pair.advance(1_000);
        }
        pair.advance(500_000);
        let counts = pair.status(A, |peer| *peer.egress);
        assert!(counts.repair_packets > 30, "{schedule}: {counts:?}");
        assert_eq!((counts.cut_in_two, counts.long_packets), (0, 0), "{schedule} with {longest} bytes");
        assert_eq!(pair.status(A, |peer| peer.packet_max), longest, "{schedule}");
    }
}

#[test]
fn packets_that_wait_together_share_a_datagram_and_long_ones_are_cut_in_two() {
    let mut pair = Pair::up([tunnel(A), tunnel(B)]);
    let counts =
        |pair: &Pair| pair.status(A, |peer| (peer.egress.tunnel_packets, peer.egress.tunnel_datagrams));
    let small: Vec<_> = (0..60).map(|n| udp(A, n, &[n as u8; 32])).collect();
    pair.send_by_tunnel(A, &small);
    // 62 bytes each with their lengths: 23 of them fit.
    assert_eq!(counts(&pair), (60, 3));
    // One of another type of service needs a datagram of its own.
    let mut marked = small.clone();
    maelstrom_core::packet::restore(
        &mut marked[1],
        maelstrom_core::packet::MutableFields { ttl: 64, tos: 0xb8 },
    );
    pair.dscps[A].clear();
    pair.send_by_tunnel(A, &marked[..3]);
    assert_eq!(counts(&pair), (63, 6));
    assert_eq!(pair.dscps[A].iter().filter(|&&dscp| dscp == 46).count(), 1);
    pair.send_by_tunnel(A, &[udp(A, 99, &[9; 1_472])]);
    assert_eq!(counts(&pair), (64, 8));
    assert!(pair.status(A, |peer| peer.egress.cut_in_two) >= 1);
    pair.advance(100_000);
    assert_eq!(pair.recovered[B].len(), 64);
    assert_eq!(pair.recovered[B][63].len(), 1_500);
    let repairs = [A, B].map(|side| pair.status(side, |peer| (peer.egress.repairs, peer.report.repairs)));
    assert!(repairs[A].0 > 0 && repairs[A].0 == repairs[B].1, "whole ones count: {repairs:?}");
}

#[test]
fn repairs_name_no_packets() {
    let bytes = |config: fn(usize) -> Config| {
        let schedule = Schedule::Sliding { rate: "1/16".parse().unwrap(), window: 256, density: 15 };
        let side = |side| Config { schedule: schedule.clone(), ..config(side) };
        let mut pair = Pair::up([side(A), side(B)]);
        for n in 0..1_600 {
            let packet = udp(A, n, &[n as u8; 972]);
            if pair.gateways[A].config().peers[0].is_tunnel {
                pair.send_by_tunnel(A, &[packet]);
            } else {
                pair.send(A, &packet, false);
            }
            pair.advance(100);
        }
        pair.status(A, |peer| peer.egress.repair_bytes)
    };
    let (named, numbered) = (bytes(config), bytes(tunnel));
    // Each packet is named in four bytes, at least.
    assert!(numbered + 4 * 1_600 < named, "{numbered} bytes, {named} with names");
}

#[test]
fn a_class_without_protection_travels_beside_the_stream() {
    let matches = Match { length: Some(0..=100), ..Match::default() };
    let class = Class { name: "small".to_owned(), matches, protect: Protect::Off, late_us: None };
    let with = |side| Config { classes: vec![class.clone()], ..tunnel(side) };
    let mut pair = Pair::up([with(A), with(B)]);
    let mut lose = coin(9, 0.1);
    let mut lost = 0;
    for n in 0..400_u16 {
        let is_small = n % 4 == 0;
        let packet = udp(A, n, &vec![n as u8; if is_small { 32 } else { 500 }]);
        let is_lost = lose();
        lost += usize::from(is_lost && is_small);
        pair.lose_datagram = Box::new(move || is_lost);
        pair.send_by_tunnel(A, &[packet]);
        pair.lose_datagram = Box::new(|| false);
        pair.advance(1_000);
    }
    pair.advance(1_000_000);
    assert!(lost > 3);
    assert_eq!(pair.recovered[B].len(), 400 - lost, "only those without protection stay lost");
}

/// Routers change a recorded route, so that no packet with one is protected beside a tunnel.
#[test]
fn a_recovered_packet_with_options_counts_for_its_class() {
    let matches = Match { length: Some(500..=1_000), ..Match::default() };
    let class = Class { name: "long".to_owned(), matches, protect: Protect::Auto, late_us: None };
    let with = |side| Config { classes: vec![class.clone()], ..tunnel(side) };
    let mut pair = Pair::up([with(A), with(B)]);
    pair.lose_datagram = Box::new(coin(3, 0.02));
    for n in 0..1_000_u16 {
        let mut packet = udp(A, n, &[n as u8; 600]);
        packet.splice(20..20, [7, 3, 4, 0]);
        packet[0] = 0x46;
        let len = packet.len() as u16;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        pair.send_by_tunnel(A, &[packet]);
        pair.advance(1_000);
    }
    pair.lose_datagram = Box::new(|| false);
    pair.advance(1_000_000);
    let of_class = |side: usize| pair.gateways[side].classes().next().expect("a class").1;
    assert_eq!(of_class(A).protected, 1_000);
    let recovered = pair.status(B, |peer| peer.ingress.recovered_packets);
    assert!(recovered > 10 && of_class(B).recovered == recovered, "{recovered} {:?}", of_class(B));
}

#[test]
fn what_does_not_belong_to_the_pair_is_not_sent_and_not_taken() {
    let mut pair = Pair::up([tunnel(A), tunnel(B)]);
    let refused = |pair: &Pair, reason| pair.gateways[A].refused().count(reason);
    let udp4 = |from: [u8; 4], to: [u8; 4]| testkit::packet::udp4(from.into(), to.into(), 0, 1, b"hello");
    let outside = udp4([192, 0, 2, 1], [10, 81, 2, 10]);
    pair.send_by_tunnel(A, &[outside, udp4([10, 81, 1, 10], [192, 0, 2, 1]), vec![0x45; 9]]);
    assert_eq!(refused(&pair, Unprotected::ForeignSource), 1);
    assert_eq!(refused(&pair, Unprotected::NoPeer), 1);
    assert_eq!(refused(&pair, Unprotected::Truncated), 1);
    // Without a session nothing leaves, and nothing is kept for later.
    pair.mute = [true, true];
    pair.advance(5_000_000);
    pair.send_by_tunnel(A, &[packet(A, 1)]);
    assert_eq!(refused(&pair, Unprotected::PeerDown), 1);
    pair.mute = [false, false];
    pair.advance(5_000_000);
    assert!(pair.recovered[B].is_empty());
    // A tap that shows traffic of a tunnel's networks shows no packets of the tunnel.
    pair.gateways[A].handle_outgoing(pair.now_us, &packet(A, 2), &mut pair.out[A]);
    assert_eq!(pair.gateways[A].unprotected().count(Unprotected::BesideTunnel), 1);
    // The far site sends what is not of its networks, as this one's file states them.
    let networks = vec!["10.81.1.0/25".parse().unwrap()];
    let narrow = PeerConfig { networks, ..tunnel(B).peers[0].clone() };
    let mut pair = Pair::up([tunnel(A), Config { peers: vec![narrow], ..tunnel(B) }]);
    pair.send_by_tunnel(
        A,
        &[udp4([10, 81, 1, 200], [10, 81, 2, 10]), udp4([10, 81, 1, 20], [10, 81, 2, 10])],
    );
    pair.advance(100_000);
    assert_eq!(pair.recovered[B].len(), 1);
    assert_eq!(refused(&pair, Unprotected::ForeignSource), 1);
}

/// "Fragmentation needed" or "packet too big" from a router (RFC 792, RFC 4443 §3.2), and a packet of UDP
/// from there. The gateways do not look at what it reports.
fn error_and_packet(from: IpAddr, to: IpAddr) -> [Vec<u8>; 2] {
    let (plain, protocol_at, header, protocol, kind) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            (testkit::packet::udp4(from, to, 0, 1, &[0; 28]), 9, 20, 1, [3, 4])
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => (testkit::packet::udp6(from, to, &[0; 48]), 6, 40, 58, [2, 0]),
        _ => panic!("addresses of one version"),
    };
    let mut error = plain.clone();
    error[protocol_at] = protocol;
    error[header..header + 2].copy_from_slice(&kind);
    if header == 20 {
        error[10..12].fill(0);
        let sum = testkit::packet::internet_checksum(&error[..20]);
        error[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    [error, plain]
}

#[test]
fn errors_of_routers_elsewhere_cross_also_if_a_site_states_its_networks() {
    let with = |side: usize, own: [&str; 2], far: [&str; 2]| {
        let networks = |texts: [&str; 2]| texts.map(|text| text.parse().unwrap()).to_vec();
        let peer = PeerConfig { networks: networks(far), ..tunnel(side).peers[0].clone() };
        Config { local_networks: networks(own), peers: vec![peer], ..tunnel(side) }
    };
    let sites = [["10.81.1.0/24", "2001:db8:1::/48"], ["10.81.2.0/24", "2001:db8:2::/48"]];
    let mut pair = Pair::up([with(A, sites[A], sites[B]), with(B, sites[B], sites[A])]);
    let ways = [("192.0.2.1", "10.81.2.10"), ("2001:db8:99::1", "2001:db8:2::10")];
    for (from, to) in ways {
        let sent = error_and_packet(from.parse().unwrap(), to.parse().unwrap());
        pair.recovered[B].clear();
        pair.send_by_tunnel(A, &sent);
        pair.advance(100_000);
        assert_eq!(pair.recovered[B], sent[..1], "from {from}");
    }
    assert_eq!(pair.gateways[A].refused().count(Unprotected::NotLocal), 2);
    assert_eq!(pair.status(B, |peer| peer.ingress.foreign_packets), 0);
}

#[test]
fn a_peer_that_lies_brings_no_packets_of_other_networks() {
    let mut liar = Liar::to(Schedule::Auto, true);
    for (seq, from) in [[192, 0, 2, 1], [10, 81, 2, 9], [10, 81, 1, 3]].into_iter().enumerate() {
        let packet = testkit::packet::udp4(from.into(), [10, 81, 1, 9].into(), 0, 1, b"hello");
        let (first, len) = ((seq as u32).to_be_bytes(), (packet.len() as u16).to_be_bytes());
        // Whatever is handed on from elsewhere fails the test.
        liar.say(&[&[BodyKind::Packets.to_wire()][..], &first, &len, &packet].concat());
    }
    let counts = *liar.gateway().peers().next().unwrap().ingress;
    assert_eq!((counts.source_packets, counts.foreign_packets), (3, 2));
}

#[test]
fn packets_with_options_that_routers_rewrite_travel_and_are_recovered() {
    let mut pair = Pair::up([tunnel(A), tunnel(B)]);
    let with_route = |n: u16| {
        let plain = udp(A, n, b"recorded");
        let mut packet = [&[0x46][..], &plain[1..20], &[7, 3, 4, 0], &plain[20..]].concat();
        packet[3] += 4;
        packet
    };
    let sent: Vec<_> = (0..400).map(with_route).collect();
    pair.lose_datagram = Box::new(coin(2, 0.02));
    for packet in &sent {
        pair.send_by_tunnel(A, std::slice::from_ref(packet));
        pair.advance(1_000);
    }
    pair.lose_datagram = Box::new(|| false);
    pair.advance(1_000_000);
    assert_eq!(sorted(&pair.recovered[B]), sorted(&sent));
}

#[test]
fn a_gateway_that_stood_still_goes_on_with_the_stream() {
    let mut pair = Pair::up([tunnel(A), tunnel(B)]);
    let first = send(&mut pair, A, 0..500);
    pair.frozen[B] = true;
    send(&mut pair, A, 500..1_500);
    pair.frozen[B] = false;
    let sessions = |pair: &Pair| pair.status(B, |peer| (peer.sessions, peer.renewals));
    let (now_us, before) = (pair.now_us, sessions(&pair));
    pair.gateways[B].handle_stall(now_us, 1_000_000);
    let last = send(&mut pair, A, 1_500..4_000);
    pair.advance(1_000_000);
    let arrived: HashSet<_> = pair.recovered[B].iter().collect();
    assert_eq!(arrived.len(), pair.recovered[B].len(), "nothing twice");
    let missing = first.iter().chain(&last).filter(|packet| !arrived.contains(packet)).count();
    assert_eq!((missing, sessions(&pair)), (0, before), "neither stream nor session begins again");
}

#[test]
fn a_pair_of_which_one_file_says_passive_is_told_so_at_both_ends() {
    let mut pair = Pair::new([tunnel(A), config(B)]);
    pair.advance(3_000_000);
    for side in [A, B] {
        assert_eq!(pair.status(side, |peer| (peer.is_up, peer.trouble)), (false, Some(Trouble::OtherMode)));
        assert!(pair.gateways[side].rejected().count(Rejected::OtherMode) > 0);
    }
    pair.gateways[B].reconfigure(tunnel(B)).unwrap();
    pair.run_until_up();
    send(&mut pair, A, 0..10);
    assert_eq!(pair.recovered[B].len(), 10);
}
