//! Links that lose many packets in long bursts, with long round trips: what is noise and what is a detour.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use crate::pair::{A, B, Pair, config};
use crate::path::{has, packet, prove};
use loss::{Loss, LossModel};
use maelstrom_core::{Config, Finding, Schedule};
use testkit::Random;

/// Packets, and those that were lost, recovered of these, and recovered though they took a detour.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: usize,
    lost: usize,
    recovered: usize,
    twice: usize,
}

/// Sends packets of 12 flows, of which the first `detour` take another path, over a link that loses packets
/// and datagrams alike. `each` is called after each packet.
fn run(
    schedule: &Schedule,
    model: &LossModel,
    seed: u64,
    detour: u16,
    mut each: impl FnMut(&Pair, u32),
) -> Counts {
    let mut pair = Pair::up([A, B].map(|side| Config { schedule: schedule.clone(), ..config(side) }));
    prove(&mut pair, 100);
    pair.delay_us = 250_000;
    pair.advance(2_000_000);
    let link: Rc<RefCell<Loss>> = Rc::new(RefCell::new(model.seeded(seed)));
    let same = Rc::clone(&link);
    pair.lose_datagram = Box::new(move || same.borrow_mut().lose());
    let (mut random, mut lost, mut counts) = (Random(seed), HashSet::new(), Counts::default());
    for n in 0..6_000u32 {
        let flow = random.below(12) as u16;
        let bytes = packet(flow, n);
        let is_lost = flow >= detour && link.borrow_mut().lose();
        counts.sent += 1;
        pair.send(A, &bytes, is_lost || flow < detour);
        if is_lost {
            lost.insert(bytes);
        }
        pair.advance(1_000);
        each(&pair, n);
    }
    pair.lose_datagram = Box::new(|| false);
    pair.advance(5_000_000);
    counts.lost = lost.len();
    counts.recovered = pair.recovered[B].iter().filter(|packet| lost.contains(*packet)).count();
    counts.twice = pair.recovered[B].len() - counts.recovered;
    counts
}

fn window(rate: &str, window: u16) -> Schedule {
    Schedule::Sliding { rate: rate.parse().unwrap(), window, density: 15 }
}

fn models() -> [LossModel; 3] {
    [LossModel::markov(0.05, 40.0), LossModel::bursty(0.05, 40), LossModel::markov(0.05, 1.1)]
        .map(Result::unwrap)
}

fn is_told(pair: &Pair) -> bool {
    [Finding::Rewritten, Finding::Elsewhere, Finding::PartlyElsewhere].iter().any(|&found| has(pair, found))
}

#[test]
fn bursts_on_a_long_path_are_no_detour() {
    for model in models() {
        for schedule in [window("1", 512), window("3/8", 512), Schedule::Auto] {
            let mut sum = Counts::default();
            for seed in 0..4 {
                let case = format!("{model:?}, {schedule}, seed {seed}");
                let counts = run(&schedule, &model, seed, 0, |pair, n| {
                    assert!(!is_told(pair), "{case}, packet {n}: {:?}", pair.status(B, |peer| peer.findings));
                });
                sum.lost += counts.lost;
                sum.recovered += counts.recovered;
                assert_eq!(counts.twice, 0, "{case}");
            }
            // A rate that the gateway chooses needs longer to find out what bursts need.
            let is_enough = schedule == Schedule::Auto || 10 * sum.recovered >= 8 * sum.lost;
            assert!(is_enough, "{model:?}, {schedule}: {sum:?}");
        }
    }
}

#[test]
fn a_detour_beside_bursts_on_a_long_path_is_told_and_delivers_few_packets_twice() {
    for model in models() {
        for schedule in [window("1", 512), window("3/8", 512)] {
            for (seed, detour) in [(1, 1), (2, 3), (3, 6), (4, 12)] {
                let case = format!("{model:?}, {schedule}, {detour} of 12 flows");
                let mut told_after = None;
                let counts = run(&schedule, &model, seed, detour, |pair, n| {
                    if is_told(pair) {
                        told_after.get_or_insert(n);
                    }
                });
                assert!(1_000 * counts.twice <= counts.sent + 6_000, "{case}: {counts:?}");
                assert!(detour < 3 || told_after.is_some(), "{case}");
            }
        }
    }
}
