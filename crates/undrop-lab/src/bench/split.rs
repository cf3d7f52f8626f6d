//! TCP by each way between two sites: goodput, shares of flows, and the time of short connections.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use loss::LossModel;
use maelstrom::status::Status;
use netlab::topology::TwoSitesConfig;
use netlab::traffic::Course;
use simnet::units::{format_bit_rate, parse_bit_rate, parse_size};
use stage::gateways::{Way, WayPlan, WayStage};
use undrop::output;

use crate::bench::pepsal::Pepsal;
use crate::bench::{guard, rig, stop};

/// Header bytes of a packet of the sites: IPv4, TCP, timestamps.
const HEADER_BYTES: f64 = 52.0;
/// Least share of what the link leaves to data that split mode is to reach at every latency.
const SHARE_MIN: f64 = 0.9;
/// Most time of a short flow in split mode: one-way delays, and that factor of them and of its bytes' time.
const BOUND_DELAYS: f64 = 1.5;
const BOUND_FACTOR: f64 = 1.2;
/// Bytes of the fetch by which connections, carriers and gateways get to know the link.
const WARM_UP_BYTES: u64 = 10_000_000;

/// TCP between two sites without gateways, past passive gateways, and ended by gateways in split mode.
///
/// Prints the goodput in the second half of each run, or with `--fetch` the time from the first packet of a
/// connection to its last byte. Carriers have bbr, and gateways their default code. With `split` a client is
/// answered at once, with `split-late` when its server has answered.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Ways: direct, passive, split, split-late, tunnel.
    #[arg(long, value_delimiter = ',', default_value = "direct,passive,split,split-late", value_parser = parse_way)]
    way: Vec<Way>,
    /// PEPsal, a program of others that ends TCP connections at both gateways; it takes those of the way
    /// `direct`. See bench/peers/tunnels/README.md.
    #[arg(long, value_name = "FILE")]
    pepsal: Option<PathBuf>,
    /// Rate of the link.
    #[arg(long, default_value = "1gbit", value_parser = parse_bit_rate)]
    rate: u64,
    /// One-way delays of the link in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "10,50,100,175,250")]
    delay_ms: Vec<u64>,
    /// Losses of the link.
    #[arg(long, value_delimiter = ',', default_value = "none,uniform:0.01")]
    loss: Vec<LossModel>,
    /// Congestion controls of the hosts, by the kernel's names.
    #[arg(long, value_delimiter = ',', default_value = "cubic")]
    congestion: Vec<String>,
    /// Receive buffers of the hosts: a size, or 0 for the kernel's, which grows up to `--host-buffer`.
    #[arg(long, value_delimiter = ',', default_value = "64kib,0", value_parser = parse_size)]
    receive_buffer: Vec<u64>,
    /// Bytes up to which the buffers of hosts grow; the kernel's own limit is 6 MiB.
    #[arg(long, default_value = "6mib", value_parser = parse_size)]
    host_buffer: u64,
    /// Buffer of the gateways for split connections.
    #[arg(long, default_value = "256MiB")]
    buffer: String,
    /// Number of simultaneous connections.
    #[arg(long, default_value_t = 1)]
    flows: usize,
    /// Length of each transfer in seconds; by default longer on longer links.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// Fetch answers of these sizes, one connection each, in place of long transfers.
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    fetch: Vec<u64>,
    /// Which end sends the bytes of a fetch: the server when it is asked, the server unasked, or the client.
    /// The bound beside each time is 1.2 times 1.5 one-way delays and the size by the rate, with nothing for
    /// the handshake on the LAN, which takes less than a millisecond there.
    #[arg(long, value_delimiter = ',', default_value = "asked,sent", value_parser = parse_course)]
    course: Vec<Course>,
    /// Number of fetches of each size.
    #[arg(long, default_value_t = 5)]
    fetches: usize,
    /// Longest time of a fetch in seconds.
    #[arg(long, default_value_t = 30)]
    patience: u64,
    /// Number of runs of each transfer, with other losses each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// Count runs during which the machine was disturbed, in place of repeating them.
    #[arg(long)]
    count_disturbed: bool,
}

