//! Split connections that must lose nothing: many bytes both ways while the link fails and a gateway reloads,
//! and many connections at once while others come and go.

mod crowd;
mod exchange;

use std::path::Path;

use anyhow::Context as _;
use clap::Args;
use loss::LossModel;
use maelstrom::status::Status;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use simnet::units::{format_bit_rate, parse_bit_rate, parse_size};
use stage::gateways::{Way, WayPlan, WayStage};

use crate::bench::rig;

/// Split connections under strain: bytes both ways over a link that fails, compared one by one, and many
/// connections at once.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Rate of the link.
    #[arg(long, default_value = "1gbit", value_parser = parse_bit_rate)]
    rate: u64,
    /// One-way delay of the link in milliseconds.
    #[arg(long, default_value_t = 25)]
    delay_ms: u64,
    /// Losses of the link.
    #[arg(long, default_value = "uniform:0.01")]
    loss: LossModel,
    /// Bytes to send each way on one connection; 0 for none.
    #[arg(long, default_value = "10GB", value_parser = parse_size)]
    bytes: u64,
    /// Time in seconds for which the link fails meanwhile.
    #[arg(long, default_value_t = 3)]
    flap: u64,
    /// Number of connections at once; 0 for none.
    #[arg(long, default_value_t = 2_000)]
    connections: usize,
    /// Bytes per second of each of them.
    #[arg(long, default_value = "100KB", value_parser = parse_size)]
    each: u64,
    /// Number of short connections that begin each second meanwhile.
    #[arg(long, default_value_t = 200)]
    fresh: u64,
    /// Time in seconds for which they do.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Buffer of the gateways for split connections.
    #[arg(long, default_value = "256MiB")]
    buffer: String,
}

impl Plan {
    fn stage(&self, program: &Path) -> anyhow::Result<WayStage> {
        let plan = WayPlan {
            way: Way::Split,
            rate_bps: self.rate,
            delay_us: self.delay_ms * 1_000,
            loss: self.loss.clone(),
            congestion: "cubic".to_owned(),
            receive_buffer: None,
            buffer_max: 6 << 20,
            split_buffer: self.buffer.clone(),
        };
        plan.build(program, 1)
    }
}

pub(crate) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    // Both ends of all connections are in this process.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit on open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the limit on open files")?;
    println!(
        "link of {}, {} ms one way, {}, buffer of the gateways {}\n",
        format_bit_rate(plan.rate),
        plan.delay_ms,
        plan.loss,
        plan.buffer
    );
    if plan.bytes > 0 {
        exchange::run(program, plan)?;
    }
    if plan.connections > 0 {
        crowd::run(program, plan)?;
    }
    Ok(())
}

/// Costs of both gateways.
struct Costs {
    cores: f64,
    resident_mib: [u64; 2],
    reset: u64,
}

/// Processor time of both gateways in seconds.
fn cpu_s(stage: &WayStage) -> anyhow::Result<f64> {
    statuses(stage)?.iter().map(|status| rig::cpu_s(status.gateway.pid)).sum()
}

fn costs(stage: &WayStage, before_s: f64, seconds: f64) -> anyhow::Result<Costs> {
    let [near, far] = statuses(stage)?;
    let mib = |status: &Status| rig::resident_bytes(status.gateway.pid).map(|bytes| bytes >> 20);
    let reset = |status: &Status| {
        let counters = status.split.as_ref().map(|split| &split.counters);
        counters.and_then(|counters| counters.get("reset_with_carrier")).copied().unwrap_or(0)
    };
    Ok(Costs {
        cores: (cpu_s(stage)? - before_s) / seconds,
        resident_mib: [mib(&near)?, mib(&far)?],
        reset: reset(&near) + reset(&far),
    })
}

fn statuses(stage: &WayStage) -> anyhow::Result<[Status; 2]> {
    stage.statuses()?.context("expected gateways, saw none")
}
