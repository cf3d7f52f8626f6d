//! A comparison of the codes at equal overhead, as a table in git, so that every change is reviewed.
//!
//! `docs/codes.md` explains the same table from a longer run.
#![allow(missing_docs)]

use crate::common::table::{Column, Row, compare, losses, rows, sliding, table};
use fec::simulate::Naming;
use fec::{Code, LayeredConfig, ReedSolomonConfig, Sending};

fn layered(r: u8, sending: Sending) -> Code {
    LayeredConfig { r, interleaves: vec![1, 19, 41], sending, ..LayeredConfig::default() }.into()
}

fn reed_solomon(r: u8, c: u8, interleave: u16, sending: Sending) -> Code {
    ReedSolomonConfig { r, c, interleave, sending, ..ReedSolomonConfig::default() }.into()
}

/// A sliding window whose repairs name packets by the rule of gateways.
fn named(repairs: u32, sources: u32, window: u16) -> Column {
    let name = format!("sliding {repairs}/{sources} W={window} named");
    Column { name, code: sliding(repairs, sources, window), naming: Naming::Early }
}

/// A code whose packets carry numbers.
fn numbered(name: &str, code: Code) -> Column {
    Column { name: name.to_owned(), code, naming: Naming::None }
}

/// Columns at 37.5 % and at 12.5 % overhead. A window's repair is slightly longer than a layer's. The last
/// column of each part has fewer repairs, so that it has fewer bytes than the layers.
fn columns() -> [Vec<Column>; 2] {
    [
        vec![
            numbered("layered (8; 1,19,41)", layered(8, Sending::Immediate)),
            numbered("layered (8; 1,19,41) delayed", layered(8, Sending::Delayed)),
            numbered("reed-solomon (8,3)", reed_solomon(8, 3, 1, Sending::Immediate)),
            numbered("reed-solomon (8,3) x20 delayed", reed_solomon(8, 3, 20, Sending::Delayed)),
            numbered("sliding 3/8 W=160", sliding(3, 8, 160)),
            numbered("sliding 3/8 W=256", sliding(3, 8, 256)),
            named(3, 8, 256),
            named(10, 27, 256),
        ],
        vec![
            numbered("layered (24; 1,19,41)", layered(24, Sending::Immediate)),
            numbered("layered (24; 1,19,41) delayed", layered(24, Sending::Delayed)),
            numbered("reed-solomon (24,3)", reed_solomon(24, 3, 1, Sending::Immediate)),
            numbered("reed-solomon (32,4) x8 delayed", reed_solomon(32, 4, 8, Sending::Delayed)),
            numbered("sliding 1/8 W=256", sliding(1, 8, 256)),
            numbered("sliding 1/8 W=512", sliding(1, 8, 512)),
            named(1, 8, 256),
            named(6, 49, 256),
        ],
    ]
}

/// Returns the rows of both overheads.
fn both(packets: u64, seeds: u64) -> [Vec<Row>; 2] {
    columns().map(|columns| rows(columns, packets, seeds))
}

fn text([high, low]: &[Vec<Row>; 2], packets: u64, seeds: u64) -> String {
    table("codes", &[("Overhead 37.5 %", high), ("Overhead 12.5 %", low)], packets, seeds)
}

/// Prints the table for `docs/codes.md`: `cargo test --release -p fec --test it codes:: -- --ignored
/// --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn long_table() {
    println!("{}", text(&both(60_000, 10), 60_000, 10));
}

#[test]
fn results_are_those_of_the_table_and_support_the_claims() {
    let (packets, seeds) = (4_000, 10);
    let rows = both(packets, seeds);
    claims(&rows);
    compare("codes", &text(&rows, packets, seeds));
}

const ONE_PERCENT: usize = 1;

/// Checks windows with numbers, with names, and with names and no more bytes than layers.
fn claims([high, low]: &[Vec<Row>; 2]) {
    for (sliding, eighth) in [(5, 4), (6, 6), (7, 7)] {
        claims_of(&high[sliding], &low[eighth], [&high[0], &high[1]]);
    }
    for part in [high, low] {
        for layered in &part[..2] {
            let (ours, theirs) = (part[7].overhead_bytes(), layered.overhead_bytes());
            assert!(ours <= theirs, "{}: {ours} of the bytes, {} {theirs}", part[7].name, layered.name);
        }
    }
}

/// Compares a window at 37.5 % and one at 12.5 % with layers at 37.5 %, sent at once and delayed.
fn claims_of(sliding: &Row, eighth: &Row, layers: [&Row; 2]) {
    let name = &sliding.name;
    for (loss, (at, _)) in losses(0).iter().enumerate() {
        for layered in layers {
            let (ours, theirs) =
                (sliding.cells[loss].recovered_share(), layered.cells[loss].recovered_share());
            assert!(ours >= theirs, "{at}: {name} recovers {ours}, {} {theirs}", layered.name);
        }
    }
    let p99 = |row: &Row| row.cells[ONE_PERCENT].delay_quantile(0.99).unwrap();
    let (ours, theirs) = (p99(sliding), p99(layers[0]));
    assert!(10 * ours <= theirs, "{name}: p99 {ours}, layered {theirs}");
    let share = |row: &Row| row.cells[ONE_PERCENT].recovered_share();
    assert!(share(eighth) >= share(layers[0]), "{} recovers {}", eighth.name, share(eighth));
}