impl Plan {
    fn cells(&self) -> Vec<WayPlan> {
        let mut cells = Vec::new();
        for loss in &self.loss {
            for &delay_ms in &self.delay_ms {
                for congestion in &self.congestion {
                    for &buffer in &self.receive_buffer {
                        cells.extend(self.way.iter().map(|&way| WayPlan {
                            way,
                            rate_bps: self.rate,
                            delay_us: delay_ms * 1_000,
                            loss: loss.clone(),
                            congestion: congestion.clone(),
                            receive_buffer: usize::try_from(buffer).ok().filter(|&bytes| bytes > 0),
                            buffer_max: self.host_buffer,
                            split_buffer: self.buffer.clone(),
                        }));
                    }
                }
            }
        }
        cells
    }

    /// Time in which a connection fills its link, and as much again.
    fn seconds(&self, cell: &WayPlan) -> u64 {
        self.seconds.unwrap_or(6 + cell.delay_us * 60 / 1_000_000)
    }

    /// Starts PEPsal, if it is to take the connections of this way.
    fn pepsal(&self, stage: &WayStage, way: Way) -> anyhow::Result<Option<Pepsal>> {
        let program = self.pepsal.as_deref().filter(|_| way == Way::Direct);
        program.map(|program| Pepsal::start(program, stage.sites())).transpose()
    }

    /// Name of a way in the tables.
    fn name(&self, way: Way) -> &'static str {
        if way == Way::Direct && self.pepsal.is_some() { "PEPsal" } else { way.name() }
    }

    fn measured<T>(&self, measure: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
        if self.count_disturbed { measure() } else { Ok(guard::undisturbed(measure)?.0) }
    }
}

fn parse_way(text: &str) -> Result<Way, String> {
    let names = Way::ALL.map(Way::name).join(", ");
    let found = Way::ALL.into_iter().find(|way| way.name() == text);
    found.ok_or_else(|| format!("expected one of {names}, saw {text:?}"))
}

const COURSES: [(Course, &str); 3] =
    [(Course::Asked, "asked"), (Course::Unasked, "unasked"), (Course::Sent, "sent")];

fn parse_course(text: &str) -> Result<Course, String> {
    let found = COURSES.into_iter().find(|&(_, name)| name == text);
    found.map(|(course, _)| course).ok_or_else(|| format!("expected asked, unasked or sent, saw {text:?}"))
}

fn course_name(course: Course) -> &'static str {
    COURSES.into_iter().find(|&(one, _)| one == course).map_or("", |(_, name)| name)
}

/// Runs all cells and prints a row of each.
pub(crate) fn run(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    let (rate, flows) = (format_bit_rate(plan.rate), plan.flows);
    println!(
        "link of {rate}, {flows} flows, buffers of hosts up to {} bytes, of gateways {}\n",
        plan.host_buffer, plan.buffer
    );
    if plan.fetch.is_empty() { transfers(program, plan) } else { fetches(program, plan) }
}

/// The values of one transfer.
struct Transferred {
    mbps: f64,
    /// Jain's index of the flows: 1 if all are equally fast.
    fairness: f64,
    /// Repair bytes for each byte of packets.
    overhead: f64,
    /// Processors that both gateways used.
    cores: f64,
    residual: u64,
    carriers_resent: u64,
}

fn transfers(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    println!(
        "| loss | one way | hosts | receive buffer | way | Mbit/s (min–max) | of data's share | at least 90 % | Jain | overhead | cores of both gateways | residual | carriers sent again |"
    );
    println!("|---|--:|---|--:|---|--:|--:|---|--:|--:|--:|--:|--:|");
    for cell in plan.cells() {
        let runs = (0..plan.runs).map(|seed| plan.measured(|| transfer(program, plan, &cell, seed)));
        let runs = runs.collect::<anyhow::Result<Vec<Transferred>>>()?;
        let of = |value: fn(&Transferred) -> f64| rig::spread(runs.iter().map(value).collect());
        let ((mbps, least, most), (fairness, ..)) = (of(|run| run.mbps), of(|run| run.fairness));
        let ((overhead, ..), (cores, ..)) = (of(|run| run.overhead), of(|run| run.cores));
        let packet_bytes = f64::from(TwoSitesConfig::default().lan_mtu);
        let room = plan.rate as f64 / 1e6 * (packet_bytes - HEADER_BYTES) / packet_bytes / (1.0 + overhead);
        let share = mbps / room;
        let last = runs.last().map_or((0, 0), |run| (run.residual, run.carriers_resent));
        output::line(&format!(
            "{} {mbps:.1} ({least:.1}–{most:.1}) | {:.1} % | {} | {fairness:.3} | {:.1} % | {cores:.2} | {} | {} |",
            head(plan, &cell),
            share * 100.0,
            verdict(cell.way, share >= SHARE_MIN),
            overhead * 100.0,
            last.0,
            last.1
        ))?;
    }
    Ok(())
}

