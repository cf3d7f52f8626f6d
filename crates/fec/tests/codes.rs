//! What the codes show against each other at equal overhead, as a table in git: a change of it is a reviewed change.
//!
//! `docs/codes.md` has the same table from a longer run and says what it means.
#![allow(missing_docs)]

mod common;

use common::Loss;
use fec::simulate::{Report, Simulation, simulate};
use fec::{Code, LayeredConfig, ReedSolomonConfig, RepairRate, Sending, SlidingConfig};
use std::fmt::Write;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/codes.txt");

fn layered(r: u8, sending: Sending) -> Code {
    LayeredConfig { r, interleaves: vec![1, 19, 41], sending, ..LayeredConfig::default() }.into()
}

fn reed_solomon(r: u8, c: u8, interleave: u16, sending: Sending) -> Code {
    ReedSolomonConfig { r, c, interleave, sending, ..ReedSolomonConfig::default() }.into()
}

fn sliding(repairs: u32, sources: u32, window: u16) -> Code {
    let rate = RepairRate::new(repairs, sources).unwrap();
    SlidingConfig { rate, window, ..SlidingConfig::default() }.into()
}

/// Names and codes at 37.5 %, then at 12.5 % overhead.
fn codes() -> [Vec<(&'static str, Code)>; 2] {
    [
        vec![
            ("layered (8; 1,19,41)", layered(8, Sending::Immediate)),
            ("layered (8; 1,19,41) delayed", layered(8, Sending::Delayed)),
            ("reed-solomon (8,3)", reed_solomon(8, 3, 1, Sending::Immediate)),
            ("reed-solomon (8,3) x20 delayed", reed_solomon(8, 3, 20, Sending::Delayed)),
            ("sliding 3/8 W=160", sliding(3, 8, 160)),
            ("sliding 3/8 W=256", sliding(3, 8, 256)),
        ],
        vec![
            ("layered (24; 1,19,41)", layered(24, Sending::Immediate)),
            ("layered (24; 1,19,41) delayed", layered(24, Sending::Delayed)),
            ("reed-solomon (24,3)", reed_solomon(24, 3, 1, Sending::Immediate)),
            ("reed-solomon (32,4) x8 delayed", reed_solomon(32, 4, 8, Sending::Delayed)),
            ("sliding 1/8 W=256", sliding(1, 8, 256)),
            ("sliding 1/8 W=512", sliding(1, 8, 512)),
        ],
    ]
}

const LOSSES: usize = 15;

/// Names and losses.
fn losses(seed: u64) -> [(String, Loss); LOSSES] {
    let uniform = [0.1, 1.0, 5.0, 10.0].map(|percent| (percent, 1));
    let bursts = [(0.1, 10), (0.1, 20), (0.1, 25), (0.1, 40), (1.0, 10), (1.0, 20), (1.0, 25), (1.0, 40)];
    let mut all = uniform
        .into_iter()
        .chain(bursts)
        .map(|(percent, burst)| {
            let name = if burst == 1 {
                format!("{percent} % uniform")
            } else {
                format!("{percent} % bursts of {burst}")
            };
            (name, Loss::new(percent / 100.0, burst, seed))
        })
        .chain(
            [3.0, 8.0, 20.0].map(|mean| (format!("1 % markov, mean {mean}"), Loss::markov(0.01, mean, seed))),
        );
    std::array::from_fn(|_| all.next().unwrap())
}

/// All runs of one code at one loss.
fn cell(code: &Code, loss: usize, packets: u64, seeds: u64) -> Report {
    let mut sum = Report::default();
    for seed in 0..seeds {
        let mut code = code.clone();
        if let Code::Sliding(config) = &mut code {
            config.seed = seed as u16 * 6_007;
        }
        let simulation = Simulation { code, packets, ..Simulation::default() };
        let mut lose = losses(seed + 1)[loss].1.clone();
        sum.add(&simulate(&simulation, |_| lose.lose()).unwrap());
    }
    assert_eq!(sum.wrong, 0);
    sum
}

struct Row {
    code: &'static str,
    cells: Vec<Report>,
}

/// Rows of both overheads.
fn rows(packets: u64, seeds: u64) -> [Vec<Row>; 2] {
    codes().map(|codes| {
        std::thread::scope(|scope| {
            let started: Vec<_> = codes
                .into_iter()
                .map(|(name, code)| {
                    scope.spawn(move || Row {
                        code: name,
                        cells: (0..LOSSES).map(|loss| cell(&code, loss, packets, seeds)).collect(),
                    })
                })
                .collect();
            started.into_iter().map(|row| row.join().unwrap()).collect()
        })
    })
}

/// Loss by loss, so that the codes stand side by side.
fn table(rows: &[Vec<Row>; 2], packets: u64, seeds: u64) -> String {
    let names = losses(0).map(|(name, _)| name);
    let mut text = format!(
        "Recovery by code at equal overhead: {seeds} seeds, {packets} packets each, receiver waits for 1,024 packets.\n\
         Losses take sources and repairs alike. Delays in source packets.\n\
         Made by `cargo test -p fec --test codes` with UPDATE_SNAPSHOTS=1.\n"
    );
    for (rows, overhead) in rows.iter().zip(["37.5", "12.5"]) {
        write!(text, "\nOverhead {overhead} %\n\n").unwrap();
        writeln!(text, "{:<21} {:<31}    lost  recovered  residual   mean   p50   p99   max", "loss", "code")
            .unwrap();
        for (loss, name) in names.iter().enumerate() {
            for row in rows {
                let report = &row.cells[loss];
                let whole =
                    |delay: Option<usize>| delay.map_or_else(|| "-".to_owned(), |delay| delay.to_string());
                let mean = report.delay_mean().map_or_else(|| "-".to_owned(), |mean| format!("{mean:.1}"));
                writeln!(
                    text,
                    "{name:<21} {:<31} {:>7} {:>8.3} % {:>8.1e} {mean:>6} {:>5} {:>5} {:>5}",
                    row.code,
                    report.lost,
                    100.0 * report.recovered_share(),
                    report.residual_loss(),
                    whole(report.delay_quantile(0.5)),
                    whole(report.delay_quantile(0.99)),
                    whole(report.delay_max()),
                )
                .unwrap();
            }
        }
    }
    text
}

/// Whole table for `docs/codes.md`: `cargo test --release -p fec --test codes -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn long_table() {
    println!("{}", table(&rows(60_000, 10), 60_000, 10));
}

