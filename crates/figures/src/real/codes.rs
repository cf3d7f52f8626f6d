//! Three codes on one stream, recovery by recovery: Thesis Figure 3.19.

use maelstrom::config::Schedule;
use stage::gateways::Setting;
use xxhash_rust::xxh3::xxh3_64;

use super::stream::{self, Burst, Lost};
use crate::outcome::{Panel, Series};
use crate::plan::{Figure, Job, PanelPlan, Plan, Sample, Scale, Verdict};

/// Packets of a burst.
const BURST: u64 = 30;
/// One packet of the link in this number is lost alone.
const SINGLE_ONE_IN: u64 = 300;
/// First packet of the link that may be lost, once codes and clocks are in step.
const FIRST_LOSS: u64 = 400;
/// Share of source packets on the link: two repairs for eight packets.
const SOURCES_SHARE: f64 = 8.0 / 10.0;
/// Packets on the link each second.
const ON_LINK_PER_S: f64 = 1e3 / stream::INTERVAL_MS / SOURCES_SHARE;
/// Length of a run in seconds below which it is a quick one.
const QUICK_S: f64 = 10.0;
/// Longest delay of repairs: a block of 160 packets takes 128 ms, and is whole when its repairs leave.
const MAX_DELAY_MS: u16 = 400;

pub(super) fn figures() -> Vec<Figure> {
    vec![Figure::new("3.19", plan, judge)]
}

