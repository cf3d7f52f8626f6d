//! Reports of a peer that has the key and lies to the controller of the rate.

use maelstrom_core::Schedule;
use maelstrom_core::counters::Rejected;
use maelstrom_core::forecast::Forecast;
use maelstrom_core::wire::LossReport;

use crate::fuzz::Liar;
use crate::pair::{A, udp};

fn named(named: u64) -> LossReport {
    LossReport { named, ..LossReport::NONE }
}

/// A gateway that has sent `count` packets to a liar.
fn liar(count: u16) -> Liar {
    let mut liar = Liar::to(Schedule::Auto);
    (0..count).for_each(|n| liar.leave(&udp(A, n, &[7; 400])));
    assert_eq!(liar.egress().source_packets, u64::from(count));
    liar
}

fn impossible(liar: &Liar) -> u64 {
    liar.gateway().rejected().count(Rejected::Impossible)
}

#[test]
fn counts_beyond_the_stream_are_refused_however_they_rise_and_fall() {
    let mut liar = liar(200);
    let lie = |liar: &mut Liar, count| {
        liar.say_counts(named(count), Forecast::NONE);
        liar.wait(1);
    };
    for _ in 0..3 {
        lie(&mut liar, u64::MAX);
        (0..9).for_each(|_| lie(&mut liar, 0));
        lie(&mut liar, u64::MAX - 1);
        lie(&mut liar, 201);
    }
    assert_eq!(impossible(&liar), 9);
    lie(&mut liar, 200);
    assert_eq!(impossible(&liar), 9, "all packets may be settled");
    for packets in [201, u32::MAX] {
        liar.say_counts(named(200), Forecast { packets, ..Forecast::NONE });
    }
    assert_eq!(impossible(&liar), 11);
}

#[test]
fn no_report_makes_more_than_all_packets_lost() {
    let mut liar = liar(200);
    liar.wait(1);
    let mut forecast = Forecast { packets: 100, lost: 305, ..Forecast::NONE };
    forecast.tails.iter_mut().for_each(|tail| tail.failed = 4_000_000_000);
    liar.say_counts(LossReport { lost: 100, ..named(100) }, forecast);
    liar.wait(1);
    let decision = liar.gateway().peers().next().unwrap().decision.copied().unwrap();
    assert!(decision.loss <= 1.0 && decision.residual <= 1.0, "{decision:?}");
    assert!(decision.loss > 0.9, "the report counts: {decision:?}");
}
