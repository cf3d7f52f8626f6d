//! Counts the sessions in which a lone flow loses its protection by chance, because more of its packets are
//! missing than the lost repairs explain, although the link loses packets and repairs alike (ADR 10).
//!
//! ```sh
//! cargo run -p maelstrom-core --example lone_flow -- [seeds of each kind] [first seed] [code]
//! ```
#![allow(missing_docs, reason = "an example has no interface")]

#[path = "../tests/it/lone.rs"]
mod lone;
#[path = "../tests/it/pair/mod.rs"]
mod pair;

use lone::{Kind, links, schedules};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seeds = arguments.next().map_or(100, |text| text.parse::<u64>().expect("a number of seeds"));
    let first = arguments.next().map_or(0, |text| text.parse::<u64>().expect("a seed"));
    let code = arguments.next().unwrap_or_default();
    println!(
        "| code | link | packets/s | sessions | not protected throughout | packets withheld of lost | seeds |"
    );
    println!("|---|---|---|---|---|---|---|");
    let (mut sessions, mut failed) = (0, 0);
    for schedule in schedules().into_iter().filter(|schedule| schedule.to_string().contains(&code)) {
        for link in links() {
            for rate in [20, 200, 2_000] {
                let kind = Kind { schedule: schedule.clone(), link: link.clone(), rate };
                let (mut bad, mut lost, mut withheld) = (Vec::new(), 0, 0);
                for seed in first..first + seeds {
                    let counts = kind.run(seed);
                    lost += counts.lost;
                    withheld += counts.withheld;
                    if counts.withheld > 0 {
                        bad.push(seed);
                    }
                }
                sessions += seeds;
                failed += bad.len();
                let name = &kind.schedule;
                let shown = &bad[..bad.len().min(8)];
                println!(
                    "| {name} | {link} | {rate} | {seeds} | {} | {withheld} of {lost} | {shown:?} |",
                    bad.len()
                );
            }
        }
    }
    println!("{failed} of {sessions} sessions");
}
