//! Several paths between two gateways.

use std::cell::Cell;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::rc::Rc;

use crate::pair::{A, B, LinkQueue, Pair, address, coin, payload, two_paths, udp};
use maelstrom_core::counters::{Rejected, Unanswered};
use maelstrom_core::wire::{Outer, SEALED_HEADER};
use maelstrom_core::{
    Class, Config, Match, PathConfig, PathStatus, PathUse, PeerConfig, Protect, Requests, Source, Whereabouts,
};

const MS: u64 = 1_000;

/// Sends packets one by one, a millisecond apart; returns them, and the longest time without an arrival at
/// the other side, in milliseconds.
pub(crate) fn send(pair: &mut Pair, from: usize, numbers: std::ops::Range<u32>) -> (Vec<Vec<u8>>, u64) {
    let packets: Vec<_> = numbers.map(|n| udp(from, n as u16, &payload(n))).collect();
    let (mut count, mut silence_ms, mut longest_ms) = (pair.recovered[1 - from].len(), 0, 0);
    for packet in &packets {
        pair.send_by_tunnel(from, std::slice::from_ref(packet));
        pair.advance(MS);
        let arrived = pair.recovered[1 - from].len();
        silence_ms = if arrived > count { 0 } else { silence_ms + 1 };
        (count, longest_ms) = (arrived, silence_ms.max(longest_ms));
    }
    (packets, longest_ms)
}

pub(crate) fn paths(pair: &Pair, side: usize) -> Vec<PathStatus> {
    pair.status(side, |peer| peer.paths.clone())
}

fn alive(pair: &Pair, side: usize) -> Vec<bool> {
    paths(pair, side).iter().map(|path| path.is_alive).collect()
}

/// Asserts that no packet has arrived twice at B; returns how many of those sent have not.
pub(crate) fn missing(pair: &Pair, sent: &[Vec<u8>]) -> usize {
    let arrived: HashSet<_> = pair.recovered[B].iter().collect();
    assert_eq!(arrived.len(), pair.recovered[B].len(), "nothing arrives twice");
    sent.iter().filter(|packet| !arrived.contains(packet)).count()
}

/// Two gateways with two paths of 10 and 40 ms, of which the first carries nothing while the cell is set.
fn two(path_use: PathUse) -> (Pair, Rc<Cell<bool>>) {
    let mut pair = Pair::new([A, B].map(|side| two_paths(side, path_use)));
    pair.path_us = [10 * MS, 40 * MS];
    let is_dead = Rc::new(Cell::new(false));
    let cell = Rc::clone(&is_dead);
    pair.lose_on = Box::new(move |path, _| path == 0 && cell.get());
    pair.run_until_up();
    pair.advance(500 * MS);
    assert_eq!([A, B].map(|side| alive(&pair, side)), [[true; 2]; 2]);
    (pair, is_dead)
}

#[test]
fn packets_take_the_next_path_within_a_second_and_return_to_the_first() {
    let (mut pair, is_dead) = two(PathUse::Failover);
    let (mut sent, _) = send(&mut pair, A, 0..2_000);
    assert_eq!(paths(&pair, A).iter().map(|path| path.sent.packets).collect::<Vec<_>>(), [2_000, 0]);
    is_dead.set(true);
    let (during, silence_ms) = send(&mut pair, A, 2_000..7_000);
    assert_eq!([A, B].map(|side| alive(&pair, side)), [[false, true]; 2]);
    assert!((300..800).contains(&silence_ms), "{silence_ms} ms");
    is_dead.set(false);
    let (after, gap_ms) = send(&mut pair, A, 7_000..10_000);
    pair.advance(1_000 * MS);
    assert!(gap_ms < 40, "the return costs no packet: {gap_ms} ms");
    assert_eq!([A, B].map(|side| alive(&pair, side)), [[true; 2]; 2]);
    let first = paths(&pair, A)[0];
    assert!(first.is_used && first.deaths == 1 && first.sent.packets > 3_500, "{first:?}");
    sent.extend(during);
    sent.extend(after);
    // Those of the time until the death was known.
    assert!((300..800).contains(&missing(&pair, &sent)), "{}", missing(&pair, &sent));
    assert_eq!([A, B].map(|side| pair.status(side, |peer| (peer.is_up, peer.sessions))), [(true, 1); 2]);
}

