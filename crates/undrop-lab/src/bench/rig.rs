//! What all measurements need: sites, gateways, and the processor time that these take.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use loss::LossModel;
use maelstrom::status::Status;
use netlab::emulator::EmulatorConfig;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{TcpReport, TcpTransfer, tcp_transfer, unwatched};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};
pub(crate) use stage::gateways::{between, sites};

/// As [`sites`]; with `offload` the emulator exchanges super-packets with the kernel, without it packet by packet.
pub(crate) fn sites_with(
    rate_bps: Option<u64>,
    delay_us: u64,
    loss: &LossModel,
    seed: u64,
    offload: bool,
) -> anyhow::Result<TwoSites> {
    let link = LinkConfig { rate_bps, delay_us, loss: loss.clone(), seed, ..LinkConfig::default() };
    let emulator = EmulatorConfig { offload, ..EmulatorConfig::symmetric(link) };
    Ok(TwoSites::build(&TwoSitesConfig::default(), &emulator)?)
}

/// Gateways at both ends.
pub(crate) fn gateways(program: &Path, sites: &TwoSites, setting: &Setting) -> anyhow::Result<GatewayPair> {
    GatewayPair::start(program, &End::of(sites), setting)
}

/// One transfer over what stands.
pub(crate) fn transfer(sites: &TwoSites, plan: &TcpTransfer) -> anyhow::Result<TcpReport> {
    Ok(tcp_transfer(between(sites), plan, &mut unwatched)?)
}

/// Both gateways' status.
pub(crate) fn statuses(pair: &GatewayPair) -> anyhow::Result<[Status; 2]> {
    Ok([pair.status(0)?, pair.status(1)?])
}

/// Processor seconds of a process so far, its own and the kernel's on its behalf.
pub(crate) fn cpu_s(pid: u32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("reading a process' times")?;
    // Fields are counted behind the command's name, which may hold blanks: state is the first.
    let (_, fields) = stat.rsplit_once(')').context("a stat line has a name in parentheses")?;
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse().unwrap_or(0)).sum();
    Ok(ticks as f64 / 100.0)
}

/// Resident memory of a process in bytes.
pub(crate) fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("reading a process' memory")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().context("VmRSS is a number")?;
    Ok(kilobytes << 10)
}

/// The value below which `share` of the sorted values lie.
pub(crate) fn quantile(sorted: &[u64], share: f64) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((share * last as f64).round() as usize).copied().unwrap_or(0)
}

/// Median, smallest and largest of a few figures.
pub(crate) fn spread(mut figures: Vec<f64>) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    let at = |index: usize| figures.get(index).copied().unwrap_or(0.0);
    (at(figures.len() / 2), at(0), at(figures.len().saturating_sub(1)))
}
