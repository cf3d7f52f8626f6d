//! How late messages come over TCP beside losses, with and without gateways: Thesis Figures 3.14 and 3.15.
//!
//! A stream of few messages meets few losses: several streams at once, each a connection of its own, make a run of seconds
//! tell as much as one stream would in minutes.

use std::thread;
use std::time::Duration;

use maelstrom::config::Schedule;
use maelstrom_lab::{Setting, between, sites};
use netlab::traffic::{MessageStream, Pace, UdpStream, message_stream, udp_stream};
use netlab::{LossModel, TwoSites};

use super::{gateways, stop, watcher};
use crate::outcome::{Panel, Point};
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Sample, Scale, Verdict};

const RATE_BPS: u64 = 100_000_000;
const DELAY_MS: u32 = 50;
/// Of the panels against latency.
const PERCENT: f64 = 0.1;
/// Where a verdict looks, and of the messages one by one.
const JUDGED_PERCENT: f64 = 1.0;

/// Streams of one kind.
#[derive(Clone, Copy, Debug)]
struct Kind {
    streams: usize,
    rate_hz: f64,
}

/// 0.1 Mbit/s, as the thesis says; and 0.8, the ten messages a round trip that the paper speaks of.
const KINDS: [Kind; 2] = [Kind { streams: 10, rate_hz: 12.2 }, Kind { streams: 4, rate_hz: 100.0 }];
const SERIES: [&str; 4] =
    ["gateways, 0.1 Mbit/s", "TCP alone, 0.1 Mbit/s", "gateways, 0.8 Mbit/s", "TCP alone, 0.8 Mbit/s"];

const MESSAGE_BYTES: usize = 1024;
const BESIDE_BPS: f64 = 1e7;
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn figures() -> Vec<Figure> {
    vec![
        Figure {
            id: "3.14",
            title: "Delivery latency of 1 KB messages by TCP against loss and link latency",
            source: "Thesis Figure 3.14, Maelstrom Figure 11",
            setup: "TCP streams of 1 KB messages, Nagle's algorithm off, reno: ten of 12 messages a second (0.1 Mbit/s) and four \
                    of 100 (0.8 Mbit/s) at once, beside 10 Mbit/s of UDP, on a link of 100 Mbit/s; gateways (7; 1,10); all \
                    messages count, also those that were not lost, once a connection is eight round trips old; one that did not come \
                    within 10 s counts as 10 s. Panels: mean and 99th percentile against loss at 50 ms \
                    one way, then against latency at 0.1 %",
            claim: "with gateways latency is almost exactly the one-way latency of the link; TCP alone takes longer as loss \
                    goes up, and at 0.1 % more than twice as long once the link has more than 100 ms",
            why: "the thesis says 0.1 Mbit/s, the paper ten messages in a round trip, which are 0.8: both are here. Of the slower \
                  streams a loss delays a few messages, since today's TCP finds it by SACK and probes within one or two round \
                  trips; of the faster ones the window, halved, is too small for the messages of a round trip, which then pile \
                  up at the sender, as the thesis tells. On a link of 0.1 % few losses fall into a run, and how many differs",
            plan: plan_averages,
            judge: judge_averages,
        },
        Figure {
            id: "3.15",
            title: "Delivery latency message by message",
            source: "Thesis Figure 3.15, Maelstrom Figure 12",
            setup: "as 3.14 at 1 % loss and 50 ms one way; the messages of one stream after those of another",
            claim: "single losses cause spikes of latency over many messages with TCP alone; none with gateways",
            why: "the loss rate is not in the text; today's TCP gets over a loss sooner than theirs of 2007, whose spikes lasted \
                  hundreds of messages. What is left with gateways are losses that the code did not bring back",
            plan: plan_one_by_one,
            judge: judge_one_by_one,
        },
    ]
}

/// One run's circumstances.
#[derive(Clone, Copy, Debug)]
struct Cell {
    percent: f64,
    delay_ms: u32,
    masked: bool,
    /// Of messages that count.
    seconds: f64,
}

