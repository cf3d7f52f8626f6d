//! Classes of packets with a protection of their own.
//!
//! The path is trusted, so that nothing but the code decides.

use crate::pair::{A, B, Pair, coin, trusting, udp};
use maelstrom_core::controller::Targets;
use maelstrom_core::counters::Unprotected;
use maelstrom_core::{Class, Config, Match, Protect, Schedule};

fn class(name: &str, length: std::ops::RangeInclusive<u16>, protect: Protect) -> Class {
    let matches = Match { length: Some(length), ..Match::default() };
    Class { name: name.to_owned(), matches, protect, late_us: None }
}

fn up(classes: &[Class]) -> Pair {
    let schedule = Schedule::Sliding { rate: "1/8".parse().unwrap(), window: 512, density: 15 };
    let side = |side| Config { schedule: schedule.clone(), classes: classes.to_vec(), ..trusting(side) };
    Pair::up([side(A), side(B)])
}

/// Sends packets of these lengths in turn, of which one in ten is lost.
fn send(pair: &mut Pair, count: u32, lengths: &[usize]) -> Vec<Vec<u8>> {
    let mut lost = Vec::new();
    for n in 0..count {
        let packet = udp(A, n as u16, &vec![n as u8; lengths[n as usize % lengths.len()] - 28]);
        pair.send(A, &packet, n % 10 == 7);
        lost.extend((n % 10 == 7).then_some(packet));
        pair.advance(1_000);
    }
    pair.advance(1_000_000);
    lost
}

#[test]
fn a_class_with_protection_off_gets_no_repairs_and_the_first_class_that_matches_counts() {
    let classes = [
        class("small", 0..=200, Protect::Auto),
        class("backup", 0..=1_000, Protect::Off),
        class("never", 900..=1_000, Protect::Auto),
    ];
    let mut pair = up(&classes);
    let lost = send(&mut pair, 300, &[100, 900, 1_200]);
    let mut expected: Vec<_> = lost.into_iter().filter(|packet| packet.len() != 900).collect();
    assert!(expected.len() == 20);
    expected.sort();
    pair.recovered[B].sort();
    assert_eq!(pair.recovered[B], expected);
    assert_eq!(pair.gateways[A].unprotected().count(Unprotected::Class), 100);
    assert_eq!(pair.status(A, |peer| peer.egress.source_packets), 200);
    let counts: Vec<_> =
        pair.gateways[A].classes().map(|(_, counts)| (counts.packets, counts.bytes)).collect();
    assert_eq!(counts, [(100, 10_000), (100, 90_000), (0, 0)]);
}

#[test]
fn a_class_with_a_rate_gets_at_least_that_number_of_repairs() {
    for (protect, repairs) in
        [(Protect::Auto, 120..=140), (Protect::AtLeast("1/2".parse().unwrap()), 300..=325)]
    {
        let mut pair = up(&[class("game", 0..=200, protect)]);
        // Of every two packets one is of the class.
        let lost = send(&mut pair, 1_000, &[100, 1_200]);
        let sent = pair.status(A, |peer| peer.egress.repair_packets);
        assert!(repairs.contains(&sent), "{protect:?}: {sent}");
        if protect != Protect::Auto {
            assert_eq!(pair.recovered[B].len(), lost.len());
        }
    }
}

#[test]
fn repairs_and_recovered_packets_are_counted_by_class() {
    let half = Protect::AtLeast("1/2".parse().unwrap());
    let classes = [class("game", 0..=200, half), class("mail", 201..=1_000, Protect::Off)];
    let mut pair = up(&classes);
    let lost = send(&mut pair, 1_200, &[100, 900, 1_200]);
    let counts = |pair: &Pair, side: usize| -> Vec<_> {
        pair.gateways[side].classes().map(|(_, counts)| counts).collect()
    };
    let [game, mail] = counts(&pair, A)[..] else { panic!("two classes") };
    assert_eq!((game.packets, game.protected, mail.packets, mail.protected), (400, 400, 400, 0));
    // At least what the packets of the class need beyond an eighth, and those that they complete.
    assert!((150..=250).contains(&game.repairs) && mail.repairs == 0, "{game:?} {mail:?}");
    let all = pair.status(A, |peer| peer.egress.repair_packets);
    assert!(all > game.repairs, "others complete repairs too: {all}");
    let of_game = lost.iter().filter(|packet| packet.len() <= 200).count() as u64;
    let [game, mail] = counts(&pair, B)[..] else { panic!("two classes") };
    assert_eq!((game.recovered, mail.recovered, game.packets, game.repairs), (of_game, 0, 0, 0));
    // The counts outlast a reload that changes other classes.
    let mut config = pair.gateways[B].config().clone();
    config.classes.remove(1);
    pair.gateways[B].reconfigure(config).unwrap();
    assert_eq!(counts(&pair, B)[0].recovered, of_game);
}

#[test]
fn a_repair_for_the_deadline_of_a_class_counts_for_it() {
    let urgent = Class { late_us: Some(30_000), ..class("voice", 0..=200, Protect::Auto) };
    let schedule = Schedule::Sliding { rate: "1/64".parse().unwrap(), window: 512, density: 15 };
    let side = |side| Config { schedule: schedule.clone(), classes: vec![urgent.clone()], ..trusting(side) };
    let mut pair = Pair::up([side(A), side(B)]);
    for n in 0..400_u32 {
        let len = if n % 40 == 0 { 100 } else { 1_200 };
        pair.send(A, &udp(A, n as u16, &vec![n as u8; len - 28]), false);
        pair.advance(1_000);
    }
    let counts = pair.gateways[A].classes().next().unwrap().1;
    assert!((9..=11).contains(&counts.repairs), "{counts:?}");
}

