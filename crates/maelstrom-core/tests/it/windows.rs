//! Two whole gateways whose repairs are sums over a sliding window, over a lossy link in virtual time.
//!
//! The path is trusted, so that nothing but the code decides.

mod low_rates;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::pair::{A, B, Pair, coin, config, payload, run, trusting, udp};
use maelstrom_core::counters::Unused;
use maelstrom_core::packet::{MutableFields, restore};
use maelstrom_core::{Config, ConfigError, Gateway, Schedule};

fn sliding(side: usize, rate: &str, window: u16, density: u8) -> Config {
    Config { schedule: Schedule::Sliding { rate: rate.parse().unwrap(), window, density }, ..trusting(side) }
}

fn up(rate: &str, window: u16) -> Pair {
    Pair::up([sliding(A, rate, window, 15), sliding(B, rate, window, 15)])
}

/// A packet with mutable fields of its own. Recipes state those of named packets, the symbols those of all
/// others.
fn packet(n: u32) -> Vec<u8> {
    let mut packet = udp(A, n as u16, &payload(n));
    restore(&mut packet, MutableFields { ttl: 40 + (n / 50 % 9) as u8, tos: (n % 7 / 6) as u8 });
    packet
}

/// Checks that both have the same packets in any order; reports the numbers of the others.
fn assert_same(recovered: &[Vec<u8>], lost: &[Vec<u8>], what: &str) {
    let number = |packet: &Vec<u8>| u16::from_be_bytes([packet[4], packet[5]]);
    let but = |all: &[Vec<u8>], others: &[Vec<u8>]| -> Vec<u16> {
        let others: HashSet<_> = others.iter().collect();
        all.iter().filter(|packet| !others.contains(packet)).map(number).collect()
    };
    assert_eq!(
        (but(lost, recovered), but(recovered, lost)),
        (vec![], vec![]),
        "{what}: not back, and too many"
    );
    assert_eq!(recovered.len(), lost.len(), "{what}");
}

/// Returns the number of occurrences of each packet.
fn counted(packets: &[Vec<u8>]) -> HashMap<&[u8], usize> {
    let mut counts = HashMap::new();
    packets.iter().for_each(|packet| *counts.entry(&packet[..]).or_default() += 1);
    counts
}

fn nothing_went_wrong(pair: &Pair) {
    let unused = pair.status(B, |peer| peer.ingress.unused);
    assert_eq!((unused.count(Unused::WrongRecovery), unused.count(Unused::Inconsistent)), (0, 0));
}

/// Sends packets every 50 µs, of which `lose` loses some; `lose_repair` loses repairs. Returns the lost
/// packets.
fn stream(
    pair: &mut Pair,
    count: u32,
    mut lose: impl FnMut() -> bool,
    lose_repair: impl FnMut() -> bool + 'static,
) -> Vec<Vec<u8>> {
    pair.lose_datagram = Box::new(lose_repair);
    let mut lost = Vec::new();
    for n in 0..count {
        let packet = packet(n);
        let is_lost = lose();
        pair.send(A, &packet, is_lost);
        lost.extend(is_lost.then_some(packet));
        pair.advance(50);
    }
    pair.lose_datagram = Box::new(|| false);
    pair.advance(3_000_000);
    lost
}

#[test]
fn scattered_losses_are_recovered_bit_for_bit_and_are_reported() {
    for (rate, window, density) in [("3/8", 160, 15), ("1/8", 256, 15), ("1/1", 512, 5), ("5/2", 3, 15)] {
        let mut pair = Pair::up([A, B].map(|side| sliding(side, rate, window, density)));
        let lost = stream(&mut pair, 8_000, coin(7, 0.01), coin(8, 0.01));
        assert!(lost.len() > 50, "{} lost", lost.len());
        assert_same(&pair.recovered[B], &lost, &format!("{rate}, W={window}"));
        let report = pair.status(A, |peer| peer.far.loss);
        assert_eq!((report.lost, report.residual()), (lost.len() as u64, 0), "{rate}: {report:?}");
        nothing_went_wrong(&pair);
    }
}

