//! Repairs first, then NAKs, with real nodes: Thesis Figure 4.8.

use loss::LossModel;
use sim::{Figures, Setting};
use stage::nodes::Real;

use super::rig::{Program, behaviour};
use crate::outcome::Panel;
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Sample, Scale, Verdict};
use crate::ricochet::ladder::{CLASS_MS, MEASURE, RATES, come_at_once, samples};
use crate::ricochet::setting::{base, job};

/// Panels of each kind: a histogram and its shares.
const PANELS: usize = 2;
/// Panel of the load that the machine carried.
const CARRIED: usize = 2 * PANELS;
/// Runs until the machine carries the whole load.
const TRIES: usize = 3;

pub(super) fn figures() -> Vec<Figure> {
    vec![Figure::new("4.8-real", plan, judge)]
}

fn plan(scale: Scale) -> Plan {
    let names = || RATES.map(|rate| format!("{rate} % loss"));
    let shares = || ["by repairs", "in all", "within 250 ms"];
    let panels = vec![
        PanelPlan::new("real: recovery latency (ms, classes of 10 ms)", "share of losses (%)", names())
            .log_y(),
        PanelPlan::new("real: loss rate (%)", "share of losses (%)", shares()),
        PanelPlan::new("simulated: recovery latency (ms, classes of 10 ms)", "share of losses (%)", names())
            .log_y(),
        PanelPlan::new("simulated: loss rate (%)", "share of losses (%)", shares()),
        PanelPlan::new(
            "real: loss rate (%)",
            "carried by the machine (%)",
            ["sent, of 1,000 a second", "packets lost elsewhere"],
        ),
    ];
    let of_rate = |(series, &rate): (usize, &f64)| {
        let loss = LossModel::Uniform(rate / 100.0);
        let seconds = scale.pick(1.0, 10.0);
        let setting =
            Setting { nodes: 16, nak: true, loss_other: loss.clone(), loss, seconds, ..base(scale) };
        let simulated = job(setting.clone(), move |figures| behind(samples(figures, series, rate)));
        let simulated = simulated.decided_by(MEASURE);
        [real(setting, rate, series, Carried::bearable(scale)), simulated]
    };
    Plan { panels, jobs: RATES.iter().enumerate().flat_map(of_rate).collect() }
}

/// Moves samples to the panels of the simulation.
fn behind(samples: Vec<Sample>) -> Vec<Sample> {
    samples.into_iter().map(|sample| Sample { panel: sample.panel + PANELS, ..sample }).collect()
}

/// The load that the machine carried, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Carried {
    /// The rate reached, of the planned one.
    rate: f64,
    /// Packets that were lost or had no room although nothing dropped them on purpose, of those expected.
    astray: f64,
}

impl Carried {
    /// Least of a run that has the rate and the losses of the figure.
    const SOUND: Self = Self { rate: 98.0, astray: 0.1 };

    /// Least of a run that is still shown if none is sound, with a remark. A quick run may share its machine.
    fn bearable(scale: Scale) -> Self {
        scale.pick(Self { rate: 50.0, astray: 2.0 }, Self::SOUND)
    }

    fn of(ran: &Real, setting: &Setting) -> Self {
        let astray = ran.carried.lost_elsewhere + ran.carried.overflowed;
        Self {
            rate: 100.0 * ran.carried.rate / setting.rate,
            astray: 100.0 * astray as f64 / ran.figures.expected.max(1) as f64,
        }
    }

    /// Returns the worst of all runs of a panel.
    fn seen(panel: &Panel) -> Self {
        let [rate, astray] = &panel.series[..] else { unreachable!("two series are planned") };
        Self { rate: rate.least(), astray: astray.most() }
    }

    fn is_at_least(&self, least: &Self) -> bool {
        self.rate >= least.rate && self.astray <= least.astray
    }
}

