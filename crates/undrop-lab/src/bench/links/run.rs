//! One run of a cell: sites, a link, perhaps gateways, traffic, and what all of them counted.
//!
//! 1. the sites and the gateways start;
//! 2. the same traffic as in the run flows for a time, if the cell asks for it, so that the gateways, or a
//!    table of thresholds, know the link;
//! 3. traffic flows; ten times a second the loss follows its course, the counts are recorded, and a table of
//!    thresholds is looked at;
//! 4. after the traffic the gateways get some time to recover the last losses, or to give them up;
//! 5. the counts become figures, and the guards judge the machine.

use std::ops::ControlFlow;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use ipnet::IpNet;
use maelstrom::status::{PeerStatus, Status};
use netlab::Direction;
use netlab::emulator::EmulatorConfig;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Progress, now_us};
use serde_json::Value;
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};
use undrop::interrupt::Interrupt;

use super::cells::{Cell, Code, Variant};
use super::figure::{Figure, Figures};
use super::vendor::TableController;
use super::workload::Seen;
use crate::bench::guard::{self, Machine};
use crate::bench::rig;
use crate::course::Conductor;
use crate::timeline::{self, Moment, Recorder};

/// Interval of recorded moments, in microseconds.
const MOMENTS_US: u64 = 250_000;
/// Time without a packet that stays lost, in microseconds, after which a rise of the loss is answered.
const CALM_US: u64 = 2_000_000;
/// Uncertainty of the age of a packet, in microseconds: the gateway rounds it, and the request for it takes
/// some time.
const AGE_US: u64 = 20_000;
/// Most counters in the column of those that only some versions have.
const COUNTERS_MAX: usize = 40;

/// A run to make.
pub(super) struct Job<'a> {
    pub(super) program: &'a Path,
    pub(super) cell: &'a Cell,
    /// `None`: without gateways.
    pub(super) variant: Option<&'a Variant>,
    pub(super) seed: u64,
    /// Other programs may use the processors.
    pub(super) is_shared: bool,
    pub(super) interrupt: &'a Interrupt,
}

/// The outcome of a run.
pub(super) struct Outcome {
    pub(super) figures: Figures,
    pub(super) disturbed: Vec<String>,
    /// Packets that stayed lost in each part of a run whose loss changes.
    pub(super) by_phase: Vec<u64>,
    pub(super) counters: String,
    pub(super) moments: Vec<Moment>,
}