/// A burst takes packets and repairs alike, in order of departure.
#[test]
fn a_burst_within_the_rates_reach_is_recovered_completely() {
    for (rate, window, burst) in [("3/8", 160, 40), ("1/8", 512, 40), ("1/8", 256, 20)] {
        let mut pair = up(rate, window);
        let left = Rc::new(Cell::new(0u32));
        let take = |left: &Cell<u32>| {
            let is_lost = left.get() > 0;
            left.set(left.get().saturating_sub(1));
            is_lost
        };
        let (of_packets, of_repairs, n) = (Rc::clone(&left), Rc::clone(&left), Cell::new(0));
        let lost = stream(
            &mut pair,
            // All repairs that the last burst needs follow it.
            7_900,
            || {
                n.set(n.get() + 1);
                if n.get() % 1_031 == 700 {
                    of_packets.set(burst);
                }
                take(&of_packets)
            },
            move || take(&of_repairs),
        );
        assert!(lost.len() as u32 > 6 * burst * 2 / 3, "{} lost", lost.len());
        assert_same(&pair.recovered[B], &lost, &format!("{rate}, W={window}"));
        nothing_went_wrong(&pair);
    }
}

/// Two of three repairs are lost, and with them all names of many packets that arrived. These packets are
/// solved like lost ones, and recognized by their hashes.
#[test]
fn packets_that_arrived_are_never_injected_even_if_all_their_names_are_lost() {
    for seed in 0..6 {
        let mut pair = up("2", 128);
        let lost = stream(&mut pair, 4_000, coin(seed, 0.02), coin(seed + 100, 2.0 / 3.0));
        assert_same(&pair.recovered[B], &lost, &format!("seed {seed}"));
        let recognised = pair.status(B, |peer| peer.ingress.recognised);
        assert!(recognised > 500, "{recognised} of 4,000 packets had no name");
        nothing_went_wrong(&pair);
    }
}

#[test]
fn the_next_repair_recovers_a_loss() {
    let mut pair = up("1/4", 64);
    for n in 0..400 {
        pair.send(A, &packet(n), n == 200);
        pair.advance(1_000);
        assert_eq!(pair.recovered[B].len(), usize::from(n >= 203), "after packet {n}");
    }
    assert_eq!(pair.recovered[B], [packet(200)]);
}

/// A repair waits for a packet that may have been overtaken, but not for one that has been missing longer.
#[test]
fn a_repair_of_packets_long_missing_is_used_at_once() {
    // The second repair after the two losses recovers them, or the third if the repair that named them was
    // lost.
    for (names_lost, last) in [(false, 207), (true, 211)] {
        let mut pair = up("1/4", 64);
        for n in 0..=last {
            pair.lose_datagram = Box::new(move || names_lost && (200..204).contains(&n));
            pair.send(A, &packet(n), n == 200 || n == 201);
            pair.advance(if n == last { 0 } else { 1_000 });
        }
        assert_eq!(pair.recovered[B], [packet(200), packet(201)], "names lost: {names_lost}");
    }
}

#[test]
fn losses_of_sparse_streams_are_recovered_and_windows_stay_within_the_far_ends_memory() {
    let mut pair = up("3/8", 256);
    let mut lost = Vec::new();
    for n in 0..400 {
        pair.send(A, &packet(n), n % 5 == 3);
        lost.extend((n % 5 == 3).then(|| packet(n)));
        // One packet in three follows without a pause.
        pair.advance(21_000 + u64::from(n % 3) * 150_000);
    }
    pair.advance(1_000_000);
    assert_same(&pair.recovered[B], &lost, "a sparse stream");
    assert_eq!(pair.status(B, |peer| peer.ingress.unused.count(Unused::TooOld)), 0);
    nothing_went_wrong(&pair);
}

#[test]
fn a_new_rate_keeps_the_window_and_a_new_window_starts_empty() {
    let mut pair = up("1/16", 64);
    let mut next = 0;
    let mut send = |pair: &mut Pair, count: u32, is_lost: bool| {
        (next..next + count).for_each(|n| {
            pair.send(A, &packet(n), is_lost);
            pair.advance(50);
        });
        next += count;
        next - count
    };
    send(&mut pair, 60, false);
    send(&mut pair, 3, true);
    pair.gateways[A].reconfigure(sliding(A, "1/1", 64, 15)).unwrap();
    send(&mut pair, 4, false);
    pair.advance(1_000);
    assert_eq!(std::mem::take(&mut pair.recovered[B]), [packet(60), packet(61), packet(62)]);
    let sessions = |pair: &Pair| pair.status(A, |peer| peer.sessions);
    let before = sessions(&pair);
    let blocks = Schedule::ReedSolomon { r: 8, c: 3, interleave: 1 };
    for (another, what) in [
        (sliding(A, "1/1", 32, 15), "a shorter window"),
        (Config { schedule: blocks, ..trusting(A) }, "blocks"),
        (sliding(A, "1/2", 64, 15), "a window after blocks"),
    ] {
        // Packets that the previous code would have recovered are given up.
        send(&mut pair, 16, false);
        pair.gateways[A].reconfigure(another).unwrap();
        let first = send(&mut pair, 40, false) + 40;
        send(&mut pair, 1, true);
        send(&mut pair, 40, false);
        pair.advance(1_000);
        assert_eq!(std::mem::take(&mut pair.recovered[B]), [packet(first)], "{what}");
    }
    assert_eq!(sessions(&pair), before, "the session stays");
    nothing_went_wrong(&pair);
}

