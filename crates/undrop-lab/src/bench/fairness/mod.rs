//! Shares of protected and bare flows on one bottleneck, each beside the same traffic without gateways.
//!
//! Site A and site B have two hosts each. The gateways protect the traffic of the first ones; the second ones
//! are bare neighbours. Each run begins with a time of one flow from which the gateways learn the queue, as
//! gateways know it that have run for weeks.

mod report;

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use ipnet::IpNet;
use loss::LossModel;
use netlab::emulator::{Direction, EmulatorConfig};
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Between, Pace, TcpTransfer, UdpStream};
use simnet::link::LinkConfig;
use simnet::units::{format_bit_rate, parse_bit_rate, parse_size};
use stage::gateways::{End, GatewayPair, Setting};
use undrop::output;

use crate::bench::{guard, rig, stop};
use report::{Mix, Outcome, Row};

/// Payload of a packet of the constant stream, and its length on the link.
const PAYLOAD_BYTES: usize = 1_250;
const PACKET_BYTES: f64 = 1_278.0;
/// Probes of a bare host per second.
const PROBES: f64 = 100.0;

/// Shares of protected and bare flows of one bottleneck, beside the same without gateways.
///
/// Prints goodput in Mbit/s, packets that the queue dropped, and the share of lost probes of a bare host. The
/// second half of each run counts for goodput, all of it for drops and probes.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Rate of the bottleneck in bit/s.
    #[arg(long, default_value = "20mbit", value_parser = parse_bit_rate)]
    rate: u64,
    /// One-way delay in microseconds.
    #[arg(long, default_value_t = 25_000)]
    delay_us: u64,
    /// Lengths of the queue in bytes.
    #[arg(long, value_delimiter = ',', default_value = "256kb,2500kb", value_parser = parse_size)]
    queue: Vec<u64>,
    /// Congestion controls, by the kernel's names.
    #[arg(long, value_delimiter = ',', default_value = "cubic,reno,bbr")]
    congestion: Vec<String>,
    /// Random losses of the link.
    #[arg(long, value_delimiter = ',', default_value = "none,uniform:0.001,uniform:0.01")]
    loss: Vec<LossModel>,
    /// Traffic: 2+2 (two protected flows and two bare ones), lone (one protected flow), four (four protected
    /// flows), udp90 and udp110 (a protected stream of 90 or 110 % of the rate, without random loss).
    #[arg(long, value_delimiter = ',', default_value = "2+2,lone,four,udp90,udp110")]
    mix: Vec<Mix>,
    /// Length of each run in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=3600))]
    seconds: u64,
    /// Time in seconds for which the gateways learn the link before each run.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=3600))]
    learn: u64,
    /// Number of pairs of runs, with other losses each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// Setting `congestion` of the gateways: auto or mask.
    #[arg(long, default_value = "auto", value_parser = ["auto", "mask"])]
    setting: String,
    /// Count runs during which the machine was disturbed, in place of repeating them.
    #[arg(long)]
    count_disturbed: bool,
    /// Print the rows as JSON.
    #[arg(long)]
    json: bool,
}

/// One bottleneck and its traffic.
#[derive(Clone, Debug)]
struct Cell<'a> {
    queue: u64,
    mix: Mix,
    /// Congestion control, and random loss.
    congestion: &'a str,
    loss: &'a LossModel,
}

impl Plan {
    fn cells(&self) -> Vec<Cell<'_>> {
        let mut cells = Vec::new();
        for &queue in &self.queue {
            for &mix in self.mix.iter().filter(|mix| !mix.is_stream()) {
                for congestion in &self.congestion {
                    let losses =
                        self.loss.iter().filter(|&loss| mix.has_losses() || *loss == LossModel::None);
                    cells.extend(losses.map(|loss| Cell { queue, mix, congestion, loss }));
                }
            }
            let streams = self.mix.iter().filter(|mix| mix.is_stream());
            cells.extend(streams.map(|&mix| Cell {
                queue,
                mix,
                congestion: "cubic",
                loss: &LossModel::None,
            }));
        }
        cells
    }
}

