//! The figures of the runs, as JSON and as text.

use std::fmt::Write as _;

use ::fec::simulate::{Report, apart_bytes, repair_overhead_bytes};
use ::fec::{Code, Sending};
use serde::Serialize;

/// Parameters of the simulated runs.
pub(super) struct Setup<'a> {
    pub(super) code: &'a Code,
    /// Rule by which a sliding window's repairs name packets.
    pub(super) names: Option<&'static str>,
    pub(super) loss: String,
    pub(super) packet_bytes: usize,
}

/// Figures of all runs.
#[derive(Debug)]
pub(super) struct Figures {
    scheme: &'static str,
    code: String,
    /// Rule by which a sliding window's repairs name packets. Repairs of other schemes name all their
    /// packets.
    names: Option<&'static str>,
    loss: String,
    /// Sum over all runs.
    sum: Report,
    recovered_percent_of_runs: Vec<f64>,
    overhead_percent: f64,
    overhead_wire_percent: f64,
    repair_bytes: f64,
    encode_ns: f64,
    decode_ns: f64,
}

/// Schema of the document.
const SCHEMA: &str = "undrop.fec.simulation/1";

/// Figures of a code on simulated losses, over all runs.
#[derive(Debug, Serialize)]
pub(super) struct Simulation {
    /// Name and version of this schema.
    schema: &'static str,
    /// Scheme of the code: `layered`, `reed-solomon` or `sliding`.
    scheme: &'static str,
    /// Its parameters in words.
    code: String,
    /// Rule by which a sliding window's repairs name packets; null for other schemes.
    names: Option<&'static str>,
    /// The loss model.
    loss: String,
    /// Number of runs, each with losses of its own.
    runs: u64,
    /// Packets sent.
    packets: u64,
    /// Packets lost.
    lost: u64,
    /// Lost packets that were recovered.
    recovered: u64,
    /// Repairs sent.
    repairs: u64,
    /// Repairs lost.
    repairs_lost: u64,
    /// Repairs per hundred packets.
    overhead_percent: Overhead,
    /// Length of a repair on the wire in bytes.
    repair_bytes: f64,
    /// Recovered packets per hundred lost ones.
    recovered_percent: f64,
    /// The same for each run.
    recovered_percent_of_runs: Vec<f64>,
    /// Share of packets that stay lost.
    residual_loss: f64,
    /// Delay of recovered packets, in packets.
    delay_packets: Delay,
    /// Time to encode a packet, in nanoseconds.
    encode_ns_per_packet: f64,
    /// Time to decode a packet, in nanoseconds.
    decode_ns_per_packet: f64,
}

/// Overhead of repairs.
#[derive(Debug, Serialize)]
struct Overhead {
    /// Repairs per hundred packets.
    packets: f64,
    /// Bytes of repairs on the wire per hundred bytes of packets.
    wire_bytes: f64,
}

/// A delay in packets; null if none was recovered.
#[derive(Debug, Serialize)]
struct Delay {
    /// The mean.
    mean: Option<f64>,
    /// The median.
    p50: Option<u64>,
    /// The 99th percentile.
    p99: Option<u64>,
    /// The longest.
    max: Option<u64>,
}

impl Figures {
    pub(super) fn new(setup: Setup<'_>, runs: &[Report], cost: &Report) -> Self {
        let Setup { code, names, loss, packet_bytes } = setup;
        let mut sum = Report::default();
        runs.iter().for_each(|report| sum.add(report));
        let repair_bytes = (packet_bytes + repair_overhead_bytes(code)) as f64;
        let overhead_percent = 100.0 * sum.overhead();
        let per_packet = |ns: u64| ns as f64 / cost.sources_sent as f64;
        Self {
            scheme: code.scheme().word(),
            code: describe(code),
            names,
            loss,
            recovered_percent_of_runs: runs.iter().map(|report| 100.0 * report.recovered_share()).collect(),
            sum,
            overhead_percent,
            overhead_wire_percent: (overhead_percent * repair_bytes + 100.0 * apart_bytes(code))
                / packet_bytes as f64,
            repair_bytes,
            encode_ns: per_packet(cost.encode_ns),
            decode_ns: per_packet(cost.decode_ns),
        }
    }

