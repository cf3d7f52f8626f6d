//! Slow traffic of which a share arrives late, by a slower path. The example `late_packets` runs many more of
//! these streams.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "tests and an example use a part of it each")]

use crate::pair::{A, B, Pair, config, payload, udp};
use maelstrom_core::{Config, Schedule};
use testkit::Random;

/// Number of packets of each stream, 20 in a second.
pub const PACKETS: u32 = 1_200;
const EVERY_US: u64 = 50_000;

/// Streams of one kind.
#[derive(Clone, Debug)]
pub struct Kind {
    pub schedule: Schedule,
    pub flows: u32,
    /// Share of the packets that are late, and by how much.
    pub share: f64,
    pub late_us: u64,
}

/// The codes.
pub fn schedules() -> [Schedule; 3] {
    let window = Schedule::Sliding { rate: "1/4".parse().unwrap(), window: 256, density: 15 };
    [Schedule::layered(), window, Schedule::Auto]
}

impl Kind {
    /// Runs one stream, and returns the number of packets that were delivered twice.
    pub fn run(&self, seed: u64) -> usize {
        let mut pair =
            Pair::up([A, B].map(|side| Config { schedule: self.schedule.clone(), ..config(side) }));
        pair.delay_us = 10_000;
        let (mut random, Kind { share, late_us, .. }) = (Random(seed), self.clone());
        pair.extra_us =
            Box::new(move |_, is_datagram| if !is_datagram && random.chance(share) { late_us } else { 0 });
        for n in 0..PACKETS {
            let mut bytes = udp(A, n as u16, &[&payload(n)[..], &n.to_be_bytes()].concat());
            bytes[20..22].copy_from_slice(&(1_000 + (n % self.flows) as u16).to_be_bytes());
            pair.send(A, &bytes, false);
            pair.advance(EVERY_US);
        }
        pair.advance(3_000_000);
        pair.recovered[B].len()
    }
}
