//! Packets that are left to the senders behind a full queue, and packets that are recovered: TCP in a model,
//! then packets through two gateways.
//!
//! Where nothing but the queue decides, the path is trusted.

use std::cell::Cell;
use std::rc::Rc;

use crate::bottleneck::{Bottleneck, FlowPlan, Kind, Outcome};
use crate::pair::{A, B, Pair, coin, config, payload, trusting, udp};
use maelstrom_core::congestion::OnCongestion::{self, Leave, Mask};
use maelstrom_core::congestion::{Congestion, Verdict};
use maelstrom_core::counters::Withheld;
use maelstrom_core::packet::{MutableFields, Packet, restore};
use maelstrom_core::wire::{Lag, SendTime};
use maelstrom_core::{Config, Schedule, Seq};
use testkit::Random;

const SECOND: u64 = 1_000_000;
/// 100 Mbit/s, and a queue of 105 ms.
const PER_SECOND: f64 = 9_500.0;

fn flow(kind: Kind, is_protected: bool, from_us: u64) -> FlowPlan {
    FlowPlan { kind, is_protected, from_us, to_us: u64::MAX }
}

fn lone(kind: Kind) -> Bottleneck {
    let flows = vec![flow(kind, true, 0)];
    Bottleneck { per_second: PER_SECOND, queue: 1_000.0, flows, ..Bottleneck::default() }
}

/// Two protected flows that begin at some time, and two bare ones.
fn shared(kind: Kind, from_us: u64) -> Bottleneck {
    let flows = [(true, from_us), (true, from_us), (false, 0), (false, 0)];
    Bottleneck {
        flows: flows.map(|(is_protected, from_us)| flow(kind, is_protected, from_us)).to_vec(),
        ..lone(kind)
    }
}

fn with(link: &Bottleneck, gateways: Option<OnCongestion>) -> Outcome {
    Bottleneck { gateways, ..link.clone() }.run()
}

/// A random delay as Wi-Fi has, 10 ms on average.
fn wifi_us(_: u64, chance: f64) -> u64 {
    (-(1.0 - chance).ln() * 10_000.0) as u64
}

#[test]
fn bare_flows_keep_their_share_beside_protected_ones() {
    for (name, link) in [
        ("cubic", shared(Kind::Cubic, 0)),
        ("reno that joins a full link", shared(Kind::Reno, 10 * SECOND)),
        ("cubic that joins a full link", shared(Kind::Cubic, 10 * SECOND)),
        ("clocks drift apart", Bottleneck { drift_ppm: 100, ..shared(Kind::Cubic, 0) }),
    ] {
        let bare = |gateways| with(&link, gateways).sum(2..4);
        // Half of the link is their fair share.
        let fair = bare(None).min(PER_SECOND / 2.0);
        let (masked, left) = (bare(Some(Mask)), bare(Some(Leave)));
        assert!(masked < 0.4 * fair, "{name}: {masked:.0} of {fair:.0} where all is recovered");
        assert!(left > 0.8 * fair, "{name}: {left:.0} of {fair:.0}");
    }
}

#[test]
fn a_lone_flow_on_a_clean_link_loses_the_share_of_the_repairs() {
    for kind in [Kind::Cubic, Kind::Reno] {
        let (link, bare) = (lone(kind), with(&lone(kind), None));
        let (masked, left) = (with(&link, Some(Mask)), with(&link, Some(Leave)));
        assert!(left.sum(0..1) > 0.96 * bare.sum(0..1), "{kind:?}: {left:?}");
        assert!(
            left.dropped <= bare.dropped + 12 && masked.dropped > 4 * left.dropped,
            "{left:?} {masked:?}"
        );
    }
}