/// Runs a cell once.
///
/// # Errors
/// If privilege is missing, a gateway or a connection fails, or the user interrupts.
pub(super) fn run(job: &Job<'_>) -> anyhow::Result<Outcome> {
    let sites = build(job)?;
    let mut pair = job.variant.map(|variant| start(job, variant, &sites)).transpose()?;
    job.interrupt.check()?;
    let pids = match &pair {
        Some(pair) => rig::statuses(pair)?.map(|status| status.gateway.pid).to_vec(),
        None => Vec::new(),
    };
    let mut table = job.variant.and_then(table_of);
    learn(job, &sites, pair.as_mut(), table.as_mut())?;
    let statuses = pair.as_ref().map(rig::statuses).transpose()?;
    let base = Moment::of(Progress { elapsed_us: 0, received_bytes: 0 }, &sites.link, statuses.as_ref());
    let packets_before = statuses.as_ref().map_or([0; 2], packets);
    let before = (Machine::now()?, cpu_s(&pids)?);
    let traffic = carry(job, &sites, pair.as_mut(), table)?;
    let after = (Machine::now()?, cpu_s(&pids)?);
    thread::sleep(Duration::from_secs(2) + 4 * Duration::from_micros(job.cell.link.delay_us));
    job.interrupt.check()?;
    let statuses = pair.as_ref().map(rig::statuses).transpose()?;
    let mut moments = traffic.moments;
    let end = Progress {
        elapsed_us: now_us().saturating_sub(traffic.origin_us),
        received_bytes: moments.last().map_or(0, |last| last.received_bytes),
    };
    // Ages are those of now, but the counts are those of the end.
    let end = Moment::of(end, &sites.link, statuses.as_ref());
    moments.push(Moment { at_us: (job.cell.seconds * 1e6) as u64, ..end });
    moments.iter_mut().for_each(|moment| *moment = moment.since(&base));
    let parts = Parts { seen: &traffic.seen, moments: &moments, is_protected: pair.is_some() };
    let by_phase = parts.by_phase(&traffic.began_us);
    let mut figures = parts.figures(job.cell, &traffic.began_us, &by_phase);
    if let Some(statuses) = &statuses {
        figures.extend(costs(
            [0, 1].map(|side| packets(statuses)[side] - packets_before[side]),
            [after.1[0] - before.1[0], after.1[1] - before.1[1]],
            job.cell.seconds,
        ));
    }
    let load = after.0.since(&before.0);
    let counters = Direction::BOTH.map(|direction| sites.link.counters(direction));
    let (late, reasons) = guard::emulator(&counters, traffic.gap_us, job.cell.link.rate_bps.is_some());
    figures.extend([
        (Figure::Steal, load.steal_percent),
        (Figure::Stopped, load.stopped_percent),
        (Figure::Foreign, load.foreign_percent),
        (Figure::Late, late),
    ]);
    let mut disturbed = if job.is_shared { load.of_host } else { load.reasons() };
    disturbed.extend(reasons);
    if let Some(pair) = pair {
        pair.stop()?;
    }
    let counters = statuses.as_ref().map_or(String::new(), special_counters);
    Ok(Outcome { figures, disturbed, by_phase, counters, moments })
}

fn build(job: &Job<'_>) -> anyhow::Result<TwoSites> {
    let link = job.cell.link;
    let link = LinkConfig {
        rate_bps: link.rate_bps,
        delay_us: link.delay_us,
        queue_bytes: link.queue_bytes,
        loss: job.cell.course.first().clone(),
        seed: job.seed,
        ..LinkConfig::default()
    };
    let config = TwoSitesConfig { hosts: job.cell.workload.hosts(), ..TwoSitesConfig::default() };
    let link = EmulatorConfig::symmetric(link).for_measurement();
    TwoSites::build(&config, &link).context("building two sites")
}

fn start(job: &Job<'_>, variant: &Variant, sites: &TwoSites) -> anyhow::Result<GatewayPair> {
    let mut ends = End::of(sites);
    if job.cell.workload.beside() > 0 {
        // Only the first host of each site is protected.
        for (end, site) in ends.iter_mut().zip([&sites.a, &sites.b]) {
            end.networks = vec![IpNet::from(site.host_v4(0))];
        }
    }
    let code = match &variant.code {
        Code::Lines(lines) => lines,
        Code::Thresholds(thresholds) => &thresholds[0].code,
    };
    GatewayPair::start_with_code(job.program, &ends, &Setting::default(), code)
        .context("starting the gateways")
}

fn table_of(variant: &Variant) -> Option<TableController<'_>> {
    match &variant.code {
        Code::Lines(_) => None,
        Code::Thresholds(thresholds) => Some(TableController::new(thresholds)),
    }
}

