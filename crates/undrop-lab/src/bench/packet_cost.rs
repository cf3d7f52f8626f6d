//! Processor time of a pair of gateways per packet, by packet rate, with and without ticks.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use loss::LossModel;
use netlab::traffic::{Pace, UdpStream, udp_stream};
use stage::gateways::Setting;

use crate::bench::{rig, stop};

/// Processor time per packet by packet rate, and the latency of packets, with ticks and without.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Packet rates per second. The last ones may be more than this machine can send.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 5_000, 15_000, 50_000, 200_000, 1_000_000])]
    packets: Vec<u64>,
    /// Bytes of payload of each packet.
    #[arg(long, default_value_t = 1200)]
    payload: usize,
    /// Length of each run in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Number of runs of each measurement, in turn.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// One-way delay of the link in microseconds.
    #[arg(long, default_value_t = 50_000)]
    delay_us: u64,
    /// Share of packets and repairs that the link loses.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
}

/// One run.
struct Cost {
    per_second: f64,
    egress_us: f64,
    ingress_us: f64,
    /// Sum over both gateways, in percent of one processor.
    percent: f64,
    /// Tick at the end, in microseconds; 0 without.
    tick_us: u64,
    p50_us: u64,
    p99_us: u64,
    missing: usize,
}

pub(crate) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    println!(
        "UDP, {} bytes, {} µs one way, loss {} %, {} runs of {} s in turn; medians\n",
        plan.payload,
        plan.delay_us,
        plan.loss * 100.0,
        plan.runs,
        plan.seconds
    );
    println!(
        "| packets/s wanted | handled | tick | egress µs/packet | ingress µs/packet | both gateways, % of a core | latency p50, p99 µs | missing |"
    );
    println!("|--:|--:|---|--:|--:|--:|--:|--:|");
    for &packets in &plan.packets {
        let mut costs = [Vec::new(), Vec::new()];
        for _ in 0..plan.runs {
            for (tick, costs) in [false, true].into_iter().zip(&mut costs) {
                costs.push(measure(program, plan, packets, tick)?);
            }
        }
        for (tick, costs) in ["off", "on"].into_iter().zip(&costs) {
            print_row(packets, tick, costs);
        }
    }
    Ok(())
}

fn print_row(packets: u64, tick: &str, costs: &[Cost]) {
    let median = |read: fn(&Cost) -> f64| rig::spread(costs.iter().map(read).collect()).0;
    let seen_us = median(|cost| cost.tick_us as f64);
    let tick = if seen_us > 0.0 { format!("{tick}, {seen_us:.0} µs") } else { tick.to_owned() };
    println!(
        "| {packets} | {:.0} | {tick} | {:.2} | {:.2} | {:.1} | {:.0}, {:.0} | {:.0} |",
        median(|cost| cost.per_second),
        median(|cost| cost.egress_us),
        median(|cost| cost.ingress_us),
        median(|cost| cost.percent),
        median(|cost| cost.p50_us as f64),
        median(|cost| cost.p99_us as f64),
        median(|cost| cost.missing as f64),
    );
}

fn measure(program: &Path, plan: &Plan, packets: u64, tick: bool) -> anyhow::Result<Cost> {
    let loss = if plan.loss > 0.0 { LossModel::Uniform(plan.loss) } else { LossModel::None };
    // Single packets, as from a network card without offloads: each is a capture of its own.
    let sites = rig::sites_with(None, plan.delay_us, &loss, 3, false)?;
    let pair = rig::gateways(program, &sites, &Setting { tick, ..Setting::default() })?;
    let stream = UdpStream {
        pace: Pace::Packets(packets as f64),
        payload_bytes: plan.payload,
        duration: Duration::from_secs(plan.seconds),
        ..UdpStream::default()
    };
    let cpu_s = || -> anyhow::Result<[f64; 2]> {
        let [egress, ingress] = rig::statuses(&pair)?.map(|status| rig::cpu_s(status.gateway.pid));
        Ok([egress?, ingress?])
    };
    let before = cpu_s()?;
    let mut tick_us = 0;
    let report = udp_stream(rig::between(&sites), &stream, &mut |progress| {
        let status = pair.status(0).ok();
        tick_us = status.and_then(|status| status.gateway.tick_us).unwrap_or(tick_us);
        stop::watch(progress)
    })?;
    stop::check()?;
    let after = cpu_s()?;
    let [a, b] = rig::statuses(&pair)?;
    let (sent, arrived) = (a.peers[0].egress.source_packets, b.peers[0].ingress.source_packets);
    let us = |side: usize, packets: u64| (after[side] - before[side]) * 1e6 / packets.max(1) as f64;
    let latencies_us = report.sorted_latencies_us();
    pair.stop()?;
    Ok(Cost {
        per_second: sent as f64 / plan.seconds as f64,
        egress_us: us(0, sent),
        ingress_us: us(1, arrived),
        percent: (after[0] - before[0] + after[1] - before[1]) * 100.0 / plan.seconds as f64,
        tick_us,
        p50_us: rig::quantile(&latencies_us, 0.5),
        p99_us: rig::quantile(&latencies_us, 0.99),
        missing: report.missing(),
    })
}
