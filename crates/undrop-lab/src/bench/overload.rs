//! More traffic than gateways can code: each measurement beside the same link without gateways, in turn.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use loss::LossModel;
use maelstrom::config::Schedule;
use netlab::traffic::{Pace, TcpTransfer, UdpStream};
use stage::gateways::{GatewayPair, Setting};

use crate::bench::{guard, rig};

/// Goodput of TCP and loss of small packets at full load, with and without gateways.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Length of each run in seconds; the second half of a transfer counts.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Number of runs of each measurement, in turn with its baseline.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Number of TCP connections.
    #[arg(long, default_value_t = 4)]
    flows: usize,
    /// Rate of the small packets per second.
    #[arg(long, default_value_t = 62_000.0)]
    packets: f64,
    /// One-way delay of the link in microseconds.
    #[arg(long, default_value_t = 1000)]
    delay_us: u64,
}

/// A measurement: its figure without gateways, or with some.
type Measure<'a> = &'a dyn Fn(Option<&Setting>) -> anyhow::Result<Outcome>;

/// The figure of one run, and the shares of flows that the gateways protected at its end.
struct Outcome {
    figure: f64,
    shares: Option<[f64; 2]>,
}

pub(crate) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    println!(
        "link without rate limit, {} µs one way, no loss, {} runs of {} s in turn, median (min–max)\n",
        plan.delay_us, plan.runs, plan.seconds
    );
    println!(
        "| measurement | gateways | without | with | ratio or difference of pairs | flows protected at the end | runs repeated |"
    );
    println!("|---|---|---|---|---|---|---|");
    let layers = Setting::layered();
    let window =
        Schedule::Sliding { rate: Schedule::RATE, window: Schedule::WINDOW, density: Schedule::DENSITY };
    let window = Setting { schedule: window, ..Setting::default() };
    let goodput = format!("{} flows of TCP, Mbit/s", plan.flows);
    let lost = format!("UDP, {:.0} packets/s of 60 bytes, lost %", plan.packets);
    for (name, setting) in [("layers", &layers), ("window", &window)] {
        compare(plan, (&goodput, false), (name, setting), &|setting| tcp(program, plan, setting))?;
        compare(plan, (&lost, true), (name, setting), &|setting| udp(program, plan, setting))?;
    }
    Ok(())
}

/// Prints a row of one measurement, without and with gateways in turn.
fn compare(
    plan: &Plan,
    (what, is_loss): (&str, bool),
    (name, setting): (&str, &Setting),
    measure: Measure<'_>,
) -> anyhow::Result<()> {
    let (mut without, mut with, mut changes, mut shares) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut repeated = 0;
    for _ in 0..plan.runs {
        let (bare, again) = guard::undisturbed(|| measure(None))?;
        let (masked, again_masked) = guard::undisturbed(|| measure(Some(setting)))?;
        repeated += again + again_masked;
        eprintln!("{what}, {name}: without {:.1}, with {:.1}", bare.figure, masked.figure);
        changes.push(if is_loss { masked.figure - bare.figure } else { masked.figure / bare.figure });
        without.push(bare.figure);
        with.push(masked.figure);
        shares.extend(masked.shares.map(|[a, b]| a.min(b)));
    }
    let text = |figures: Vec<f64>, digits: usize| {
        let (median, least, most) = rig::spread(figures);
        format!("{median:.digits$} ({least:.digits$}–{most:.digits$})")
    };
    println!(
        "| {what} | {name} | {} | {} | {} | {} % | {repeated} |",
        text(without, 1),
        text(with, 1),
        text(changes, 2),
        text(shares, 1)
    );
    Ok(())
}

fn tcp(program: &Path, plan: &Plan, setting: Option<&Setting>) -> anyhow::Result<Outcome> {
    let sites = rig::sites_with(None, plan.delay_us, &LossModel::None, 3, true)?;
    let pair = setting.map(|setting| rig::gateways(program, &sites, setting)).transpose()?;
    let transfer = TcpTransfer {
        congestion: Some("cubic".into()),
        duration: Duration::from_secs(plan.seconds),
        flows: plan.flows,
        ..TcpTransfer::default()
    };
    let report = rig::transfer(&sites, &transfer)?;
    finish(report.forward.second_half_bps() / 1e6, pair)
}

fn udp(program: &Path, plan: &Plan, setting: Option<&Setting>) -> anyhow::Result<Outcome> {
    let sites = rig::sites_with(None, plan.delay_us, &LossModel::None, 3, true)?;
    let pair = setting.map(|setting| rig::gateways(program, &sites, setting)).transpose()?;
    let stream = UdpStream {
        pace: Pace::Packets(plan.packets),
        payload_bytes: 32,
        duration: Duration::from_secs(plan.seconds),
        ..UdpStream::default()
    };
    let report = rig::stream(rig::between(&sites), &stream)?;
    finish(report.missing() as f64 * 100.0 / report.sent_us.len().max(1) as f64, pair)
}

fn finish(figure: f64, pair: Option<GatewayPair>) -> anyhow::Result<Outcome> {
    let Some(pair) = pair else { return Ok(Outcome { figure, shares: None }) };
    let statuses = rig::statuses(&pair)?;
    for status in &statuses {
        eprintln!("  {:?}\n  unused {:?}", status.counters, status.peers[0].ingress.unused_repairs);
    }
    let shares = statuses.map(|status| status.peers[0].egress.flows_protected_percent);
    pair.stop()?;
    Ok(Outcome { figure, shares: Some(shares) })
}