#[test]
fn results_are_those_of_the_table_and_bear_out_what_is_claimed() {
    let (packets, seeds) = (4_000, 10);
    let rows = rows(packets, seeds);
    claims(&rows);
    let table = table(&rows, packets, seeds);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(std::path::Path::new(TABLE).parent().unwrap()).unwrap();
        std::fs::write(TABLE, &table).unwrap();
    }
    let expected = std::fs::read_to_string(TABLE).unwrap_or_default();
    assert!(table == expected, "results changed; now:\n{table}\nin {TABLE}:\n{expected}");
}

fn claims([high, low]: &[Vec<Row>; 2]) {
    let names = losses(0).map(|(name, _)| name);
    let (layered, layered_delayed, sliding) = (&high[0].cells, &high[1].cells, &high[5].cells);
    for (loss, name) in names.iter().enumerate() {
        for layered in [layered, layered_delayed] {
            let (ours, theirs) = (sliding[loss].recovered_share(), layered[loss].recovered_share());
            assert!(ours >= theirs, "{name}: sliding W=256 recovers {ours}, layered {theirs}");
        }
    }
    const ONE_PERCENT: usize = 1;
    let p99 = |report: &Report| report.delay_quantile(0.99).unwrap();
    assert!(10 * p99(&sliding[ONE_PERCENT]) <= p99(&layered[ONE_PERCENT]));
    let eighth = &low[4].cells[ONE_PERCENT];
    assert!(eighth.recovered_share() >= layered[ONE_PERCENT].recovered_share());
}
