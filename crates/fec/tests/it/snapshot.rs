//! The results of the layered code at common losses, as a table in git, so that every change is reviewed.
#![allow(missing_docs)]

use crate::common::Loss;
use fec::simulate::{Simulation, simulate};
use fec::{LayeredConfig, Sending};
use std::fmt::Write;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/layered.txt");

const CODES: [(u8, &[u16], Sending); 6] = [
    (8, &[1, 11, 19], Sending::Immediate),
    (8, &[1, 19, 41], Sending::Immediate),
    (8, &[1, 10, 20], Sending::Immediate),
    (20, &[1], Sending::Immediate),
    (8, &[1, 11, 19], Sending::Delayed),
    (8, &[1, 19, 41], Sending::Delayed),
];

/// Loss rate in percent, and length of bursts.
const LOSSES: [(f64, u32); 7] = [(0.1, 1), (1.0, 1), (5.0, 1), (1.0, 10), (1.0, 20), (1.0, 25), (1.0, 40)];

fn table() -> String {
    let mut table = String::from(
        "Layered codes in simulation, window 1,024: share of lost packets recovered, and their delay in source packets.\n\
         Bursts take sources and repairs alike. 1,000,000 packets each.\n\
         Made by `cargo test -p fec --test snapshot` with UPDATE_SNAPSHOTS=1.\n\n\
         code                    loss                lost  recovered   mean   p50   p99   max\n",
    );
    for (r, interleaves, sending) in CODES {
        for (percent, burst) in LOSSES {
            let code =
                LayeredConfig { r, interleaves: interleaves.to_vec(), sending, ..LayeredConfig::default() };
            let simulation = Simulation { code: code.into(), packets: 1_000_000, ..Simulation::default() };
            let mut loss = Loss::new(percent / 100.0, burst, 1);
            let report = simulate(&simulation, |_| loss.lose()).unwrap();
            assert_eq!(report.wrong, 0);
            let names: Vec<String> = interleaves.iter().map(ToString::to_string).collect();
            let delayed = if sending == Sending::Delayed { " delayed" } else { "" };
            let code = format!("({r}; {}){delayed}", names.join(","));
            let loss = match burst {
                1 => format!("{percent} % uniform"),
                _ => format!("{percent} % bursts of {burst}"),
            };
            let share = 100.0 * report.recovered_share();
            let (mean, max) = (report.delay_mean().unwrap(), report.delay_max().unwrap());
            let (median, p99) = (report.delay_quantile(0.5).unwrap(), report.delay_quantile(0.99).unwrap());
            let lost = report.lost;
            writeln!(
                table,
                "{code:<23} {loss:<18} {lost:>5}   {share:>6.2} % {mean:>6.1} {median:>5} {p99:>5} {max:>5}"
            )
            .unwrap();
        }
    }
    table
}

#[test]
fn results_are_those_of_the_table() {
    let table = table();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(std::path::Path::new(TABLE).parent().unwrap()).unwrap();
        std::fs::write(TABLE, &table).unwrap();
    }
    let expected = std::fs::read_to_string(TABLE).unwrap_or_default();
    assert!(table == expected, "results changed; now:\n{table}\nin {TABLE}:\n{expected}");
}