/// Links that lose packets by themselves.
fn lossy(kind: Kind) -> Vec<(&'static str, Bottleneck)> {
    let link = Bottleneck { per_repair: 8, us: 80 * SECOND, counted_from_us: 40 * SECOND, ..lone(kind) };
    let strong = Bottleneck { per_repair: 4, ..link.clone() };
    let one: fn(u64) -> f64 = |_| 0.01;
    vec![
        ("0.1 %", Bottleneck { loss: |_| 0.001, ..link.clone() }),
        ("1 %", Bottleneck { loss: one, ..link.clone() }),
        ("1 % from scratch", Bottleneck { loss: one, us: 20 * SECOND, counted_from_us: 0, ..link.clone() }),
        ("Wi-Fi", Bottleneck { loss: one, noise_us: wifi_us, ..link.clone() }),
        ("a route that changes", {
            let noise_us: fn(u64, f64) -> u64 =
                |now_us, _| if now_us / SECOND % 40 < 20 { 0 } else { 40_000 };
            Bottleneck { loss: one, noise_us, ..link.clone() }
        }),
        ("clocks drift apart", Bottleneck { loss: one, drift_ppm: -100, ..link }),
        ("from 0.01 to 5 %", {
            let loss: fn(u64) -> f64 = |now_us| if now_us < 40 * SECOND { 0.000_1 } else { 0.05 };
            Bottleneck { loss, ..strong.clone() }
        }),
        ("10 % for 3 of 20 seconds", {
            let loss: fn(u64) -> f64 = |now_us| if now_us / SECOND % 20 < 3 { 0.1 } else { 0.0 };
            Bottleneck { loss, ..strong }
        }),
    ]
}

#[test]
fn losses_of_the_link_are_recovered_whatever_its_delay_does() {
    for kind in [Kind::Cubic, Kind::Reno] {
        for (name, link) in lossy(kind) {
            let (masked, left) = (with(&link, Some(Mask)), with(&link, Some(Leave)));
            // Of the link, the share that is not of repairs.
            let most = PER_SECOND / (1.0 + 1.0 / link.per_repair as f64);
            let share = left.sum(0..1) / masked.sum(0..1).min(most);
            assert!(share > 0.95, "{kind:?}, {name}: {share:.2}, {left:?}");
        }
    }
}

#[test]
fn random_losses_of_a_constant_stream_are_never_left() {
    for loss in [(|_| 0.001) as fn(u64) -> f64, |_| 0.01] {
        let stream = lone(Kind::Constant { every_us: 1e6 / PER_SECOND / 0.8 });
        let link = Bottleneck { loss, noise_us: wifi_us, us: 200 * SECOND, ..stream };
        let outcome = with(&link, Some(Leave));
        assert!(outcome.left == 0 && outcome.recovered > 500, "{outcome:?}");
    }
}

#[test]
fn losses_that_do_not_depend_on_the_delay_are_taken_for_those_of_the_link() {
    // A policer, and a queue too short to be seen, show no delay.
    let link = Bottleneck { queue: 8.0, ..lone(Kind::Cubic) };
    assert_eq!(with(&link, Some(Leave)).sum(0..1), with(&link, Some(Mask)).sum(0..1));
}

/// Feeds `seconds` of a link whose queue fills to 100 ms and drops one packet in a hundred then.
fn feed(congestion: &mut Congestion, begin_us: u64, seconds: u64, next: &mut u64) {
    for step in 0..seconds * 100 {
        let now_us = begin_us + step * 10_000;
        let is_full = step % 50 >= 40;
        let delay_us = if is_full { 100_000 } else { 2_000 * (step % 50) };
        congestion.on_datagram(now_us, 0, SendTime::at(now_us - delay_us));
        *next += 20;
        congestion.on_packet(Seq(*next - 1));
        congestion.on_arrived(Seq(*next - 20), 19);
        if is_full && step % 5 == 0 {
            congestion.on_lost(Seq(*next - 1));
        } else {
            congestion.on_arrived(Seq(*next - 1), 1);
        }
        congestion.on_tick(now_us);
    }
}

