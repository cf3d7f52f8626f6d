//! Packets that arrive later than the repairs that name them: jitter, and paths that become longer.

use std::collections::HashSet;

use crate::fragments::fragments_of;
use crate::pair::{A, B, Pair, config};
use crate::path::{has, packet};
use crate::sparse;
use maelstrom_core::{Config, Finding, Schedule};
use testkit::Random;

fn schedules() -> [Schedule; 3] {
    let window = Schedule::Sliding { rate: "1/4".parse().unwrap(), window: 256, density: 15 };
    [Schedule::layered(), window, Schedule::Auto]
}

fn up(schedule: &Schedule) -> Pair {
    let mut pair = Pair::up([A, B].map(|side| Config { schedule: schedule.clone(), ..config(side) }));
    pair.delay_us = 10_000;
    pair
}

/// Adds up to `jitter_us` to the delay of each packet and of each datagram.
fn spread(pair: &mut Pair, seed: u64, jitter_us: u64) {
    let mut random = Random(seed);
    pair.extra_us = Box::new(move |_, _| random.below(jitter_us + 1));
}

fn is_told_as_detour(pair: &Pair) -> bool {
    [Finding::Rewritten, Finding::Elsewhere, Finding::PartlyElsewhere].iter().any(|&found| has(pair, found))
}

/// Counts the packets that were recovered although they arrived.
fn doubles(pair: &Pair, lost: &HashSet<Vec<u8>>) -> usize {
    pair.recovered[B].iter().filter(|packet| !lost.contains(*packet)).count()
}

#[test]
fn jitter_delivers_few_packets_twice_and_is_not_told_as_a_detour() {
    for (every_us, jitter_us) in [(50_000, 20_000), (50_000, 5_000), (5_000, 20_000), (300, 20_000)] {
        for schedule in schedules() {
            let (mut twice, seeds) = (0, 8);
            for seed in 0..seeds {
                let mut pair = up(&schedule);
                spread(&mut pair, seed, jitter_us);
                for n in 0..1_200u32 {
                    pair.send(A, &packet((n % 4) as u16, n), false);
                    pair.advance(every_us);
                    assert!(!is_told_as_detour(&pair), "{schedule}, {every_us}, {jitter_us}, seed {seed}");
                }
                pair.advance(3_000_000);
                let doubles = pair.recovered[B].len();
                assert!(
                    doubles <= if every_us < jitter_us { 16 } else { 4 },
                    "{schedule}, {every_us}, {jitter_us}, seed {seed}: {doubles}"
                );
                twice += doubles;
            }
            let limit = if every_us < jitter_us { 10 } else { 2 };
            assert!(twice <= limit * seeds as usize, "{schedule}, {every_us}, {jitter_us}: {twice}");
        }
    }
}

#[test]
fn losses_are_recovered_beside_jitter() {
    for schedule in schedules() {
        let (mut recovered, mut expected, mut twice) = (0, 0, 0);
        for seed in 0..8 {
            let mut pair = up(&schedule);
            spread(&mut pair, seed, 20_000);
            let (mut random, mut datagrams) = (Random(100 + seed), Random(200 + seed));
            pair.lose_datagram = Box::new(move || datagrams.chance(0.02));
            let mut lost = HashSet::new();
            for n in 0..6_000u32 {
                let (bytes, is_lost) = (packet((n % 4) as u16, n), n > 500 && random.chance(0.02));
                pair.send(A, &bytes, is_lost);
                if is_lost {
                    lost.insert(bytes);
                }
                pair.advance(2_000);
            }
            pair.lose_datagram = Box::new(|| false);
            pair.advance(3_000_000);
            twice += doubles(&pair, &lost);
            recovered += pair.recovered[B].len() - doubles(&pair, &lost);
            expected += lost.len();
        }
        assert!(10 * recovered >= 9 * expected, "{schedule}: {recovered} of {expected}");
        assert!(twice <= 48, "{schedule}: {twice} of 48,000 packets twice");
    }
}