/// Lets traffic pass that is not measured, with the first loss of the course. Without gateways nobody learns
/// from it.
fn learn(
    job: &Job<'_>,
    sites: &TwoSites,
    pair: Option<&mut GatewayPair>,
    mut table: Option<&mut TableController<'_>>,
) -> anyhow::Result<()> {
    let Cell { learn, workload, link, .. } = job.cell;
    let Some(pair) = pair.filter(|_| *learn > 0.0) else { return Ok(()) };
    let mut looked = Ok(());
    let mut watch = |progress: Progress| {
        if let Some(table) = &mut table {
            looked = table.tick(progress.elapsed_us, pair);
        }
        let is_over = looked.is_err() || job.interrupt.is_requested();
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let seen = workload.carry(sites, link.rate_bps, Duration::from_secs_f64(*learn), &mut watch);
    job.interrupt.check()?;
    looked?;
    seen?;
    if let Some(table) = table {
        table.restart();
    }
    Ok(())
}

fn cpu_s(pids: &[u32]) -> anyhow::Result<Vec<f64>> {
    pids.iter().map(|&pid| rig::cpu_s(pid)).collect()
}

/// Record of the time in which traffic flowed.
struct Traffic {
    seen: Seen,
    moments: Vec<Moment>,
    /// Times at which the parts of the course began in fact, in microseconds.
    began_us: Vec<u64>,
    /// Longest time between two looks at the traffic.
    gap_us: u64,
    /// Time of the clock at which the traffic began.
    origin_us: u64,
}

fn carry(
    job: &Job<'_>,
    sites: &TwoSites,
    mut pair: Option<&mut GatewayPair>,
    mut table: Option<TableController<'_>>,
) -> anyhow::Result<Traffic> {
    let mut conductor = Conductor::new(&job.cell.course, &sites.link);
    let mut recorder = Recorder::new(&sites.link, MOMENTS_US);
    // From the first look on: several flows connect one after the other before it.
    let (mut failure, mut gap_us, mut last_us) = (None, 0, None);
    let mut origin_us = now_us();
    let mut watch = |progress: Progress| {
        let began_us = now_us();
        origin_us = began_us.saturating_sub(progress.elapsed_us);
        gap_us = gap_us.max(last_us.map_or(0, |last_us| began_us.saturating_sub(last_us)));
        conductor.tick(progress.elapsed_us);
        recorder.tick(progress, pair.as_deref());
        if let (Some(table), Some(pair)) = (&mut table, &mut pair)
            && let Err(error) = table.tick(progress.elapsed_us, pair)
        {
            failure = Some(error);
        }
        last_us = Some(now_us());
        let is_over = failure.is_some() || job.interrupt.is_requested();
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let time = Duration::from_secs_f64(job.cell.seconds);
    let seen = job.cell.workload.carry(sites, job.cell.link.rate_bps, time, &mut watch);
    job.interrupt.check()?;
    if let Some(error) = failure {
        return Err(error);
    }
    let began_us = conductor.began_us().to_vec();
    Ok(Traffic { seen: seen?, moments: recorder.finish(), began_us, gap_us, origin_us })
}

/// Counts of hosts, link and gateways.
struct Parts<'a> {
    seen: &'a Seen,
    /// The last one is from after the traffic.
    moments: &'a [Moment],
    is_protected: bool,
}

impl Parts<'_> {
    /// Returns the number of packets that stayed lost between two times.
    ///
    /// Of datagrams it is exact, by the time of their sending. Of TCP it is what the gateways have settled
    /// by then, which is up to a second late; without gateways, what the link lost.
    fn stayed_lost(&self, from_us: u64, to_us: u64) -> u64 {
        if let Some(missing_us) = &self.seen.missing_us {
            return missing_us.iter().filter(|at_us| (from_us..to_us).contains(at_us)).count() as u64;
        }
        let end = if to_us == u64::MAX { self.last() } else { timeline::at(self.moments, to_us) };
        let between = end.since(&timeline::at(self.moments, from_us));
        if self.is_protected { between.stayed_lost } else { between.dropped() }
    }

    fn last(&self) -> Moment {
        self.moments.last().copied().unwrap_or_default()
    }

    /// Returns the end of each phase.
    fn ends(began_us: &[u64]) -> impl Iterator<Item = (u64, u64)> {
        let ends = began_us.iter().skip(1).copied().chain([u64::MAX]);
        began_us.iter().copied().zip(ends)
    }

    fn by_phase(&self, began_us: &[u64]) -> Vec<u64> {
        Self::ends(began_us).map(|(from_us, to_us)| self.stayed_lost(from_us, to_us)).collect()
    }

    fn figures(&self, cell: &Cell, began_us: &[u64], by_phase: &[u64]) -> Figures {
        let mut figures = self.seen.figures.clone();
        let (last, half_us) = (self.last(), (cell.seconds * 5e5) as u64);
        let whole = last.since(&self.moments.first().copied().unwrap_or_default());
        let late = last.since(&timeline::at(self.moments, half_us));
        figures.insert(Figure::Lost, last.dropped() as f64);
        figures.insert(Figure::QueueDrops, last.queue_full as f64);
        figures.insert(Figure::StayedLost, self.stayed_lost(0, u64::MAX) as f64);
        let sent = match (&self.seen.missing_us, self.is_protected) {
            (Some(_), _) => self.seen.sent as f64 / 2.0,
            (None, true) => late.settled as f64,
            (None, false) => late.offered as f64,
        };
        if sent > 0.0 {
            let stayed_lost = self.stayed_lost(half_us, u64::MAX) as f64;
            let beyond = (stayed_lost - late.queue_full as f64).max(0.0);
            figures.insert(Figure::Residual, stayed_lost * 1e6 / sent);
            figures.insert(Figure::ResidualBeyondQueue, beyond * 1e6 / sent);
        }
        if self.is_protected {
            figures.insert(Figure::Overhead, whole.overhead() * 100.0);
            figures.insert(Figure::OverheadLate, late.overhead() * 100.0);
        }
        if !cell.course.is_constant() {
            figures.insert(Figure::WorstPhase, by_phase.iter().copied().max().unwrap_or(0) as f64);
            figures.insert(Figure::React, self.reaction_s(cell, began_us));
        }
        figures
    }

    /// Returns the longest time in seconds from a rise of the loss to the last packet that stayed lost
    /// before two seconds without any.
    fn reaction_s(&self, cell: &Cell, began_us: &[u64]) -> f64 {
        let losses: Vec<u64> = match &self.seen.missing_us {
            Some(missing_us) => missing_us.clone(),
            None if self.is_protected => self.missed(),
            None => self.dropped(),
        };
        let end_us = (cell.seconds * 1e6) as u64;
        let mut longest_us = 0;
        let rates: Vec<f64> =
            cell.course.phases().iter().map(|&at_us| cell.course.at(at_us).rate()).collect();
        for (at, (from_us, to_us)) in Self::ends(began_us).enumerate().skip(1) {
            // A ramp begins with the rate before it.
            let is_rise = rates.get(at).zip(rates.get(at - 1)).is_none_or(|(now, before)| now >= before);
            if is_rise {
                longest_us = longest_us.max(reaction_us(&losses, from_us, to_us.min(end_us)));
            }
        }
        longest_us as f64 / 1e6
    }

    /// Returns the latest time before each moment at which a packet was missed that stayed lost, if it is not
    /// that of the moment before. Gateways tell it a second later.
    fn missed(&self) -> Vec<u64> {
        let mut times_us: Vec<u64> = Vec::new();
        for missed_us in self.moments.iter().filter_map(|moment| moment.missed_us) {
            if times_us.last().is_none_or(|&last_us| missed_us > last_us + AGE_US) {
                times_us.push(missed_us);
            }
        }
        times_us
    }

    /// Returns the moments before which the link dropped packets.
    fn dropped(&self) -> Vec<u64> {
        let lost_us = |pair: &[Moment]| (pair[1].since(&pair[0]).dropped() > 0).then_some(pair[1].at_us);
        self.moments.windows(2).filter_map(lost_us).collect()
    }
}

