//! The figures of a run: their names in files, and their headings in tables.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::bail;

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Figure {
    /// Payload delivered per second: of bulk TCP in the second half, of others in the whole run.
    Goodput,
    /// The same of flows that no gateway protects, beside protected ones.
    Beside,
    /// Goodput as a share of what repairs leave of the goodput without loss; computed from several runs.
    Share,
    /// Bytes of repairs per hundred bytes of source packets, in the whole run and in its second half.
    Overhead,
    OverheadLate,
    /// Packets lost on the link or before it.
    Lost,
    /// Packets that stayed lost, in the whole run.
    StayedLost,
    /// Packets that stayed lost, per million, in the second half; and those beyond the drops of the queue.
    Residual,
    ResidualBeyondQueue,
    /// Packets that found the queue before the link full.
    QueueDrops,
    /// Packets that stayed lost in the worst part of a run whose loss changes.
    WorstPhase,
    /// Seconds from a rise of the loss to the last packet that stayed lost because of it.
    React,
    /// Latency of datagrams or messages.
    LatencyHalf,
    LatencyMost,
    /// Share of the datagrams or messages that arrived within 150 ms, and that did not arrive at all.
    Within150,
    Missing,
    /// Packets sent per second, as far as the sender could.
    Pace,
    /// Processor time of the gateways per source packet, and cores that both used.
    EgressCost,
    IngressCost,
    Cores,
    /// State of the machine.
    Steal,
    Foreign,
    Stopped,
    Late,
}

/// Name in files, heading in tables, decimals.
type Entry = (Figure, &'static str, &'static str, usize);

const TABLE: [Entry; 24] = [
    (Figure::Goodput, "goodput_mbps", "Mbit/s", 1),
    (Figure::Beside, "beside_mbps", "bare flows, Mbit/s", 1),
    (Figure::Share, "share_percent", "share, %", 1),
    (Figure::Overhead, "overhead_percent", "added bytes, %", 1),
    (Figure::OverheadLate, "overhead_late_percent", "added bytes in the second half, %", 1),
    (Figure::Lost, "lost", "lost on the link", 0),
    (Figure::StayedLost, "stayed_lost", "stayed lost", 0),
    (Figure::Residual, "residual_ppm", "stayed lost, per million", 1),
    (
        Figure::ResidualBeyondQueue,
        "residual_beyond_queue_ppm",
        "stayed lost beyond queue drops, per million",
        1,
    ),
    (Figure::QueueDrops, "queue_drops", "queue drops", 0),
    (Figure::WorstPhase, "worst_phase_lost", "stayed lost in the worst part", 0),
    (Figure::React, "react_s", "reaction, s", 2),
    (Figure::LatencyHalf, "latency_p50_ms", "p50, ms", 1),
    (Figure::LatencyMost, "latency_p99_ms", "p99, ms", 1),
    (Figure::Within150, "within_150_ms_percent", "within 150 ms, %", 2),
    (Figure::Missing, "missing_percent", "missing, %", 3),
    (Figure::Pace, "packets_per_s", "packets/s", 0),
    (Figure::EgressCost, "egress_ns", "egress, ns/packet", 0),
    (Figure::IngressCost, "ingress_ns", "ingress, ns/packet", 0),
    (Figure::Cores, "cores", "cores of both gateways", 2),
    (Figure::Steal, "steal_percent", "steal, %", 2),
    (Figure::Foreign, "foreign_percent", "other programs, %", 1),
    (Figure::Stopped, "stopped_percent", "machine stopped, %", 2),
    (Figure::Late, "late_percent", "late packets, %", 3),
];

/// Figures of a run.
pub(super) type Figures = BTreeMap<Figure, f64>;

impl Figure {
    /// Returns all figures in the order of the columns of a file.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|entry| entry.0)
    }

    fn entry(self) -> &'static Entry {
        TABLE.iter().find(|entry| entry.0 == self).expect("each figure has an entry, as a test shows")
    }

    /// Returns the name in files.
    pub(super) fn name(self) -> &'static str {
        self.entry().1
    }

    /// Returns the heading in tables.
    pub(super) fn heading(self) -> &'static str {
        self.entry().2
    }

    /// Returns a value of this figure as text for tables.
    pub(super) fn text(self, value: f64) -> String {
        if value.is_infinite() {
            return "never".to_owned();
        }
        let decimals = if value.abs() >= 1_000.0 { 0 } else { self.entry().3 };
        format!("{value:.decimals$}")
    }
}

impl FromStr for Figure {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match TABLE.iter().find(|entry| entry.1 == text) {
            Some(entry) => Ok(entry.0),
            None => {
                let names: Vec<&str> = TABLE.iter().map(|entry| entry.1).collect();
                bail!("expected a figure ({}), saw {text:?}", names.join(", "))
            }
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_one_entry_and_is_found_by_its_name() {
        for (at, figure) in Figure::all().enumerate() {
            assert_eq!(figure as usize, at, "{figure}");
            assert_eq!(figure.name().parse::<Figure>().unwrap(), figure);
        }
        assert!("speed".parse::<Figure>().unwrap_err().to_string().contains("goodput_mbps"));
    }

    #[test]
    fn values_have_the_decimals_of_their_figure() {
        assert_eq!(Figure::Goodput.text(682.04), "682.0");
        assert_eq!(Figure::Residual.text(12_345.6), "12346");
        assert_eq!(Figure::LatencyMost.text(f64::INFINITY), "never");
    }
}
