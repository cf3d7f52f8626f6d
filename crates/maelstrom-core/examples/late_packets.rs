//! Counts the packets of slow traffic that are delivered twice because a share of it takes a slower path
//! (ADR 10). No packet is lost.
//!
//! ```sh
//! cargo run -p maelstrom-core --example late_packets -- [seeds of each kind] [first seed]
//! ```
#![allow(missing_docs, reason = "an example has no interface")]

#[path = "../tests/it/pair/mod.rs"]
mod pair;
#[path = "../tests/it/sparse.rs"]
mod sparse;

use sparse::{Kind, PACKETS, schedules};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let seeds = arguments.next().unwrap_or(100);
    let first = arguments.next().unwrap_or(0);
    println!("| code | flows | late | by | streams | twice in one stream: 0, 1, 2, 3, 4 or more | twice |");
    println!("|---|---|---|---|---|---|---|");
    for schedule in schedules() {
        for (flows, share) in [(1, 0.05), (1, 0.25), (4, 0.05), (4, 0.5), (40, 0.05), (40, 0.25)] {
            for late_us in [60_000, 130_000] {
                let kind = Kind { schedule: schedule.clone(), flows, share, late_us };
                let (mut streams, mut twice) = ([0; 5], 0);
                for seed in first..first + seeds {
                    let doubles = kind.run(seed);
                    streams[doubles.min(4)] += 1;
                    twice += doubles;
                }
                let permille = twice as f64 * 1000.0 / (seeds * u64::from(PACKETS)) as f64;
                println!(
                    "| {schedule} | {flows} | {share} | {} ms | {seeds} | {streams:?} | {:.3} % |",
                    late_us / 1_000,
                    permille / 10.0
                );
            }
        }
    }
}
