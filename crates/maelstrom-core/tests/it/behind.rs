//! A gateway that reads its tap late: repairs are used after the packets that arrived before them, and as
//! soon as those have been read.

use std::collections::HashSet;

use maelstrom_core::counters::Unused;
use maelstrom_core::{Config, Schedule};

use super::pair::{A, B, Pair, coin, payload, trusting, udp};

/// Interval between packets.
const EVERY_US: u64 = 20;
/// Packets of a turn.
const TURN: usize = 512;
/// Time in which they come.
const TURN_US: u64 = TURN as u64 * EVERY_US;

struct Stream {
    pair: Pair,
    lose: Box<dyn FnMut() -> bool>,
    lost: HashSet<Vec<u8>>,
    sent: u32,
}

impl Stream {
    fn up(seed: u64) -> Self {
        let window = Schedule::Sliding { rate: "1/8".parse().unwrap(), window: 256, density: 15 };
        let config = |side| Config { schedule: window.clone(), ..trusting(side) };
        let mut pair = Pair::up([A, B].map(config));
        pair.delay_us = 2_000;
        pair.advance(100_000);
        // One packet in fifty is overtaken by those behind it, and by their repairs.
        let mut overtaken = coin(seed + 1, 0.02);
        pair.extra_us = Box::new(move |_, is_datagram| if !is_datagram && overtaken() { 18_000 } else { 0 });
        pair.taps[B] = Some(Default::default());
        let mut stream = Self { pair, lose: Box::new(coin(seed, 0.01)), lost: HashSet::new(), sent: 0 };
        // It learns to wait for those.
        stream.run(300_000, 500);
        stream.read_all();
        stream.pair.recovered[B].clear();
        stream.lost.clear();
        stream
    }

    /// Sends packets for this time. B's gateway turns every `turn_us`.
    fn run(&mut self, for_us: u64, turn_us: u64) {
        for step in 1..=for_us / EVERY_US {
            let packet = udp(A, self.sent as u16, &payload(self.sent));
            self.sent += 1;
            let is_lost = (self.lose)();
            if is_lost {
                self.lost.insert(packet.clone());
            }
            self.pair.send(A, &packet, is_lost);
            self.pair.advance(EVERY_US);
            if (step * EVERY_US).is_multiple_of(turn_us) {
                self.pair.turn(B, TURN);
            }
        }
    }

    /// Number of packets that wait in the tap.
    fn waiting(&self) -> usize {
        self.pair.taps[B].as_ref().unwrap().waiting()
    }

    fn read_all(&mut self) {
        for _ in 0..100 {
            self.pair.advance(5_000);
            self.pair.turn(B, TURN);
        }
        assert_eq!(self.waiting(), 0);
    }

    /// Reads the rest, and asserts that all lost packets have come back, and no other packet.
    fn settle(mut self) {
        self.read_all();
        let injected = std::mem::take(&mut self.pair.recovered[B]);
        let recovered: HashSet<_> = injected.iter().cloned().collect();
        assert_eq!(injected.len(), recovered.len(), "none is injected twice");
        let wrong = recovered.difference(&self.lost).count();
        let missing = self.lost.difference(&recovered).count();
        let unused = self.pair.status(B, |peer| format!("{:?}", peer.ingress.unused));
        assert_eq!(
            (wrong, missing),
            (0, 0),
            "of {} packets lost; repairs not used: {unused}",
            self.lost.len()
        );
        assert!(self.lost.len() > 100);
    }
}

#[test]
fn a_gateway_that_is_always_behind_recovers_all() {
    let mut stream = Stream::up(1);
    stream.run(100_000, 5_000);
    stream.run(60_000, u64::MAX);
    // It reads as fast as packets come, and so stays some 60 ms behind.
    stream.run(400_000, TURN_US);
    assert!(stream.waiting() > 2_000, "{}", stream.waiting());
    stream.settle();
}

#[test]
fn a_gateway_that_falls_behind_does_not_inject_what_its_tap_still_holds() {
    for slower in [2, 4] {
        let mut stream = Stream::up(slower);
        stream.run(100_000, 5_000);
        stream.run(200_000, slower * TURN_US);
        assert!(stream.waiting() > 4_000, "{}", stream.waiting());
        stream.run(150_000, TURN_US / 4);
        stream.settle();
    }
}

#[test]
fn a_gateway_that_stood_still_recovers_what_it_then_reads_late() {
    for (seed, still_us) in [(2, 40_000), (3, 150_000), (4, 240_000)] {
        let mut stream = Stream::up(seed);
        stream.run(200_000, 5_000);
        stream.run(still_us, u64::MAX);
        assert!(stream.waiting() as u64 > still_us / EVERY_US * 9 / 10);
        // It reads five times as fast as packets come.
        stream.run(still_us / 2, TURN_US / 5);
        stream.settle();
    }
}

/// Repairs of an overflow cost more than all others, and bring nothing back.
#[test]
fn a_gateway_that_is_behind_does_not_compute_what_is_beyond_repair() {
    let mut stream = Stream::up(5);
    stream.run(100_000, 5_000);
    stream.run(60_000, u64::MAX);
    let usual = std::mem::replace(&mut stream.lose, Box::new(coin(6, 0.4)));
    stream.run(60_000, TURN_US);
    stream.lose = usual;
    stream.run(20_000, TURN_US);
    let before = std::mem::take(&mut stream.lost);
    stream.run(300_000, TURN_US);
    let beyond = stream.pair.status(B, |peer| peer.ingress.unused.count(Unused::BeyondRepair));
    assert!(beyond > 100, "{beyond}");
    stream.read_all();
    stream.pair.recovered[B].retain(|packet| !before.contains(packet));
    stream.settle();
}
