//! Split connections that must lose nothing: many bytes both ways while the link fails and a gateway reloads,
//! many connections at once while others come and go, clients that read nothing, and a flood of first
//! packets.

mod crowd;
mod exchange;
mod flood;
mod slow;

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use loss::LossModel;
use maelstrom::status::Status;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use simnet::units::{format_bit_rate, parse_bit_rate, parse_size};
use stage::gateways::{Way, WayPlan, WayStage};

use crate::bench::{guard, rig};

/// Largest share of the link that connections may need, so that headers and repairs have room.
const FILLED_MAX: f64 = 0.8;
/// Longest age of the counters of split mode in a status, and some more.
const STATUS_AGE: Duration = Duration::from_millis(500);

/// Split connections under strain: bytes both ways over a link that fails, compared one by one, many
/// connections at once, clients that read nothing, and a flood of first packets.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Rate of the link. The connections need four fifths of it at most.
    #[arg(long, default_value = "2500mbit", value_parser = parse_bit_rate)]
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
    /// Number of connections whose clients read nothing, beside another one; 0 for none.
    #[arg(long, default_value_t = 8)]
    slow: usize,
    /// First packets (SYN) a second of a flood; 0 for none.
    #[arg(long, default_value_t = 50_000)]
    flood: u64,
    /// Buffer of the gateways for split connections.
    #[arg(long, default_value = "256MiB")]
    buffer: String,
    /// Count runs during which the machine was disturbed, in place of repeating them.
    #[arg(long)]
    count_disturbed: bool,
}

impl Plan {
    /// Refuses connections whose bytes the link cannot carry beside headers and repairs.
    fn check_rate(&self) -> anyhow::Result<()> {
        let needed = self.connections as u64 * self.each * 8 + self.fresh * crowd::SHORT as u64 * 8;
        ensure!(
            self.connections == 0 || needed as f64 <= self.rate as f64 * FILLED_MAX,
            "expected connections that need {:.0} % of the link at most, saw {} of {}; raise `--rate`, or lower \
             `--connections` or `--each`",
            FILLED_MAX * 100.0,
            format_bit_rate(needed),
            format_bit_rate(self.rate)
        );
        Ok(())
    }

    /// Makes a measurement again while the machine is disturbed, unless such runs count.
    fn measured<T>(&self, measure: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
        if self.count_disturbed { measure() } else { Ok(guard::undisturbed(measure)?.0) }
    }

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
    plan.check_rate()?;
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
    if plan.slow > 0 {
        slow::run(program, plan)?;
    }
    if plan.flood > 0 {
        flood::run(program, plan)?;
    }
    Ok(())
}

/// Costs of both gateways.
struct Costs {
    cores: f64,
    resident_mib: [u64; 2],
    reset: u64,
    split: Split,
}

/// Counts of connections that were split, from the status of both gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Split {
    /// Connections that the near gateway has taken.
    taken: u64,
    /// Connections that the far gateway has opened.
    opened: u64,
    /// Floods that either has seen, because of which connections go unsplit.
    floods: u64,
}

impl Split {
    /// Fails unless each of the connections was split at both ends. Few of them may have been begun twice, or
    /// given up.
    fn check(self, connections: u64) -> anyhow::Result<()> {
        ensure!(
            self.taken >= connections && self.opened >= connections,
            "expected {connections} connections that are split, saw {} taken and {} opened, and {} floods: the \
             others went unsplit",
            self.taken,
            self.opened,
            self.floods
        );
        Ok(())
    }
}

/// Processor time of both gateways in seconds.
fn cpu_s(stage: &WayStage) -> anyhow::Result<f64> {
    statuses(stage)?.iter().map(|status| rig::cpu_s(status.gateway.pid)).sum()
}

fn costs(stage: &WayStage, before_s: f64, seconds: f64) -> anyhow::Result<Costs> {
    let cores = (cpu_s(stage)? - before_s) / seconds;
    thread::sleep(STATUS_AGE);
    let [near, far] = statuses(stage)?;
    let mib = |status: &Status| rig::resident_bytes(status.gateway.pid).map(|bytes| bytes >> 20);
    let count = |status: &Status, name: &str| {
        let counters = status.split.as_ref().map(|split| &split.counters);
        counters.and_then(|counters| counters.get(name)).copied().unwrap_or(0)
    };
    let both = |name: &str| count(&near, name) + count(&far, name);
    Ok(Costs {
        cores,
        resident_mib: [mib(&near)?, mib(&far)?],
        reset: both("reset_with_carrier"),
        split: Split { taken: count(&near, "taken"), opened: count(&far, "opened"), floods: both("floods") },
    })
}

fn statuses(stage: &WayStage) -> anyhow::Result<[Status; 2]> {
    stage.statuses()?.context("expected gateways, saw none")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        plan: Plan,
    }

    fn plan(options: &str) -> Plan {
        let line: Line = clap::Parser::parse_from(["endure"].into_iter().chain(options.split_whitespace()));
        line.plan
    }

    #[test]
    fn a_link_must_carry_what_the_connections_need() {
        assert!(plan("").check_rate().is_ok());
        let error = plan("--rate 1gbit").check_rate().unwrap_err().to_string();
        assert!(error.contains("80 % of the link") && error.contains("`--rate`"), "{error}");
        assert!(plan("--rate 1gbit --connections 0").check_rate().is_ok());
    }

    #[test]
    fn connections_that_went_unsplit_are_no_result() {
        let split = Split { taken: 10, opened: 10, floods: 0 };
        assert!(split.check(10).is_ok());
        assert!(split.check(11).is_err());
        let error = Split { opened: 4, floods: 1, ..split }.check(10).unwrap_err().to_string();
        assert!(error.contains("4 opened") && error.contains("1 floods"), "{error}");
    }
}