fn codes() -> [(&'static str, Setting); 3] {
    let rate = "0.25".parse().expect("it is a rate that gateways take");
    let sliding = Schedule::Sliding { rate, window: 160, density: 15 };
    let setting =
        |schedule| Setting { schedule, delayed: true, max_delay_ms: MAX_DELAY_MS, ..Setting::default() };
    [
        ("Reed-Solomon (8,2) x 20", setting(Schedule::ReedSolomon { r: 8, c: 2, interleave: 20 })),
        ("layered (8; 1,40)", setting(Schedule::Layered { r: 8, interleaves: vec![1, 40] })),
        ("sliding, rate 1/4, window 160", Setting { schedule: sliding, ..Setting::default() }),
    ]
}

/// Length of the run in seconds, times of its bursts, and recoveries in a moving average.
struct Course {
    seconds: f64,
    bursts_s: &'static [f64],
    window: usize,
}

impl Course {
    fn of(scale: Scale) -> Self {
        scale.pick(
            Self { seconds: 5.0, bursts_s: &[2.5], window: 10 },
            Self { seconds: 60.0, bursts_s: &[6.0, 17.0, 28.0, 39.0, 50.0], window: 50 },
        )
    }

    /// Returns the losses of the link, the same for each code.
    fn losses(&self) -> Vec<Burst> {
        let bursts: Vec<u64> = self.bursts_s.iter().map(|at| (at * ON_LINK_PER_S) as u64).collect();
        let (mut losses, mut before) = (Vec::new(), 0);
        for at in FIRST_LOSS..(self.seconds * ON_LINK_PER_S) as u64 {
            let is_single = xxh3_64(&at.to_le_bytes()).is_multiple_of(SINGLE_ONE_IN);
            let length = if bursts.contains(&at) { BURST } else { u64::from(is_single) };
            if length > 0 && at > before {
                losses.push(Burst { after: at - before, length });
                before = at + length;
            }
        }
        losses
    }
}

fn plan(scale: Scale) -> Plan {
    let names = || codes().map(|(name, _)| name);
    let panels = vec![
        PanelPlan::new("time of sending (s)", "recovery latency, moving average (ms)", names()),
        PanelPlan::new("burst length (packets)", "recovered (%)", names()),
        PanelPlan::new("burst length (packets)", "median recovery latency (ms)", names()),
    ];
    let jobs = codes().into_iter().enumerate().map(|(series, (_, setting))| {
        let course = Course::of(scale);
        let setup = format!(
            "{}, {} s, bursts of {BURST} at {:?}, one in {SINGLE_ONE_IN} from {FIRST_LOSS} on, mean of {}",
            stream::setup(&setting, SOURCES_SHARE),
            course.seconds,
            course.bursts_s,
            course.window
        );
        // One run, as theirs: a moving average of several has no meaning.
        Job::real(setup, 1, move |_, lab| {
            let losses = course.losses();
            let lost = stream::run(&setting, &losses, SOURCES_SHARE, lab)?;
            Ok(samples(&lost, &losses, series, course.window))
        })
    });
    Plan { panels, jobs: jobs.collect() }
}

fn samples(lost: &[Lost], losses: &[Burst], series: usize, window: usize) -> Vec<Sample> {
    let late: Vec<(f64, f64)> = lost.iter().filter_map(|lost| Some((lost.sent_s, lost.late_ms?))).collect();
    let mean = |part: &[(f64, f64)]| part.iter().map(|(_, late_ms)| late_ms).sum::<f64>() / part.len() as f64;
    let moving =
        late.windows(window).map(|part| Sample { panel: 0, series, x: part[window - 1].0, y: mean(part) });
    let kinds = [1, BURST].into_iter().flat_map(|length| {
        let of_kind: Vec<&Lost> = lost.iter().filter(|lost| losses[lost.burst].length == length).collect();
        let mut late: Vec<f64> = of_kind.iter().filter_map(|lost| lost.late_ms).collect();
        late.sort_by(f64::total_cmp);
        let sample = |panel, y| Sample { panel, series, x: length as f64, y };
        let share = 100.0 * late.len() as f64 / of_kind.len().max(1) as f64;
        let median = late.get(late.len() / 2).map(|&ms| sample(2, ms));
        median.into_iter().chain([sample(1, share)])
    });
    moving.chain(kinds).collect()
}

fn judge(panels: &[Panel]) -> Verdict {
    let of = |series: &Series| {
        let at = |panel: usize, x: f64| {
            let same = panels[panel].series.iter().find(|other| other.name == series.name);
            // Without recoveries there is no latency.
            let point = same.and_then(|series| series.points.iter().find(|point| (point.x - x).abs() < 1e-9));
            point.map_or(f64::NAN, |point| point.median)
        };
        [at(1, 1.0), at(1, BURST as f64), at(2, 1.0), at(2, BURST as f64)]
    };
    let after = |ms: f64, digits: usize| {
        if ms.is_nan() { String::new() } else { format!(" after {ms:.digits$} ms") }
    };
    let share = |percent: f64| if percent > 0.0 { format!("{percent:.1} %") } else { "none".to_owned() };
    let text = |[singles, bursts, singles_ms, bursts_ms]: [f64; 4]| {
        format!(
            "{} of the singles{}, {} of the bursts{}",
            share(singles),
            after(singles_ms, 1),
            share(bursts),
            after(bursts_ms, 0)
        )
    };
    let [blocks, layers, sliding] = [0, 1, 2].map(|at| of(&panels[1].series[at]));
    let asked = Asked::of(panels);
    let all = [blocks, layers, sliding]
        .iter()
        .all(|[singles, bursts, ..]| *singles >= asked.singles && *bursts >= asked.bursts);
    let even = blocks[3] < 3.0 * blocks[2] && blocks[2] < 3.0 * blocks[3];
    let spikes = layers[2] < blocks[2] / 3.0 && layers[3] > 5.0 * layers[2];
    let beats = sliding[2] < layers[2].min(blocks[2]) && sliding[1] >= layers[1] - asked.behind;
    Verdict::new(all && even && spikes && beats)
        .with("blocks", text(blocks))
        .with("layers", text(layers))
        .with("window", text(sliding))
}

/// Least shares that count as all, in percent: a burst with single losses next to it may be too long, and in
/// a quick run a single packet is percents.
#[derive(Clone, Copy, Debug)]
struct Asked {
    singles: f64,
    bursts: f64,
    /// How far the sliding window may be behind layered interleaving in bursts.
    behind: f64,
}

impl Asked {
    fn of(panels: &[Panel]) -> Self {
        let is_quick =
            panels[0].series.iter().all(|series| series.points.last().is_none_or(|at| at.x < QUICK_S));
        if is_quick {
            Self { singles: 95.0, bursts: 85.0, behind: 5.0 }
        } else {
            Self { singles: 99.0, bursts: 95.0, behind: 2.0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Point;

    /// Of each code: share of singles, of bursts, and their latencies.
    fn panels(end_s: f64, codes: [[f64; 4]; 3]) -> Vec<Panel> {
        let panel = |points: &dyn Fn([f64; 4]) -> Vec<Point>| Panel {
            x: String::new(),
            y: String::new(),
            x_log: false,
            y_log: false,
            series: codes
                .iter()
                .zip(["a", "b", "c"])
                .map(|(&code, name)| Series { name: name.to_owned(), points: points(code) })
                .collect(),
        };
        let at = |x, y| Point::of(x, vec![y]);
        vec![
            panel(&|_| vec![at(end_s, 1.0)]),
            panel(&|[singles, bursts, ..]| vec![at(1.0, singles), at(BURST as f64, bursts)]),
            panel(&|[_, _, singles_ms, bursts_ms]| vec![at(1.0, singles_ms), at(BURST as f64, bursts_ms)]),
        ]
    }

    #[test]
    fn the_sliding_window_must_be_sooner_than_both_and_leave_no_more_of_bursts() {
        let (blocks, layers) = ([100.0, 99.0, 64.0, 64.0], [100.0, 99.0, 3.3, 160.0]);
        let holds = |end_s, blocks, layers, sliding| judge(&panels(end_s, [blocks, layers, sliding])).holds;
        assert!(holds(60.0, blocks, layers, [100.0, 98.0, 1.0, 83.0]));
        assert!(!holds(60.0, blocks, layers, [100.0, 98.0, 3.4, 83.0]), "later than layers");
        assert!(!holds(60.0, blocks, layers, [100.0, 96.0, 1.0, 83.0]), "less of bursts than layers");
        assert!(!holds(60.0, blocks, layers, [98.0, 99.0, 1.0, 83.0]), "not all singles");
        assert!(holds(5.0, blocks, layers, [98.0, 96.0, 1.0, 83.0]), "a quick run loses few");
        assert!(
            !holds(60.0, blocks, [100.0, 90.0, 3.3, 160.0], [100.0, 98.0, 1.0, 83.0]),
            "layers lose bursts"
        );
    }

    #[test]
    fn a_code_that_never_recovers_bursts_has_no_time_for_them() {
        let (blocks, layers) = ([100.0, 99.0, 64.0, 64.0], [100.0, 99.0, 3.3, 160.0]);
        let mut panels = panels(5.0, [blocks, layers, [100.0, 0.0, 1.0, 0.0]]);
        panels[2].series[2].points.truncate(1);
        let verdict = judge(&panels);
        assert!(!verdict.holds);
        assert_eq!(verdict.value("window"), Some("100.0 % of the singles after 1.0 ms, none of the bursts"));
    }

    #[test]
    fn the_link_loses_singles_and_bursts_at_their_times() {
        let course = Course::of(Scale::Full);
        let losses = course.losses();
        let singles = losses.iter().filter(|burst| burst.length == 1).count();
        assert!((200..400).contains(&singles), "{singles}");
        assert_eq!(losses.len() - singles, course.bursts_s.len());
        let mut at = 0;
        let begins = losses.iter().map(|burst| {
            let begin = at + burst.after;
            at = begin + burst.length;
            (begin, burst.length)
        });
        let found: Vec<f64> = begins
            .filter(|(_, length)| *length == BURST)
            .map(|(begin, _)| (begin as f64 / ON_LINK_PER_S).round())
            .collect();
        assert_eq!(found, course.bursts_s);
    }
}