/// Of packets that cannot be distinguished, as many are recovered as were lost.
#[test]
fn equal_packets_are_recovered_one_by_one() {
    for (seed, fields) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
        let mut pair = up("1/2", 128);
        let mut lose = coin(seed, 0.03);
        let (mut sent, mut lost) = (Vec::new(), Vec::new());
        for n in 0..3_000u32 {
            // Every fourth packet is one of five that repeat, with changing fields.
            let mut packet = if n % 4 == 0 { udp(A, 0, &payload(n / 4 % 5)) } else { packet(n) };
            if n % 4 == 0 {
                restore(&mut packet, MutableFields { ttl: 60, tos: (n / 20 % fields) as u8 });
            }
            let is_lost = lose();
            pair.send(A, &packet, is_lost);
            lost.extend(is_lost.then(|| packet.clone()));
            sent.push(packet);
            pair.advance(200);
        }
        pair.advance(1_000_000);
        let (recovered, sent) = (counted(&pair.recovered[B]), counted(&sent));
        let unique = |lost: &[Vec<u8>]| -> HashSet<Vec<u8>> {
            lost.iter().filter(|packet| sent[&packet[..]] == 1).cloned().collect()
        };
        assert_eq!(unique(&pair.recovered[B]), unique(&lost), "seed {seed}");
        assert_eq!(pair.recovered[B].len(), lost.len(), "seed {seed}");
        assert!(recovered.iter().all(|(packet, &count)| count <= sent[packet]));
        nothing_went_wrong(&pair);
    }
}

#[test]
fn packets_that_repairs_overtake_are_not_injected() {
    let mut pair = up("1/1", 64);
    for n in 0..600 {
        if n % 7 == 3 {
            pair.send_overtaken(A, &packet(n), 50);
        } else {
            pair.send(A, &packet(n), n == 400);
        }
        pair.advance(500);
    }
    assert_eq!(pair.recovered[B], [packet(400)], "the lost packet");
    let late = pair.status(B, |peer| peer.ingress.late);
    assert!(late > 60, "{late} of 85 came after the repair that names them");
}

#[test]
fn a_wrong_recovery_is_never_injected_even_if_names_collide() {
    for bits in [3, 6, 10, 16] {
        let weak = |side| Config { name_bits: bits, ..sliding(side, "3/8", 160, 15) };
        let mut pair = Pair::up([weak(A), weak(B)]);
        let sent: HashSet<_> = (0..4_000u32).map(|n| udp(A, n as u16, &payload(n))).collect();
        let lost = run(&mut pair, 4_000, 11, 0.03);
        assert!(pair.recovered[B].iter().all(|packet| sent.contains(packet)), "names of {bits} bits");
        let distinct: HashSet<_> = pair.recovered[B].iter().collect();
        assert_eq!(distinct.len(), pair.recovered[B].len(), "a packet injected twice");
        // With shorter names, chance may bind a packet that arrived to the place of another.
        if bits >= 16 {
            let lost: HashSet<_> = lost.iter().collect();
            assert!(distinct.is_subset(&lost), "a packet injected that was never lost");
        }
        let wrong = pair.status(B, |peer| peer.ingress.unused.count(Unused::WrongRecovery));
        assert!(bits > 6 || wrong > 0, "the test should provoke wrong recoveries");
    }
}

/// Each egress has a code of its own; an ingress accepts any.
#[test]
fn the_two_directions_may_have_different_codes() {
    let mut pair = Pair::up([sliding(A, "3/8", 160, 15), trusting(B)]);
    let lost = pair.lose_one_in_forty();
    pair.advance(500_000);
    for (from, lost) in [A, B].into_iter().zip(lost) {
        assert_same(&pair.recovered[1 - from], &lost, &format!("from side {from}"));
    }
}

