//! The cost of naming packets three times in a sliding window (docs/adr/0007), as a table in git.
#![allow(missing_docs)]

use crate::common::table::{Column, Row, compare, rows, sliding, table};
use fec::simulate::Naming;

const RULES: [(&str, Naming); 5] = [
    ("none", Naming::None),
    ("early", Naming::Early),
    ("late", Naming::Late),
    ("adjacent", Naming::Adjacent),
    ("spread", Naming::Spread),
];

fn all(packets: u64, seeds: u64) -> [Vec<Row>; 2] {
    [[(3, 8, 160), (3, 8, 256)], [(1, 8, 256), (1, 8, 512)]].map(|codes| {
        let named = |(repairs, sources, window)| {
            RULES.map(|(rule, naming)| Column {
                name: format!("sliding {repairs}/{sources} W={window}, {rule}"),
                code: sliding(repairs, sources, window),
                naming,
            })
        };
        rows(codes.into_iter().flat_map(named).collect(), packets, seeds)
    })
}

/// Note on the bytes, which are computed from the code alone.
const BYTES: &str = "bytes, also in the rows `none`, are of repairs that name their packets";

fn text([high, low]: &[Vec<Row>; 2], packets: u64, seeds: u64) -> String {
    let [high_heading, low_heading] =
        ["37.5", "12.5"].map(|percent| format!("Overhead {percent} %; {BYTES}"));
    table("names", &[(&high_heading, high), (&low_heading, low)], packets, seeds)
}

/// Prints the table for `docs/codes.md`: `cargo test --release -p fec --test it names:: -- --ignored
/// --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn long_table() {
    println!("{}", text(&all(60_000, 10), 60_000, 10));
}

#[test]
fn results_are_those_of_the_table() {
    let (packets, seeds) = (4_000, 10);
    compare("names", &text(&all(packets, seeds), packets, seeds));
}

/// Rates at which names travel apart, and the same with all names in repairs.
fn apart(packets: u64, seeds: u64) -> Vec<Row> {
    let rules = [("apart", Naming::Early), ("in repairs", Naming::Inside), ("none", Naming::None)];
    let columns = [16, 24, 32].into_iter().flat_map(|sources| {
        rules.map(|(rule, naming)| Column {
            name: format!("sliding 1/{sources} W=512, {rule}"),
            code: sliding(1, sources, 512),
            naming,
        })
    });
    rows(columns.collect(), packets, seeds)
}

fn apart_text(packets: u64, seeds: u64) -> String {
    let heading = "Low rates; bytes are of repairs as gateways send them";
    table("names", &[(heading, &apart(packets, seeds))], packets, seeds)
}

/// Prints the table for `docs/codes.md`: `cargo test --release -p fec --test it names:: -- --ignored
/// --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn long_table_of_low_rates() {
    println!("{}", apart_text(60_000, 10));
}

#[test]
fn results_at_low_rates_are_those_of_the_table() {
    compare("apart", &apart_text(4_000, 10));
}