/// Small packets of a tunnel share datagrams while the link is idle, and share their fate.
#[test]
fn packets_that_share_a_datagram_are_no_evidence_of_a_queue() {
    for seed in 0..40 {
        let (mut congestion, mut lose, mut next) = (Congestion::new(Leave), coin(seed, 0.02), 0);
        for step in 0..30_000_u64 {
            let now_us = 3_600 * SECOND + step * 1_000;
            let is_idle = step % 1_000 < 150;
            let (packets, delay_us) = if is_idle { (16, 0) } else { (1, 20_000) };
            if is_idle && step % 25 > 0 {
                continue;
            }
            let first = next;
            next += packets;
            if lose() {
                (first..next).for_each(|seq| _ = congestion.on_lost(Seq(seq)));
            } else {
                congestion.on_datagram(now_us, 0, SendTime::at(now_us - delay_us));
                congestion.on_packets(packets as usize);
                (first..next).for_each(|seq| congestion.on_packet(Seq(seq)));
                congestion.on_arrived(Seq(first), packets);
            }
            congestion.on_tick(now_us);
        }
        assert!(congestion.state().queue.is_none(), "seed {seed}: {}", congestion.state());
    }
}

/// An egress without time reads its tap late. Its repairs meet a queue that has drained meanwhile.
#[test]
fn losses_whose_repairs_leave_late_are_those_of_the_queue_that_their_packets_met() {
    const LATE: u64 = 8;
    let (mut congestion, mut next) = (Congestion::new(Leave), 0);
    let is_full = |step: u64| step % 50 >= 40;
    for step in LATE..6_000 {
        let now_us = 3_600 * SECOND + step * 10_000;
        let delay_us = if is_full(step) { 100_000 } else { 2_000 * (step % 50) };
        let sent = SendTime::at(now_us - delay_us);
        congestion.on_datagram(now_us, 0, sent);
        next += 20;
        // The newest packet left 80 ms before the repair.
        congestion.on_repair(Seq(next - 1), Some(sent), Lag::of(10_000 * LATE));
        congestion.on_arrived(Seq(next - 20), 19);
        if is_full(step - LATE) && (step - LATE).is_multiple_of(5) {
            congestion.on_lost(Seq(next - 1));
        } else {
            congestion.on_arrived(Seq(next - 1), 1);
        }
        congestion.on_tick(now_us);
    }
    let full = congestion.state().queue.unwrap();
    assert!((80_000..=100_000).contains(&full.full_us) && full.below < 1e-4, "{full:?}");
    assert!(congestion.state().is_leaving, "{}", congestion.state());
}

/// Feeds a minute of two paths that share packets. For a fifth of the time, the queue of the first or those
/// of both are full, and one packet in twenty is lost.
fn share(congestion: &mut Congestion, begin_us: u64, are_both_full: bool, next: &mut u64) {
    for step in 0..6_000 {
        let now_us = begin_us + step * 10_000;
        let is_full = step % 50 >= 40;
        // The second path takes 30 ms longer.
        let queue_us = |is_full| if is_full { 100_000 } else { 5_000 };
        congestion.on_datagram(now_us, 1, SendTime::at(now_us - 30_000 - queue_us(is_full && are_both_full)));
        congestion.on_datagram(now_us, 0, SendTime::at(now_us - queue_us(is_full)));
        *next += 20;
        congestion.on_packet(Seq(*next - 1));
        congestion.on_arrived(Seq(*next - 20), 19);
        if is_full {
            congestion.on_lost(Seq(*next - 1));
        } else {
            congestion.on_arrived(Seq(*next - 1), 1);
        }
        congestion.on_tick(now_us);
    }
}

