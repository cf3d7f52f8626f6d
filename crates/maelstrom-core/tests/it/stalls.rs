//! Gateways that stand still for a while: a stopped process, a paused machine.
//!
//! The path is trusted: the tests lose packets but no repairs.

use std::collections::HashMap;

use maelstrom_core::{Config, Trouble};

use crate::pair::{A, B, Pair, coin, payload, trusting, udp};

/// Interval between packets of each side.
const STEP_US: u64 = 100;
/// Time after a stall in which protection becomes whole again. A round trip takes 40 ms.
const WHOLE_US: u64 = 100_000;

/// Two streams, one from each side, whose packets the link loses now and then.
pub(crate) struct Streams {
    pub(crate) pair: Pair,
    lose: Box<dyn FnMut() -> bool>,
    /// Time of sending and fate of each packet, by its bytes.
    sent: HashMap<Vec<u8>, (u64, bool)>,
    count: u32,
    /// Number of recovered packets that were examined, by side.
    examined: [usize; 2],
    /// No packet sent earlier than this is recovered.
    oldest_us: u64,
}

impl Streams {
    fn new(seed: u64) -> Self {
        Self::with(seed, [trusting(A), trusting(B)])
    }

    pub(crate) fn with(seed: u64, configs: [Config; 2]) -> Self {
        let mut pair = Pair::up(configs);
        pair.delay_us = 20_000;
        let lose = Box::new(coin(seed, 0.02));
        Self { pair, lose, sent: HashMap::new(), count: 0, examined: [0; 2], oldest_us: 0 }
    }

    pub(crate) fn run(&mut self, us: u64) {
        let end_us = self.pair.now_us + us;
        while self.pair.now_us < end_us {
            for from in [A, B] {
                self.count += 1;
                let mut bytes = payload(self.count % 200);
                bytes.extend_from_slice(&self.count.to_be_bytes());
                let packet = udp(from, self.count as u16, &bytes);
                let is_lost = (self.lose)();
                self.sent.insert(packet.clone(), (self.pair.now_us, is_lost));
                self.pair.send(from, &packet, is_lost);
            }
            self.pair.advance(STEP_US);
            self.examine();
        }
    }

    /// Asserts that recovered packets were lost, and are not old.
    fn examine(&mut self) {
        for side in [A, B] {
            for packet in &self.pair.recovered[side][self.examined[side]..] {
                let &(sent_us, is_lost) = self.sent.get(packet).expect("a packet that was sent");
                assert!(is_lost, "a packet sent at {sent_us} arrived and is delivered twice");
                assert!(sent_us >= self.oldest_us, "a packet sent at {sent_us} is delivered after a stall");
            }
            self.examined[side] = self.pair.recovered[side].len();
        }
    }

    /// Lets gateways stand still, and wakes them.
    fn stall(&mut self, sides: &[usize], us: u64) {
        sides.iter().for_each(|&side| self.pair.frozen[side] = true);
        self.run(us);
        for &side in sides {
            self.pair.frozen[side] = false;
            self.pair.gateways[side].handle_stall(self.pair.now_us, us);
        }
        // Packets that a waking gateway recovered meanwhile are not old.
        self.oldest_us = self.pair.now_us - if sides.len() == 2 { 0 } else { 500_000 };
    }

    /// Asserts that all packets that were lost in an interval have been recovered.
    pub(crate) fn assert_whole(&self, from_us: u64, to_us: u64) {
        let (lost, missing) = self.lost(from_us, to_us);
        assert!(lost > 100);
        assert!(missing.len() <= lost / 100, "{} of {lost} stay lost", missing.len());
    }