/// Returns the job of one run of real nodes; one, because the figure shows a distribution.
fn real(setting: Setting, loss_percent: f64, series: usize, bearable: Carried) -> Job {
    let setup = format!(
        "real {setting:?} {}, measured by {MEASURE:?}, tried {TRIES} times for {:?}, at least {bearable:?}",
        behaviour(Program::Nodes),
        Carried::SOUND
    );
    Job::real(setup, 1, move |seed, lab: &Lab<'_>| {
        let setting = Setting { seed, ..setting.clone() };
        let (figures, carried) = carry(&setting, &bearable, lab)?;
        let load = [carried.rate, carried.astray].into_iter().enumerate();
        let load = load.map(|(series, y)| Sample { panel: CARRIED, series, x: loss_percent, y });
        Ok(samples(&figures, series, loss_percent).into_iter().chain(load).collect())
    })
}

/// Returns the first sound run, or else the one with the greatest rate.
fn carry(setting: &Setting, bearable: &Carried, lab: &Lab<'_>) -> Result<(Figures, Carried), RunError> {
    let mut best: Option<(Figures, Carried)> = None;
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let ran = stage::nodes::run(setting, &mut |_| Ok(lab.go_on()?));
        lab.go_on()?;
        let ran = ran.map_err(|error| RunError::Failed(format!("{error:#}")))?;
        let carried = Carried::of(&ran, setting);
        let Carried { rate, astray } = carried;
        let apart = if ran.carried.parted { ", nodes lost sight of each other" } else { "" };
        seen.push(format!("{rate:.0} % with {astray:.2} % astray{apart}"));
        if ran.carried.parted {
            continue;
        }
        if carried.is_at_least(&Carried::SOUND) {
            return Ok((ran.figures, carried));
        }
        if best.as_ref().is_none_or(|(_, best)| carried.rate > best.rate) {
            best = Some((ran.figures, carried));
        }
    }
    best.filter(|(_, carried)| carried.is_at_least(bearable)).ok_or_else(|| {
        RunError::Failed(format!(
            "expected {:.0} % of {} packets a second at each node with {} % astray, saw in {TRIES} runs {}; run it on an \
             idle machine",
            bearable.rate,
            setting.rate,
            bearable.astray,
            seen.join("; ")
        ))
    })
}

fn judge(panels: &[Panel]) -> Verdict {
    let [repaired, all, in_time] = &panels[1].series[..] else { unreachable!("three series are planned") };
    let carried = Carried::seen(&panels[CARRIED]);
    let asked = Asked::of(&carried);
    let falls = repaired.last() < repaired.first() + asked.rise && repaired.last() < 99.9;
    let at_once = come_at_once(&panels[0], asked.at_once, asked.peak_ms);
    let by_repairs = falls && at_once && repaired.least() > asked.repaired;
    let verdict = Verdict::new(by_repairs && all.least() > 99.9 && in_time.least() > asked.in_time);
    if carried.is_at_least(&Carried::SOUND) {
        return verdict;
    }
    verdict.number("rate", carried.rate, 0).number("astray", carried.astray, 2)
}

/// Bounds of a verdict, shares in percent.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Least share by repairs, at all rates.
    repaired: f64,
    /// Least share before the first NAKs.
    at_once: f64,
    /// Latest place of the largest class of the histogram.
    peak_ms: f64,
    /// Greatest amount by which repairs may recover more at the greatest loss than at the smallest.
    rise: f64,
    /// Least share within 250 ms.
    in_time: f64,
}

