//! A stream of constant rate on a link with a queue, through two whole gateways in virtual time: repairs that
//! a full queue makes useless cost the stream next to nothing, and return as soon as they help.

use crate::pair::{A, B, LinkQueue, Pair, coin, config, tunnel, udp};
use maelstrom_core::controller::{Decision, Limit, Targets};
use maelstrom_core::counters::Unprotected;
use maelstrom_core::share::Share;
use maelstrom_core::{Class, Config, Match, Protect, Schedule};

/// 12 Mbit/s, and a queue of 50 ms.
const MBIT_PER_S: u64 = 12;
const QUEUE: u64 = 75_000;
const ONE_WAY_US: u64 = 20_000;
/// Payload of a packet, and its length on the link.
const PAYLOAD: usize = 972;
const LEN: u64 = PAYLOAD as u64 + 28;

/// Interval between packets at this load in percent.
fn every_ns(load: u64) -> u64 {
    LEN * 8_000 / MBIT_PER_S * 100 / load
}

fn queue() -> LinkQueue {
    LinkQueue::new(MBIT_PER_S, QUEUE)
}

fn auto(side: usize) -> Config {
    // The deadline shall not decide about the rate.
    let targets = Targets { late_us: Some(400_000), ..Targets::default() };
    Config { schedule: Schedule::Auto, targets, ..config(side) }
}

fn up(configs: [Config; 2]) -> Stream {
    let mut pair = Pair::new(configs);
    pair.delay_us = ONE_WAY_US;
    pair.queue = Some(queue());
    pair.run_until_up();
    let next_ns = pair.now_us * 1_000;
    let is_tunnel = pair.gateways[A].config().peers[0].is_tunnel;
    Stream { pair, is_tunnel, next_ns, sent: 0, lost: 0 }
}

/// Packets of constant rate, and their fates since the last call of [`Stream::take`].
struct Stream {
    pair: Pair,
    is_tunnel: bool,
    next_ns: u64,
    sent: u64,
    /// Packets that the link itself lost.
    lost: u64,
}

/// Fates of packets, and the bytes of datagrams for each hundred bytes of packets.
#[derive(Clone, Copy, Debug, Default)]
struct Fates {
    sent: u64,
    lost: u64,
    dropped: u64,
    recovered: u64,
    percent: f64,
}

impl Fates {
    fn missing(&self) -> f64 {
        (self.lost + self.dropped).saturating_sub(self.recovered) as f64 / self.sent as f64
    }
}

impl Stream {
    /// Sends packets for a time, of which the link loses a share, and of datagrams.
    fn run(&mut self, us: u64, load: u64, loss: f64, seed: u64) {
        let end_ns = self.next_ns + us * 1_000;
        let mut lose = coin(seed, loss);
        self.pair.lose_datagram = Box::new(coin(seed + 1, loss));
        while self.next_ns < end_ns {
            let bytes: Vec<u8> = (0..PAYLOAD as u64).map(|k| (k * 7 + self.next_ns / 97) as u8).collect();
            let mut packet = udp(A, self.sent as u16, &bytes);
            packet[40..48].copy_from_slice(&self.next_ns.to_be_bytes());
            // In a tunnel, packets are lost with their datagrams.
            let is_lost = !self.is_tunnel && lose();
            if self.is_tunnel {
                self.pair.send_by_tunnel(A, &[packet]);
            } else {
                self.pair.send(A, &packet, is_lost);
            }
            self.sent += 1;
            self.lost += u64::from(is_lost);
            self.next_ns += every_ns(load);
            self.pair.advance((self.next_ns / 1_000).saturating_sub(self.pair.now_us));
        }
    }

    /// Returns the fates since the last call.
    fn take(&mut self) -> Fates {
        let queue = self.pair.queue.as_mut().unwrap();
        let fates = Fates {
            sent: self.sent,
            lost: self.lost,
            dropped: queue.dropped,
            recovered: self.pair.recovered[B].len() as u64,
            percent: 100.0 * queue.offered as f64 / (self.sent * LEN) as f64,
        };
        (self.sent, self.lost, queue.dropped, queue.offered) = (0, 0, 0, 0);
        self.pair.recovered[B].clear();
        fates
    }

    fn decision(&self) -> Decision {
        self.pair.status(A, |peer| *peer.decision.unwrap())
    }

    /// The choice in words, or the code that the configuration fixes.
    fn choice(&self) -> String {
        self.pair.status(A, |peer| peer.decision.map_or_else(|| peer.code.to_string(), ToString::to_string))
    }