#[test]
fn windows_and_rates_out_of_range_are_refused_and_leave_everything_as_it_was() {
    let mut gateway = Gateway::new(sliding(A, "3/8", 160, 15), [1; 32]).unwrap();
    let mut refused = |rate, window, density| {
        let error = gateway.reconfigure(sliding(A, rate, window, density)).unwrap_err();
        assert_eq!(*gateway.config(), sliding(A, "3/8", 160, 15));
        error
    };
    assert!(matches!(refused("3/8", 1_025, 15), ConfigError::Window(1_025)));
    assert!(matches!(refused("3/8", 0, 15), ConfigError::Code(_)));
    assert!(matches!(refused("3/8", 160, 16), ConfigError::Code(_)));
    assert!(matches!(refused("1/65", 160, 15), ConfigError::Rate(_)));
    assert!(matches!(refused("0", 160, 15), ConfigError::Rate(_)));
    // With this window, 48 of 64 packets would be in no repair.
    assert!(matches!(refused("1/64", 16, 15), ConfigError::WindowShort { window_min: 64, .. }));
    assert!(matches!(refused("3/8", 2, 15), ConfigError::WindowShort { window_min: 3, .. }));
    // A new rate for the present window is refused likewise.
    let mut gateway = Gateway::new(sliding(A, "1/16", 16, 15), [1; 32]).unwrap();
    assert!(gateway.reconfigure(sliding(A, "1/17", 16, 15)).is_err());
    assert!(gateway.reconfigure(sliding(A, "1/15", 16, 15)).is_ok());
}

/// The fate of packets that arrived during a gap is unknown. Packets beyond a margin behind the gap can be
/// recovered.
#[test]
fn after_a_gap_recovery_resumes_once_a_window_lies_behind_the_unseen_packets() {
    let mut pair = up("3/8", 160);
    let (mut lost, mut next) = (Vec::new(), 0);
    let mut send = |pair: &mut Pair, count: u32, mut fate: Box<dyn FnMut(u32) -> (bool, bool)>| {
        for n in 0..count {
            let packet = packet(next);
            let (is_lost, is_seen) = fate(n);
            pair.gateways[A].handle_outgoing(pair.now_us, &packet, &mut pair.out[A]);
            if is_seen && !is_lost {
                pair.gateways[B].handle_incoming(pair.now_us, &packet, &mut pair.out[B]);
            }
            lost.extend(is_lost.then_some(packet));
            next += 1;
            pair.exchange();
            pair.advance(50);
        }
    };
    send(&mut pair, 1_000, Box::new(|_| (false, true)));
    // All of them arrive, and the tap shows none.
    pair.gateways[B].handle_gap();
    send(&mut pair, 300, Box::new(|_| (false, false)));
    pair.gateways[B].handle_caught_up(pair.now_us);
    // These are the packets until one is known to have left later, the margin of 1,536 packets, and a window.
    send(&mut pair, 230 + 1_536 + 160 + 3, Box::new(|_| (false, true)));
    assert!(pair.recovered[B].is_empty(), "{} injected that had arrived", pair.recovered[B].len());
    let too_old = pair.status(B, |peer| peer.ingress.unused.count(Unused::TooOld));
    assert!(too_old <= 2, "{too_old} repairs reached behind the gap");
    send(&mut pair, 1_000, Box::new(|n| (n % 50 == 7, true)));
    pair.advance(50_000);
    assert_same(&pair.recovered[B], &lost, "losses behind the gap");
    nothing_went_wrong(&pair);
}

/// Hosts of the far site send much more traffic through this one to a third site.
#[test]
fn traffic_to_other_destinations_displaces_no_arrivals() {
    let layers = |interleaves| Schedule::Layered { r: 8, interleaves };
    let window = Schedule::Sliding { rate: "3/8".parse().unwrap(), window: 256, density: 15 };
    for (schedule, max_delay_us) in
        [(window, 20_000), (layers(vec![1, 11, 19]), 20_000), (layers(vec![11, 19]), 2_000_000)]
    {
        let what = schedule.to_string();
        let mut pair = Pair::up([A, B].map(|side| Config {
            schedule: schedule.clone(),
            max_delay_us,
            ..trusting(side)
        }));
        let mut transit = udp(A, 0, b"to a third site");
        transit[18] = 77;
        let mut lost = Vec::new();
        for n in 0..400 {
            let is_lost = n % 10 == 7;
            pair.send(A, &packet(n), is_lost);
            lost.extend(is_lost.then(|| packet(n)));
            for k in 0..200u16 {
                transit[4..6].copy_from_slice(&k.to_be_bytes());
                pair.gateways[B].handle_incoming(pair.now_us, &transit, &mut pair.out[B]);
            }
            pair.advance(20_000);
        }
        pair.advance(10_000_000);
        assert_same(&pair.recovered[B], &lost, &what);
        // Bins of sparse traffic may wait for the budget of repairs out of turn.
        let too_old = pair.status(B, |peer| peer.ingress.unused.count(Unused::TooOld));
        assert!(too_old <= 12, "{what}: {too_old}");
        let counts = pair.status(B, |peer| *peer.ingress);
        assert_eq!((counts.source_packets, counts.foreign_packets), (360, 80_000), "{what}");
        nothing_went_wrong(&pair);
    }
}