#[test]
fn duplicates_lose_nothing_when_a_path_dies_and_deliver_nothing_twice() {
    let matches = Match { length: Some(0..=400), ..Match::default() };
    let class = Class { name: "small".to_owned(), matches, protect: Protect::Off, late_us: None };
    let (mut pair, is_dead) = two(PathUse::Duplicate);
    for side in [A, B] {
        let config = Config { classes: vec![class.clone()], ..two_paths(side, PathUse::Duplicate) };
        pair.gateways[side].reconfigure(config).unwrap();
    }
    let (mut sent, _) = send(&mut pair, A, 0..2_000);
    is_dead.set(true);
    let (during, silence_ms) = send(&mut pair, A, 2_000..7_000);
    is_dead.set(false);
    let (after, _) = send(&mut pair, A, 7_000..10_000);
    pair.advance(1_000 * MS);
    // The other path takes 30 ms longer.
    assert!(silence_ms <= 31, "{silence_ms} ms");
    sent.extend(during);
    sent.extend(after);
    assert_eq!(missing(&pair, &sent), 0);
    let lost = pair.status(B, |peer| peer.report.lost - peer.report.recovered);
    assert_eq!(lost, 0);
    let [first, second] = paths(&pair, B)[..] else { panic!() };
    assert!(first.copies + second.copies > 4_000, "{first:?} {second:?}");
    assert_eq!(pair.gateways[B].rejected().count(Rejected::Replayed), 0, "copies are no replays");
}

fn repaired(path_us: [u64; 2]) {
    let mut pair = Pair::new([A, B].map(|side| two_paths(side, PathUse::Spread)));
    pair.path_us = path_us;
    pair.run_until_up();
    pair.advance(500 * MS);
    let mut lose = coin(7, 0.05);
    pair.lose_on = Box::new(move |path, _| path == 0 && lose());
    let (sent, _) = send(&mut pair, A, 0..10_000);
    pair.lose_on = Box::new(|_, _| false);
    pair.advance(2_000 * MS);
    assert_eq!(missing(&pair, &sent), 0, "{path_us:?}");
    let [first, second] = paths(&pair, A)[..] else { panic!() };
    assert_eq!((first.sent.repairs, second.sent.packets), (0, 0));
    assert!(first.sent.packets == 10_000 && second.sent.repairs > 500, "{first:?} {second:?}");
    let share = first.outgoing.lost as f64 / first.outgoing.expected as f64;
    assert!((0.03..0.07).contains(&share) && second.outgoing.lost < 10, "{first:?} {second:?}");
    // Each end knows what the other one counts.
    let there = paths(&pair, B)[0].incoming;
    assert!(there.lost >= first.outgoing.lost && there.lost < first.outgoing.lost + 20, "{there:?}");
    let rtt_us = [first, second].map(|path| path.rtt_us.unwrap());
    assert!(rtt_us.iter().zip(path_us).all(|(rtt_us, us)| rtt_us.abs_diff(2 * us) < 100), "{rtt_us:?}");
}

#[test]
fn repairs_on_another_path_recover_the_losses_of_that_of_the_packets() {
    for path_us in [[20 * MS, 20 * MS], [40 * MS, 5 * MS], [5 * MS, 40 * MS]] {
        repaired(path_us);
    }
}