    fn repairs(&self) -> u64 {
        self.pair.status(A, |peer| peer.egress.repair_packets)
    }

    fn left_out(&self) -> u64 {
        self.pair.gateways[A].unprotected().count(Unprotected::Congestion)
    }
}

/// Share of packets that the queue drops without gateways, once it is full.
fn bare(seconds: u64, load: u64) -> f64 {
    let (mut queue, packet) = (queue(), vec![0; LEN as usize]);
    let count = |seconds: u64| seconds * 1_000_000_000 / every_ns(load);
    for n in 0..count(4 + seconds) {
        if n == count(4) {
            queue.dropped = 0;
        }
        queue.offer(n * every_ns(load) / 1_000, &packet, false);
    }
    queue.dropped as f64 / count(seconds) as f64
}

#[test]
fn a_stream_of_constant_rate_loses_hardly_more_with_gateways_than_without() {
    for load in [90, 100, 110, 150, 300] {
        let mut stream = up([auto(A), auto(B)]);
        stream.run(3_000_000, 60, 0.0, 1);
        stream.run(4_000_000, load, 0.0, 1);
        stream.take();
        stream.run(12_000_000, load, 0.0, 1);
        let fates = stream.take();
        let (bare, missing) = (bare(12, load), fates.missing());
        assert!(missing <= bare + 0.005, "{load} %: {missing:.4}, {bare:.4} without: {fates:?}");
        assert!(load < 110 || fates.recovered == 0 && stream.left_out() > 0, "{load} %: {fates:?}");
        let findings = stream.pair.status(B, |peer| peer.findings);
        assert!(findings.is_empty(), "{load} %: {findings:?}");
    }
}

#[test]
fn a_queue_that_fills_thins_protection_within_two_seconds() {
    for load in [110, 150] {
        let mut stream = up([auto(A), auto(B)]);
        stream.run(5_000_000, 80, 0.0, 2);
        assert_eq!(stream.decision().limit, Limit::Lowest);
        stream.run(QUEUE * 8 / MBIT_PER_S * 100 / (load - 100) + 2_000_000, load, 0.0, 3);
        assert!(stream.decision().is_thin, "{load} %: {}", stream.decision());
        stream.take();
        stream.run(1_000_000, load, 0.0, 4);
        let fates = stream.take();
        assert!(fates.percent < 0.5, "{load} %: {fates:?}");
        assert!(stream.pair.status(B, |peer| peer.far.plan.is_thin), "the far gateway knows");
        assert!(stream.decision().to_string().contains("one packet in 16 is named"));
    }
}

#[test]
fn protection_stays_thin_while_the_queue_stands_full() {
    let mut stream = up([auto(A), auto(B)]);
    stream.run(5_000_000, 80, 0.0, 20);
    stream.run(50_000_000, 110, 0.0, 21);
    stream.take();
    stream.run(5_000_000, 110, 0.0, 22);
    let fates = stream.take();
    assert!(stream.decision().is_thin && fates.percent < 0.5, "{fates:?}, {}", stream.decision());
}

/// Losses begin with the delay, as those of a queue that fills and stands full.
#[test]
fn a_longer_route_that_loses_packets_is_protected_again_after_seconds() {
    let mut stream = up([auto(A), auto(B)]);
    stream.run(20_000_000, 60, 0.0, 23);
    stream.pair.delay_us = ONE_WAY_US + 40_000;
    stream.run(30_000_000, 60, 0.06, 24);
    let left_out = stream.left_out();
    stream.take();
    stream.run(10_000_000, 60, 0.06, 25);
    stream.run(1_500_000, 60, 0.0, 26);
    let fates = stream.take();
    assert_eq!(stream.left_out(), left_out, "all packets are protected");
    assert!(fates.lost > 400 && fates.missing() < 0.001, "{fates:?}, {}", stream.decision());
}

/// The load falls and the link begins to lose packets.
#[test]
fn protection_returns_when_the_queue_ebbs() {
    for (load, loss) in [(80, 0.01), (60, 0.05), (30, 0.02)] {
        let mut stream = up([auto(A), auto(B)]);
        stream.run(5_000_000, 80, 0.0, 5);
        stream.run(6_000_000, 110, 0.0, 6);
        assert!(stream.decision().is_thin, "{}", stream.decision());
        // The queue needs this time to be an eighth shorter. Then the news travel to the egress.
        let ebb_us = QUEUE * 8 / MBIT_PER_S / 8 * 100 / (100 - load);
        stream.run(ebb_us + 2 * ONE_WAY_US + 250_000, load, loss, 7);
        assert!(!stream.decision().is_thin, "{load} %: {}", stream.decision());
        let left_out = stream.left_out();
        // Knowledge of the queue takes its time to fade.
        stream.run(4_000_000, load, loss, 8);
        stream.take();
        stream.run(4_000_000, load, loss, 9);
        stream.run(1_500_000, load, 0.0, 10);
        let fates = stream.take();
        assert_eq!(stream.left_out(), left_out, "all packets are protected");
        assert!(fates.missing() < 0.001, "{load} %: {fates:?}, {}", stream.decision());
    }
}

