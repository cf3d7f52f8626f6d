//! Links that lose packets and repairs alike: chance must not look like another path.

use crate::pair::{A, B, Pair, coin, config};
use crate::path::{has, packet};
use maelstrom_core::counters::Withheld;
use maelstrom_core::{Config, Finding, Schedule};
use testkit::Random;

fn up(schedule: &Schedule) -> Pair {
    let mut pair = Pair::up([A, B].map(|side| Config { schedule: schedule.clone(), ..config(side) }));
    pair.delay_us = 5_000;
    pair
}

fn window(rate: &str, window: u16) -> Schedule {
    Schedule::Sliding { rate: rate.parse().unwrap(), window, density: 15 }
}

fn has_doubt(pair: &Pair) -> bool {
    [Finding::Rewritten, Finding::Elsewhere, Finding::PartlyElsewhere].iter().any(|&found| has(pair, found))
}

/// Before the first repair is lost, a run of lost packets may look like another path. Recovery waits until a
/// repair is lost, but nothing is told to the operator.
#[test]
fn losses_that_hit_no_repair_for_a_while_raise_no_finding() {
    let schedules = [Schedule::layered(), window("1/8", 256), window("1/16", 512), Schedule::Auto];
    for (loss, every_us) in [(0.005, 500), (0.02, 2_500), (0.1, 20_000)] {
        for schedule in &schedules {
            let (mut lost, mut withheld) = (0, 0);
            for seed in 0..12 {
                let mut pair = up(schedule);
                let mut lose = coin(1_000 + 2 * seed, loss);
                pair.lose_datagram = Box::new(coin(1_001 + 2 * seed, loss));
                for n in 0..1_000u32 {
                    let is_lost = lose();
                    lost += u64::from(is_lost);
                    pair.send(A, &packet((n % 5) as u16, n), is_lost);
                    pair.advance(every_us);
                    assert!(!has_doubt(&pair), "{schedule}, loss {loss}, packet {n}, seed {seed}");
                }
                withheld += pair.status(B, |peer| peer.withheld.iter().map(|(_, n)| n).sum::<u64>());
            }
            assert!(withheld <= 8 + lost / 10, "{schedule}, loss {loss}: {withheld} of {lost} withheld");
        }
    }
}

/// The first seconds of a session, in which no repair may have been lost yet, and a rate that rises.
#[test]
fn a_lone_flow_is_not_set_aside_by_chance() {
    for schedule in [Schedule::Auto, window("3/8", 256)] {
        for loss in [0.01, 0.02, 0.04] {
            for seed in 0..40 {
                let mut pair = up(&schedule);
                let (mut random, mut datagrams) = (Random(seed), Random(1_000 + seed));
                pair.lose_datagram = Box::new(move || datagrams.chance(loss));
                for n in 0..1_500u32 {
                    pair.send(A, &packet(0, n), random.chance(loss));
                    pair.advance(1_000);
                }
                let withheld = pair.status(B, |peer| *peer.withheld);
                let counts = [Withheld::LossyFlow, Withheld::Unexplained].map(|why| withheld.count(why));
                assert_eq!(counts, [0, 0], "{schedule}, loss {loss}, seed {seed}");
            }
        }
    }
}

#[test]
fn losses_of_many_windows_raise_no_finding() {
    let mut pair = up(&window("1/8", 256));
    let mut lose = coin(2_001, 0.03);
    pair.lose_datagram = Box::new(coin(2_002, 0.03));
    for n in 0..20_000u32 {
        pair.send(A, &packet((n % 5) as u16, n), lose());
        pair.advance(1_000);
        assert!(!has_doubt(&pair), "packet {n}");
    }
}

/// With one packet for each repair, evidence of 9 is that of 13.5 packets. If one of the flows is set aside,
/// the other one has half as many more.
#[test]
fn a_detour_of_two_flows_costs_no_more_than_its_price() {
    for seed in 0..40 {
        let (mut pair, mut random) = (up(&window("1", 256)), Random(seed));
        let start_us = pair.now_us;
        let mut due_us = [random.below(2_000), random.below(2_000)];
        for n in 0..800u32 {
            let flow = usize::from(due_us[1] < due_us[0]);
            let wait_us = (start_us + due_us[flow]).saturating_sub(pair.now_us);
            pair.advance(wait_us);
            due_us[flow] += 1_500 + random.below(1_000);
            pair.send(A, &packet(flow as u16, n), n % 2 == 1);
        }
        pair.advance(1_000_000);
        let twice = pair.recovered[B].len();
        assert!(twice <= 20, "{twice}, seed {seed}");
    }
}

#[test]
fn a_detour_is_told_beside_losses_and_the_finding_ends_with_it() {
    let cases = [
        (window("1/8", 256), 0.02),
        (window("1/16", 512), 0.02),
        (Schedule::Auto, 0.02),
        (window("3/8", 256), 0.06),
    ];
    for ((schedule, loss), seed) in cases.into_iter().zip(1..) {
        let mut pair = up(&schedule);
        let (mut lose, mut detour) = (coin(10 * seed, loss), coin(10 * seed + 1, 0.25));
        pair.lose_datagram = Box::new(coin(10 * seed + 2, loss));
        let mut stream = |pair: &mut Pair, count: u32, share: bool| {
            for n in 0..count {
                let is_missing = lose() | (detour() && share);
                pair.send(A, &packet((n % 5) as u16, n), is_missing);
                pair.advance(2_500);
            }
        };
        stream(&mut pair, 1_000, false);
        stream(&mut pair, 3_000, true);
        assert!(has(&pair, Finding::PartlyElsewhere), "{schedule}");
        for n in 0..120 {
            let ended = !has_doubt(&pair);
            stream(&mut pair, 100, false);
            assert!(!ended || !has_doubt(&pair), "{schedule}: told again after {n} hundred packets");
        }
        assert!(!has_doubt(&pair) && pair.status(B, |peer| peer.is_recovering), "{schedule}");
    }
}

/// Packets that no repair ever names arrive beside the others. Their number is learned although the link
/// loses packets.
#[test]
fn a_detour_beside_losses_and_unprotected_packets_is_not_told_as_rewritten() {
    let mut pair = up(&window("3/8", 256));
    let (mut lose, mut detour) = (coin(61, 0.06), coin(62, 0.25));
    pair.lose_datagram = Box::new(coin(63, 0.06));
    for n in 0..9_000u32 {
        let is_missing = lose() | (detour() && n > 4_000);
        pair.send(A, &packet((n % 5) as u16, n), is_missing);
        pair.fly(B, packet(9, 100_000 + n));
        pair.advance(2_500);
        assert!(!has(&pair, Finding::Rewritten), "packet {n}");
    }
    assert!(has(&pair, Finding::PartlyElsewhere));
}