/// Runs all cells and prints a row of each.
pub(crate) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    let cells = plan.cells();
    let count = cells.len() as u64 * plan.runs;
    let seconds = count * 2 * (plan.seconds + plan.learn + 3);
    output::note(format_args!("{count} pairs of runs, about {} min", seconds.div_ceil(60)));
    let mut rows = Vec::new();
    for (number, cell) in cells.iter().enumerate() {
        let mut row = Row::new(cell.queue, cell.mix, cell.congestion, &cell.loss.to_string());
        for seed in 0..plan.runs {
            for with_gateways in [false, true] {
                let measure = || measure(with_gateways.then_some(program), plan, cell, seed);
                let outcome = if plan.count_disturbed { measure()? } else { guard::undisturbed(measure)?.0 };
                let text = format!("{} of {}, {row}, {outcome}", number + 1, cells.len());
                output::note(text);
                row.add(with_gateways, outcome);
            }
        }
        rows.push(row);
    }
    if plan.json {
        output::line(&serde_json::to_string_pretty(&report::document(&rows))?)?;
        return Ok(());
    }
    println!(
        "{}, {} µs one way, {} s, learnt for {} s, `congestion = \"{}\"`, medians of {} runs without → with gateways\n",
        format_bit_rate(plan.rate),
        plan.delay_us,
        plan.seconds,
        plan.learn,
        plan.setting,
        plan.runs
    );
    report::print(&rows);
    Ok(())
}

fn measure(program: Option<&Path>, plan: &Plan, cell: &Cell<'_>, seed: u64) -> anyhow::Result<Outcome> {
    let link = LinkConfig {
        rate_bps: Some(plan.rate),
        delay_us: plan.delay_us,
        queue_bytes: Some(cell.queue),
        loss: cell.loss.clone(),
        seed: 1 + seed,
        ..LinkConfig::default()
    };
    // Acknowledgements pass a link that loses nothing.
    let back = LinkConfig { loss: LossModel::None, queue_bytes: None, ..link.clone() };
    let emulator = EmulatorConfig { b_to_a: back, ..EmulatorConfig::symmetric(link).for_measurement() };
    let sites = TwoSites::build(&TwoSitesConfig { hosts: 2, ..TwoSitesConfig::default() }, &emulator)?;
    let pair = program.map(|program| gateways(program, &sites, &plan.setting)).transpose()?;
    if plan.learn > 0 {
        let transfer = tcp(cell.congestion, 1, plan.learn);
        rig::transfer_of(between(&sites, 0), &transfer)?;
    }
    let before = sites.link.counters(Direction::AToB);
    let mut outcome = carry(plan, cell, &sites, pair.as_ref())?;
    let after = sites.link.counters(Direction::AToB);
    outcome.dropped = after.link.queue_full - before.link.queue_full;
    if let Some(pair) = pair {
        let [a, b] = rig::statuses(&pair)?;
        let (egress, ingress) = (&a.peers[0].egress, &b.peers[0].ingress);
        (outcome.left, outcome.marked) = (ingress.loss.left, ingress.congestion.marked);
        outcome.recovered = ingress.loss.recovered;
        outcome.verdict = ingress.congestion.verdict.clone();
        outcome.choice = egress.choice.clone().unwrap_or_default();
        pair.stop()?;
    }
    Ok(outcome)
}

/// Starts gateways that protect the first hosts.
fn gateways(program: &Path, sites: &TwoSites, congestion: &str) -> anyhow::Result<GatewayPair> {
    let mut ends = End::of(sites);
    for (end, site) in ends.iter_mut().zip([&sites.a, &sites.b]) {
        end.networks = vec![IpNet::from(site.host_v4(0))];
    }
    let code = format!("scheme = \"auto\"\ncongestion = \"{congestion}\"\n");
    GatewayPair::start_with_code(program, &ends, &Setting::default(), &code)
}

