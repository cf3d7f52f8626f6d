//! Packets of a tunnel that are held so that hosts get them in the order in which they were sent.

use crate::pair::{A, B, LinkQueue, Pair, coin, payload, tunnel, two_paths, udp};
use maelstrom_core::packet::{MutableFields, Packet, restore};
use maelstrom_core::{
    Config, PathUse, PeerConfig, Requests, ResequenceCounts, ResequenceState, Schedule, TunnelConfig,
};

const MS: u64 = 1_000;

/// The same gateway with packets held for up to `ms`.
fn held(config: Config, ms: u64) -> Config {
    let tunnel = TunnelConfig { resequence_us: ms * MS, ..TunnelConfig::default() };
    let peer = PeerConfig { tunnel, ..config.peers[0].clone() };
    Config { peers: vec![peer], ..config }
}

fn up(ms: u64) -> Pair {
    Pair::up([A, B].map(|side| held(tunnel(side), ms)))
}

fn packet(n: u32) -> Vec<u8> {
    udp(A, n as u16, &payload(n))
}

/// Sends packets from A one by one, a millisecond apart.
fn send(pair: &mut Pair, numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    let packets: Vec<_> = numbers.map(packet).collect();
    for packet in &packets {
        pair.send_by_tunnel(A, std::slice::from_ref(packet));
        pair.advance(MS);
    }
    packets
}

fn state(pair: &Pair) -> ResequenceState {
    pair.status(B, |peer| peer.resequence).expect("packets are held")
}

fn counts(pair: &Pair) -> ResequenceCounts {
    state(pair).counts
}

/// The far gateway says for how long it holds packets, and repairs have that time.
#[test]
fn repairs_may_take_as_long_as_packets_are_held() {
    // A quarter of a round trip of 10 ms; what is held for long does not get all of the time.
    for (ms, late_us) in [(40, 40_000), (0, 2_500), (500, 200_000)] {
        let auto =
            |side| Config { schedule: Schedule::Auto, ..held(tunnel(side), if side == B { ms } else { 0 }) };
        let mut pair = Pair::new([A, B].map(auto));
        pair.delay_us = 5 * MS;
        pair.run_until_up();
        send(&mut pair, 0..2_000);
        let far = |side| pair.status(side, |peer| (peer.far.hold_ms, peer.far.plan.late_us));
        assert_eq!((far(A).0, far(B).0), (ms as u16, 0));
        assert!(
            (late_us - 20..late_us + 500).contains(&far(B).1) && far(A).1 < 3_000,
            "{:?} {:?}",
            far(A),
            far(B)
        );
    }
}

#[test]
fn losses_are_repaired_in_order_while_there_is_time_for_it() {
    for (ms, is_in_order) in [(200, true), (0, false)] {
        let mut pair = up(ms);
        pair.lose_datagram = Box::new(coin(3, 0.01));
        let sent = send(&mut pair, 0..4_000);
        pair.lose_datagram = Box::new(|| false);
        pair.advance(2_000 * MS);
        assert!(pair.status(B, |peer| peer.ingress.recovered_packets) > 25);
        assert_eq!(pair.recovered[B] == sent, is_in_order, "{ms} ms");
        let mut arrived = pair.recovered[B].clone();
        let mut expected = sent;
        arrived.sort();
        expected.sort();
        assert!(arrived == expected, "all of them, and none twice");
    }
}

#[test]
fn datagrams_that_overtake_each_other_deliver_in_order() {
    let mut pair = up(20);
    let mut late = coin(5, 0.2);
    pair.extra_us = Box::new(move |_, _| if late() { 7 * MS } else { 0 });
    let sent = send(&mut pair, 0..3_000);
    pair.advance(2_000 * MS);
    assert!(pair.recovered[B] == sent);
    let ResequenceCounts { held, by_room, late, dropped, .. } = counts(&pair);
    assert!(held > 1_000, "{held}");
    assert_eq!((by_room, late, dropped, state(&pair).waiting), (0, 0, 0, 0));
}

#[test]
fn packets_on_a_faster_path_wait_for_those_on_a_slower_one() {
    for (ms, is_in_order) in [(40, true), (0, false)] {
        let mut pair = Pair::new([A, B].map(|side| held(two_paths(side, PathUse::Failover), ms)));
        pair.path_us = [5 * MS, 25 * MS];
        pair.lose_on = Box::new(|path, _| path == 0);
        pair.run_until_up();
        pair.advance(500 * MS);
        let mut sent = send(&mut pair, 0..500);
        pair.lose_on = Box::new(|_, _| false);
        sent.extend(send(&mut pair, 500..2_500));
        pair.advance(500 * MS);
        assert!(pair.status(A, |peer| peer.paths[0].sent.packets) > 500);
        assert_eq!(pair.recovered[B] == sent, is_in_order, "{ms} ms");
    }
}

