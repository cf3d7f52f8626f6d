//! The figures as JSON and as a table. For several seeds: the median, the least and the greatest.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sim::Figures;

use super::Run;

/// A figure: its key in the JSON, its name, its unit, its decimals.
pub(super) struct Row {
    pub(super) key: &'static str,
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) decimals: usize,
    value: fn(&Figures) -> f64,
}

impl Row {
    /// Returns the median of all seeds.
    pub(super) fn median(&self, runs: &[Run]) -> f64 {
        median(runs.iter().map(|(_, figures)| (self.value)(figures)))
    }
}

const fn row(
    key: &'static str,
    name: &'static str,
    unit: &'static str,
    decimals: usize,
    value: fn(&Figures) -> f64,
) -> Row {
    Row { key, name, unit, decimals, value }
}

pub(super) const ROWS: [Row; 21] = [
    row("messages", "messages sent", "", 0, |f| f.messages as f64),
    row("expected", "packets at receivers", "", 0, |f| f.expected as f64),
    row("lost", "lost by the network", "", 0, |f| f.lost as f64),
    row("recovered_percent", "of these recovered", "%", 3, |f| f.recovered_percent),
    row("repaired", "by repairs", "", 0, |f| f.repaired as f64),
    row("requested", "by NAKs", "", 0, |f| f.requested as f64),
    row("undelivered", "never delivered", "", 0, |f| f.undelivered as f64),
    row("duplicates", "delivered twice", "", 0, |f| f.duplicates as f64),
    row("latency_ms.mean", "recovery latency: mean", "ms", 2, |f| f.latency_ms.mean),
    row("latency_ms.p50", "p50", "ms", 2, |f| f.latency_ms.p50),
    row("latency_ms.p99", "p99", "ms", 2, |f| f.latency_ms.p99),
    row("latency_ms.max", "max", "ms", 2, |f| f.latency_ms.max),
    row("overhead_percent", "repairs among packets", "%", 2, |f| f.overhead_percent),
    row("overhead_bytes_percent", "other bytes than data", "%", 2, |f| f.overhead_bytes_percent),
    row("xors_per_packet", "XORs per packet", "", 3, |f| f.xors_per_packet),
    row("received_again", "data received again", "", 0, |f| f.received_again as f64),
    row("cpu_us_per_packet", "CPU of a node per packet", "us", 2, |f| f.cpu_us_per_packet),
    row("wire_bytes_per_message", "bytes on wires per message", "", 0, |f| f.wire_bytes_per_message),
    row("wire_frames_per_message", "frames on wires per message", "", 2, |f| f.wire_frames_per_message),
    row("requests", "NAKs sent", "", 0, |f| f.datagrams[3] as f64),
    row("heartbeats", "heartbeats sent", "", 0, |f| f.datagrams[4] as f64),
];

/// Returns the least, the median and the greatest of some values.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let median = if values.len().is_multiple_of(2) {
        (values[middle - 1] + values[middle]) / 2.0
    } else {
        values[middle]
    };
    [values[0], median, values[values.len() - 1]]
}

/// Returns the median.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    spread(values)[1]
}

/// Returns medians at the top; with several seeds also `spread` (least and greatest) and each seed's own
/// figures in `runs`.
pub(super) fn json(runs: &[Run]) -> Value {
    let mut whole = tree(|row| row.median(runs));
    if runs.len() > 1 {
        let ends = |row: &Row| {
            let [least, _, most] = spread(runs.iter().map(|(_, figures)| (row.value)(figures)));
            json!([least, most])
        };
        whole.insert("spread".to_owned(), tree(ends).into());
        let of_run = |(seed, figures): &Run| {
            let mut values = tree(|row| (row.value)(figures));
            values.insert("seed".to_owned(), json!(seed));
            Value::from(values)
        };
        whole.insert("runs".to_owned(), runs.iter().map(of_run).collect());
    }
    whole.into()
}

/// Returns all rows by key.
pub(super) fn tree<T: Into<Value>>(value: impl Fn(&Row) -> T) -> Map<String, Value> {
    let mut whole = Map::new();
    for row in &ROWS {
        let value = match value(row).into() {
            Value::Number(number) => number.as_f64().map_or(Value::Null, self::number),
            value => value,
        };
        insert(&mut whole, row.key, value);
    }
    whole
}

/// Inserts a value; a key with a dot becomes an object in an object.
pub(super) fn insert(whole: &mut Map<String, Value>, key: &str, value: Value) {
    match key.split_once('.') {
        None => drop(whole.insert(key.to_owned(), value)),
        Some((outer, inner)) => {
            let object = whole.entry(outer).or_insert_with(|| json!({}));
            object[inner] = value;
        }
    }
}

/// Returns a number, without a point if it is whole.
pub(super) fn number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 { json!(number as i64) } else { json!(number) }
}

/// Returns the seeds of figures in words.
pub(super) fn seeds(runs: &[Run]) -> String {
    match runs {
        [(seed, _)] => format!("seed {seed}"),
        _ => format!("medians of {} seeds", runs.len()),
    }
}

/// Returns the table as text.
pub(super) fn table(title: &str, runs: &[Run]) -> String {
    let more = if runs.len() > 1 { ", least and greatest in brackets" } else { "" };
    let mut text = format!("{title}\n{}{more}", seeds(runs));
    for row in &ROWS {
        let [least, median, most] = spread(runs.iter().map(|(_, figures)| (row.value)(figures)));
        let Row { name, unit, decimals, .. } = row;
        let _ = write!(text, "\n{name:<28}{median:>14.decimals$} {unit:<2}");
        if least < most {
            let _ = write!(text, "  ({least:.decimals$}–{most:.decimals$})");
        }
        let trimmed = text.trim_end().len();
        text.truncate(trimmed);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(means: &[f64]) -> Vec<Run> {
        let run = |(at, &mean): (usize, &f64)| {
            let latency_ms = sim::figures::Latency { mean, ..Default::default() };
            (at as u64 + 1, Figures { messages: 10, lost: 3, latency_ms, ..Figures::default() })
        };
        means.iter().enumerate().map(run).collect()
    }

    #[test]
    fn one_seed_has_its_figures_at_the_top() {
        let value = json(&runs(&[7.5]));
        assert_eq!(value["latency_ms"]["mean"], 7.5);
        assert_eq!(value["lost"], 3);
        assert_eq!(value.get("runs"), None);
        for key in
            ["lost", "recovered_percent", "overhead_percent", "xors_per_packet", "undelivered", "duplicates"]
        {
            assert!(value[key].is_number(), "{key}: {value}");
        }
        for key in ["cpu_us_per_packet", "wire_bytes_per_message"] {
            assert!(value[key].is_number(), "{key}: {value}");
        }
        assert_eq!(value["latency_ms"].as_object().unwrap().len(), 4);
    }

    #[test]
    fn several_seeds_have_their_median_and_spread() {
        let value = json(&runs(&[9.0, 7.0, 7.5, 8.5]));
        assert_eq!(value["latency_ms"]["mean"], 8);
        assert_eq!(value["spread"]["latency_ms"]["mean"], json!([7.0, 9.0]));
        assert_eq!(value["runs"][2]["seed"], 3);
        let table = table("what", &runs(&[9.0, 7.0, 7.5]));
        assert!(table.contains("7.50 ms  (7.00–9.00)"), "{table}");
        assert!(table.starts_with("what\nmedians of 3 seeds"), "{table}");
    }
}