/// Whether a way reaches its goal, which only split mode has.
fn verdict(way: Way, is_reached: bool) -> &'static str {
    match (way.is_split(), is_reached) {
        (false, _) => "–",
        (true, true) => "yes",
        (true, false) => "no",
    }
}

/// The first columns of a row.
fn head(plan: &Plan, cell: &WayPlan) -> String {
    let buffer = cell.receive_buffer.map_or("grows".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    let WayPlan { loss, congestion, way, .. } = cell;
    format!("| {loss} | {} ms | {congestion} | {buffer} | {} |", cell.delay_us / 1_000, plan.name(*way))
}

fn transfer(program: &Path, plan: &Plan, cell: &WayPlan, seed: u64) -> anyhow::Result<Transferred> {
    let stage = cell.build(program, seed)?;
    let pepsal = plan.pepsal(&stage, cell.way)?;
    let cpu_s = || anyhow::Ok(cpu_s(&stage)? + pepsal.as_ref().map_or(Ok(0.0), Pepsal::cpu_s)?);
    let before = cpu_s()?;
    let seconds = plan.seconds(cell);
    let report = stage.transfer(plan.flows, Duration::from_secs(seconds), &mut stop::watch)?;
    stop::check()?;
    let cores = (cpu_s()? - before) / seconds as f64;
    anyhow::ensure!(report.mismatch.is_none(), "another byte arrived than was sent at {:?}", report.mismatch);
    let statuses = stage.statuses()?;
    let of = |value: fn(&Status, &Status) -> f64| statuses.as_ref().map_or(0.0, |[a, b]| value(a, b));
    let transferred = Transferred {
        mbps: report.forward.second_half_bps() / 1e6,
        fairness: jain(&report.flow_bytes),
        overhead: of(|near, _| near.peers[0].egress.overhead_percent / 100.0),
        cores,
        residual: of(|_, far| far.peers[0].ingress.loss.residual as f64) as u64,
        carriers_resent: of(|near, _| carriers_resent(near) as f64) as u64,
    };
    output::note(format_args!("{} {:.1} Mbit/s{}", head(plan, cell), transferred.mbps, details(&statuses)));
    drop(pepsal);
    stage.close()?;
    Ok(transferred)
}

fn carriers_resent(status: &Status) -> u64 {
    status.split.iter().flat_map(|split| &split.sites).map(|site| site.retransmits_wan).sum()
}

/// Counts that explain a value.
fn details(statuses: &Option<[Status; 2]>) -> String {
    let Some([near, far]) = statuses else { return String::new() };
    let (egress, ingress) = (&near.peers[0].egress, &far.peers[0].ingress);
    let pauses = (near.pauses.count, far.pauses.count);
    let mut text = format!(
        "; {}, lost {}, residual {}, late {}, pauses {pauses:?}",
        egress.code, ingress.loss.lost, ingress.loss.residual, ingress.late
    );
    if near.split.is_some() {
        let _ = write!(text, ", carriers sent {} segments again", carriers_resent(near));
    }
    text
}

/// Processor time of the gateways in seconds.
fn cpu_s(stage: &WayStage) -> anyhow::Result<f64> {
    let statuses = stage.statuses()?;
    statuses.iter().flatten().map(|status| rig::cpu_s(status.gateway.pid)).sum()
}

/// Jain's index of fairness: the square of the sum by the number times the sum of squares.
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

fn fetches(program: &Path, plan: &Plan) -> anyhow::Result<()> {
    let sizes: Vec<String> = plan.fetch.iter().map(|bytes| format!("{} KB", bytes / 1_000)).collect();
    println!(
        "| loss | one way | hosts | receive buffer | way | bytes are | first fetch | {} |",
        sizes.join(" | ")
    );
    println!("|---|--:|---|--:|---|---|--:|{}", "--:|".repeat(sizes.len()));
    for cell in plan.cells() {
        for &course in &plan.course {
            for seed in 0..plan.runs {
                let (first, all) = plan.measured(|| fetch_all(program, plan, &cell, course, seed))?;
                let sizes = plan.fetch.iter().zip(all);
                let shown = sizes.map(|(&bytes, times)| {
                    let bound_ms = bound_ms(&cell, bytes);
                    let is_met = times.iter().all(Option::is_some) && median_ms(&times) <= bound_ms;
                    let verdict = verdict(cell.way, is_met);
                    format!("{}, at most {bound_ms:.0} ms: {verdict}", ms(times, plan.patience))
                });
                let shown: Vec<String> = shown.collect();
                let (first, course) = (ms(vec![first], plan.patience), course_name(course));
                output::line(&format!("{} {course} | {first} | {} |", head(plan, &cell), shown.join(" | ")))?;
            }
        }
    }
    Ok(())
}

/// Longest time of a short flow in split mode, without the handshake on the LAN.
fn bound_ms(cell: &WayPlan, bytes: u64) -> f64 {
    let bytes_ms = bytes as f64 * 8.0 * 1e3 / cell.rate_bps as f64;
    (cell.delay_us as f64 / 1e3 * BOUND_DELAYS + bytes_ms) * BOUND_FACTOR
}

fn median_ms(times: &[Option<u64>]) -> f64 {
    rig::spread(times.iter().flatten().map(|&us| us as f64 / 1e3).collect()).0
}

/// Time in microseconds of each fetch of one size.
type Times = Vec<Option<u64>>;

/// Returns the time in microseconds of a first fetch, and those of the fetches of each size.
fn fetch_all(
    program: &Path,
    plan: &Plan,
    cell: &WayPlan,
    course: Course,
    seed: u64,
) -> anyhow::Result<(Option<u64>, Vec<Times>)> {
    let stage = cell.build(program, seed)?;
    let pepsal = plan.pepsal(&stage, cell.way)?;
    let patience = Duration::from_secs(plan.patience);
    let first = stage.fetch(WARM_UP_BYTES, course, patience, &mut stop::watch)?;
    let mut all = Vec::new();
    for &bytes in &plan.fetch {
        let mut times = Vec::new();
        while times.len() < plan.fetches && times.last() != Some(&None) {
            stop::check()?;
            times.push(stage.fetch(bytes, course, patience, &mut stop::watch)?);
        }
        all.push(times);
    }
    stop::check()?;
    drop(pepsal);
    stage.close()?;
    Ok((first, all))
}

/// Median and range of times; one that is missing exceeds the patience.
fn ms(times: Vec<Option<u64>>, patience_s: u64) -> String {
    if times.contains(&None) {
        return format!("more than {patience_s} s");
    }
    let (median, least, most) = rig::spread(times.into_iter().flatten().map(|us| us as f64 / 1e3).collect());
    format!("{median:.0} ms ({least:.0}–{most:.0})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_are_fair_and_one_flow_among_four_is_not() {
        assert!((jain(&[5, 5, 5]) - 1.0).abs() < 1e-9);
        assert!((jain(&[8, 0, 0, 0]) - 0.25).abs() < 1e-9);
        assert_eq!(jain(&[0, 0]), 0.0);
    }

    #[test]
    fn a_fetch_that_did_not_end_is_longer_than_the_patience() {
        assert_eq!(ms(vec![Some(3_000), Some(1_000), Some(2_000)], 30), "2 ms (1–3)");
        assert_eq!(ms(vec![Some(3_000), None], 30), "more than 30 s");
        assert!(parse_way("late").unwrap_err().contains("direct, passive, split, split-late"));
        assert!(parse_course("pushed").unwrap_err().contains("asked, unasked or sent"));
        assert_eq!(COURSES.map(|(course, name)| parse_course(name) == Ok(course)), [true; 3]);
    }

    #[test]
    fn the_bound_of_a_short_flow_follows_from_link_and_length() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            plan: Plan,
        }
        let line: Line = clap::Parser::parse_from(["bench", "--delay-ms", "50", "--loss", "none"]);
        let cells = line.plan.cells();
        // 1.2 × (75 ms + 8 ms).
        assert!((bound_ms(&cells[0], 1_000_000) - 99.6).abs() < 1e-9, "{}", bound_ms(&cells[0], 1_000_000));
        assert_eq!(verdict(Way::Passive, false), "–");
        assert_eq!([true, false].map(|met| verdict(Way::SplitLate, met)), ["yes", "no"]);
    }
}
