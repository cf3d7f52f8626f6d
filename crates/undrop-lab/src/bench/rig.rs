//! Parts that the measurements share: sites, gateways, their processor time and memory, and statistics.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use loss::LossModel;
use maelstrom::status::Status;
use netlab::Namespace;
use netlab::emulator::EmulatorConfig;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{
    Between, Sample, TcpReport, TcpTransfer, UdpReport, UdpStream, tcp_transfer, udp_stream,
};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};
pub(crate) use stage::gateways::{between, sites};

use super::stop;

/// Longest start of a program.
const PATIENCE: Duration = Duration::from_secs(15);

/// Builds sites like [`sites`].
///
/// With `offload` the emulator exchanges super-packets with the kernel, without it single packets.
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

/// Starts gateways at both ends.
pub(crate) fn gateways(program: &Path, sites: &TwoSites, setting: &Setting) -> anyhow::Result<GatewayPair> {
    GatewayPair::start(program, &End::of(sites), setting)
}

/// Runs one transfer between the sites.
///
/// # Errors
/// Those of [`tcp_transfer`], or if a stop is requested.
pub(crate) fn transfer(sites: &TwoSites, plan: &TcpTransfer) -> anyhow::Result<TcpReport> {
    transfer_of(between(sites), plan)
}

/// Runs one transfer between two hosts.
///
/// # Errors
/// As of [`transfer`].
pub(crate) fn transfer_of(hosts: Between<'_>, plan: &TcpTransfer) -> anyhow::Result<TcpReport> {
    let report = tcp_transfer(hosts, plan, &mut stop::watch)?;
    stop::check()?;
    Ok(report)
}

/// Runs one stream of UDP between two hosts.
///
/// # Errors
/// Those of [`udp_stream`], or if a stop is requested.
pub(crate) fn stream(hosts: Between<'_>, plan: &UdpStream) -> anyhow::Result<UdpReport> {
    let report = udp_stream(hosts, plan, &mut stop::watch)?;
    stop::check()?;
    Ok(report)
}

/// Returns the status of both gateways.
pub(crate) fn statuses(pair: &GatewayPair) -> anyhow::Result<[Status; 2]> {
    Ok([pair.status(0)?, pair.status(1)?])
}

/// Returns the processor time in seconds that a process has used, in user and in kernel mode.
pub(crate) fn cpu_s(pid: u32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .context("cannot read the processor time of a process")?;
    // The command's name may contain blanks, so the fields are counted from its closing parenthesis: the
    // process state is the first.
    let (_, fields) = stat.rsplit_once(')').context("expected a name in parentheses in a stat line")?;
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse().unwrap_or(0)).sum();
    Ok(ticks as f64 / 100.0)
}

/// Returns the resident memory of a process in bytes.
pub(crate) fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .context("cannot read the memory use of a process")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("expected a line VmRSS in the status of a process")?;
    let kilobytes: u64 =
        line.trim().trim_end_matches("kB").trim().parse().context("expected VmRSS to be a number")?;
    Ok(kilobytes << 10)
}

/// Returns the value below which `share` of the sorted values lie, or 0 if there are no values.
pub(crate) fn quantile(sorted: &[u64], share: f64) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((share * last as f64).round() as usize).copied().unwrap_or(0)
}

/// Returns the median, minimum and maximum of the figures.
pub(crate) fn spread(mut figures: Vec<f64>) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    let at = |index: usize| figures.get(index).copied().unwrap_or(0.0);
    (at(figures.len() / 2), at(0), at(figures.len().saturating_sub(1)))
}

/// Runs a program that must succeed, with this input; returns what it prints.
pub(crate) fn run(
    namespace: &Namespace,
    program: &str,
    arguments: &[&str],
    input: &str,
) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = namespace.run(|| command.spawn()).with_context(|| format!("starting {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that has ended says so by its exit code.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("waiting for {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{program} {}` failed: {}", arguments.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Waits until a program that was started is ready.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        stop::check()?;
        ensure!(Instant::now() < deadline, "expected {what} within {PATIENCE:?}");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Longest time without an arrival, from the moment at which the first packet of a stream is due to that of
/// the last one. A packet is due after the least delay of all.
pub(crate) fn longest_silence_us(report: &UdpReport) -> u64 {
    let (Some(first_us), Some(last_us)) = (report.sent_us.first(), report.sent_us.last()) else { return 0 };
    let delay_us = report.latencies_us.iter().flatten().min().copied().unwrap_or(0);
    let (mut longest_us, mut heard_us) = (0, first_us + delay_us);
    for &at_us in report.arrived_us.iter().chain([&(last_us + delay_us)]) {
        longest_us = longest_us.max(at_us.saturating_sub(heard_us));
        heard_us = heard_us.max(at_us);
    }
    longest_us
}

/// Longest time between two samples of which only the latter shows progress.
pub(crate) fn longest_pause_us(samples: &[Sample]) -> u64 {
    let (mut longest_us, mut progress_us, mut received) = (0, 0, 0);
    for sample in samples {
        if sample.received_bytes > received {
            longest_us = longest_us.max(sample.elapsed_us - progress_us);
            (progress_us, received) = (sample.elapsed_us, sample.received_bytes);
        }
    }
    let end_us = samples.last().map_or(0, |last| last.elapsed_us);
    longest_us.max(end_us - progress_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_a_time_without_progress_also_at_the_end() {
        let samples = |received: &[u64]| -> Vec<Sample> {
            let sample = |(at, &received_bytes): (u64, &u64)| Sample { elapsed_us: 100 * at, received_bytes };
            (1..).zip(received).map(sample).collect()
        };
        assert_eq!(longest_pause_us(&samples(&[5, 6, 7])), 100);
        assert_eq!(longest_pause_us(&samples(&[5, 6, 6, 6, 9, 10])), 300);
        assert_eq!(longest_pause_us(&samples(&[5, 6, 6, 6])), 200);
        assert_eq!(longest_pause_us(&[]), 0);
    }

    /// A packet each 10 ms for ten seconds, of which those of some times arrive, 20 ms later.
    fn stream(arrives: impl Fn(u64) -> bool) -> UdpReport {
        let sent_us: Vec<u64> = (0..=1_000).map(|number| number * 10_000).collect();
        let latencies_us = sent_us.iter().map(|&at_us| arrives(at_us).then_some(20_000)).collect();
        let arrived_us =
            sent_us.iter().filter(|&&at_us| arrives(at_us)).map(|at_us| at_us + 20_000).collect();
        UdpReport { sent_us, latencies_us, arrived_us, ..UdpReport::default() }
    }

    #[test]
    fn a_silence_is_a_time_without_arrivals_also_at_the_beginning_and_at_the_end() {
        let of = |arrives: fn(u64) -> bool| longest_silence_us(&stream(arrives));
        assert_eq!(of(|_| true), 10_000, "the delay of the path is no silence");
        assert_eq!(of(|at_us| !(3_000_000..5_000_000).contains(&at_us)), 2_010_000);
        assert_eq!(of(|at_us| at_us <= 4_000_000), 6_000_000);
        assert_eq!(of(|at_us| at_us >= 7_000_000), 7_000_000);
        assert_eq!(of(|_| false), 10_000_000);
        assert_eq!(longest_silence_us(&UdpReport::default()), 0);
    }
}