/// From some packet on, all packets of some flows take longer than repairs.
#[test]
fn a_path_that_becomes_longer_delivers_few_packets_twice() {
    for longer_us in [1_000, 10_000, 24_000, 40_000, 100_000, 300_000] {
        for (every_us, moved) in [(50_000, 1), (50_000, 4), (2_000, 1), (2_000, 4)] {
            for schedule in schedules() {
                let mut pair = up(&schedule);
                let mut lost = HashSet::new();
                let (mut random, mut datagrams) = (Random(longer_us), Random(longer_us + 1));
                pair.lose_datagram = Box::new(move || datagrams.chance(0.005));
                for n in 0..1_600u32 {
                    if n == 400 {
                        pair.extra_us = Box::new(move |bytes, is_datagram| {
                            let flow =
                                bytes.get(20..22).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]));
                            let is_moved = !is_datagram && flow.wrapping_sub(1_000) < moved;
                            if is_moved { longer_us } else { 0 }
                        });
                    }
                    let (bytes, is_lost) = (packet((n % 4) as u16, n), random.chance(0.005));
                    pair.send(A, &bytes, is_lost);
                    if is_lost {
                        lost.insert(bytes);
                    }
                    pair.advance(every_us);
                    // Later packets do take another path.
                    let told = longer_us <= 100_000 && is_told_as_detour(&pair);
                    assert!(
                        !told,
                        "{schedule}, {longer_us}, {every_us}, {moved}: {:?}",
                        pair.status(B, |peer| peer.findings)
                    );
                }
                pair.advance(3_000_000);
                let doubles = doubles(&pair, &lost);
                let limit = match longer_us {
                    _ if every_us < longer_us => 2 + 2 * usize::from(moved),
                    0..=25_000 => 1,
                    _ => 3,
                };
                assert!(doubles <= limit, "{schedule}, {longer_us}, {every_us}, {moved} flows: {doubles}");
            }
        }
    }
}

/// Single packets are late by more than the interval between two of them. The first ones are delivered twice.
#[test]
fn slow_traffic_that_is_reordered_is_rarely_delivered_twice() {
    for (flows, share) in [(1, 0.05), (1, 0.25), (4, 0.05), (4, 0.5), (40, 0.05), (40, 0.25)] {
        for schedule in schedules() {
            for late_us in [60_000, 130_000] {
                let kind = sparse::Kind { schedule: schedule.clone(), flows, share, late_us };
                let twice: Vec<usize> = (0..4).map(|seed| kind.run(seed)).collect();
                assert!(twice.iter().all(|&twice| twice <= 3), "{kind:?}: {twice:?}");
                let sum = twice.iter().sum::<usize>() as u32;
                assert!(1_000 * sum <= 4 * sparse::PACKETS + 1_000, "{kind:?}: {twice:?}");
            }
        }
    }
}

/// A packet of 3,000 bytes, in the fragments that its host makes.
fn datagram(n: u32) -> Vec<Vec<u8>> {
    let content = [&n.to_be_bytes()[..], &[n as u8; 2_996]].concat();
    let (from, to) = ([10, 81, 1, 10].into(), [10, 81, 2, 10].into());
    fragments_of(&testkit::packet::udp4(from, to, 9_000, n as u16, &content), 1_500)
}

#[test]
fn fragments_that_hosts_make_are_not_told_as_a_detour_beside_jitter_and_losses() {
    for (every_us, jitter_us, loss) in
        [(50_000, 20_000, 0.0), (50_000, 3_000, 0.02), (2_000, 20_000, 0.02), (1_000, 0, 0.02)]
    {
        for schedule in schedules() {
            for seed in 0..4 {
                let mut pair = up(&schedule);
                spread(&mut pair, seed, jitter_us);
                let (mut random, mut datagrams) = (Random(100 + seed), Random(200 + seed));
                pair.lose_datagram = Box::new(move || datagrams.chance(loss));
                for n in 0..800 {
                    for piece in datagram(n) {
                        pair.send(A, &piece, random.chance(loss));
                    }
                    pair.advance(every_us);
                    let found = pair.status(B, |peer| peer.findings);
                    assert!(
                        found.is_empty(),
                        "{schedule}, {every_us}, {jitter_us}, {loss}, seed {seed}: {found:?}"
                    );
                }
            }
        }
    }
}

/// A router on the way fragments what is longer than 1,100 bytes, from some packet on.
#[test]
fn a_path_that_becomes_narrow_is_told_as_nothing_else() {
    for (every_us, tells) in [(50_000, true), (50_000, false), (2_500, true), (2_500, false), (500, false)] {
        for schedule in schedules() {
            for is_long in [false, true] {
                let mut pair = up(&schedule);
                for n in 0..2_000u32 {
                    if n == 300 {
                        pair.datagram_max = 1_100 - 28;
                        if tells {
                            let now_us = pair.now_us;
                            pair.gateways[A].handle_path_mtu(now_us, (0, 0), 1_100);
                        }
                    }
                    let sent = if is_long { datagram(n) } else { vec![packet((n % 4) as u16, n)] };
                    for whole in sent {
                        if n < 300 || whole.len() <= 1_100 {
                            pair.send(A, &whole, false);
                        } else {
                            pair.leave(A, &whole);
                            fragments_of(&whole, 1_100).into_iter().for_each(|piece| pair.fly(B, piece));
                        }
                    }
                    pair.advance(every_us);
                    let found = pair.status(B, |peer| peer.findings);
                    let case = format!("{schedule}, {every_us}, told: {tells}, long: {is_long}, packet {n}");
                    assert!(!is_told_as_detour(&pair), "{case}: {found:?}");
                }
                pair.advance(3_000_000);
                assert_eq!(pair.recovered[B].len(), 0, "{schedule}, {every_us}, {tells}, {is_long}");
            }
        }
    }
}
