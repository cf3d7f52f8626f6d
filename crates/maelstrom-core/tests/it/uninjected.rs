//! Recovered packets that the driver cannot inject: they count as lost, and never as recovered.

use crate::pair::{A, B, Pair, config, run};
use maelstrom_core::counters::Uninjected;
use maelstrom_core::{Class, Config, Match, Protect};

#[test]
fn what_the_driver_cannot_inject_stays_lost_and_is_counted_by_reason() {
    let mut pair = Pair::up([config(A), config(B)]);
    pair.refuse[B] = Some(Uninjected::Returning);
    let lost = run(&mut pair, 600, 3, 0.05).len() as u64;
    let (counts, report) = pair.status(B, |peer| (*peer.ingress, peer.report));
    let refused = counts.uninjected.count(Uninjected::Returning);
    assert!(lost > 20 && refused * 10 > 9 * lost, "{refused} of {lost}");
    assert_eq!((counts.recovered_packets, report.recovered, report.withheld), (0, 0, 0));
    assert_eq!((report.lost, report.residual()), (lost, lost));
    assert_eq!(pair.status(A, |peer| peer.far.loss.residual()), lost, "the peer is told");
    assert!(pair.status(B, |peer| peer.missed_us).is_some(), "it stayed lost");
    // Later packets are injected. They are solved with the packets that were not, among others.
    pair.refuse[B] = None;
    run(&mut pair, 600, 8, 0.05);
    let (counts, report) = pair.status(B, |peer| (*peer.ingress, peer.report));
    assert_eq!(counts.uninjected.count(Uninjected::Returning), refused);
    assert_eq!(report.recovered, pair.recovered[B].len() as u64);
    assert!(report.recovered == counts.recovered_packets && report.recovered > 20, "{report:?}");
}

#[test]
fn a_class_does_not_count_as_recovered_what_the_kernel_never_got() {
    let class =
        Class { name: "all".to_owned(), matches: Match::default(), protect: Protect::Auto, late_us: None };
    let with = |side| Config { classes: vec![class.clone()], ..config(side) };
    let mut pair = Pair::up([with(A), with(B)]);
    let recovered = |pair: &Pair| pair.gateways[B].classes().next().expect("a class").1.recovered;
    let refused = |pair: &Pair| pair.status(B, |peer| peer.ingress.uninjected.count(Uninjected::Returning));
    pair.refuse[B] = Some(Uninjected::Returning);
    run(&mut pair, 600, 3, 0.05);
    assert!(refused(&pair) > 20 && recovered(&pair) == 0, "{} of {}", recovered(&pair), refused(&pair));
    pair.refuse[B] = None;
    run(&mut pair, 600, 8, 0.05);
    assert!(pair.recovered[B].len() > 20);
    assert_eq!(recovered(&pair), pair.recovered[B].len() as u64);
}

#[test]
fn single_refusals_are_told_apart() {
    let mut pair = Pair::up([config(A), config(B)]);
    for (round, reason) in [(0, Uninjected::Untaken), (10, Uninjected::Stalled)] {
        pair.refuse[B] = Some(reason);
        run(&mut pair, 100, 20 + round, 0.05);
        pair.refuse[B] = None;
        run(&mut pair, 100, 21 + round, 0.05);
        assert!(pair.status(B, |peer| peer.ingress.uninjected.count(reason)) > 0, "{reason}");
    }
    let (counts, report) = pair.status(B, |peer| (*peer.ingress, peer.report));
    assert!(report.recovered > 0 && report.recovered == counts.recovered_packets, "{report:?} {counts:?}");
    assert_eq!(report.recovered, pair.recovered[B].len() as u64);
}
