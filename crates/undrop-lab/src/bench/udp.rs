//! Recovery of the packets of a UDP stream.

use std::path::Path;
use std::time::Duration;

use crate::code::CodeArgs;
use clap::Args;
use fec::simulate::{Simulation, simulate};
use loss::LossModel;
use netlab::emulator::Direction;
use netlab::traffic::{Pace, UdpReport, UdpStream};
use stage::gateways::Setting;

use crate::bench::{rig, stop};

/// Share of lost packets that is recovered, and recovery delay, of a UDP stream on a 50 ms link.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Loss models.
    #[arg(long, value_delimiter = ',', default_value = "uniform:0.01")]
    loss: Vec<LossModel>,
    #[command(flatten)]
    code: CodeArgs,
    /// Payload size of a packet in bytes.
    #[arg(long, default_value_t = 1250)]
    payload: usize,
    /// Payload rate in bit/s.
    #[arg(long, default_value_t = 1e7)]
    rate: f64,
    /// Send the same payload in all packets.
    #[arg(long)]
    identical: bool,
    /// Length of each run in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Random seeds of the link's losses, one run each.
    #[arg(long, value_delimiter = ',', default_value = "5,6,7,8,9")]
    seeds: Vec<u64>,
}

pub(crate) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    let interval_ms = plan.payload as f64 * 8e3 / plan.rate;
    let setting = plan.code.setting()?;
    println!(
        "UDP, {:.0} Mbit/s, {} bytes, a packet every {interval_ms:.2} ms, {} s each{}\n",
        plan.rate / 1e6,
        plan.payload,
        plan.seconds,
        if setting.delayed { ", delayed repairs" } else { "" }
    );
    println!(
        "| loss | code | seed | lost on the link | delivered after all | recovered | late by p50 / p99 / max ms | never lost, p50 / p99 ms |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let schedule = &setting.schedule;
    for loss in &plan.loss {
        let (mut lost, mut missing) = (0, 0);
        for &seed in &plan.seeds {
            let of_run = cell(program, plan, loss, &setting, seed)?;
            (lost, missing) = (lost + of_run.0, missing + of_run.1);
        }
        let simulated = simulated(&setting, loss);
        println!(
            "| {loss} | {schedule} | all | {lost} | | **{:.2} %**; simulated {simulated} | | |",
            recovered_percent(lost, missing)
        );
    }
    Ok(())
}

fn recovered_percent(lost: u64, missing: u64) -> f64 {
    100.0 * (1.0 - missing as f64 / lost.max(1) as f64)
}

/// Measures one run, and returns the number of lost packets and the number of those that never arrived.
fn cell(
    program: &Path,
    plan: &Plan,
    loss: &LossModel,
    setting: &Setting,
    seed: u64,
) -> anyhow::Result<(u64, u64)> {
    let sites = rig::sites(Some(1_000_000_000), 50_000, loss, seed)?;
    let pair = rig::gateways(program, &sites, setting)?;
    let stream = UdpStream {
        pace: Pace::Bits(plan.rate),
        payload_bytes: plan.payload,
        identical: plan.identical,
        duration: Duration::from_secs(plan.seconds),
        patience: Duration::from_secs(2),
    };
    let report = rig::stream(rig::between(&sites), &stream)?;
    stop::pause(Duration::from_secs(3))?;
    let [_, b] = rig::statuses(&pair)?;
    let ingress = &b.peers[0].ingress;
    anyhow::ensure!(
        report.altered == 0,
        "expected only packets that were sent, saw {} others",
        report.altered
    );
    let missing = report.missing() as u64;
    let lost = ingress.loss.lost.max(missing);
    let (late, straight) = latencies(&report);
    let ms = |us: u64| us as f64 / 1e3;
    let late_by = |share| ms(rig::quantile(&late, share)) - ms(rig::quantile(&straight, 0.5));
    println!(
        "| {loss} | {} | {seed} | {lost} of {} | {} | {:.2} % | {:.1} / {:.1} / {:.1} | {:.2} / {:.2} |",
        setting.schedule,
        report.sent_us.len(),
        report.arrived_us.len() as u64 - report.duplicates,
        recovered_percent(lost, missing),
        late_by(0.5),
        late_by(0.99),
        late_by(1.0),
        ms(rig::quantile(&straight, 0.5)),
        ms(rig::quantile(&straight, 0.99)),
    );
    let link = sites.link.counters(Direction::AToB).link;
    eprintln!(
        "  link lost {} of {}; gateway counts {} lost, {} recovered; never arrived: {:?}; duplicates {}; late {} \
         after {}; counters {:?}; unused {:?}",
        link.lost,
        link.offered_packets,
        ingress.loss.lost,
        ingress.loss.recovered,
        (0..report.latencies_us.len())
            .filter(|&at| report.latencies_us[at].is_none())
            .take(8)
            .collect::<Vec<_>>(),
        report.duplicates,
        ingress.late,
        ingress.after_recovery,
        b.counters,
        ingress.unused_repairs
    );
    pair.stop()?;
    Ok((lost, missing))
}

/// Returns the latencies of the packets that arrived after a later one, and those of the others, each sorted.
///
/// The link keeps the order, so the former packets were lost and recovered.
fn latencies(report: &UdpReport) -> (Vec<u64>, Vec<u64>) {
    let arrival = |index: usize| report.latencies_us[index].map(|latency| report.sent_us[index] + latency);
    let (mut late, mut straight) = (Vec::new(), Vec::new());
    let mut earliest_after = u64::MAX;
    for index in (0..report.latencies_us.len()).rev() {
        let (Some(at), Some(latency)) = (arrival(index), report.latencies_us[index]) else { continue };
        if at > earliest_after {
            late.push(latency);
        } else {
            straight.push(latency);
        }
        earliest_after = earliest_after.min(at);
    }
    late.sort_unstable();
    straight.sort_unstable();
    (late, straight)
}

/// Returns the share of lost packets that the same code recovers in a simulation, in percent: median, minimum
/// and maximum of ten runs with two million packets in all.
///
/// The simulation has no network, clock or gateway.
fn simulated(setting: &Setting, loss: &LossModel) -> String {
    let code = setting.schedule.code(setting.delayed, 20_000, 1_536);
    let simulation = Simulation { code, packets: 200_000, ..Simulation::default() };
    let run = |seed| {
        let mut losses = loss.seeded(seed);
        let report = simulate(&simulation, |_| losses.lose()).expect("the gateways run this code");
        100.0 * report.recovered_share()
    };
    let (median, least, most) = rig::spread((0..10).map(run).collect());
    format!("{median:.2} % ({least:.2}–{most:.2})")
}