/// Returns the time from `from_us` to the last loss before a calm time, or before `to_us`. The times of
/// losses ascend.
fn reaction_us(losses_us: &[u64], from_us: u64, to_us: u64) -> u64 {
    let mut last_us = from_us;
    for &loss_us in losses_us.iter().filter(|at_us| (from_us..to_us).contains(at_us)) {
        if loss_us.saturating_sub(last_us) > CALM_US {
            break;
        }
        last_us = loss_us;
    }
    last_us - from_us
}

/// Returns the number of packets in both directions at both gateways.
fn packets(statuses: &[Status; 2]) -> [u64; 2] {
    let of = |peer: &PeerStatus| peer.egress.source_packets + peer.ingress.source_packets;
    [0, 1].map(|side| statuses[side].peers.first().map_or(0, of))
}

/// Returns the processor time of both gateways.
fn costs(packets: [u64; 2], used_s: [f64; 2], seconds: f64) -> Figures {
    let per_packet = |side: usize| used_s[side] * 1e9 / packets[side].max(1) as f64;
    Figures::from([
        (Figure::EgressCost, per_packet(0)),
        (Figure::IngressCost, per_packet(1)),
        (Figure::Cores, (used_s[0] + used_s[1]) / seconds),
    ])
}

/// Returns the counters that are not 0 and whose names tell of requests, answers, choices, pauses, or losses
/// that stayed.
fn special_counters(statuses: &[Status; 2]) -> String {
    const WORDS: [&str; 9] =
        ["request", "answer", "rate", "choice", "pauses", "left", "withheld", "uninjected", "blind"];
    let mut found = Vec::new();
    for (side, status) in ["a", "b"].iter().zip(statuses) {
        let document = serde_json::to_value(status).unwrap_or_default();
        collect(&format!("{side}."), &document, &mut found);
    }
    found.retain(|(path, _)| WORDS.iter().any(|word| path.contains(word)));
    found.truncate(COUNTERS_MAX);
    found.into_iter().map(|(path, value)| format!("{path}={value}")).collect::<Vec<_>>().join("; ")
}