    /// Number of packets sent in an interval that the link lost, and the times of sending of those that
    /// stayed lost.
    pub(crate) fn lost(&self, from_us: u64, to_us: u64) -> (usize, Vec<u64>) {
        let recovered: Vec<_> = self.pair.recovered.iter().flatten().collect();
        let lost = |&(&(sent_us, is_lost), _): &(&(u64, bool), &Vec<u8>)| {
            is_lost && (from_us..to_us).contains(&sent_us)
        };
        let lost: Vec<_> = self.sent.iter().map(|(packet, fate)| (fate, packet)).filter(lost).collect();
        let missing = lost.iter().filter(|(_, packet)| !recovered.contains(packet));
        (lost.len(), missing.map(|(fate, _)| fate.0).collect())
    }
}

#[test]
fn protection_is_whole_soon_after_a_gateway_stood_still_and_nothing_old_is_recovered() {
    for (sides, us) in [(&[B][..], 2_000_000), (&[A], 5_000_000), (&[A, B], 2_000_000), (&[B], 12_000_000)] {
        let mut streams = Streams::new(us);
        streams.run(300_000);
        streams.stall(sides, us);
        let woken_us = streams.pair.now_us;
        streams.run(800_000);
        streams.assert_whole(woken_us + WHOLE_US, woken_us + 600_000);
    }
}

/// docs/maelstrom.md has the figures: the time after waking from which at least 99 of 100 lost packets are
/// recovered. After ten seconds the peer has given the session up, and another one begins.
#[test]
fn protection_is_whole_within_a_round_trip_of_waking_or_three_if_the_session_has_ended() {
    for rtt_us in [10_000, 40_000, 100_000, 200_000] {
        for (sides, us, whole_max_us) in [(&[A, B][..], 2_000_000, rtt_us), (&[B], 12_000_000, 3 * rtt_us)] {
            let mut streams = Streams::new(us);
            streams.pair.delay_us = rtt_us / 2;
            streams.run(200_000 + 2 * rtt_us);
            streams.stall(sides, us);
            let woken_us = streams.pair.now_us;
            streams.run(900_000);
            let (lost, mut missing) = streams.lost(woken_us, woken_us + 700_000);
            missing.sort_unstable();
            let whole_us = missing.iter().rev().nth(lost / 100).map_or(0, |sent_us| sent_us - woken_us);
            println!("round trip {rtt_us} us, {us} us of {sides:?}: whole after {whole_us} us");
            assert!(lost > 200 && whole_us <= whole_max_us, "{whole_us} of {whole_max_us}, {lost} lost");
        }
    }
}

#[test]
fn a_gateway_may_stand_still_again_and_again() {
    let mut streams = Streams::new(9);
    for round in 0..6_u64 {
        streams.run(20_000 + 7_000 * round);
        streams.stall(&[[A, B][round as usize % 2]], 400_000);
    }
    let woken_us = streams.pair.now_us;
    streams.run(800_000);
    streams.assert_whole(woken_us + WHOLE_US, woken_us + 600_000);
}

#[test]
fn protection_returns_though_datagrams_of_the_restart_are_lost() {
    for seed in 0..10 {
        let mut streams = Streams::new(seed);
        streams.run(100_000);
        streams.pair.lose_datagram = Box::new(coin(seed, 0.5));
        streams.stall(&[B], 2_000_000);
        streams.run(600_000);
        streams.pair.lose_datagram = Box::new(|| false);
        streams.run(300_000);
        let us = streams.pair.now_us;
        streams.run(600_000);
        streams.assert_whole(us, us + 400_000);
    }
}

#[test]
fn a_peer_that_ends_is_silent_though_this_gateway_stood_still_meanwhile() {
    let mut pair = Pair::up([trusting(A), trusting(B)]);
    pair.frozen[B] = true;
    for _ in 0..6 {
        pair.frozen[A] = true;
        pair.advance(400_000);
        pair.frozen[A] = false;
        pair.gateways[A].handle_stall(pair.now_us, 400_000);
        for _ in 0..30 {
            pair.advance(100_000);
            let trouble = pair.status(A, |peer| peer.trouble);
            assert!(trouble.is_none_or(|trouble| trouble == Trouble::Silent), "{trouble:?}");
        }
    }
    assert_eq!(pair.status(A, |peer| peer.trouble), Some(Trouble::Silent));
}
