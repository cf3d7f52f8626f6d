//! TCP goodput by loss model, with and without gateways.

use std::path::Path;
use std::time::Duration;

use crate::code::CodeArgs;
use clap::Args;
use loss::LossModel;
use netlab::traffic::TcpTransfer;
use stage::gateways::Setting;

use crate::bench::{guard, rig, stop};

/// TCP goodput on a 1 Gbit/s link of 50 ms one way, with and without gateways.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Congestion controls of the sender, by the kernel's names.
    #[arg(long, value_delimiter = ',', default_value = "cubic,reno")]
    congestion: Vec<String>,
    /// Loss models.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "uniform:0.0001,uniform:0.001,uniform:0.01,uniform:0.02"
    )]
    loss: Vec<LossModel>,
    #[command(flatten)]
    code: CodeArgs,
    /// Length of each transfer in seconds; the second half counts.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Number of transfers with gateways for each combination.
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Omit the transfers without gateways, except the lossless one.
    #[arg(long)]
    only_with: bool,
    /// Rate of the link in bit/s.
    #[arg(long, default_value_t = 1_000_000_000)]
    rate: u64,
    /// Tap of the gateways: auto, ebpf or packet.
    #[arg(long, default_value = "auto")]
    tap: String,
}

struct Masked {
    goodput: f64,
    overhead: f64,
    residual: u64,
    lost: u64,
    p50_us: u64,
    p99_us: u64,
    cores: f64,
}

pub(crate) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    let setting = plan.code.setting()?;
    println!(
        "{}{}, part-filled bins {} ms, {} s each, second half, Mbit/s of goodput; share = lossless / (1 + overhead)\n",
        setting.schedule,
        if setting.delayed { ", delayed" } else { "" },
        setting.max_delay_ms,
        plan.seconds
    );
    println!(
        "| sender | loss | without | with (min–max) | overhead | of data's share | lost | residual | late by p50 / p99 | cores of both gateways |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for congestion in &plan.congestion {
        let (lossless, _) = guard::undisturbed(|| without(plan, congestion, &LossModel::None, 0))?;
        println!("| {congestion} | none | {lossless:.0} | | | | | | | |");
        for loss in &plan.loss {
            let bare = if plan.only_with {
                f64::NAN
            } else {
                guard::undisturbed(|| without(plan, congestion, loss, 1))?.0
            };
            let run = |run| guard::undisturbed(|| with(program, plan, congestion, loss, 1 + run));
            let runs = (0..plan.runs).map(|number| Ok(run(number)?.0));
            let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
            let (goodput, least, most) = rig::spread(runs.iter().map(|run| run.goodput).collect());
            let (overhead, ..) = rig::spread(runs.iter().map(|run| run.overhead).collect());
            let share = lossless / (1.0 + overhead);
            let last = runs.last().expect("at least one run");
            println!(
                "| {congestion} | {loss} | {bare:.1} | {goodput:.0} ({least:.0}–{most:.0}) | {:.1} % | {:.1} % | {} | {} | {:.1} / {:.1} ms | {:.2} |",
                overhead * 100.0,
                goodput / share * 100.0,
                last.lost,
                last.residual,
                last.p50_us as f64 / 1e3,
                last.p99_us as f64 / 1e3,
                last.cores,
            );
        }
    }
    Ok(())
}

fn transfer_of(plan: &Plan, congestion: &str) -> TcpTransfer {
    TcpTransfer {
        congestion: Some(congestion.into()),
        duration: Duration::from_secs(plan.seconds),
        ..TcpTransfer::default()
    }
}

fn without(plan: &Plan, congestion: &str, loss: &LossModel, seed: u64) -> anyhow::Result<f64> {
    let sites = rig::sites(Some(plan.rate), 50_000, loss, seed)?;
    let report = rig::transfer(&sites, &transfer_of(plan, congestion))?;
    let goodput = report.forward.second_half_bps() / 1e6;
    eprintln!("{congestion} {loss} without: {goodput:.1} Mbit/s");
    Ok(goodput)
}

fn with(
    program: &Path,
    plan: &Plan,
    congestion: &str,
    loss: &LossModel,
    seed: u64,
) -> anyhow::Result<Masked> {
    let tap = match plan.tap.as_str() {
        "ebpf" => "ebpf",
        "packet" => "packet",
        _ => "auto",
    };
    let setting = Setting { tap, ..plan.code.setting()? };
    let sites = rig::sites(Some(plan.rate), 50_000, loss, seed)?;
    let pair = rig::gateways(program, &sites, &setting)?;
    let pids = rig::statuses(&pair)?.map(|status| status.gateway.pid);
    let before = rig::cpu_s(pids[0])? + rig::cpu_s(pids[1])?;
    let report = rig::transfer(&sites, &transfer_of(plan, congestion))?;
    let cores = (rig::cpu_s(pids[0])? + rig::cpu_s(pids[1])? - before) / plan.seconds as f64;
    // The gateways need some time to recover the last losses, or to give them up.
    stop::pause(Duration::from_secs(3))?;
    let [a, b] = rig::statuses(&pair)?;
    anyhow::ensure!(
        report.mismatch.is_none(),
        "TCP delivered a byte that was not sent at {:?}",
        report.mismatch
    );
    let (egress, ingress) = (&a.peers[0].egress, &b.peers[0].ingress);
    let masked = Masked {
        goodput: report.forward.second_half_bps() / 1e6,
        overhead: egress.repair_bytes as f64 / egress.source_bytes as f64,
        lost: ingress.loss.lost,
        residual: ingress.loss.residual,
        p50_us: ingress.recovery_delay_us.p50,
        p99_us: ingress.recovery_delay_us.p99,
        cores,
    };
    eprintln!("{congestion} {loss} with: {:.1} Mbit/s, retransmits {}", masked.goodput, report.retransmits);
    eprintln!("  counters A {:?}", a.counters);
    eprintln!("  counters B {:?}", b.counters);
    eprintln!(
        "  waits {} µs; unused {:?} late {} after {}",
        ingress.repair_wait_us, ingress.unused_repairs, ingress.late, ingress.after_recovery
    );
    pair.stop()?;
    Ok(masked)
}