/// Sends a packet of the class among others each 20 ms for a while; returns the shares of its packets that
/// stay lost, and that come later than `late_us`, among the lost.
fn sparse(classes: &[Class], late_us: u64) -> (f64, f64, f64) {
    let targets = Targets { late_us: Some(400_000), ..Targets::default() };
    let side =
        |side| Config { schedule: Schedule::Auto, targets, classes: classes.to_vec(), ..trusting(side) };
    let mut pair = Pair::new([side(A), side(B)]);
    pair.delay_us = 50_000;
    pair.run_until_up();
    let (mut lose, mut lose_repair) = (coin(11, 0.01), coin(12, 0.01));
    let (mut lost, mut due, mut late) = (0, std::collections::HashMap::new(), 0);
    for n in 0..60_000u32 {
        let is_of_class = n % 20 == 7;
        let len = if is_of_class { 100 } else { 900 };
        let packet = udp(A, n as u16, &[&n.to_be_bytes()[..], &vec![n as u8; len - 32]].concat());
        let (is_lost, is_muted) = (lose(), lose_repair());
        pair.mute[A] = is_muted;
        pair.send(A, &packet, is_lost);
        pair.mute[A] = false;
        // The first seconds show what the link is like.
        if is_of_class && is_lost && n > 10_000 {
            lost += 1;
            due.insert(packet, pair.now_us + pair.delay_us + late_us);
        }
        for _ in 0..4 {
            pair.advance(250);
            for packet in std::mem::take(&mut pair.recovered[B]) {
                late += u32::from(due.remove(&packet).is_some_and(|due_us| pair.now_us > due_us + 1_000));
            }
        }
    }
    let share = |count: u32| f64::from(count) / f64::from(lost);
    let overhead =
        pair.status(A, |peer| peer.egress.repair_packets as f64 / peer.egress.source_packets as f64);
    (share(due.len() as u32), share(late), overhead)
}

/// 1,000 packets per second, of which 50 are of the class. Other packets have 400 ms; 12 ms are twelve
/// packets.
#[test]
fn packets_of_a_class_come_within_its_deadline() {
    let class = |late_us| Class { late_us, ..class("voice", 0..=200, Protect::Auto) };
    let late_us = 12_000;
    let (residual, late, overhead) = sparse(&[class(None)], late_us);
    assert!(residual < 0.05 && late > 0.2, "without a deadline: {residual}, {late}, {overhead}");
    let (residual, late, overhead) = sparse(&[class(Some(late_us))], late_us);
    assert!(residual < 0.05 && late < 0.05, "with a deadline: {residual}, {late}, {overhead}");
    assert!(overhead < 0.4, "{overhead}");
}

/// A burst of 300 packets, longer than any window of 512 recovers.
#[test]
fn a_class_with_a_long_deadline_buys_a_longer_window() {
    let class = |late_us| Class { late_us, ..class("bulk", 201..=1_500, Protect::Auto) };
    let recovered = |late_us| {
        let targets = Targets { rate_max: "1/2".parse().unwrap(), ..Targets::default() };
        let side = |side| Config {
            schedule: Schedule::Auto,
            targets,
            classes: vec![class(late_us)],
            ..trusting(side)
        };
        let mut pair = Pair::new([side(A), side(B)]);
        pair.delay_us = 10_000;
        pair.run_until_up();
        // Bursts of 300 packets and their repairs, one in 8,000 packets.
        let mut lost = Vec::new();
        for n in 0..64_000u32 {
            let is_lost = (4_000..4_300).contains(&(n % 8_000));
            let packet = udp(A, n as u16, &[&n.to_be_bytes()[..], &[n as u8; 400]].concat());
            pair.mute[A] = is_lost;
            pair.send(A, &packet, is_lost);
            pair.mute[A] = false;
            lost.extend((is_lost && n > 30_000).then_some(packet));
            pair.advance(100);
        }
        pair.advance(500_000);
        let recovered: std::collections::HashSet<_> = pair.recovered[B].iter().collect();
        let back = lost.iter().filter(|packet| recovered.contains(packet)).count();
        let code = pair.status(A, |peer| peer.code.to_string());
        (back as f64 / lost.len() as f64, code)
    };
    let (back, code) = recovered(None);
    assert!(back < 0.2 && code.starts_with("sliding (512; "), "{back}: {code}");
    let (back, code) = recovered(Some(1_000_000));
    assert!(back > 0.9 && code == "sliding (1024; 1/2, 2 stripes)", "{back}: {code}");
}

#[test]
fn a_reload_changes_classes_and_keeps_the_counts_of_those_that_stay() {
    let (off, auto) = (class("a", 0..=200, Protect::Off), class("b", 201..=1_500, Protect::Auto));
    let mut pair = up(&[off.clone(), auto.clone()]);
    send(&mut pair, 20, &[100, 1_200]);
    let changed = [auto, class("a", 0..=200, Protect::Auto)];
    let config = Config { classes: changed.to_vec(), ..pair.gateways[A].config().clone() };
    pair.gateways[A].reconfigure(config).unwrap();
    send(&mut pair, 20, &[100, 1_200]);
    let counts: Vec<_> = pair.gateways[A].classes().map(|(_, counts)| counts.packets).collect();
    assert_eq!(counts, [20, 10]);
    assert_eq!(pair.gateways[A].unprotected().count(Unprotected::Class), 10);
}