#[test]
fn packets_are_left_to_their_senders_once_all_paths_that_share_them_are_full() {
    let (mut congestion, mut next) = (Congestion::new(Leave), 0);
    share(&mut congestion, 3_600 * SECOND, false, &mut next);
    // It is known by which queue they were dropped, so that they are no reason for more repairs.
    assert!(congestion.state().is_leaving, "{}", congestion.state());
    let last = Seq(next - 1);
    assert_eq!((congestion.judge(last), congestion.would_leave(last)), (Verdict::Recover, false));
    assert_eq!(congestion.on_lost(last), Verdict::Leave);
    share(&mut congestion, 3_660 * SECOND, true, &mut next);
    let last = Seq(next - 1);
    assert_eq!((congestion.judge(last), congestion.would_leave(last)), (Verdict::Leave, true));
}

#[test]
fn what_is_known_of_a_link_outlasts_a_night_and_a_new_session() {
    let (mut congestion, mut next) = (Congestion::new(Leave), 0);
    assert_eq!(congestion.judge(Seq(0)), Verdict::Recover, "nothing is known");
    feed(&mut congestion, 3_600 * SECOND, 60, &mut next);
    assert!(congestion.state().is_leaving, "{}", congestion.state());
    let full = congestion.state().queue.unwrap();
    assert!((80_000..=100_000).contains(&full.full_us) && full.below < 1e-4, "{full:?}");
    for hour in 1..9 {
        congestion.on_tick((3_660 + hour * 3_600) * SECOND);
    }
    congestion.restart();
    feed(&mut congestion, 40_000 * SECOND, 1, &mut 0);
    assert!(congestion.state().is_leaving, "{}", congestion.state());
    congestion.set_mode(Mask);
    assert!(!congestion.state().is_leaving && congestion.judge(Seq(1_999)) == Verdict::Recover);
}

/// Feeds `seconds` of a link whose queue is full for a share of each second, in per cent, and drops one
/// packet in ten then. Returns how many times it was found to stand full.
fn stand(congestion: &mut Congestion, begin_us: u64, seconds: u64, full_percent: u64, next: &mut u64) -> u64 {
    let mut standing = 0;
    for step in 0..seconds * 100 {
        let now_us = begin_us + step * 10_000;
        let is_full = step % 100 < full_percent;
        congestion.on_datagram(now_us, 0, SendTime::at(now_us - if is_full { 100_000 } else { 5_000 }));
        *next += 10;
        congestion.on_packet(Seq(*next - 1));
        congestion.on_arrived(Seq(*next - 10), 9);
        if is_full {
            congestion.on_lost(Seq(*next - 1));
        } else {
            congestion.on_arrived(Seq(*next - 1), 1);
        }
        congestion.on_tick(now_us);
        standing += u64::from(congestion.is_standing());
    }
    standing
}

#[test]
fn a_queue_that_stands_full_for_an_hour_stays_known() {
    let (mut congestion, mut next) = (Congestion::new(Leave), 0);
    feed(&mut congestion, 3_600 * SECOND, 60, &mut next);
    let hour = stand(&mut congestion, 3_660 * SECOND, 3_600, 100, &mut next);
    assert!(hour >= 359_900, "{hour} of 360,000");
    // One datagram that meets less ends it at once.
    assert_eq!(stand(&mut congestion, 7_260 * SECOND, 1, 0, &mut next), 0);
    congestion.set_mode(Mask);
    assert_eq!(stand(&mut congestion, 7_261 * SECOND, 10, 100, &mut next), 0);
}

#[test]
fn a_queue_that_is_full_now_and_then_does_not_stand() {
    let (mut congestion, mut next) = (Congestion::new(Leave), 0);
    feed(&mut congestion, 3_600 * SECOND, 60, &mut next);
    assert_eq!(stand(&mut congestion, 3_660 * SECOND, 60, 40, &mut next), 0);
    assert!(stand(&mut congestion, 3_720 * SECOND, 60, 90, &mut next) > 0);
}

