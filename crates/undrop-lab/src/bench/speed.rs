//! Goodput of a pair of gateways, its processor time, and the delay that it adds to packets without loss.

use std::path::Path;
use std::time::Duration;

use crate::code::CodeArgs;
use clap::Args;
use loss::LossModel;
use netlab::topology::TwoSites;
use netlab::traffic::{Direction, Pace, TcpTransfer, UdpStream};
use stage::gateways::{GatewayPair, Setting};

use crate::bench::rig;

/// Goodput through a pair of gateways on the fastest link of the emulator.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Length of each transfer in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Number of runs of each measurement, in turn with its baseline.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// One-way delay of the link in microseconds.
    #[arg(long, default_value_t = 1000)]
    delay_us: u64,
    #[command(flatten)]
    code: CodeArgs,
    /// Tap of the gateways: auto, ebpf or packet.
    #[arg(long, default_value = "auto")]
    tap: String,
    /// Let the emulator exchange single packets with the kernel, like a network card without offloads.
    #[arg(long)]
    no_offload: bool,
    /// Omit the latency of a UDP stream.
    #[arg(long)]
    only_throughput: bool,
}

pub(crate) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    println!(
        "cubic, link without rate limit, {} µs one way, no loss, {}, {} runs of {} s in turn, Mbit/s of goodput, median (min–max)\n",
        plan.delay_us,
        setting(plan)?.schedule,
        plan.runs,
        plan.seconds
    );
    println!(
        "| direction | without | with | overhead | of data's share | egress ns/packet | ingress ns/packet | cores of both gateways |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for direction in [Direction::Forward, Direction::Both] {
        throughput(program, plan, direction)?;
    }
    if plan.only_throughput {
        return Ok(());
    }
    println!(
        "\nUDP, 1,000 packets/s of 1,250 bytes, latency in µs, no loss\n\n| | p50 | p99 | max |\n|---|---|---|---|"
    );
    latency(program, plan)
}

fn setting(plan: &Plan) -> anyhow::Result<Setting> {
    let tap = match plan.tap.as_str() {
        "ebpf" => "ebpf",
        "packet" => "packet",
        _ => "auto",
    };
    Ok(Setting { tap, ..plan.code.setting()? })
}

fn fast_sites(plan: &Plan) -> anyhow::Result<TwoSites> {
    rig::sites_with(None, plan.delay_us, &LossModel::None, 3, !plan.no_offload)
}

fn throughput(program: &Path, plan: &Plan, direction: Direction) -> anyhow::Result<()> {
    let transfer = TcpTransfer {
        congestion: Some("cubic".into()),
        duration: Duration::from_secs(plan.seconds),
        direction,
        ..TcpTransfer::default()
    };
    let (mut without, mut with, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        let sites = fast_sites(plan)?;
        let report = rig::transfer(&sites, &transfer)?;
        without.push((report.forward.second_half_bps() + report.backward.second_half_bps()) / 1e6);
        let sites = fast_sites(plan)?;
        let pair = rig::gateways(program, &sites, &setting(plan)?)?;
        let before = cpu(&pair)?;
        let report = rig::transfer(&sites, &transfer)?;
        let after = cpu(&pair)?;
        with.push((report.forward.second_half_bps() + report.backward.second_half_bps()) / 1e6);
        costs.push(Cost::of(&pair, [after[0] - before[0], after[1] - before[1]], plan.seconds)?);
        eprintln!("{direction:?} without {:?} with {:?}", without.last(), with.last());
        pair.stop()?;
    }
    let ((bare, bare_min, bare_max), (masked, min, max)) = (rig::spread(without), rig::spread(with));
    let median = |read: fn(&Cost) -> f64| rig::spread(costs.iter().map(read).collect()).0;
    let overhead = median(|cost| cost.overhead);
    println!(
        "| {direction:?} | {bare:.0} ({bare_min:.0}–{bare_max:.0}) | {masked:.0} ({min:.0}–{max:.0}) | {:.1} % | {:.1} % | {:.0} | {:.0} | {:.2} |",
        overhead * 100.0,
        masked / (bare / (1.0 + overhead)) * 100.0,
        median(|cost| cost.egress_ns),
        median(|cost| cost.ingress_ns),
        median(|cost| cost.cores),
    );
    Ok(())
}

struct Cost {
    overhead: f64,
    egress_ns: f64,
    ingress_ns: f64,
    cores: f64,
}

impl Cost {
    fn of(pair: &GatewayPair, cpu_s: [f64; 2], seconds: u64) -> anyhow::Result<Self> {
        let [a, b] = rig::statuses(pair)?;
        let (egress, ingress) = (&a.peers[0].egress, &b.peers[0].ingress);
        eprintln!(
            "  counters A {:?} B {:?} unused {:?} late {} after {}",
            a.counters, b.counters, ingress.unused_repairs, ingress.late, ingress.after_recovery
        );
        let handled = |status: &maelstrom::status::Status| {
            let peer = &status.peers[0];
            (peer.egress.source_packets + peer.ingress.source_packets).max(1) as f64
        };
        Ok(Self {
            overhead: egress.repair_bytes as f64 / egress.source_bytes.max(1) as f64,
            egress_ns: cpu_s[0] * 1e9 / handled(&a),
            ingress_ns: cpu_s[1] * 1e9 / handled(&b),
            cores: (cpu_s[0] + cpu_s[1]) / seconds as f64,
        })
    }
}

fn cpu(pair: &GatewayPair) -> anyhow::Result<[f64; 2]> {
    let [a, b] = rig::statuses(pair)?.map(|status| rig::cpu_s(status.gateway.pid));
    Ok([a?, b?])
}

fn latency(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    let setting = setting(plan)?;
    for run in 0..plan.runs.min(3) {
        for masked in [false, true] {
            let sites = fast_sites(plan)?;
            let pair = masked.then(|| rig::gateways(program, &sites, &setting)).transpose()?;
            let stream = UdpStream {
                pace: Pace::Packets(1000.0),
                duration: Duration::from_secs(plan.seconds),
                ..UdpStream::default()
            };
            let report = rig::stream(rig::between(&sites), &stream)?;
            let sorted = report.sorted_latencies_us();
            println!(
                "| {} gateways, run {run} | {} | {} | {} |",
                if masked { "with" } else { "without" },
                rig::quantile(&sorted, 0.5),
                rig::quantile(&sorted, 0.99),
                rig::quantile(&sorted, 1.0),
            );
            if let Some(pair) = pair {
                pair.stop()?;
            }
        }
    }
    Ok(())
}