fn between(sites: &TwoSites, host: usize) -> Between<'_> {
    Between { from: &sites.a.hosts[host], to: &sites.b.hosts[host], address: sites.b.host_v4(host) }
}

fn tcp(congestion: &str, flows: usize, seconds: u64) -> TcpTransfer {
    let duration = Duration::from_secs(seconds);
    TcpTransfer {
        congestion: Some(congestion.to_owned()),
        flows,
        duration,
        verify: false,
        ..TcpTransfer::default()
    }
}

/// Carries the traffic of a cell and the probes of a bare host.
fn carry(
    plan: &Plan,
    cell: &Cell<'_>,
    sites: &TwoSites,
    pair: Option<&GatewayPair>,
) -> anyhow::Result<Outcome> {
    let flows = |host: usize, flows: usize| {
        if flows == 0 {
            return Ok(0.0);
        }
        let transfer = tcp(cell.congestion, flows, plan.seconds);
        let report = rig::transfer_of(between(sites, host), &transfer)?;
        anyhow::Ok(report.forward.second_half_bps() / 1e6)
    };
    let probes = UdpStream { pace: Pace::Packets(PROBES), payload_bytes: 32, ..stream(plan.seconds) };
    let [protected, bare] = cell.mix.flows();
    let mut outcome = Outcome::default();
    thread::scope(|scope| {
        let bare = scope.spawn(|| flows(1, bare));
        let probes = scope.spawn(|| rig::stream(between(sites, 1), &probes));
        let rest = scope.spawn(|| pair.map(|pair| repairs_of_second_half(pair, plan.seconds)).transpose());
        if let Some(load) = cell.mix.load() {
            let bits = plan.rate as f64 * load * PAYLOAD_BYTES as f64 / PACKET_BYTES;
            let sent =
                UdpStream { pace: Pace::Bits(bits), payload_bytes: PAYLOAD_BYTES, ..stream(plan.seconds) };
            let report = rig::stream(between(sites, 0), &sent)?;
            outcome.lost_percent = Some(percent(report.missing(), report.sent_us.len()));
            let arrived = (report.sent_us.len() - report.missing()) * PAYLOAD_BYTES * 8;
            outcome.protected_mbps = arrived as f64 / plan.seconds as f64 / 1e6;
        } else {
            outcome.protected_mbps = flows(0, protected)?;
        }
        outcome.bare_mbps = bare.join().map_err(|_| anyhow::anyhow!("a transfer panicked"))??;
        let probes = probes.join().map_err(|_| anyhow::anyhow!("the probes panicked"))??;
        outcome.probes_lost_percent = percent(probes.missing(), probes.sent_us.len());
        outcome.repairs_percent =
            rest.join().map_err(|_| anyhow::anyhow!("the look at the status panicked"))??;
        anyhow::Ok(())
    })?;
    Ok(outcome)
}

fn stream(seconds: u64) -> UdpStream {
    UdpStream { duration: Duration::from_secs(seconds), ..UdpStream::default() }
}

/// Returns the repairs per hundred packets of the second half of a run.
fn repairs_of_second_half(pair: &GatewayPair, seconds: u64) -> anyhow::Result<f64> {
    let counts = || {
        let status = pair.status(0).context("reading the status of the sending gateway")?;
        let egress = &status.peers[0].egress;
        anyhow::Ok((egress.repair_packets, egress.source_packets))
    };
    stop::pause(Duration::from_millis(seconds * 500))?;
    let before = counts()?;
    stop::pause(Duration::from_millis(seconds * 450))?;
    let after = counts()?;
    Ok(percent((after.0 - before.0) as usize, (after.1 - before.1) as usize))
}

fn percent(part: usize, whole: usize) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}