#[test]
fn packets_on_a_slower_path_than_their_repairs_do_not_count_as_lost() {
    let with = |side| Config { requests: Requests::All, ..two_paths(side, PathUse::Spread) };
    let mut pair = Pair::new([A, B].map(with));
    pair.path_us = [60 * MS, 2 * MS];
    pair.run_until_up();
    pair.advance(500 * MS);
    let (sent, _) = send(&mut pair, A, 0..5_000);
    pair.advance(1_000 * MS);
    assert_eq!(missing(&pair, &sent), 0);
    let (ingress, report) = pair.status(B, |peer| (*peer.ingress, peer.report));
    assert_eq!((report.lost, ingress.late, ingress.requests.requests), (0, 0, 0), "{ingress:?}");
    assert_eq!(ingress.recovered_packets, 0);
}

#[test]
fn deadlines_and_requests_go_by_the_round_trip_of_the_path_that_packets_take() {
    let with = |side| Config { requests: Requests::All, ..two_paths(side, PathUse::Failover) };
    let mut pair = Pair::new([A, B].map(with));
    // The spare line is far faster.
    pair.path_us = [300 * MS, 20 * MS];
    pair.run_until_up();
    pair.advance(2_000 * MS);
    assert_eq!([A, B].map(|side| pair.status(side, |peer| peer.rtt_us.unwrap() / MS)), [600; 2]);
    let (mut sent, _) = send(&mut pair, A, 0..1_000);
    // A burst that no repair brings back.
    pair.lose_on = Box::new(|path, from| (path, from) == (0, A));
    sent.extend(send(&mut pair, A, 1_000..1_060).0);
    pair.lose_on = Box::new(|_, _| false);
    sent.extend(send(&mut pair, A, 1_060..3_000).0);
    pair.advance(2_000 * MS);
    let unanswered = pair.status(A, |peer| peer.egress.unanswered.count(Unanswered::Gone));
    let answered = pair.status(B, |peer| peer.ingress.requests.answered);
    assert_eq!((missing(&pair, &sent), unanswered), (0, 0), "{answered} answers");
    assert!(answered > 10, "{answered}");
    // Where the spare line takes over, its round trip counts.
    pair.lose_on = Box::new(|path, _| path == 0);
    pair.advance(4_000 * MS);
    assert_eq!([A, B].map(|side| pair.status(side, |peer| peer.rtt_us.unwrap() / MS)), [40; 2]);
}

#[test]
fn spreading_goes_on_by_the_path_that_is_left() {
    let (mut pair, is_dead) = two(PathUse::Spread);
    is_dead.set(true);
    send(&mut pair, A, 0..2_000);
    let before = paths(&pair, A)[1].sent;
    let mut lose = coin(3, 0.01);
    pair.lose_on = Box::new(move |path, _| path == 0 || lose());
    let (sent, _) = send(&mut pair, A, 2_000..6_000);
    pair.lose_on = Box::new(|path, _| path == 0);
    pair.advance(1_000 * MS);
    assert_eq!(missing(&pair, &sent), 0);
    let after = paths(&pair, A)[1].sent;
    assert!(after.packets == before.packets + 4_000 && after.repairs > before.repairs + 100, "{after:?}");
}

#[test]
fn a_pair_whose_paths_all_fail_for_a_moment_goes_on_with_the_first_that_answers() {
    let (mut pair, _) = two(PathUse::Failover);
    pair.lose_on = Box::new(|_, _| true);
    send(&mut pair, A, 0..1_500);
    assert_eq!(alive(&pair, A), [false; 2]);
    pair.lose_on = Box::new(|path, _| path == 0);
    let (sent, silence_ms) = send(&mut pair, A, 1_500..3_000);
    pair.advance(1_000 * MS);
    assert!(silence_ms < 350 && missing(&pair, &sent) < 350, "{silence_ms} ms");
    assert_eq!(pair.status(A, |peer| peer.sessions), 1);
}

#[test]
fn a_path_that_returns_datagrams_to_their_sender_does_not_live() {
    let mut pair = Pair::new([A, B].map(|side| two_paths(side, PathUse::Failover)));
    pair.reflecting = Some(1);
    pair.run_until_up();
    let (sent, _) = send(&mut pair, A, 0..2_000);
    pair.advance(100 * MS);
    assert_eq!([A, B].map(|side| alive(&pair, side)), [[true, false]; 2]);
    assert_eq!(missing(&pair, &sent), 0);
    assert!(pair.gateways[A].rejected().count(Rejected::UnknownEpoch) > 10);
    assert_eq!(paths(&pair, A)[1].received.datagrams, 0);
}

