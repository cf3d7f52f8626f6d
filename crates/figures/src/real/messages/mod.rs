//! Latency of messages over TCP under loss, with and without gateways: Thesis Figures 3.14 and 3.15.
//!
//! A stream of few messages meets few losses. Several simultaneous streams, each a connection of its own,
//! make a run of seconds as good as minutes of one stream. `verdict.rs` judges them.

pub(crate) mod verdict;

use std::thread;
use std::time::Duration;

use loss::LossModel;
use maelstrom::config::Schedule;
use netlab::TwoSites;
use netlab::traffic::{MessageStream, Pace, UdpStream, message_stream, udp_stream};
use stage::gateways::{Setting, between, sites};

use self::verdict::{DELAY_MS, JUDGED_PERCENT};
use super::rig::{gateways, stop, surroundings, watcher};
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Sample, Scale};

const RATE_BPS: u64 = 100_000_000;
/// Loss rate of the panels against latency.
const PERCENT: f64 = 0.1;

/// A kind of stream, and the number of its streams.
#[derive(Clone, Copy, Debug)]
struct Kind {
    streams: usize,
    rate_hz: f64,
}

/// 0.1 Mbit/s, as in the thesis; and 0.8, which is ten messages in a round trip, as in the paper.
const KINDS: [Kind; 2] = [Kind { streams: 10, rate_hz: 12.2 }, Kind { streams: 4, rate_hz: 100.0 }];
const SERIES: [&str; 4] =
    ["gateways, 0.1 Mbit/s", "TCP alone, 0.1 Mbit/s", "gateways, 0.8 Mbit/s", "TCP alone, 0.8 Mbit/s"];

const MESSAGE_BYTES: usize = 1024;
const CONGESTION: &str = "reno";
const BESIDE_BPS: f64 = 1e7;
const BESIDE_BYTES: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(10);
/// Round trips of a connection before its messages count.
const START_ROUND_TRIPS: f64 = 8.0;
/// Version of the way from messages to values, for the fingerprint: to be raised when [`averages_job`]
/// changes.
const MEASURE: u32 = 1;

pub(super) fn figures() -> Vec<Figure> {
    vec![
        Figure::new("3.14", plan_averages, verdict::judge_averages),
        Figure::new("3.15", plan_one_by_one, verdict::judge_one_by_one),
    ]
}

/// The circumstances of one run.
#[derive(Clone, Copy, Debug)]
struct Cell {
    percent: f64,
    delay_ms: u32,
    masked: bool,
    /// Time of the messages that count.
    seconds: f64,
}

impl Cell {
    /// Returns when messages begin to count, once a new connection's window has grown to the messages of a
    /// round trip.
    fn start_seconds(&self) -> f64 {
        START_ROUND_TRIPS * 2.0 * f64::from(self.delay_ms) / 1e3
    }

    /// Returns the gateways, if there are any.
    fn setting(&self) -> Option<Setting> {
        let schedule = Schedule::Layered { r: 7, interleaves: vec![1, 10] };
        self.masked.then(|| Setting { schedule, delayed: false, ..Setting::default() })
    }

    /// Returns everything that decides the values.
    fn fingerprint(&self) -> String {
        let surroundings = surroundings(self.setting().as_ref());
        format!(
            "{self:?}, {KINDS:?} of {MESSAGE_BYTES} bytes, {CONGESTION:?}, link of {RATE_BPS} bit/s, beside {BESIDE_BPS} bit/s in \
             {BESIDE_BYTES} bytes, start {START_ROUND_TRIPS} round trips, patience {PATIENCE:?}; measure {MEASURE}; {surroundings}"
        )
    }

    fn sending(&self) -> Duration {
        Duration::from_secs_f64(self.start_seconds() + self.seconds)
    }
}

fn plan_averages(scale: Scale) -> Plan {
    let panel = |x, y| PanelPlan::new(x, y, SERIES);
    let (loss, latency) = ("loss rate (%), link of 50 ms", "one-way latency of the link (ms), loss 0.1 %");
    let panels = vec![
        panel(loss, "mean latency (ms)").log_x().log_y(),
        panel(loss, "99th percentile of latency (ms)").log_x().log_y(),
        panel(latency, "mean latency (ms)"),
        panel(latency, "99th percentile of latency (ms)"),
    ];
    let seconds = scale.pick(2.5, 10.0);
    let percents: &[f64] = scale.pick(&[PERCENT, JUDGED_PERCENT], &[PERCENT, 0.5, JUDGED_PERCENT, 2.0, 5.0]);
    let delays: &[u32] = scale.pick(&[150], &[10, 100, 175, 250]);
    let runs = scale.pick(1, 2);
    let places = percents.iter().map(|&percent| (percent, DELAY_MS, runs));
    let places = places.chain(delays.iter().map(|&delay_ms| (PERCENT, delay_ms, 1)));
    let jobs = places.flat_map(|(percent, delay_ms, runs)| {
        [true, false].map(|masked| averages_job(Cell { percent, delay_ms, masked, seconds }, runs))
    });
    Plan { panels, jobs: jobs.collect() }
}