/// Packets that arrived before a gap, or while recovery was suspended after it, and that no later repair
/// names, must not stand for equal packets that are lost later.
#[test]
fn packets_that_arrived_around_a_gap_hide_no_later_loss() {
    let window = sliding(A, "3/8", 160, 15).schedule;
    // Recovery is suspended for a second, and twice the wait of the slowest repair.
    for (schedule, clears_us) in [(window, 1_040_000), (Schedule::layered(), 1_760_000)] {
        for silence_us in [0, 3_000_000] {
            gap_among_heartbeats(&schedule, clears_us, silence_us);
        }
    }
}

fn gap_among_heartbeats(schedule: &Schedule, clears_us: u64, silence_us: u64) {
    const EVERY_US: u64 = 30_000;
    let heartbeat = udp(A, 0, b"heartbeat");
    let mut pair = Pair::up([A, B].map(|side| Config { schedule: schedule.clone(), ..trusting(side) }));
    let send = |pair: &mut Pair, count: u64, lose_every: u64| {
        for n in 1..=count {
            pair.send(A, &heartbeat, n % lose_every == 0);
            pair.advance(EVERY_US);
        }
    };
    send(&mut pair, 20, u64::MAX);
    // Five packets arrive, and their repairs are lost.
    pair.lose_datagram = Box::new(|| true);
    send(&mut pair, 5, u64::MAX);
    pair.lose_datagram = Box::new(|| false);
    pair.gateways[B].handle_gap();
    pair.gateways[B].handle_caught_up(pair.now_us);
    pair.advance(silence_us);
    send(&mut pair, 200, 25);
    pair.advance(3_000_000);
    // After a silence one repair shows how far the stream has come. Those five packets, and one more, may lie
    // behind it, with as many lost.
    let blind_us = if silence_us == 0 { clears_us } else { 13 * EVERY_US };
    let lost = (1..=200).filter(|n| n % 25 == 0 && n * EVERY_US > blind_us + EVERY_US).count();
    // The budget of repairs out of turn may delay the first one.
    let recovered = pair.recovered[B].len();
    assert!(
        (lost - 1..=lost).contains(&recovered),
        "{recovered} of {lost}: {schedule}, {silence_us} us of silence"
    );
    assert_eq!(pair.recovered[B], vec![heartbeat; recovered], "{schedule}");
}

#[test]
fn packets_that_are_too_long_do_not_keep_others_in_the_window() {
    let mut pair = up("3/8", 16);
    let long = udp(A, 9, &[7; 1_500]);
    for n in 0..60 {
        pair.send(A, &packet(n), n % 7 == 3);
        for _ in 0..40 {
            pair.send(A, &long, false);
            pair.advance(10_000);
        }
        let expected = if n % 7 == 3 { vec![packet(n)] } else { vec![] };
        assert_eq!(std::mem::take(&mut pair.recovered[B]), expected, "packet {n}");
    }
    assert_eq!(pair.status(B, |peer| peer.ingress.unused.count(Unused::TooOld)), 0);
}

#[test]
fn a_repair_that_waits_longer_than_packets_stay_in_the_window_still_leaves() {
    let side = |side| Config { max_delay_us: 1_000_000, ..sliding(side, "3/8", 160, 15) };
    let mut pair = Pair::up([side(A), side(B)]);
    for n in 0..30 {
        pair.send(A, &packet(n), n % 4 == 1);
        pair.advance(650_000);
    }
    pair.advance(2_000_000);
    let lost: Vec<_> = (0..30).filter(|n| n % 4 == 1).map(packet).collect();
    assert_same(&pair.recovered[B], &lost, "a packet each 650 ms");
}