#[test]
fn a_forged_probe_changes_nothing() {
    let (mut pair, is_dead) = two(PathUse::Failover);
    is_dead.set(true);
    pair.sent_datagrams = Some(Vec::new());
    send(&mut pair, A, 0..2_000);
    assert_eq!(alive(&pair, A), [false, true]);
    let sent = pair.sent_datagrams.take().unwrap();
    let is_probe_of = |datagram: &Vec<u8>| {
        datagram.len() == SEALED_HEADER + 30 + 16 && matches!(Outer::read(datagram), Ok(Outer::Sealed(_)))
    };
    let probes: Vec<_> = sent.into_iter().filter(is_probe_of).collect();
    assert!(probes.len() > 20);
    let before = pair.gateways[A].rejected().count(Rejected::Forged);
    for mut probe in probes {
        // With a number that has not been seen.
        probe[SEALED_HEADER - 4..SEALED_HEADER].copy_from_slice(&1_000_000_u32.to_be_bytes());
        pair.inject_by(0, A, &probe);
    }
    assert!(pair.gateways[A].rejected().count(Rejected::Forged) > before + 5);
    pair.advance(100 * MS);
    assert_eq!(alive(&pair, A), [false, true]);
}

/// A place behind a NAT.
fn place(port: u16) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, (port % 7) as u8 + 1], port))
}

/// A gateway that knows neither address of its peer.
fn hub(path_use: PathUse) -> Config {
    let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let paths = vec![PathConfig { door: 0, address: nowhere, whereabouts: Whereabouts::Unstated }];
    let whereabouts = Whereabouts::Unstated;
    let spoke =
        PeerConfig { address: nowhere, whereabouts, paths, ..two_paths(A, path_use).peers[0].clone() };
    Config { peers: vec![spoke], ..two_paths(A, path_use) }
}

/// A gateway at one address, and one with two uplinks behind NATs, of which the first knows neither.
fn hub_and_spoke(path_use: PathUse) -> Pair {
    let paths = vec![PathConfig { door: 1, address: address(A), whereabouts: Whereabouts::Stated }];
    let peer = PeerConfig { paths, ..two_paths(B, path_use).peers[0].clone() };
    let mut pair = Pair::new([hub(path_use), Config { peers: vec![peer], ..two_paths(B, path_use) }]);
    pair.doors[A] = [0, 0];
    pair.places = [[address(A); 2], [place(20_000), place(20_001)]];
    pair.path_us = [10 * MS, 25 * MS];
    pair.run_until_up();
    pair.advance(1_500 * MS);
    pair
}

fn places(pair: &Pair) -> [SocketAddr; 2] {
    pair.status(A, |peer| [peer.config.address, peer.config.paths[0].address])
}

#[test]
fn both_uplinks_of_a_site_behind_nats_are_found_and_followed() {
    for path_use in PathUse::ALL {
        let mut pair = hub_and_spoke(path_use);
        assert_eq!(places(&pair), pair.places[B], "{path_use:?}");
        assert_eq!([A, B].map(|side| alive(&pair, side)), [[true; 2]; 2]);
        let (sent, _) = send(&mut pair, A, 0..1_000);
        pair.advance(100 * MS);
        assert_eq!(missing(&pair, &sent), 0);
        // One after the other NAT forgets its mapping.
        for (path, port) in [(1, 30_001), (0, 30_000), (1, 30_002)] {
            pair.places[B][path] = place(port);
            pair.advance(3_000 * MS);
            assert_eq!(places(&pair), pair.places[B], "{path_use:?}");
            assert_eq!([A, B].map(|side| alive(&pair, side)), [[true; 2]; 2], "{path_use:?} {path}");
        }
        // A reload forgets no address.
        pair.gateways[A].reconfigure(hub(path_use)).unwrap();
        assert_eq!(places(&pair), pair.places[B]);
        let (sent, _) = send(&mut pair, A, 1_000..2_000);
        pair.advance(100 * MS);
        assert_eq!(missing(&pair, &sent), 0);
        assert_eq!([A, B].map(|side| pair.status(side, |peer| peer.sessions)), [1; 2], "{path_use:?}");
    }
}