    pub(super) fn document(&self) -> Simulation {
        let sum = &self.sum;
        let whole = |delay: Option<usize>| delay.map(|packets| packets as u64);
        Simulation {
            schema: SCHEMA,
            scheme: self.scheme,
            code: self.code.clone(),
            names: self.names,
            loss: self.loss.clone(),
            runs: self.recovered_percent_of_runs.len() as u64,
            packets: sum.sent,
            lost: sum.lost,
            recovered: sum.recovered,
            repairs: sum.repairs_sent,
            repairs_lost: sum.repairs_lost,
            overhead_percent: Overhead {
                packets: self.overhead_percent,
                wire_bytes: self.overhead_wire_percent,
            },
            repair_bytes: self.repair_bytes,
            recovered_percent: 100.0 * sum.recovered_share(),
            recovered_percent_of_runs: self.recovered_percent_of_runs.clone(),
            residual_loss: sum.residual_loss(),
            delay_packets: Delay {
                mean: sum.delay_mean(),
                p50: whole(sum.delay_quantile(0.5)),
                p99: whole(sum.delay_quantile(0.99)),
                max: whole(sum.delay_max()),
            },
            encode_ns_per_packet: self.encode_ns,
            decode_ns_per_packet: self.decode_ns,
        }
    }

    pub(super) fn text(&self) -> String {
        let Self { sum, .. } = self;
        let share = 100.0 * sum.recovered_share();
        let least = self.recovered_percent_of_runs.iter().copied().fold(share, f64::min);
        let most = self.recovered_percent_of_runs.iter().copied().fold(share, f64::max);
        let whole = |value: Option<usize>| value.map_or_else(|| "–".to_owned(), |value| value.to_string());
        let mean = sum.delay_mean().map_or_else(|| "–".to_owned(), |mean| format!("{mean:.1}"));
        let (median, p99, max) = (sum.delay_quantile(0.5), sum.delay_quantile(0.99), sum.delay_max());
        let runs = self.recovered_percent_of_runs.len();
        let names = self.names.map_or_else(String::new, |rule| format!(" names {rule}"));
        let mut text = format!(
            "{} {}{}, loss {}, {runs} runs, {} packets\n\n",
            self.scheme, self.code, names, self.loss, sum.sent
        );
        let mut row = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<26}{value}");
        };
        row("lost", format!("{} packets, {} of {} repairs", sum.lost, sum.repairs_lost, sum.repairs_sent));
        row("recovered", format!("{share:.3} % (runs {least:.2}–{most:.2} %)"));
        row("residual loss", format!("{:.6} % of all packets", 100.0 * sum.residual_loss()));
        row(
            "delay, packets",
            format!("mean {mean}, p50 {}, p99 {}, max {}", whole(median), whole(p99), whole(max)),
        );
        row(
            "overhead",
            format!(
                "{:.2} % packets, {:.2} % bytes ({:.0} bytes per repair)",
                self.overhead_percent, self.overhead_wire_percent, self.repair_bytes
            ),
        );
        row("encode", format!("{:.0} ns per packet", self.encode_ns));
        row("decode", format!("{:.0} ns per packet", self.decode_ns));
        text.pop();
        text
    }
}

fn describe(code: &Code) -> String {
    let delayed = |sending| if sending == Sending::Delayed { " delayed" } else { "" };
    match code {
        Code::Layered(config) => {
            let interleaves: Vec<String> = config.interleaves.iter().map(ToString::to_string).collect();
            format!("({}; {}){}", config.r, interleaves.join(","), delayed(config.sending))
        }
        Code::ReedSolomon(config) => {
            format!("({},{}) interleave {}{}", config.r, config.c, config.interleave, delayed(config.sending))
        }
        Code::Sliding(config) => {
            let stripes = match config.stripes {
                1 => String::new(),
                stripes => format!(" in {stripes} stripes"),
            };
            format!("rate {} window {}{stripes} density {}", config.rate, config.window, config.density)
        }
    }
}
