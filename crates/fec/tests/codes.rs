//! What the codes show against each other at equal overhead, as a table in git: a change of it is a reviewed change.
//!
//! `docs/codes.md` has the same table from a longer run and says what it means.
#![allow(missing_docs)]

mod common;

use common::table::{Column, Row, compare, losses, rows, sliding, table};
use fec::simulate::{Naming, Report};
use fec::{Code, LayeredConfig, ReedSolomonConfig, Sending};

fn layered(r: u8, sending: Sending) -> Code {
    LayeredConfig { r, interleaves: vec![1, 19, 41], sending, ..LayeredConfig::default() }.into()
}

fn reed_solomon(r: u8, c: u8, interleave: u16, sending: Sending) -> Code {
    ReedSolomonConfig { r, c, interleave, sending, ..ReedSolomonConfig::default() }.into()
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

/// Rows of both overheads.
fn both(packets: u64, seeds: u64) -> [Vec<Row>; 2] {
    codes().map(|codes| {
        let column =
            |(name, code): (&str, Code)| Column { name: name.to_owned(), code, naming: Naming::None };
        rows(codes.into_iter().map(column).collect(), packets, seeds)
    })
}

fn text([high, low]: &[Vec<Row>; 2], packets: u64, seeds: u64) -> String {
    table("codes", &[("Overhead 37.5 %", high), ("Overhead 12.5 %", low)], packets, seeds)
}

/// Whole table for `docs/codes.md`: `cargo test --release -p fec --test codes -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn long_table() {
    println!("{}", text(&both(60_000, 10), 60_000, 10));
}

#[test]
fn results_are_those_of_the_table_and_bear_out_what_is_claimed() {
    let (packets, seeds) = (4_000, 10);
    let rows = both(packets, seeds);
    claims(&rows);
    compare("codes", &text(&rows, packets, seeds));
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