#[test]
fn the_uplink_that_is_left_moves_too() {
    let mut pair = hub_and_spoke(PathUse::Failover);
    pair.lose_on = Box::new(|path, _| path == 0);
    pair.advance(1_000 * MS);
    pair.places[B][1] = place(31_000);
    pair.advance(1_000 * MS);
    let (sent, _) = send(&mut pair, A, 0..500);
    pair.advance(100 * MS);
    assert_eq!((missing(&pair, &sent), alive(&pair, A)), (0, vec![false, true]));
    assert_eq!(pair.status(A, |peer| peer.sessions), 1);
}

#[test]
fn datagrams_that_come_first_from_elsewhere_move_no_path() {
    let mut pair = hub_and_spoke(PathUse::Duplicate);
    let before = places(&pair);
    let thief = Source { door: 0, address: place(40_000) };
    // Datagrams of the peer reach the thief alone, who sends them on as his own.
    pair.mute[B] = true;
    pair.sent_datagrams = Some(Vec::new());
    for _ in 0..20 {
        pair.advance(50 * MS);
        for datagram in pair.sent_datagrams.replace(Vec::new()).unwrap() {
            pair.inject_from(thief, A, &datagram);
        }
    }
    assert!(pair.status(A, |peer| peer.is_up), "they are authentic");
    assert_eq!(places(&pair), before);
    pair.mute[B] = false;
    pair.advance(3_000 * MS);
    assert_eq!((places(&pair), alive(&pair, A)), (before, vec![true; 2]));
}

#[test]
fn repairs_on_a_slower_path_are_awaited_before_packets_are_requested() {
    let with = |side| Config { requests: Requests::All, ..two_paths(side, PathUse::Spread) };
    let mut pair = Pair::new([A, B].map(with));
    pair.path_us = [5 * MS, 65 * MS];
    pair.run_until_up();
    pair.advance(500 * MS);
    // Bursts, which take several repairs.
    let mut count = 0_u32;
    pair.lose_on = Box::new(move |path, side| {
        count += u32::from(path == 0 && side == A);
        path == 0 && side == A && count % 1_000 < 12
    });
    // So fast that a window of packets comes ahead of its repairs.
    for n in 0..30_000_u32 {
        pair.send_by_tunnel(A, &[udp(A, n as u16, &[n as u8; 100])]);
        pair.advance(100);
    }
    pair.lose_on = Box::new(|_, _| false);
    pair.advance(1_000 * MS);
    let (ingress, report) = pair.status(B, |peer| (*peer.ingress, peer.report));
    assert!(report.lost > 100 && report.lost == report.recovered, "{report:?}");
    assert!(ingress.requests.packets < report.lost / 2, "{:?} of {}", ingress.requests, report.lost);
}

/// Sends packets by paths of which the first loses a burst that repairs cannot bring back; returns how long
/// some packet of it was missing, in milliseconds. Earlier, B reads nothing for `paused_ms`.
fn burst_after_pause(paused_ms: u64) -> u64 {
    let with = |side| Config { requests: Requests::All, ..two_paths(side, PathUse::Spread) };
    let mut pair = Pair::new([A, B].map(with));
    pair.path_us = [5 * MS, 5 * MS];
    pair.run_until_up();
    send(&mut pair, A, 0..1_000);
    let next_us = pair.now_us.next_multiple_of(400 * MS);
    pair.advance(next_us - pair.now_us);
    pair.reads_every_us = (paused_ms * MS).max(1);
    send(&mut pair, A, 1_000..1_390);
    pair.reads_every_us = 1;
    let (sent, _) = send(&mut pair, A, 1_390..2_000);
    assert_eq!(missing(&pair, &sent[..500]), 0);
    pair.lose_on = Box::new(|path, side| path == 0 && side == A);
    let (sent, _) = send(&mut pair, A, 2_000..2_060);
    pair.lose_on = Box::new(|_, _| false);
    let mut waited_ms = 0;
    while missing(&pair, &sent) > 0 && waited_ms < 1_000 {
        send(&mut pair, A, 2_060 + waited_ms..2_061 + waited_ms);
        waited_ms += 1;
    }
    u64::from(waited_ms)
}