/// Collects the leaves of a document that are not empty or 0, with their paths.
fn collect(path: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                collect(&format!("{path}{name}."), value, found);
            }
        }
        Value::Array(values) => values.iter().take(1).for_each(|value| collect(path, value, found)),
        Value::Number(number) if number.as_f64() != Some(0.0) => {
            found.push((path.trim_end_matches('.').to_owned(), number.to_string()));
        }
        Value::String(text) if !text.is_empty() => {
            found.push((path.trim_end_matches('.').to_owned(), text.clone()));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::links::cells::Table;
    use crate::bench::links::tests::SMALL;

    #[test]
    fn a_reaction_ends_with_the_last_loss_before_two_calm_seconds() {
        let losses = [500_000, 10_200_000, 10_900_000, 14_000_000, 21_000_000];
        assert_eq!(reaction_us(&losses, 10_000_000, 20_000_000), 900_000);
        assert_eq!(reaction_us(&losses, 15_000_000, 20_000_000), 0);
        assert_eq!(reaction_us(&[], 0, 9), 0);
        let always: Vec<u64> = (0..100).map(|at| at * 100_000).collect();
        assert_eq!(reaction_us(&always, 2_000_000, 9_000_000), 6_900_000, "no calm before the end");
    }

    fn cell(course: &str) -> Cell {
        let table = Table::parse(SMALL, None).unwrap();
        let cell = table.groups[0].cells[0].clone();
        Cell { course: course.parse().unwrap(), seconds: 30.0, ..cell }
    }

    #[test]
    fn datagrams_count_by_the_time_of_their_sending() {
        let missing_us = Some(vec![1_000_000, 10_100_000, 10_400_000, 25_000_000]);
        let seen = Seen { figures: Figures::new(), missing_us, sent: 3_000 };
        let moments = [0, 30_000_000].map(|at_us| Moment { at_us, ..Moment::default() });
        let parts = Parts { seen: &seen, moments: &moments, is_protected: true };
        let cell = cell("0s none, 10s uniform:5%, 20s none");
        let began_us = [0, 10_000_000, 20_000_000];
        let by_phase = parts.by_phase(&began_us);
        assert_eq!(by_phase, [1, 2, 1]);
        let figures = parts.figures(&cell, &began_us, &by_phase);
        assert_eq!((figures[&Figure::StayedLost], figures[&Figure::WorstPhase]), (4.0, 2.0));
        assert!((figures[&Figure::React] - 0.4).abs() < 1e-9, "{figures:?}");
        assert!((figures[&Figure::Residual] - 1e6 / 1_500.0).abs() < 1e-6, "{figures:?}");
    }

    #[test]
    fn gateways_tell_when_they_missed_a_packet_that_they_give_up_later() {
        let seen = Seen { figures: Figures::new(), missing_us: None, sent: 0 };
        let at = |at_us, missed_us| Moment { at_us, missed_us, ..Moment::default() };
        let reaction_s = |missed: &[Option<u64>]| {
            let moments: Vec<Moment> = (0..).zip(missed).map(|(n, us)| at(250_000 * n, *us)).collect();
            let parts = Parts { seen: &seen, moments: &moments, is_protected: true };
            let course = cell("0s none, 10s uniform:5%, 20s none");
            (parts.missed(), parts.reaction_s(&course, &[0, 10_000_000, 20_000_000]))
        };
        let (missed, reaction) = reaction_s(&[None, Some(10_120_000), Some(10_120_000), Some(20_000_500)]);
        assert_eq!(missed, [10_120_000, 20_000_500]);
        assert!((reaction - 0.12).abs() < 1e-9, "{reaction}");
        // The age of the same packet comes with an uncertainty.
        let ages = [10_120_000, 10_118_000, 10_119_000, 11_400_000, 11_399_000, 10_200_000];
        let (missed, reaction) = reaction_s(&ages.map(Some));
        assert_eq!(missed, [10_120_000, 11_400_000]);
        assert!((reaction - 1.4).abs() < 1e-9, "{reaction}");
    }

    #[test]
    fn without_gateways_the_drops_of_the_link_tell_the_reaction() {
        let seen = Seen { figures: Figures::new(), missing_us: None, sent: 0 };
        let moment = |(at_us, link_lost)| Moment { at_us, link_lost, ..Moment::default() };
        let moments = [(9_750_000, 3), (10_000_000, 3), (10_250_000, 4), (10_500_000, 4)].map(moment);
        let parts = Parts { seen: &seen, moments: &moments, is_protected: false };
        assert_eq!(parts.dropped(), [10_250_000]);
    }

    #[test]
    fn of_tcp_the_gateways_counts_are_used_and_without_gateways_the_link_s() {
        let moment = |at_us, offered, link_lost, queue_full, settled, stayed_lost| Moment {
            at_us,
            offered,
            link_lost,
            queue_full,
            settled,
            stayed_lost,
            source_bytes: settled * 1_000,
            repair_bytes: settled * 100,
            ..Moment::default()
        };
        let moments = [
            moment(0, 0, 0, 0, 0, 0),
            moment(15_000_000, 1_000, 10, 5, 900, 7),
            moment(30_000_000, 3_000, 30, 6, 2_900, 9),
        ];
        let seen = Seen { figures: Figures::new(), missing_us: None, sent: 0 };
        let figures = |is_protected| {
            let parts = Parts { seen: &seen, moments: &moments, is_protected };
            parts.figures(&cell("uniform:1%"), &[0], &[])
        };
        let (with, without) = (figures(true), figures(false));
        assert_eq!((with[&Figure::StayedLost], without[&Figure::StayedLost]), (9.0, 36.0));
        assert_eq!((with[&Figure::Residual], without[&Figure::Residual]), (1_000.0, 10_500.0));
        assert_eq!(with[&Figure::ResidualBeyondQueue], 500.0);
        assert!((with[&Figure::Overhead] - 10.0).abs() < 1e-9 && !without.contains_key(&Figure::Overhead));
        assert!(!with.contains_key(&Figure::React), "the loss does not change");
    }

    #[test]
    fn counters_are_found_by_their_names_at_any_depth() {
        let mut statuses = [Status::default(), Status::default()];
        statuses[1].counters.insert("requests answered".to_owned(), 3);
        statuses[1].counters.insert("requests refused".to_owned(), 0);
        assert_eq!(special_counters(&statuses), "b.counters.requests answered=3");
    }
}
