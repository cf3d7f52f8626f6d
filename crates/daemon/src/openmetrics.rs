//! Metrics as text in the OpenMetrics format 1.0, which Prometheus reads.
//!
//! ```
//! use daemon::openmetrics::{Exposition, Kind};
//! let mut exposition = Exposition::default();
//! exposition.family("undrop_peers_up", Kind::Gauge, "Peers that are up.").sample(&[("site", "a")], 2.0);
//! assert!(exposition.finish().contains("undrop_peers_up{site=\"a\"} 2\n"));
//! ```

use std::borrow::Cow;
use std::fmt::Write as _;

/// Content type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Labels of a sample: names and values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A count that only grows. Its samples end in `_total`.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// Facts that are the labels of a sample with value 1. Its samples end in `_info`.
    Info,
    /// Counts of observations by upper bound.
    Histogram,
}

/// Metric families as text. Families come one after the other, each with all its samples.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

/// A metric family to which samples are added.
#[derive(Debug)]
pub struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
    kind: Kind,
}

impl Exposition {
    /// Begins a family.
    ///
    /// # Panics
    /// If the name is not in snake case, or ends in a suffix that its samples get.
    pub fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &str) -> Family<'a> {
        let is_snake = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.chars().all(is_snake) && !name.ends_with("_total"), "no name of a family: {name}");
        let kind_name = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(self.text, "# TYPE {name} {kind_name}");
        if let Some(unit) = ["seconds", "bytes", "ratio"].into_iter().find(|unit| name.ends_with(unit)) {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.text, "# HELP {name} {}", escaped(help));
        Family { text: &mut self.text, name, kind }
    }

    /// Returns the text.
    pub fn finish(mut self) -> String {
        self.text += "# EOF\n";
        self.text
    }
}

impl Family<'_> {
    /// Adds a sample.
    pub fn sample(&mut self, labels: Labels<'_>, value: f64) -> &mut Self {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.line(suffix, labels, &[], value);
        self
    }

    /// Adds a histogram: counts of observations up to each bound, the number of all, and their sum.
    pub fn histogram(
        &mut self,
        labels: Labels<'_>,
        buckets: &[(f64, u64)],
        count: u64,
        sum: f64,
    ) -> &mut Self {
        for (bound, up_to) in buckets {
            self.line("_bucket", labels, &[("le", &format!("{bound:?}"))], *up_to as f64);
        }
        self.line("_bucket", labels, &[("le", "+Inf")], count as f64);
        self.line("_count", labels, &[], count as f64);
        self.line("_sum", labels, &[], sum);
        self
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, more: Labels<'_>, value: f64) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (at, (name, value)) in labels.iter().chain(more).enumerate() {
            let opening = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{opening}{name}=\"{}\"", escaped(value));
        }
        let closing = if labels.is_empty() && more.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{closing} {value}");
    }
}

/// Returns a text of the OpenMetrics format in the older text format of Prometheus (version 0.0.4), which the
/// textfile collector of node_exporter reads. That one refuses a whole file for a type that it does not know,
/// so that facts are gauges there. Families have the names of their samples, and no units.
///
/// ```
/// let text = "# TYPE a_b counter\n# HELP a_b Things.\na_b_total 1\n# EOF\n";
/// let expected = "# TYPE a_b_total counter\n# HELP a_b_total Things.\na_b_total 1\n";
/// assert_eq!(daemon::openmetrics::in_prometheus_text(text), expected);
/// ```
pub fn in_prometheus_text(text: &str) -> String {
    let (mut converted, mut suffix) = (String::with_capacity(text.len()), "");
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let words = [(); 4].map(|()| words.next().unwrap_or_default());
        let line: Cow<'_, str> = match words {
            ["#", "TYPE", name, kind] => {
                let kind_there = if kind == "info" { "gauge" } else { kind };
                suffix = match kind {
                    "counter" => "_total",
                    "info" => "_info",
                    _ => "",
                };
                format!("# TYPE {name}{suffix} {kind_there}").into()
            }
            // A quote is escaped in the values of labels alone.
            ["#", "HELP", name, help] => {
                format!("# HELP {name}{suffix} {}", help.replace("\\\"", "\"")).into()
            }
            ["#", ..] => continue,
            _ => line.into(),
        };
        converted += &line;
        converted.push('\n');
    }
    converted
}

/// Escapes a label's value or a help text.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_as_the_format_asks() {
        let mut exposition = Exposition::default();
        exposition
            .family("undrop_packets_lost", Kind::Counter, "Packets lost \"here\".")
            .sample(&[("peer", "a\"b\\c\nd")], 7.0)
            .sample(&[], 1e15);
        let buckets = [(0.001, 2), (2.0, 5)];
        exposition.family("undrop_delay_seconds", Kind::Histogram, "Delays.").histogram(
            &[("peer", "x")],
            &buckets,
            6,
            0.25,
        );
        exposition.family("undrop_build", Kind::Info, "Version.").sample(&[("version", "1")], 1.0);
        let expected = "\
# TYPE undrop_packets_lost counter
# HELP undrop_packets_lost Packets lost \\\"here\\\".
undrop_packets_lost_total{peer=\"a\\\"b\\\\c\\nd\"} 7
undrop_packets_lost_total 1000000000000000
# TYPE undrop_delay_seconds histogram
# UNIT undrop_delay_seconds seconds
# HELP undrop_delay_seconds Delays.
undrop_delay_seconds_bucket{peer=\"x\",le=\"0.001\"} 2
undrop_delay_seconds_bucket{peer=\"x\",le=\"2.0\"} 5
undrop_delay_seconds_bucket{peer=\"x\",le=\"+Inf\"} 6
undrop_delay_seconds_count{peer=\"x\"} 6
undrop_delay_seconds_sum{peer=\"x\"} 0.25
# TYPE undrop_build info
# HELP undrop_build Version.
undrop_build_info{version=\"1\"} 1
# EOF
";
        let text = exposition.finish();
        assert_eq!(text, expected);
        let expected = "\
# TYPE undrop_packets_lost_total counter
# HELP undrop_packets_lost_total Packets lost \"here\".
undrop_packets_lost_total{peer=\"a\\\"b\\\\c\\nd\"} 7
undrop_packets_lost_total 1000000000000000
# TYPE undrop_delay_seconds histogram
# HELP undrop_delay_seconds Delays.
undrop_delay_seconds_bucket{peer=\"x\",le=\"0.001\"} 2
undrop_delay_seconds_bucket{peer=\"x\",le=\"2.0\"} 5
undrop_delay_seconds_bucket{peer=\"x\",le=\"+Inf\"} 6
undrop_delay_seconds_count{peer=\"x\"} 6
undrop_delay_seconds_sum{peer=\"x\"} 0.25
# TYPE undrop_build_info gauge
# HELP undrop_build_info Version.
undrop_build_info{version=\"1\"} 1
";
        assert_eq!(in_prometheus_text(&text), expected);
    }
}