#[test]
fn a_pause_of_the_gateway_delays_no_requests() {
    let [calm_ms, paused_ms] = [0, 400].map(burst_after_pause);
    assert!(paused_ms <= calm_ms + 20, "{calm_ms} ms, and {paused_ms} ms after a pause");
}

/// Paths that carry datagrams of these lengths, with IP and UDP headers, and tell nobody.
fn of_widths(path_use: PathUse, widths: [usize; 2]) -> Pair {
    let mut pair = Pair::new([A, B].map(|side| two_paths(side, path_use)));
    pair.path_us = [10 * MS, 30 * MS];
    pair.path_max = widths.map(|width| width - 28);
    pair.run_until_up();
    pair
}

#[test]
fn the_narrowest_of_several_paths_limits_datagrams_and_nothing_disappears_on_it() {
    for (path_use, widths) in [
        (PathUse::Spread, [1_500, 1_300]),
        (PathUse::Spread, [1_280, 1_500]),
        (PathUse::Failover, [1_300, 1_500]),
        (PathUse::Failover, [1_500, 1_300]),
        (PathUse::Duplicate, [1_400, 1_000]),
    ] {
        let mut pair = of_widths(path_use, widths);
        let narrow = widths[0].min(widths[1]);
        pair.advance(40_000 * MS);
        let found = [A, B].map(|side| pair.status(side, |peer| peer.path_mtu));
        assert!(
            found.iter().all(|mtu| (narrow - 2..=narrow).contains(mtu)),
            "{path_use:?} {widths:?}: {found:?}"
        );
        assert_eq!([A, B].map(|side| alive(&pair, side)), [[true; 2]; 2], "{path_use:?} {widths:?}");
        let packets: Vec<_> = (0..4_000).map(|n| udp(A, n as u16, &[n as u8; 1_150])).collect();
        for packet in &packets {
            pair.send_by_tunnel(A, std::slice::from_ref(packet));
            pair.advance(MS);
        }
        pair.advance(2_000 * MS);
        let came = pair.recovered[B].len();
        assert_eq!(came, packets.len(), "{path_use:?} {widths:?}");
    }
}

#[test]
fn the_halves_of_a_packet_take_the_same_path() {
    let mut pair = Pair::new([A, B].map(|side| two_paths(side, PathUse::Spread)));
    pair.path_us = [10 * MS, 25 * MS];
    // Both paths are needed.
    pair.path_queues = [400, 400].map(|ns_per_byte| {
        let mut queue = LinkQueue::new(1, 60_000_000 / ns_per_byte);
        queue.ns_per_byte = ns_per_byte;
        Some(queue)
    });
    pair.run_until_up();
    pair.advance(500 * MS);
    let packets: Vec<_> = (0..12_000).map(|n| udp(A, n as u16, &[(n >> 8) as u8; 1_470])).collect();
    for packet in &packets {
        pair.send_by_tunnel(A, std::slice::from_ref(packet));
        pair.advance(400);
    }
    pair.advance(2_000 * MS);
    let (cut, sent) = pair.status(A, |peer| (peer.egress.cut_in_two, peer.paths.clone()));
    assert!(cut > 12_000, "{cut}");
    assert!(sent.iter().all(|path| path.sent.packets > 1_000), "{sent:?}");
    let last = &packets[6_000..];
    assert_eq!(missing(&pair, last), 0);
}
