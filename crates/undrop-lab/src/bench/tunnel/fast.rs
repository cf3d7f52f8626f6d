//! Goodput through each tunnel on a link without a limit, and processor time of single packets.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use loss::LossModel;
use netlab::traffic::{Pace, TcpTransfer, UdpStream};
use stage::gateways::{Setting, part};

use super::Plan;
use super::goodput::{carried, startable};
use super::report::{Figure, Sheet};
use super::system::System;
use crate::bench::rig;

/// One-way delay of the link in microseconds.
const DELAY_US: u64 = 1_000;
/// Streams of which the cost of a packet is measured: packets a second, and bytes of payload. The last one is
/// more than the gateways can carry.
const STREAMS: [(f64, usize); 5] =
    [(1_000.0, 1_200), (10_000.0, 1_200), (50_000.0, 400), (200_000.0, 60), (600_000.0, 60)];

/// Measures the goodput of each system, where the link carries single packets, and where it carries
/// super-packets.
///
/// # Errors
/// If our gateways do not start, or TCP delivers a byte that was not sent.
pub(super) fn run(program: &Path, plan: &Plan, sheet: &mut Sheet) -> anyhow::Result<()> {
    let systems = startable(program, plan, plan.systems())?;
    for offload in [false, true] {
        for congestion in &plan.congestion {
            for &system in &systems {
                for seed in 0..plan.runs {
                    let figures =
                        plan.measured(|| transfer(program, plan, system, offload, congestion, seed))?;
                    let link = if offload { "super-packets" } else { "single packets" };
                    let labels = [
                        ("link", link.to_owned()),
                        ("hosts", congestion.clone()),
                        ("tunnel", system.name().to_owned()),
                    ];
                    sheet.add("TCP through a tunnel, link without a limit", &labels, figures)?;
                }
            }
        }
    }
    Ok(())
}

fn transfer(
    program: &Path,
    plan: &Plan,
    system: System,
    offload: bool,
    congestion: &str,
    seed: u64,
) -> anyhow::Result<Vec<Figure>> {
    let sites = rig::sites_with(None, DELAY_US, &LossModel::None, seed, offload)?;
    let running = system.start(program, &plan.peers, &sites, &Setting::tunnel())?;
    let before_s = running.cpu_s()?;
    let transfer = TcpTransfer {
        congestion: Some(congestion.to_owned()),
        duration: Duration::from_secs(plan.seconds),
        port: system.tcp_port().unwrap_or(0),
        ..TcpTransfer::default()
    };
    carried(&running, before_s, &rig::transfer(&sites, &transfer)?)
}

/// Measures the processor time of a packet at each gateway, in both modes.
///
/// # Errors
/// If the gateways do not start.
pub(super) fn cost(program: &Path, plan: &Plan, sheet: &mut Sheet) -> anyhow::Result<()> {
    for (mode, setting) in [("passive", Setting::default()), ("tunnel", Setting::tunnel())] {
        for stream in STREAMS {
            for seed in 0..plan.runs {
                let figures = plan.measured(|| packets(program, plan, &setting, stream, seed))?;
                let labels = [
                    ("gateways", mode.to_owned()),
                    ("packets a second", stream.0.to_string()),
                    ("bytes", (stream.1 + 28).to_string()),
                ];
                sheet.add("Processor time of a packet, link without a limit", &labels, figures)?;
            }
        }
    }
    Ok(())
}

fn packets(
    program: &Path,
    plan: &Plan,
    setting: &Setting,
    (rate, payload_bytes): (f64, usize),
    seed: u64,
) -> anyhow::Result<Vec<Figure>> {
    let sites = rig::sites_with(None, DELAY_US, &LossModel::None, seed, true)?;
    if setting.tunnel.is_some() {
        part(&sites)?;
    }
    let pair = rig::gateways(program, &sites, setting)?;
    let spent = || -> anyhow::Result<[f64; 2]> {
        let [a, b] = rig::statuses(&pair)?.map(|status| rig::cpu_s(status.gateway.pid));
        Ok([a?, b?])
    };
    let before_s = spent()?;
    let stream = UdpStream {
        pace: Pace::Packets(rate),
        payload_bytes,
        duration: Duration::from_secs(plan.seconds),
        ..UdpStream::default()
    };
    let report = rig::stream(rig::between(&sites), &stream)?;
    let after_s = spent()?;
    let arrived = report.arrived_us.len() as f64;
    let last_us = *report.sent_us.last().context("expected packets of the stream, saw none")?;
    let ns = |side: usize, packets: f64| (after_s[side] - before_s[side]) * 1e9 / packets.max(1.0);
    let each_s = |packets: f64| packets * 1e6 / last_us.max(1) as f64;
    Ok(vec![
        ("sent a second", each_s(report.sent_us.len() as f64)),
        ("arrived a second", each_s(arrived)),
        ("egress, ns/packet", ns(0, report.sent_us.len() as f64)),
        ("ingress, ns/packet", ns(1, arrived)),
    ])
}