/// Losses of the link right after those of a queue need repairs at once.
#[test]
fn losses_with_half_the_queue_are_forecast_as_the_link_s_at_once() {
    let (mut congestion, mut next) = (Congestion::new(Leave), 0);
    feed(&mut congestion, 3_600 * SECOND, 60, &mut next);
    stand(&mut congestion, 3_660 * SECOND, 20, 100, &mut next);
    let now_us = 3_680 * SECOND;
    congestion.on_datagram(now_us, 0, SendTime::at(now_us - 30_000));
    congestion.on_packet(Seq(next + 9));
    congestion.on_arrived(Seq(next), 20);
    assert!(congestion.explains_losses(), "of the last minute");
    // A place has the greater delay of the repairs around it.
    congestion.on_packet(Seq(next + 29));
    assert_eq!(congestion.on_lost(Seq(next + 25)), Verdict::Recover);
}

#[test]
fn a_peer_that_states_any_times_and_places_causes_no_more_than_losses_of_its_own_packets() {
    let (mut congestion, mut random) = (Congestion::new(Leave), Random(7));
    for n in 0..200_000_u64 {
        let number = |random: &mut Random| random.draw() >> random.below(64);
        let sent = SendTime::from_wire(random.below(1 << 24) as u32).unwrap();
        congestion.on_datagram(number(&mut random).min(u64::MAX / 4), 0, sent);
        let place = Seq(number(&mut random) >> 2);
        congestion.on_repair(place, Some(sent).filter(|_| n % 3 > 0), Lag::of(number(&mut random)));
        congestion.on_packet(Seq(number(&mut random) >> 2));
        let seq = Seq(number(&mut random) >> 2);
        if n % 2 == 0 {
            congestion.on_arrived(seq, random.below(1_000));
        } else {
            congestion.on_lost(seq);
        }
        congestion.judge(seq);
        congestion.on_tick(n * 50_000);
        let _ = congestion.state().to_string();
    }
}

/// Two gateways, and losses behind a queue of 80 ms that stands for a third of the time. Returns the packets
/// that were lost, as they left.
fn through_a_queue(on_congestion: OnCongestion, tos: u8, random_loss: bool) -> (Pair, Vec<Vec<u8>>) {
    through_a_queue_read_every(1, on_congestion, tos, random_loss)
}

/// The same for gateways that read their datagrams at an interval in microseconds.
fn through_a_queue_read_every(
    every_us: u64,
    on_congestion: OnCongestion,
    tos: u8,
    random_loss: bool,
) -> (Pair, Vec<Vec<u8>>) {
    let gateway = |side| {
        let schedule = Schedule::Sliding { rate: "1/4".parse().unwrap(), window: 64, density: 15 };
        Config { schedule, on_congestion, ..trusting(side) }
    };
    let (mut pair, mut lost) = (Pair::up([gateway(A), gateway(B)]), Vec::new());
    pair.reads_every_us = every_us;
    for n in 0..6_000_u32 {
        let mut packet = udp(A, n as u16, &payload(n));
        let fields = Packet::new_checked(&packet).unwrap().mutable_fields();
        restore(&mut packet, MutableFields { tos, ..fields });
        pair.delay_us = if n % 300 < 200 { 5_000 } else { 85_000 };
        let is_lost = (pair.delay_us > 5_000 || random_loss) && n % 11 == 0;
        pair.send(A, &packet, is_lost);
        lost.extend(is_lost.then_some(packet));
        pair.advance(1_000);
    }
    pair.advance(3_000_000);
    (pair, lost)
}