#[test]
fn recovery_is_not_given_up_on_a_link_that_loses_packets_itself() {
    for load in [60, 80] {
        let mut stream = up([auto(A), auto(B)]);
        stream.run(2_000_000, load, 0.01, 11);
        stream.take();
        stream.run(15_000_000, load, 0.01, 12);
        stream.run(1_500_000, load, 0.0, 13);
        let fates = stream.take();
        assert!(fates.lost > 100 && fates.missing() < 0.0005, "{load} %: {fates:?}");
        assert_eq!(stream.left_out(), 0);
    }
}

/// Repairs alone fill the queue at this load. They return for a moment, later and later.
#[test]
fn losses_of_the_link_bring_protection_back_while_an_ebb_is_not_believed() {
    let mut stream = up([auto(A), auto(B)]);
    stream.run(2_000_000, 80, 0.0, 14);
    stream.run(14_000_000, 98, 0.0, 15);
    assert!(stream.decision().is_thin, "{}", stream.decision());
    let standing = stream.pair.status(A, |peer| peer.far.is_standing);
    assert!(!standing, "the queue has ebbed");
    stream.run(2_000_000, 50, 0.05, 16);
    assert!(!stream.decision().is_thin, "{}", stream.decision());
}

#[test]
fn an_operator_who_asks_for_repairs_gets_them() {
    let class = Class {
        name: "bulk".into(),
        matches: Match::default(),
        protect: Protect::AtLeast("1/16".parse().unwrap()),
        late_us: None,
    };
    let fixed = Schedule::Sliding { rate: "1/8".parse().unwrap(), window: 256, density: 15 };
    for config in [Config { classes: vec![class], ..auto(A) }, Config { schedule: fixed, ..auto(A) }] {
        let mut stream = up([config, auto(B)]);
        stream.run(6_000_000, 110, 0.0, 30);
        assert_eq!(stream.left_out(), 0);
        assert!(!stream.choice().contains("none is repaired"), "{}", stream.choice());
    }
}

/// Each packet of a tunnel is in a datagram with its position, and none is ever left out.
#[test]
fn a_tunnel_on_a_full_link_does_not_say_that_nothing_is_repaired() {
    let targets = auto(A).targets;
    let mut stream = up([A, B].map(|side| Config { targets, ..tunnel(side) }));
    stream.run(5_000_000, 80, 0.0, 31);
    let mut was_standing = false;
    for second in 0..10 {
        stream.run(1_000_000, 150, 0.0, 32 + second);
        let repairs = stream.repairs();
        stream.run(100_000, 150, 0.0, 52 + second);
        let choice = stream.choice();
        assert!(!choice.contains("none is repaired"), "{choice}");
        assert!(stream.repairs() > repairs, "{choice}");
        was_standing |= stream.pair.status(A, |peer| peer.far.is_standing);
    }
    assert!(was_standing, "the queue stands full");
    assert_eq!(stream.left_out(), 0);
}

/// Sessions end and begin while protection is thin.
#[test]
fn a_restart_while_protection_is_thin_delivers_nothing_twice() {
    let mut stream = up([auto(A), auto(B)]);
    stream.run(2_000_000, 80, 0.0, 40);
    for round in 0..4 {
        stream.run(5_000_000, 110, 0.0, 41 + round);
        let now_us = stream.pair.now_us;
        match round {
            0 => stream.pair.gateways[B].handle_stall(now_us, 400_000),
            1 => stream.pair.gateways[A].handle_stall(now_us, 400_000),
            2 => stream.pair.gateways[B].handle_stall(now_us, 30_000_000),
            _ => stream.pair.gateways[A].set_share(now_us, Share(40_000)),
        }
        stream.run(1_000_000, 110, 0.0, 50 + round);
        stream.run(2_000_000, 80, 0.02, 60 + round);
    }
    let findings = stream.pair.status(B, |peer| peer.findings);
    assert!(findings.is_empty(), "{findings:?}");
    let twice = stream.pair.status(B, |peer| peer.ingress.after_recovery);
    assert_eq!(twice, 0, "packets delivered twice");
}
