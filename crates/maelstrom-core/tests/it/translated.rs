//! Boxes that rewrite the packets of some flows only.

use crate::pair::{A, B, Pair, config};
use crate::path::{has, packet, prove};
use maelstrom_core::{Config, Finding, Schedule};
use testkit::Random;

const FLOWS: u16 = 24;

/// Fate of the packets of the first flows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Rewritten,
    Detour,
}

/// Sends packets of 24 flows, and `each` is called after each of them.
fn run(
    schedule: &Schedule,
    (fate, share): (Fate, u16),
    every_us: u64,
    loss: f64,
    mut each: impl FnMut(&Pair, u32),
) -> Pair {
    let mut pair = Pair::up([A, B].map(|side| Config { schedule: schedule.clone(), ..config(side) }));
    pair.delay_us = 5_000;
    prove(&mut pair, 100);
    let (mut random, mut datagrams) = (Random(7), Random(u64::from(share)));
    pair.lose_datagram = Box::new(move || datagrams.chance(loss));
    for n in 0..3_000 {
        let flow = random.below(u64::from(FLOWS)) as u16;
        let (bytes, is_lost) = (packet(flow, n), random.chance(loss));
        if flow >= share {
            pair.send(A, &bytes, is_lost);
        } else {
            pair.leave(A, &bytes);
            let mut rewritten = bytes;
            rewritten[20] ^= 0x40;
            if fate == Fate::Rewritten && !is_lost {
                pair.fly(B, rewritten);
            }
        }
        pair.advance(every_us);
        each(&pair, n);
    }
    pair
}

fn schedules() -> [Schedule; 3] {
    let window = Schedule::Sliding { rate: "1/4".parse().unwrap(), window: 256, density: 15 };
    [Schedule::layered(), window, Schedule::Auto]
}

#[test]
fn a_share_of_flows_that_is_rewritten_is_told_as_such() {
    for share in [4, 8, 24] {
        for (every_us, loss) in [(50_000, 0.0), (1_000, 0.0), (300, 0.02)] {
            for schedule in schedules() {
                let case = format!("{share} of {FLOWS} flows, {every_us}, {loss}, {schedule}");
                let (mut found_after, mut elsewhere) = (None, 0);
                let pair = run(&schedule, (Fate::Rewritten, share), every_us, loss, |pair, n| {
                    if has(pair, Finding::Rewritten) {
                        found_after.get_or_insert(n);
                    }
                    let is_other = has(pair, Finding::PartlyElsewhere) || has(pair, Finding::Elsewhere);
                    elsewhere += u32::from(is_other);
                });
                assert!(has(&pair, Finding::Rewritten), "{case}");
                assert!(found_after.is_some_and(|n| n <= 1_600), "{case}: {found_after:?}");
                assert!(share < FLOWS / 3 || elsewhere == 0, "{case}: told as a detour {elsewhere} times");
                assert!(pair.recovered[B].len() <= 12 || loss > 0.0, "{case}: {}", pair.recovered[B].len());
            }
        }
    }
}

#[test]
fn a_share_of_flows_on_a_detour_is_never_told_as_rewritten() {
    for share in [4, 8, 24] {
        for (every_us, loss) in [(50_000, 0.0), (1_000, 0.0), (300, 0.02)] {
            for schedule in schedules() {
                let case = format!("{share} of {FLOWS} flows, {every_us}, {loss}, {schedule}");
                let pair = run(&schedule, (Fate::Detour, share), every_us, loss, |pair, n| {
                    assert!(!has(pair, Finding::Rewritten), "{case}, packet {n}");
                });
                assert!(!pair.status(B, |peer| peer.findings.is_empty()), "{case}");
            }
        }
    }
}