/// A queue drops the packets of a burst, and hardly one of the repairs between bursts.
#[test]
fn a_full_queue_that_drops_packets_and_no_repairs_is_not_taken_for_another_path() {
    let gateway = |side| {
        let schedule = Schedule::Sliding { rate: "1/16".parse().unwrap(), window: 256, density: 15 };
        Config { schedule, on_congestion: Leave, ..config(side) }
    };
    let mut pair = Pair::up([gateway(A), gateway(B)]);
    let (mut lose, mut of_link) = (coin(71, 0.01), 0);
    let (drops, mut lose_repair) = (Rc::new(Cell::new(false)), coin(72, 0.01));
    let is_dropping = Rc::clone(&drops);
    pair.lose_datagram = Box::new(move || lose_repair() && !is_dropping.get());
    for n in 0..16_000_u32 {
        let is_full = n % 800 >= 600;
        pair.delay_us = if is_full { 85_000 } else { 5_000 };
        drops.set(is_full);
        let is_lost = if is_full { n % 3 == 0 } else { lose() };
        if n == 8_000 {
            pair.recovered[B].clear();
        }
        of_link += usize::from(is_lost && !is_full && n >= 8_000);
        pair.send(A, &udp(A, n as u16, &payload(n)), is_lost);
        pair.advance(500);
    }
    pair.advance(3_000_000);
    let unexplained = pair.status(B, |peer| peer.withheld.count(Withheld::Unexplained));
    let recovered = pair.recovered[B].len();
    assert!(
        recovered * 4 > of_link * 3 && unexplained == 0,
        "{recovered} of {of_link}, {unexplained} withheld"
    );
}

#[test]
fn packets_of_a_full_queue_are_left_and_counted() {
    let (pair, lost) = through_a_queue(Leave, 0, false);
    let (left, marked, report) = pair.status(B, |peer| (peer.ingress.left, peer.ingress.marked, peer.report));
    let injected = pair.recovered[B].len() as u64;
    assert!(left > lost.len() as u64 / 2 && injected + left == lost.len() as u64, "{left} of {}", lost.len());
    assert_eq!((marked, report.left, report.recovered, report.residual()), (0, left, injected, 0));
    assert!(pair.status(B, |peer| peer.congestion.is_leaving));
    assert_eq!(pair.status(A, |peer| peer.far.loss.left), left, "the far gateway knows");
    assert!(pair.status(B, |peer| peer.missed_us).is_some(), "they stayed lost");
    assert!(pair.status(A, |peer| peer.far.forecast.lost) < lost.len() as u32 / 2, "no repairs for these");
}

#[test]
fn datagrams_that_wait_for_the_gateway_do_not_lengthen_the_queue() {
    let full = |every_us| {
        let (pair, _) = through_a_queue_read_every(every_us, Leave, 0, false);
        pair.status(B, |peer| peer.congestion.queue.unwrap())
    };
    let (at_once, late) = (full(1), full(150_000));
    assert_eq!(at_once.full_us, late.full_us, "{late:?}");
    assert!(late.below < 0.01 && late.above > 0.05, "{late:?}");
}

#[test]
fn packets_of_senders_that_understand_marks_are_recovered_with_a_mark() {
    let (pair, lost) = through_a_queue(Leave, 0b10, false);
    let (left, marked) = pair.status(B, |peer| (peer.ingress.left, peer.ingress.marked));
    assert!(left == 0 && marked > lost.len() as u64 / 2 && pair.recovered[B].len() == lost.len());
    let is_marked = |packet: &&Vec<u8>| packet[1] & 3 == 3;
    assert_eq!(pair.recovered[B].iter().filter(is_marked).count() as u64, marked);
    for packet in &pair.recovered[B] {
        let words = packet[..20].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum: u32 = words.sum();
        assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff, "checksum of {:x?}", &packet[..20]);
    }
    // A sender of ECT(1) takes a mark for less than a loss.
    let (pair, _) = through_a_queue(Leave, 0b01, false);
    assert!(pair.status(B, |peer| peer.ingress.marked == 0 && peer.ingress.left > 0));
}

#[test]
fn all_is_recovered_if_the_link_explains_it_or_the_operator_asks_for_it() {
    for (mode, random_loss) in [(Mask, false), (Leave, true)] {
        let (pair, lost) = through_a_queue(mode, 0, random_loss);
        assert_eq!((pair.recovered[B].len(), pair.status(B, |peer| peer.ingress.left)), (lost.len(), 0));
    }
}