impl Asked {
    /// Returns the bounds of the simulation, or weaker ones for a quick run on a busy machine, where bins
    /// fill more slowly.
    fn of(carried: &Carried) -> Self {
        if carried.is_at_least(&Carried::SOUND) {
            Self { repaired: 80.0, at_once: 80.0, peak_ms: CLASS_MS, rise: 0.0, in_time: 99.0 }
        } else {
            Self { repaired: 60.0, at_once: 60.0, peak_ms: 5.0 * CLASS_MS, rise: 1.0, in_time: 97.0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Point, Series};

    fn carried(rate: f64, astray: f64) -> Panel {
        let series = [("rate", rate), ("astray", astray)].map(|(name, value)| Series {
            name: name.to_owned(),
            points: vec![Point::of(10.0, vec![99.9]), Point::of(20.0, vec![value])],
        });
        let mut panel =
            Panel { x: String::new(), y: String::new(), x_log: false, y_log: false, series: series.into() };
        panel.series[1].points[0] = Point::of(10.0, vec![0.0]);
        panel
    }

    fn holds(classes: [f64; 3], repaired: [f64; 3], back: [f64; 2], rate: f64) -> bool {
        judged(classes, repaired, back, carried(rate, 0.0)).holds
    }

    /// Judges histograms with `first` percent in the first class, `next` in the second and `late` after NAKs,
    /// and these shares at the three rates.
    fn judged(
        [first, next, late]: [f64; 3],
        repaired: [f64; 3],
        [all, in_time]: [f64; 2],
        carried: Panel,
    ) -> Verdict {
        let classes = [(0.0, first), (10.0, next), (150.0, late)];
        let of = |y: [f64; 3]| [(10.0, y[0]), (15.0, y[1]), (20.0, y[2])];
        let (repaired, all, in_time) = (of(repaired), of([all; 3]), of([in_time; 3]));
        let histogram = || Panel::drawn(&[("", &classes[..]); 3]);
        let shares = || Panel::drawn(&[("", &repaired[..]), ("", &all), ("", &in_time)]);
        judge(&[histogram(), shares(), histogram(), shares(), carried])
    }

    #[test]
    fn the_load_that_a_busy_machine_carried_is_in_the_text() {
        let text = |rate, astray| {
            let verdict = judged([92.0, 5.0, 3.0], [99.4, 98.0, 97.5], [100.0; 2], carried(rate, astray));
            ["rate", "astray"].map(|name| verdict.value(name).map(str::to_owned))
        };
        let some = |rate: &str, astray: &str| [Some(rate.to_owned()), Some(astray.to_owned())];
        assert_eq!(text(99.0, 0.05), [None, None]);
        assert_eq!(text(71.4, 0.0), some("71", "0.00"));
        assert_eq!(text(100.0, 0.5), some("100", "0.50"));
    }

    #[test]
    fn a_verdict_fails_where_repairs_are_late_or_few_or_losses_stay() {
        let (classes, repaired, back) = ([92.0, 5.0, 3.0], [99.4, 98.0, 97.5], [100.0, 100.0]);
        assert!(holds(classes, repaired, back, 99.0));
        assert!(holds([70.0, 15.0, 15.0], [95.0, 90.0, 84.0], back, 99.0), "theirs");
        assert!(!holds([50.0, 20.0, 30.0], repaired, back, 99.0), "too much by NAKs");
        assert!(!holds([30.0, 65.0, 5.0], repaired, back, 99.0), "later, not at once");
        assert!(!holds(classes, [97.5, 98.0, 97.6], back, 99.0), "as much at any loss");
        assert!(!holds(classes, [95.0, 90.0, 70.0], back, 99.0), "repairs recover too little");
        assert!(!holds(classes, repaired, [99.8, 99.8], 99.0), "some are never recovered");
        assert!(!holds(classes, repaired, [100.0, 98.0], 99.0), "or too late");
    }

    #[test]
    fn a_busy_machine_has_weaker_bounds() {
        let (classes, repaired, back) = ([30.0, 50.0, 20.0], [97.5, 98.0, 97.6], [100.0, 98.0]);
        assert!(holds(classes, repaired, back, 70.0));
        assert!(!holds([20.0, 35.0, 45.0], repaired, back, 70.0), "too much by NAKs");
        assert!(!holds(classes, [96.0, 97.0, 98.0], back, 70.0), "more where more is lost");
        assert!(!holds(classes, repaired, [99.8, 98.0], 70.0), "some are never recovered");
    }

    #[test]
    fn a_full_run_must_be_sound() {
        let half = Carried { rate: 55.0, astray: 1.0 };
        assert!(half.is_at_least(&Carried::bearable(Scale::Quick)));
        assert!(!half.is_at_least(&Carried::bearable(Scale::Full)));
    }
}
