//! Goodput of TCP through each tunnel, its processor time, and the delay that it adds.

use std::path::Path;
use std::time::Duration;

use loss::LossModel;
use netlab::traffic::{Pace, TcpReport, TcpTransfer, UdpStream};
use stage::gateways::Setting;
use undrop::output;

use super::Plan;
use super::report::{Figure, Sheet};
use super::system::{Running, System};
use crate::bench::rig;

/// Packets a second of the stream whose delay is measured, and their bytes of payload.
const PROBE: (f64, usize) = (500.0, 200);

/// Measures all cells of each system, and then its delay without losses.
///
/// # Errors
/// If a tunnel does not start, or TCP delivers a byte that was not sent.
pub(super) fn run(program: &Path, plan: &Plan, sheet: &mut Sheet) -> anyhow::Result<()> {
    let systems = plan.systems();
    let cells = plan.loss.len() * plan.congestion.len() * systems.len();
    let count = cells as u64 * plan.runs + (systems.len() as u64 * plan.runs);
    output::note(format_args!("{count} runs, about {} min", (count * (plan.seconds + 4)).div_ceil(60)));
    let systems = startable(program, plan, systems)?;
    for loss in &plan.loss {
        for congestion in &plan.congestion {
            for &system in &systems {
                for seed in 0..plan.runs {
                    let figures =
                        plan.measured(|| transfer(program, plan, system, (loss, congestion.as_str()), seed))?;
                    let labels = [
                        ("loss", loss.to_string()),
                        ("hosts", congestion.clone()),
                        ("tunnel", system.name().to_owned()),
                    ];
                    sheet.add("TCP through a tunnel", &labels, figures)?;
                }
            }
        }
    }
    // One that forwards connections carries no single packets.
    for &system in systems.iter().filter(|system| system.tcp_port().is_none()) {
        for seed in 0..plan.runs {
            let figures = plan.measured(|| delay(program, plan, system, seed))?;
            let labels = [("tunnel", system.name().to_owned())];
            sheet.add("Delay of single packets beyond that of the link, no loss", &labels, figures)?;
        }
    }
    Ok(())
}

/// Starts each system once. Tells which of the others does not start, and leaves it out.
pub(super) fn startable(program: &Path, plan: &Plan, systems: Vec<System>) -> anyhow::Result<Vec<System>> {
    let mut good = Vec::new();
    for system in systems {
        let sites = plan.sites(&LossModel::None, 0)?;
        match system.start(program, &plan.peers, &sites, &Setting::tunnel()) {
            Ok(_) => good.push(system),
            Err(error) if system.is_other() => {
                output::note(format_args!(
                    "{} is left out, because it does not start: {error}",
                    system.name()
                ));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(good)
}

fn transfer(
    program: &Path,
    plan: &Plan,
    system: System,
    (loss, congestion): (&LossModel, &str),
    seed: u64,
) -> anyhow::Result<Vec<Figure>> {
    let sites = plan.sites(loss, seed)?;
    let running = system.start(program, &plan.peers, &sites, &Setting::tunnel())?;
    let before = running.cpu_s()?;
    let transfer = TcpTransfer {
        congestion: Some(congestion.to_owned()),
        duration: Duration::from_secs(plan.seconds),
        port: system.tcp_port().unwrap_or(0),
        ..TcpTransfer::default()
    };
    carried(&running, before, &rig::transfer(&sites, &transfer)?)
}

/// Figures of a transfer through a tunnel that had used `before_s` seconds of the processor before.
///
/// # Errors
/// If a process has ended, or TCP delivered a byte that was not sent.
pub(super) fn carried(running: &Running, before_s: f64, report: &TcpReport) -> anyhow::Result<Vec<Figure>> {
    let cpu_s = running.cpu_s()? - before_s;
    anyhow::ensure!(report.mismatch.is_none(), "TCP delivered a byte that was not sent");
    let gigabytes = report.forward.received_bytes() as f64 / 1e9;
    let cost = if gigabytes > 0.0 { cpu_s / gigabytes } else { 0.0 };
    Ok(vec![("Mbit/s", report.forward.second_half_bps() / 1e6), ("processor seconds per GB", cost)])
}

fn delay(program: &Path, plan: &Plan, system: System, seed: u64) -> anyhow::Result<Vec<Figure>> {
    let sites = plan.sites(&LossModel::None, seed)?;
    let running = system.start(program, &plan.peers, &sites, &Setting::tunnel())?;
    let stream = UdpStream {
        pace: Pace::Packets(PROBE.0),
        payload_bytes: PROBE.1,
        duration: Duration::from_secs(plan.seconds),
        ..UdpStream::default()
    };
    let report = rig::stream(rig::between(&sites), &stream)?;
    drop(running);
    let sorted = report.sorted_latencies_us();
    let beyond = |share| rig::quantile(&sorted, share) as f64 - 1_000.0 * plan.delay_ms as f64;
    Ok(vec![("p50, us", beyond(0.5)), ("p99, us", beyond(0.99)), ("missing", report.missing() as f64)])
}