#[test]
fn a_packet_that_stays_lost_delays_those_behind_it_by_the_limit() {
    let off = |side| {
        let schedule = Schedule::Sliding { rate: "1/64".parse().unwrap(), window: 64, density: 15 };
        held(Config { schedule, requests: Requests::Off, ..tunnel(side) }, 30)
    };
    let mut pair = Pair::up([A, B].map(off));
    send(&mut pair, 0..1_000);
    assert_eq!(pair.recovered[B].len(), 1_000);
    // More than the next repairs can bring back.
    pair.lose_datagram = Box::new(|| true);
    send(&mut pair, 1_000..1_020);
    pair.lose_datagram = Box::new(|| false);
    pair.send_by_tunnel(A, &[packet(1_020)]);
    pair.advance(29 * MS);
    assert_eq!((pair.recovered[B].len(), state(&pair).waiting), (1_000, 1));
    pair.advance(MS);
    assert_eq!((pair.recovered[B].len(), state(&pair).waiting), (1_001, 0));
    assert_eq!(counts(&pair).by_time, 1);
    // Those behind it do not wait.
    pair.send_by_tunnel(A, &[packet(1_021)]);
    assert_eq!(pair.recovered[B].len(), 1_002);
}

#[test]
fn nobody_waits_for_a_packet_that_the_window_has_left() {
    let fast = |side| {
        let schedule = Schedule::Sliding { rate: "1/16".parse().unwrap(), window: 32, density: 15 };
        held(Config { schedule, requests: Requests::Off, ..tunnel(side) }, 400)
    };
    let mut pair = Pair::up([A, B].map(fast));
    send(&mut pair, 0..1_000);
    let mut lost = 0..20;
    pair.lose_datagram = Box::new(move || lost.next().is_some());
    send(&mut pair, 1_000..1_200);
    pair.lose_datagram = Box::new(|| false);
    // 200 packets in 200 ms: the window is past the gap long before its time is up.
    assert!(pair.recovered[B].last() == Some(&packet(1_199)), "{:?}", state(&pair));
    assert_eq!(counts(&pair).by_time, 0);
}

#[test]
fn the_limit_changes_with_a_reload_and_nothing_is_lost_by_it() {
    let mut pair = up(100);
    let mut late = coin(7, 0.3);
    pair.extra_us = Box::new(move |_, _| if late() { 15 * MS } else { 0 });
    let mut sent = send(&mut pair, 0..500);
    for (ms, range) in [(0, 500..1_000), (50, 1_000..1_500)] {
        pair.gateways[B].reconfigure(held(tunnel(B), ms)).unwrap();
        sent.extend(send(&mut pair, range));
        assert_eq!(state(&pair).limit_us, ms * MS);
    }
    pair.advance(1_000 * MS);
    let mut arrived = pair.recovered[B].clone();
    assert!(arrived != sent, "without a limit they came as they were");
    arrived.sort();
    sent.sort();
    assert!(arrived == sent && counts(&pair).dropped == 0);
    assert_eq!(pair.status(B, |peer| peer.sessions), 1);
}

/// The first packets after a reload are lost: those behind them wait, as they would at any other time.
#[test]
fn packets_are_in_order_from_the_reload_on_that_asks_for_it() {
    let mut pair = up(0);
    send(&mut pair, 0..500);
    pair.advance(200 * MS);
    pair.gateways[B].reconfigure(held(tunnel(B), 200)).unwrap();
    let begin = pair.recovered[B].len();
    let mut first = 0..3;
    pair.lose_datagram = Box::new(move || first.next().is_some());
    let sent = send(&mut pair, 500..1_500);
    pair.advance(500 * MS);
    assert!(pair.recovered[B][begin..] == sent, "{:?}", state(&pair));
    let ResequenceCounts { held, late, .. } = counts(&pair);
    assert!(held > 0 && late == 0);
}

/// A TCP segment from A whose timestamp is newer by one for each number.
fn segment(n: u32) -> Vec<u8> {
    let options = [&[1, 1, 8, 10][..], &(5_000 + n).to_be_bytes(), &[0; 4]].concat();
    let fields = [&[0; 4][..], &[0x80, 0x10, 1, 0, 0, 0, 0, 0]].concat();
    let behind_ports = [&n.to_be_bytes()[..], &fields, &options, &[7; 300]].concat();
    // UDP's ports, and TCP's fields in place of its length and checksum.
    let mut packet = udp(A, 7, &behind_ports);
    packet.drain(24..28);
    let total = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&total);
    packet[4..6].copy_from_slice(&(n as u16).to_be_bytes());
    packet[9] = 6;
    let fields = Packet::new_checked(&packet).unwrap().mutable_fields();
    restore(&mut packet, fields);
    packet
}