fn averages_job(cell: Cell, runs: u64) -> Job {
    Job::real(cell.fingerprint(), runs, move |seed, lab| {
        let mut samples = Vec::new();
        for (kind, latencies) in latencies_ms(cell, &KINDS, seed, lab)?.into_iter().enumerate() {
            let series = 2 * kind + usize::from(!cell.masked);
            let mut sorted: Vec<f64> = latencies.into_iter().flatten().collect();
            sorted.sort_by(f64::total_cmp);
            let mean = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
            let p99 = sorted.get(sorted.len() * 99 / 100).copied().unwrap_or(f64::NAN);
            let mut place = |panel, x| {
                samples.push(Sample { panel, series, x, y: mean });
                samples.push(Sample { panel: panel + 1, series, x, y: p99 });
            };
            if cell.delay_ms == DELAY_MS {
                place(0, cell.percent);
            }
            if cell.percent == PERCENT {
                place(2, f64::from(cell.delay_ms));
            }
        }
        Ok(samples)
    })
}

fn plan_one_by_one(scale: Scale) -> Plan {
    let series = ["gateways", "TCP alone"];
    let panels = vec![
        PanelPlan::new("message", "latency, 0.1 Mbit/s (ms)", series),
        PanelPlan::new("message", "latency, 0.8 Mbit/s (ms)", series),
    ];
    let seconds = scale.pick(2.0, 4.0);
    let job = |masked| {
        let cell = Cell { percent: JUDGED_PERCENT, delay_ms: DELAY_MS, masked, seconds };
        Job::real(cell.fingerprint(), 1, move |seed, lab| {
            let mut samples = Vec::new();
            for (panel, latencies) in latencies_ms(cell, &KINDS, seed, lab)?.into_iter().enumerate() {
                // Two streams of the faster kind: more would be a black band.
                let shown = latencies.into_iter().take(if panel == 0 { usize::MAX } else { 2 }).flatten();
                let place = |(at, y)| Sample { panel, series: usize::from(!masked), x: at as f64, y };
                samples.extend(shown.enumerate().map(place));
            }
            Ok(samples)
        })
    };
    Plan { panels, jobs: [true, false].map(job).into() }
}

/// Returns the latencies of all messages, kind by kind and stream by stream. A message that did not arrive
/// counts with [`PATIENCE`].
fn latencies_ms(
    cell: Cell,
    kinds: &[Kind],
    seed: u64,
    lab: &Lab<'_>,
) -> Result<Vec<Vec<Vec<f64>>>, RunError> {
    let loss = LossModel::Uniform(cell.percent / 100.0);
    let sites = sites(Some(RATE_BPS), u64::from(cell.delay_ms) * 1_000, &loss, seed)?;
    let setting = cell.setting();
    let pair = setting.map(|setting| gateways(lab, &sites, &setting)).transpose()?;
    let latencies = thread::scope(|scope| {
        let beside = scope.spawn(|| beside(cell, &sites, lab));
        let streams: Vec<Vec<_>> = kinds
            .iter()
            .map(|&kind| {
                let sites = &sites;
                let of = |at| scope.spawn(move || one_stream(cell, kind, at, sites, lab));
                (0..kind.streams).map(of).collect()
            })
            .collect();
        let joined = streams.into_iter().map(|kind| kind.into_iter().map(resume).collect());
        let latencies: Result<Vec<Vec<_>>, RunError> = joined.collect();
        resume(beside).and(latencies)
    })?;
    lab.go_on()?;
    stop(pair)?;
    Ok(latencies)
}

fn resume<T>(worker: thread::ScopedJoinHandle<'_, T>) -> T {
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn one_stream(
    cell: Cell,
    kind: Kind,
    at: usize,
    sites: &TwoSites,
    lab: &Lab<'_>,
) -> Result<Vec<f64>, RunError> {
    // The messages of the streams take turns.
    thread::sleep(Duration::from_secs_f64(at as f64 / kind.rate_hz / kind.streams as f64));
    let stream = MessageStream {
        congestion: Some(CONGESTION.to_owned()),
        rate_hz: kind.rate_hz,
        message_bytes: MESSAGE_BYTES,
        duration: cell.sending(),
        patience: PATIENCE,
    };
    let report = message_stream(between(sites), &stream, &mut watcher(lab))?;
    let never_ms = PATIENCE.as_secs_f64() * 1e3;
    let latency = |latency_us: Option<u64>| latency_us.map_or(never_ms, |us| us as f64 / 1e3);
    let start_us = (cell.start_seconds() * 1e6) as u64;
    let counting = report.messages.iter().filter(|message| message.sent_us >= start_us);
    Ok(counting.map(|message| latency(message.latency_us)).collect())
}

/// Sends the other traffic between the sites.
fn beside(cell: Cell, sites: &TwoSites, lab: &Lab<'_>) -> Result<(), RunError> {
    let stream = UdpStream {
        pace: Pace::Bits(BESIDE_BPS),
        payload_bytes: BESIDE_BYTES,
        duration: cell.sending() + Duration::from_millis(300),
        patience: Duration::ZERO,
        ..UdpStream::default()
    };
    udp_stream(between(sites), &stream, &mut watcher(lab))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_up_contains_everything_that_decides_its_messages() {
        let cell = Cell { percent: 1.0, delay_ms: 50, masked: true, seconds: 4.0 };
        let text = cell.fingerprint();
        for part in [
            "interleaves: [1, 10]",
            "delayed: false",
            "lan_mtu: 1300",
            "mtu: 1500",
            "10s",
            "10000000 bit/s",
            "measure 1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
