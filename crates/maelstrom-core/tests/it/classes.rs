//! Classes of packets with a protection of their own.

use crate::pair::{A, B, Pair, config, udp};
use maelstrom_core::counters::Unprotected;
use maelstrom_core::{Class, Config, Match, Protect, Schedule};

fn class(name: &str, length: std::ops::RangeInclusive<u16>, protect: Protect) -> Class {
    Class { name: name.to_owned(), matches: Match { length: Some(length), ..Match::default() }, protect }
}

fn up(classes: &[Class]) -> Pair {
    let schedule = Schedule::Sliding { rate: "1/8".parse().unwrap(), window: 512, density: 15 };
    let side = |side| Config { schedule: schedule.clone(), classes: classes.to_vec(), ..config(side) };
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
