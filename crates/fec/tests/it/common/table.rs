//! Tables that compare what codes recover from several loss patterns.

use super::Loss;
use fec::simulate::{Naming, Report, Simulation, repair_overhead_bytes, simulate};
use fec::{Code, RepairRate, SlidingConfig};
use std::fmt::Write;

/// A code under test.
#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    pub code: Code,
    pub naming: Naming,
}

/// Each loss in turn, for one code.
#[derive(Debug)]
pub struct Row {
    pub name: String,
    pub code: Code,
    pub cells: Vec<Report>,
}

/// Bytes of a source packet, for bytes on the wire.
const PACKET: usize = 1_500;

impl Row {
    /// Repairs sent for each source packet, over all losses.
    pub fn overhead(&self) -> f64 {
        let sum = |part: fn(&Report) -> u64| self.cells.iter().map(part).sum::<u64>() as f64;
        sum(|report| report.repairs_sent) / sum(|report| report.sources_sent)
    }

    /// Bytes of all repairs for each byte of the source packets, names and headers too.
    pub fn overhead_bytes(&self) -> f64 {
        self.overhead() * self.repair_bytes() as f64 / PACKET as f64
    }

    fn repair_bytes(&self) -> usize {
        PACKET + repair_overhead_bytes(&self.code)
    }
}

/// Number of loss patterns.
pub const LOSSES: usize = 15;

/// Names of the loss patterns, and their generators.
pub fn losses(seed: u64) -> [(String, Loss); LOSSES] {
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

pub fn sliding(repairs: u32, sources: u32, window: u16) -> Code {
    let rate = RepairRate::new(repairs, sources).unwrap();
    SlidingConfig { rate, window, ..SlidingConfig::default() }.into()
}

/// All runs of one code at one loss pattern.
fn cell(column: &Column, loss: usize, packets: u64, seeds: u64) -> Report {
    let mut sum = Report::default();
    for seed in 0..seeds {
        let mut code = column.code.clone();
        if let Code::Sliding(config) = &mut code {
            config.seed = seed as u16 * 6_007;
        }
        let simulation = Simulation { code, packets, naming: column.naming, ..Simulation::default() };
        let mut lose = losses(seed + 1)[loss].1.clone();
        sum.add(&simulate(&simulation, |_| lose.lose()).unwrap());
    }
    assert_eq!(sum.wrong, 0);
    sum
}

/// Runs every code at every loss pattern.
pub fn rows(columns: Vec<Column>, packets: u64, seeds: u64) -> Vec<Row> {
    std::thread::scope(|scope| {
        let started: Vec<_> = columns
            .into_iter()
            .map(|column| {
                scope.spawn(move || Row {
                    cells: (0..LOSSES).map(|loss| cell(&column, loss, packets, seeds)).collect(),
                    name: column.name,
                    code: column.code,
                })
            })
            .collect();
        started.into_iter().map(|row| row.join().unwrap()).collect()
    })
}

/// Writes the results by loss pattern, so that the codes are adjacent. Each part has a heading.
pub fn table(test: &str, parts: &[(&str, &[Row])], packets: u64, seeds: u64) -> String {
    let names = losses(0).map(|(name, _)| name);
    let mut text = format!(
        "Recovery by code at equal overhead: {seeds} seeds, {packets} packets each, receiver waits for 1,024 packets.\n\
         Losses take sources and repairs alike. Delays in source packets. Packets of 1,500 bytes; the last of them have\n\
         not all their repairs yet, which is why some codes show less overhead than they have in the long run.\n\
         Made by `cargo test -p fec --test {test}` with UPDATE_SNAPSHOTS=1.\n"
    );
    for (heading, rows) in parts {
        write!(text, "\n{heading}\n\n{:<31}  packets  bytes a repair    bytes\n", "code").unwrap();
        for row in *rows {
            let (packets, bytes) = (100.0 * row.overhead(), 100.0 * row.overhead_bytes());
            writeln!(text, "{:<31} {packets:>6.2} % {:>14} {bytes:>7.2} %", row.name, row.repair_bytes())
                .unwrap();
        }
        text.push('\n');
        writeln!(text, "{:<21} {:<31}    lost  recovered  residual   mean   p50   p99   max", "loss", "code")
            .unwrap();
        for (loss, name) in names.iter().enumerate() {
            for row in *rows {
                writeln!(text, "{name:<21} {:<31} {}", row.name, figures(&row.cells[loss])).unwrap();
            }
        }
    }
    text
}

fn figures(report: &Report) -> String {
    let whole = |delay: Option<usize>| delay.map_or_else(|| "-".to_owned(), |delay| delay.to_string());
    let mean = report.delay_mean().map_or_else(|| "-".to_owned(), |mean| format!("{mean:.1}"));
    format!(
        "{:>7} {:>8.3} % {:>8.1e} {mean:>6} {:>5} {:>5} {:>5}",
        report.lost,
        100.0 * report.recovered_share(),
        report.residual_loss(),
        whole(report.delay_quantile(0.5)),
        whole(report.delay_quantile(0.99)),
        whole(report.delay_max()),
    )
}

/// Compares with the table in git; `UPDATE_SNAPSHOTS=1` replaces the table.
pub fn compare(test: &str, table: &str) {
    let path = format!("{}/tests/snapshots/{test}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, table).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(table == expected, "results changed; now:\n{table}\nin {path}:\n{expected}");
}