impl Cell {
    /// What is sent before does not count: a new connection's window has to grow to the messages of a round trip first.
    fn start_seconds(&self) -> f64 {
        const ROUND_TRIPS: f64 = 8.0;
        ROUND_TRIPS * 2.0 * f64::from(self.delay_ms) / 1e3
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
    let delays: &[u32] = scale.pick(&[], &[10, 100, 175, 250]);
    let runs = scale.pick(1, 2);
    let places = percents.iter().map(|&percent| (percent, DELAY_MS, runs));
    let places = places.chain(delays.iter().map(|&delay_ms| (PERCENT, delay_ms, 1)));
    let jobs = places.flat_map(|(percent, delay_ms, runs)| {
        [true, false].map(|masked| averages_job(Cell { percent, delay_ms, masked, seconds }, runs))
    });
    Plan { panels, jobs: jobs.collect() }
}

fn averages_job(cell: Cell, runs: u64) -> Job {
    Job::real(format!("{KINDS:?}, {cell:?}"), runs, move |seed, lab| {
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
    let seconds = scale.pick(2.0, 3.0);
    let job = |masked| {
        let cell = Cell { percent: JUDGED_PERCENT, delay_ms: DELAY_MS, masked, seconds };
        Job::real(format!("{KINDS:?}, {cell:?}"), 1, move |seed, lab| {
            let mut samples = Vec::new();
            for (panel, latencies) in latencies_ms(cell, &KINDS, seed, lab)?.into_iter().enumerate() {
                // Of the faster kind two streams: more would be a black band.
                let shown = latencies.into_iter().take(if panel == 0 { usize::MAX } else { 2 }).flatten();
                let place = |(at, y)| Sample { panel, series: usize::from(!masked), x: at as f64, y };
                samples.extend(shown.enumerate().map(place));
            }
            Ok(samples)
        })
    };
    Plan { panels, jobs: [true, false].map(job).into() }
}

/// Of all messages of all streams, kind by kind and stream by stream; one that never came counts with the patience that was
/// had for it.
fn latencies_ms(
    cell: Cell,
    kinds: &[Kind],
    seed: u64,
    lab: &Lab<'_>,
) -> Result<Vec<Vec<Vec<f64>>>, RunError> {
    let loss = LossModel::Uniform(cell.percent / 100.0);
    let sites = sites(Some(RATE_BPS), u64::from(cell.delay_ms) * 1_000, &loss, seed)?;
    let code = Schedule::Layered { r: 7, interleaves: vec![1, 10] };
    let setting = Setting { schedule: code, delayed: false, ..Setting::default() };
    let pair = if cell.masked { Some(gateways(lab, &sites, &setting)?) } else { None };
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
    // The streams' messages take turns.
    thread::sleep(Duration::from_secs_f64(at as f64 / kind.rate_hz / kind.streams as f64));
    let stream = MessageStream {
        congestion: Some("reno".to_owned()),
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

/// What else the sites have to say to each other.
fn beside(cell: Cell, sites: &TwoSites, lab: &Lab<'_>) -> Result<(), RunError> {
    let stream = UdpStream {
        pace: Pace::Bits(BESIDE_BPS),
        payload_bytes: 1_000,
        duration: cell.sending() + Duration::from_millis(300),
        patience: Duration::ZERO,
        ..UdpStream::default()
    };
    udp_stream(between(sites), &stream, &mut watcher(lab))?;
    Ok(())
}

fn judge_averages(panels: &[Panel]) -> Verdict {
    let [mean, high, far, _] = panels else { unreachable!("four panels are planned") };
    let at = |panel: &Panel, series: usize| panel.series[series].at(JUDGED_PERCENT);
    let ours = format!(
        "mean / 99th percentile at 1 % and 50 ms, with gateways and without: 0.1 Mbit/s {:.1} / {:.0} and {:.1} / {:.0} ms, 0.8 \
         Mbit/s {:.1} / {:.0} and {:.1} / {:.0} ms; means at 0.1 % and {} ms, 0.8 Mbit/s: {} and {} ms",
        at(mean, 0),
        at(high, 0),
        at(mean, 1),
        at(high, 1),
        at(mean, 2),
        at(high, 2),
        at(mean, 3),
        at(high, 3),
        list(far, 2, |point| format!("{:.0}", point.x)),
        list(far, 2, |point| format!("{:.0}", point.median)),
        list(far, 3, |point| format!("{:.0}", point.median)),
    );
    // Of the slower streams a quick run sees too few losses to judge by.
    let (with, alone) = (2, 3);
    let grows = mean.series[alone].last() > mean.series[alone].first();
    let wins = at(mean, alone) > 1.1 * at(mean, with) && at(high, alone) > 1.5 * at(high, with);
    // Where there are longer links than one.
    let ratios = far.series[alone].points.iter().zip(&far.series[with].points);
    let ratio = ratios.map(|(alone, with)| alone.median / with.median).fold(f64::NAN, f64::max);
    let wins_afar = far.series[alone].points.len() < 2 || ratio > 1.1;
    Verdict { ours, holds: grows && wins && wins_afar }
}

fn list(panel: &Panel, series: usize, text: impl Fn(&Point) -> String) -> String {
    panel.series[series].points.iter().map(text).collect::<Vec<_>>().join(" / ")
}

fn judge_one_by_one(panels: &[Panel]) -> Verdict {
    // Above any jitter of the machine: a one-way latency late.
    let late = |panel: &Panel, series: usize| {
        let points = &panel.series[series].points;
        points.iter().filter(|point| point.median > 2.0 * f64::from(DELAY_MS)).count()
    };
    let share = |panel: &Panel, series: usize| {
        100.0 * late(panel, series) as f64 / panel.series[series].points.len().max(1) as f64
    };
    let ours = format!(
        "more than twice the one-way latency took, with gateways and without: of the 0.1 Mbit/s streams {:.1} and {:.1} % of \
         the messages, of the 0.8 Mbit/s streams {:.1} and {:.1} %; the latest {:.0} and {:.0} ms",
        share(&panels[0], 0),
        share(&panels[0], 1),
        share(&panels[1], 0),
        share(&panels[1], 1),
        panels[1].series[0].most(),
        panels[1].series[1].most(),
    );
    let both = |series| late(&panels[0], series) + late(&panels[1], series);
    Verdict { ours, holds: both(1) > 2 * both(0) && both(1) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Series;

    fn panel(series: &[&[(f64, f64)]]) -> Panel {
        let points = |points: &&[(f64, f64)]| points.iter().map(|&(x, y)| Point::of(x, vec![y])).collect();
        let series = series.iter().map(|values| Series { name: String::new(), points: points(values) });
        Panel { x: String::new(), y: String::new(), x_log: false, y_log: false, series: series.collect() }
    }

    #[test]
    fn a_verdict_wants_latency_that_grows_with_loss_and_less_of_it_with_gateways() {
        let holds = |alone: [f64; 2], high: f64| {
            let (with, alone) = ([(0.1, 50.0), (1.0, 51.0)], [(0.1, alone[0]), (1.0, alone[1])]);
            let means = panel(&[&with, &alone, &with, &alone]);
            let high = [(1.0, high)];
            let highs = panel(&[&with, &high, &with, &high]);
            judge_averages(&[means.clone(), highs.clone(), means, highs]).holds
        };
        assert!(holds([51.0, 70.0], 170.0));
        assert!(!holds([70.0, 70.0], 170.0), "it does not grow");
        assert!(!holds([50.0, 52.0], 170.0), "the mean is hardly longer");
        assert!(!holds([51.0, 70.0], 60.0), "no message is late");
    }

    #[test]
    fn a_verdict_wants_spikes_that_gateways_take_away() {
        let (flat, spike) = ([(0.0, 50.0), (1.0, 51.0)], [(0.0, 50.0), (1.0, 180.0)]);
        let holds = |with: &[(f64, f64)], alone: &[(f64, f64)]| {
            judge_one_by_one(&[panel(&[with, alone]), panel(&[with, alone])]).holds
        };
        assert!(holds(&flat, &spike));
        assert!(!holds(&flat, &flat));
        assert!(!holds(&spike, &spike));
    }
}
