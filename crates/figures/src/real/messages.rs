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

use super::{gateways, stop, surroundings, watcher};
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
const CONGESTION: &str = "reno";
const BESIDE_BPS: f64 = 1e7;
const BESIDE_BYTES: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(10);
/// Of a connection before its messages count.
const START_ROUND_TRIPS: f64 = 8.0;
/// Part of the fingerprint: how values are made of messages, in words. To be changed with [`averages_job`].
const MEASURE: &str =
    "all messages sent after the start, those that never came with the patience; mean and 99th percentile";
/// No quick run has more of the slower kind.
const QUICK_MESSAGES: usize = 300;
/// From this one-way latency on TCP alone takes more than twice as long, says the source.
const FAR_MS: f64 = 100.0;

pub(super) fn figures() -> Vec<Figure> {
    vec![
        Figure {
            id: "3.14",
            title: "Delivery latency of 1 KB messages by TCP against loss and link latency",
            source: "Thesis Figure 3.14, Maelstrom Figure 11",
            setup: "TCP streams of 1 KB messages, Nagle's algorithm off, reno: ten of 12 messages a second (0.1 \
                    Mbit/s) and four of 100 (0.8 Mbit/s) at once, beside 10 Mbit/s of UDP, on a link of 100 Mbit/s; \
                    gateways (7; 1,10); MTU 1300 in the sites (theirs 1200) and 1500 on the link; all messages \
                    count, also those that were not lost, once a connection is eight round trips old; one that did \
                    not come within 10 s counts as 10 s. Panels: mean and 99th percentile against loss at 50 ms one \
                    way, two runs of 10 s each, then against latency at 0.1 %, one run each, but at 50 ms the two \
                    of before",
            claim: "with gateways latency is almost exactly the one-way latency of the link; TCP alone takes longer \
                    as loss goes up, and at 0.1 % more than twice as long once the link has more than 100 ms",
            why: "with gateways it is as claimed: at most a tenth and 2 ms above the link's latency up to 1 % (a \
                  quick run asks for a quarter and 5 ms, and does not judge TCP alone at 0.1 Mbit/s). TCP alone is \
                  late where losses are, but its mean does not double at 0.1 %: of 1,000 messages one is lost, and \
                  to double the mean it has to hold up so many others that their delays add up to 1,000 latencies of \
                  the link. At 12 messages a second a loss would have to be felt for more than a minute, at 100 for \
                  ten seconds. Today's TCP (SACK, RACK, tail loss probes) sends again within one or two round trips, \
                  and the messages behind it come at once; theirs of 2007 waited for timers, and its window, halved, \
                  piled messages up at the sender. The thesis says 0.1 Mbit/s, the paper ten messages in a round \
                  trip, which are 0.8: both are here, and neither doubles at all long links. On a link of 0.1 % few \
                  losses fall into a run, and how many differs",
            plan: plan_averages,
            judge: judge_averages,
        },
        Figure {
            id: "3.15",
            title: "Delivery latency message by message",
            source: "Thesis Figure 3.15, Maelstrom Figure 12",
            setup: "as 3.14 at 1 % loss and 50 ms one way, for 4 s; the messages of one stream after those of another",
            claim: "single losses cause spikes of latency over many messages with TCP alone; none with gateways",
            why: "the loss rate is not in the text; today's TCP gets over a loss sooner than theirs of 2007, whose \
                  spikes lasted hundreds of messages. None means here: with gateways at most a tenth as many late \
                  messages as without (a quick run, which shares its machine, asks for a quarter); what is left are \
                  losses that the code did not bring back",
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
        START_ROUND_TRIPS * 2.0 * f64::from(self.delay_ms) / 1e3
    }

    /// Which packets share a repair, if any do.
    fn setting(&self) -> Option<Setting> {
        let schedule = Schedule::Layered { r: 7, interleaves: vec![1, 10] };
        self.masked.then(|| Setting { schedule, delayed: false, ..Setting::default() })
    }

    /// All that decides what is measured.
    fn fingerprint(&self) -> String {
        let around = surroundings(self.setting().as_ref());
        format!(
            "{self:?}, {KINDS:?} of {MESSAGE_BYTES} bytes, {CONGESTION}, link of {RATE_BPS} bit/s, beside {BESIDE_BPS} bit/s in \
             {BESIDE_BYTES} bytes, start {START_ROUND_TRIPS} round trips, patience {PATIENCE:?}; {MEASURE}; {around}"
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
    // The streams' messages take turns.
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

/// What else the sites have to say to each other.
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

/// What the averages show, claim by claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    /// With gateways the mean is the link's latency up to [`JUDGED_PERCENT`], and at each latency.
    is_the_links: bool,
    /// TCP alone takes longer as loss goes up.
    grows: bool,
    /// And longer than with gateways.
    wins: bool,
    /// More than twice as long from [`FAR_MS`] on.
    doubles: bool,
}

impl Shown {
    fn of(panels: &[Panel]) -> Self {
        let [mean, high, far, _] = panels else { unreachable!("four panels are planned") };
        // A quick run has no loss above that which is judged, shares its machine, and sees too few losses of the slower
        // streams to judge by.
        let is_full = mean.series[0].end() > JUDGED_PERCENT;
        let (factor, more_ms) = if is_full { (1.1, 2.0) } else { (1.25, 5.0) };
        let is_near = |point: &Point, delay_ms: f64| point.median <= factor * delay_ms + more_ms;
        let near = [0, 2].into_iter().all(|with| {
            let mut low = mean.series[with].points.iter().filter(|point| point.x <= JUDGED_PERCENT);
            let mut far = far.series[with].points.iter();
            low.all(|point| is_near(point, f64::from(DELAY_MS))) && far.all(|point| is_near(point, point.x))
        });
        let at = |panel: &Panel, series: usize| panel.series[series].at(JUDGED_PERCENT);
        let grows = |alone: usize| mean.series[alone].last() > mean.series[alone].first();
        let is_late = |alone: usize| at(high, alone) > 1.5 * at(high, alone - 1);
        let doubles = |alone: usize| {
            let pairs = far.series[alone].points.iter().zip(&far.series[alone - 1].points);
            let mut pairs = pairs.filter(|(alone, _)| alone.x >= FAR_MS);
            pairs.all(|(alone, with)| alone.median > 2.0 * with.median)
        };
        Self {
            is_the_links: near,
            grows: grows(3) && (!is_full || grows(1)),
            wins: at(mean, 3) > 1.1 * at(mean, 2) && is_late(3) && (!is_full || is_late(1)),
            // Of the thesis' stream, or else of the paper's.
            doubles: doubles(1) || doubles(3),
        }
    }
}

/// The shape that is ours: all that the source says, but that TCP alone does not take twice as long at 0.1 %.
pub(crate) fn all_but_twice_as_long(panels: &[Panel]) -> bool {
    Shown::of(panels) == Shown { is_the_links: true, grows: true, wins: true, doubles: false }
}

fn judge_averages(panels: &[Panel]) -> Verdict {
    let [mean, high, far, _] = panels else { unreachable!("four panels are planned") };
    let at = |panel: &Panel, series: usize| panel.series[series].at(JUDGED_PERCENT);
    let Shown { is_the_links, grows, wins, doubles } = Shown::of(panels);
    let means = |series| list(far, series, |point| format!("{:.0}", point.median));
    let ours = format!(
        "mean / 99th percentile at 1 % and 50 ms, with gateways and without: 0.1 Mbit/s {:.1} / {:.0} and {:.1} / {:.0} ms, 0.8 \
         Mbit/s {:.1} / {:.0} and {:.1} / {:.0} ms; means at 0.1 % and {} ms: 0.1 Mbit/s {} and {} ms, 0.8 Mbit/s {} and {} ms; \
         TCP alone takes {} as long from {FAR_MS} ms on",
        at(mean, 0),
        at(high, 0),
        at(mean, 1),
        at(high, 1),
        at(mean, 2),
        at(high, 2),
        at(mean, 3),
        at(high, 3),
        list(far, 2, |point| format!("{:.0}", point.x)),
        means(0),
        means(1),
        means(2),
        means(3),
        if doubles { "more than twice" } else { "less than twice" },
    );
    Verdict { ours, holds: is_the_links && grows && wins && doubles }
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
    // A quick run shares its machine, which may stop for longer than a one-way latency.
    let is_full = panels[0].series[0].points.len() > QUICK_MESSAGES;
    Verdict { ours, holds: both(1) >= if is_full { 10 } else { 4 } * both(0).max(1) }
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

    /// With gateways, and without.
    type Pair = [Vec<(f64, f64)>; 2];

    /// Means of the two panels and 99th percentiles of the first, of one kind.
    struct Kind {
        mean: Pair,
        high: Pair,
        far: Pair,
    }

    impl Kind {
        fn full() -> Self {
            Self {
                mean: [
                    vec![(0.1, 50.0), (1.0, 51.0), (5.0, 70.0)],
                    vec![(0.1, 51.0), (1.0, 70.0), (5.0, 90.0)],
                ],
                high: [vec![(1.0, 60.0)], vec![(1.0, 170.0)]],
                far: [
                    vec![(50.0, 50.0), (100.0, 100.0), (250.0, 250.0)],
                    vec![(50.0, 51.0), (100.0, 210.0), (250.0, 510.0)],
                ],
            }
        }
    }

    fn panels(kinds: &[Kind; 2]) -> [Panel; 4] {
        let of = |part: fn(&Kind) -> &Pair| {
            let series: Vec<&[(f64, f64)]> =
                kinds.iter().flat_map(|kind| part(kind).iter().map(Vec::as_slice)).collect();
            panel(&series)
        };
        [of(|kind| &kind.mean), of(|kind| &kind.high), of(|kind| &kind.far), of(|kind| &kind.far)]
    }

    /// With one kind changed, 0 the slower.
    fn shown(kind: usize, is_quick: bool, change: impl Fn(&mut Kind)) -> Shown {
        let mut kinds = [Kind::full(), Kind::full()];
        if is_quick {
            kinds.iter_mut().flat_map(|kind| &mut kind.mean).for_each(|points| points.truncate(2));
        }
        change(&mut kinds[kind]);
        let panels = panels(&kinds);
        let shown = Shown::of(&panels);
        assert_eq!(judge_averages(&panels).holds, shown == ALL);
        assert_eq!(all_but_twice_as_long(&panels), shown == Shown { doubles: false, ..ALL });
        shown
    }

    const ALL: Shown = Shown { is_the_links: true, grows: true, wins: true, doubles: true };

    #[test]
    fn a_verdict_wants_latency_that_grows_with_loss_and_the_links_with_gateways() {
        for kind in [0, 1] {
            assert_eq!(shown(kind, false, |_| {}), ALL);
            let late = Shown { is_the_links: false, ..ALL };
            assert_eq!(shown(kind, false, |kind| kind.mean[0][1].1 = 58.0), late, "at 1 %");
            assert!(!shown(kind, false, |kind| kind.far[0][1].1 = 113.0).is_the_links, "at 100 ms");
            let flat = |kind: &mut Kind| kind.mean[1][2].1 = 50.5;
            assert_eq!(shown(kind, false, flat), Shown { grows: false, ..ALL });
            let early = |kind: &mut Kind| kind.high[1][0].1 = 60.0;
            assert_eq!(shown(kind, false, early), Shown { wins: false, ..ALL });
        }
        let hardly = |kind: &mut Kind| kind.mean[1][1].1 = 55.0;
        assert_eq!(shown(1, false, hardly), Shown { wins: false, ..ALL }, "the mean is hardly longer");
    }

    #[test]
    fn twice_as_long_is_wanted_at_every_long_link_of_one_kind_at_least() {
        let shorter = |kind: &mut Kind| kind.far[1][1].1 = 190.0;
        assert_eq!((shown(0, false, shorter), shown(1, false, shorter)), (ALL, ALL));
        let mut kinds = [Kind::full(), Kind::full()];
        kinds.iter_mut().for_each(shorter);
        assert_eq!(Shown::of(&panels(&kinds)), Shown { doubles: false, ..ALL });
    }

    #[test]
    fn a_quick_verdict_has_wider_margins_and_leaves_the_slower_streams_alone() {
        assert_eq!(shown(1, true, |kind| kind.mean[0][1].1 = 60.0), ALL);
        assert!(!shown(1, true, |kind| kind.mean[0][1].1 = 68.0).is_the_links);
        assert_eq!(shown(0, true, |kind| kind.high[1][0].1 = 60.0), ALL);
        assert_eq!(shown(1, true, |kind| kind.high[1][0].1 = 60.0), Shown { wins: false, ..ALL });
    }

    #[test]
    fn a_set_up_tells_all_that_decides_its_messages() {
        let cell = Cell { percent: 1.0, delay_ms: 50, masked: true, seconds: 4.0 };
        let text = cell.fingerprint();
        for part in [
            "interleaves: [1, 10]",
            "delayed: false",
            "lan_mtu: 1300",
            "mtu: 1500",
            "10s",
            "10000000 bit/s",
            MEASURE,
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_verdict_wants_spikes_that_gateways_take_away() {
        let messages = |late: usize, of: usize| -> Vec<(f64, f64)> {
            (0..of).map(|at| (at as f64, if at < late { 180.0 } else { 50.0 })).collect()
        };
        let holds = |with: usize, alone: usize, of: usize| {
            let panel = || panel(&[&messages(with, of), &messages(alone, of)]);
            judge_one_by_one(&[panel(), panel()]).holds
        };
        assert!(holds(0, 20, 400));
        assert!(holds(2, 20, 400));
        assert!(!holds(3, 20, 400), "more than a tenth");
        assert!(holds(5, 20, 200), "a quick run may have a quarter");
        assert!(!holds(6, 20, 200));
        assert!(!holds(0, 0, 400), "no spikes to take away");
        assert!(!holds(20, 20, 400));
    }
}
