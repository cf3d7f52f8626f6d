//! The figures of real nodes next to those of the simulation.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use stage::nodes::Carried;

use super::Run;
use super::report::{self, ROWS, Row, median};

/// The figures of real nodes and of the same setting in the simulation, seed by seed.
pub(super) struct Beside {
    pub(super) real: Vec<Run>,
    pub(super) carried: Vec<Carried>,
    pub(super) simulated: Vec<Run>,
    /// Planned packets that each node receives each second.
    pub(super) asked: f64,
    /// Delays between nodes in the simulation.
    pub(super) delays_us: Vec<u64>,
}

/// A figure that only real nodes have: key, name, unit, decimals, value.
type CarriedRow = (&'static str, &'static str, &'static str, usize, fn(&Carried) -> f64);

const CARRIED: [CarriedRow; 9] = [
    ("rate", "packets a node and second", "", 0, |c| c.rate),
    ("delay_ms.mean", "delay without loss: mean", "ms", 2, |c| c.delay_ms.mean),
    ("delay_ms.p50", "p50", "ms", 2, |c| c.delay_ms.p50),
    ("delay_ms.p99", "p99", "ms", 2, |c| c.delay_ms.p99),
    ("port_bytes_per_message", "bytes at ports per message", "", 0, |c| c.port_bytes_per_message),
    ("port_frames_per_message", "frames at ports per message", "", 2, |c| c.port_frames_per_message),
    ("lost_elsewhere", "lost before the node", "", 0, |c| c.lost_elsewhere as f64),
    ("overflowed", "dropped for want of room", "", 0, |c| c.overflowed as f64),
    ("parted", "runs with separated nodes", "", 0, |c| f64::from(u8::from(c.parted))),
];

impl Beside {
    pub(super) fn new(asked: f64) -> Self {
        Self { real: Vec::new(), carried: Vec::new(), simulated: Vec::new(), asked, delays_us: Vec::new() }
    }

    fn delay_us(&self) -> f64 {
        median(self.delays_us.iter().map(|&us| us as f64))
    }

    fn carried(&self, value: fn(&Carried) -> f64) -> f64 {
        median(self.carried.iter().map(value))
    }

    /// Returns how far the real figure is above the simulated one, in percent of the latter.
    fn difference(&self, row: &Row) -> Option<f64> {
        let [real, simulated] = [&self.real, &self.simulated].map(|runs| row.median(runs));
        if real == simulated {
            return Some(0.0);
        }
        (simulated != 0.0).then(|| 100.0 * (real - simulated) / simulated)
    }

    /// Returns `real` and `simulated` with the figures of a simulation, `bridge` with those of real nodes
    /// alone, and `difference_percent`.
    pub(super) fn json(&self) -> Value {
        let mut bridge = Map::new();
        for (key, .., value) in CARRIED {
            report::insert(&mut bridge, key, report::number(self.carried(value)));
        }
        let difference = report::tree(|row| self.difference(row).map_or(Value::Null, report::number));
        json!({
            "asked_rate": report::number(self.asked),
            "real": report::json(&self.real),
            "bridge": bridge,
            "simulated_delay_us": report::number(self.delay_us()),
            "simulated": report::json(&self.simulated),
            "difference_percent": difference,
        })
    }

    /// Returns the table as text.
    pub(super) fn table(&self, title: &str) -> String {
        let seeds = report::seeds(&self.real);
        let mut text =
            format!("{title}\n{seeds}\n{:<28}{:>14}{:>17}{:>14}", "", "real", "simulated", "difference");
        for row in &ROWS {
            let [real, simulated] = [&self.real, &self.simulated].map(|runs| row.median(runs));
            let Row { name, unit, decimals, .. } = row;
            let difference =
                self.difference(row).map_or_else(|| "–".to_owned(), |percent| format!("{percent:+.1} %"));
            let _ = write!(
                text,
                "\n{name:<28}{real:>14.decimals$} {unit:<2}{simulated:>14.decimals$} {unit:<2}{difference:>11}"
            );
        }
        let _ = write!(text, "\nsimulated with {:.0} us between nodes\non the bridge", self.delay_us());
        for (_, name, unit, decimals, value) in CARRIED {
            let _ = write!(text, "\n{name:<28}{:>14.decimals$} {unit}", self.carried(value));
            text.truncate(text.trim_end().len());
        }
        text
    }

    /// Returns the conditions that make the figures less reliable.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        let rate = self.carried(|carried| carried.rate);
        if rate < self.asked {
            let asked = self.asked;
            all.push(format!(
                "this machine reached {rate:.0} of {asked:.0} packets a second for each node; the simulation has that rate too"
            ));
        }
        let overflowed: u64 = self.carried.iter().map(|carried| carried.overflowed).sum();
        if overflowed > 0 {
            all.push(format!(
                "{overflowed} datagrams found no room in a socket, ring or queue: the rate is too high for this machine; use a \
                 lower --rate"
            ));
        }
        let elsewhere: u64 = self.carried.iter().map(|carried| carried.lost_elsewhere).sum();
        if elsewhere > 0 {
            all.push(format!(
                "{elsewhere} packets were lost on the way, in addition to those of the loss model"
            ));
        }
        if self.carried.iter().any(|carried| carried.parted) {
            all.push("nodes declared each other dead during the run; use a lower --rate".to_owned());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use sim::Figures;
    use sim::figures::Latency;

    use super::*;

    fn beside() -> Beside {
        let run = |mean, lost| {
            let latency_ms = Latency { mean, ..Latency::default() };
            vec![(1, Figures { lost, latency_ms, ..Figures::default() })]
        };
        let carried = Carried { rate: 1_000.0, port_bytes_per_message: 20_500.0, ..Carried::default() };
        Beside {
            real: run(12.0, 3),
            carried: vec![carried],
            simulated: run(10.0, 0),
            delays_us: vec![120],
            asked: 1_000.0,
        }
    }

    #[test]
    fn both_and_their_difference_are_in_the_json() {
        let value = beside().json();
        assert_eq!(
            (&value["real"]["latency_ms"]["mean"], &value["simulated"]["latency_ms"]["mean"]),
            (&json!(12), &json!(10))
        );
        assert_eq!(value["difference_percent"]["latency_ms"]["mean"], 20);
        assert_eq!(value["difference_percent"]["lost"], Value::Null, "nothing to compare with");
        assert_eq!(value["difference_percent"]["duplicates"], 0);
        assert_eq!(value["bridge"]["port_bytes_per_message"], 20_500);
        assert_eq!((&value["asked_rate"], &value["simulated_delay_us"]), (&json!(1_000), &json!(120)));
    }

    #[test]
    fn a_table_has_a_column_for_each() {
        let table = beside().table("what");
        assert!(table.starts_with("what\nseed 1\n"), "{table}");
        let row = table.lines().find(|line| line.starts_with("recovery latency: mean")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().skip(3).collect();
        assert_eq!(cells, ["12.00", "ms", "10.00", "ms", "+20.0", "%"]);
        assert!(table.contains("bytes at ports per message"), "{table}");
    }

    #[test]
    fn conditions_that_spoil_the_figures_are_reported() {
        let mut beside = beside();
        assert!(beside.warnings().is_empty());
        beside.carried = vec![Carried {
            rate: 700.0,
            overflowed: 5,
            lost_elsewhere: 4,
            parted: true,
            ..Carried::default()
        }];
        let warnings = beside.warnings().join("\n");
        for what in ["700 of 1000", "5 datagrams", "4 packets", "dead"] {
            assert!(warnings.contains(what), "{what}: {warnings}");
        }
    }
}