/// With the timestamp of a later segment, a recovered one would make its receiver discard those between.
#[test]
fn a_recovered_tcp_segment_keeps_its_timestamp_if_it_comes_in_order() {
    for (ms, is_raised) in [(200, false), (0, true)] {
        let mut pair = up(ms);
        let sent: Vec<_> = (0..1_000).map(segment).collect();
        pair.lose_datagram = Box::new(coin(3, 0.02));
        for segment in &sent {
            pair.send_by_tunnel(A, std::slice::from_ref(segment));
            pair.advance(MS);
        }
        pair.lose_datagram = Box::new(|| false);
        pair.advance(1_000 * MS);
        let (recovered, raised) =
            pair.status(B, |peer| (peer.ingress.recovered_packets, peer.ingress.raised_timestamps));
        assert!(recovered > 10 && (raised > 0) == is_raised, "{ms} ms: {raised} of {recovered}");
        assert_eq!(pair.recovered[B] == sent, !is_raised, "{ms} ms");
    }
}

/// Sends bursts that overfill the queue, of packets with this type of service, until it is known; returns the
/// packets of later bursts that were recovered, those that came late, and those held until the limit.
fn burst(tos: u8) -> (u64, u64, u64) {
    let schedule = || Schedule::Sliding { rate: "1/8".parse().unwrap(), window: 256, density: 15 };
    let mut pair = Pair::new([A, B].map(|side| Config { schedule: schedule(), ..held(tunnel(side), 300) }));
    pair.delay_us = 10 * MS;
    pair.run_until_up();
    // 12 Mbit/s, and 50 ms.
    pair.queue = Some(LinkQueue::new(12, 75_000));
    let mut next = 0;
    let mut send = |pair: &mut Pair, count: u32| {
        for _ in 0..count {
            let mut packet = udp(A, next as u16, &[(next >> 16) as u8; 900]);
            let fields = Packet::new_checked(&packet).unwrap().mutable_fields();
            restore(&mut packet, MutableFields { tos, ..fields });
            pair.send_by_tunnel(A, &[packet]);
            next += 1;
        }
    };
    let mut before = None;
    for round in 0..80 {
        send(&mut pair, 82);
        for _ in 0..500 {
            pair.advance(2 * MS);
            send(&mut pair, 1);
        }
        if round == 40 {
            assert!(pair.status(B, |peer| peer.congestion.is_leaving));
            before = Some((pair.status(B, |peer| peer.ingress.recovered_packets), counts(&pair)));
        }
    }
    let (recovered, order) = (pair.status(B, |peer| peer.ingress.recovered_packets), counts(&pair));
    let (recovered_before, before) = before.unwrap();
    (recovered - recovered_before, order.late - before.late, order.by_time - before.by_time)
}

#[test]
fn packets_that_a_full_queue_drops_are_waited_for_if_they_come_back_with_a_mark() {
    let (recovered, late, by_time) = burst(2);
    assert!(recovered > 100 && late == 0, "{recovered} recovered, {late} late, {by_time} by time");
    // Others are left to their senders, and those behind them wait for nothing.
    let (recovered, late, by_time) = burst(0);
    assert!(recovered < 20 && by_time == 0, "{recovered} recovered, {late} late, {by_time} by time");
}

#[test]
fn all_packets_that_are_held_at_the_end_of_a_stream_are_handed_on() {
    let off = |side| held(Config { requests: Requests::Off, ..tunnel(side) }, 10_000);
    let mut pair = Pair::up([A, B].map(off));
    pair.lose_datagram = Box::new(|| true);
    pair.send_by_tunnel(A, &(0..200).map(packet).collect::<Vec<_>>());
    pair.lose_datagram = Box::new(|| false);
    // More than an outbox holds.
    let sent: Vec<_> = (200..2_200).map(packet).collect();
    sent.chunks(10).for_each(|some| pair.send_by_tunnel(A, some));
    assert_eq!(state(&pair).waiting, 2_000);
    let mut rounds = 0;
    while pair.gateways[B].release_held(pair.now_us, 0, &mut pair.out[B]) {
        pair.exchange();
        rounds += 1;
    }
    pair.exchange();
    assert!(rounds > 1 && pair.recovered[B] == sent, "{rounds}: {}", pair.recovered[B].len());
}
