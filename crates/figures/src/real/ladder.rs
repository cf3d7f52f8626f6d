//! Repairs first, then requests, with real nodes: Thesis Figure 4.8.

use loss::LossModel;
use sim::{Figures, Setting};
use stage::nodes::Real;

use super::{Program, behaviour};
use crate::outcome::Panel;
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Sample, Scale, Verdict};
use crate::ricochet::ladder::{CLASS_MS, MEASURE, RATES, come_at_once, samples};
use crate::ricochet::{base, job};

/// Panels of a histogram and of its shares, of each kind.
const PANELS: usize = 2;
/// Panel of what the machine carried of what was asked of it.
const CARRIED: usize = 2 * PANELS;
/// A machine that does other things meanwhile may not carry all; then it is tried again.
const TRIES: usize = 3;

pub(super) fn figures() -> Vec<Figure> {
    vec![Figure {
        id: "4.8-real",
        title: "When lost packets come back, with real nodes: by repairs, then on request",
        source: "Thesis Figure 4.8, Ricochet Figure 8",
        setup: "16 real nodes, each in a network namespace of its own, on one bridge and two processors; each in 128 groups \
                of ten, (8,5), 1,000 packets a second at each, uniform loss of all datagrams between socket and node; \
                requests 100 ms after a packet was found missing, then each 50 ms. Beside it the same in virtual time; and \
                what the machine carried: the rate that was reached, and packets that got lost though nobody dropped them \
                on purpose",
        claim: "most come back at once by repairs, also at 20 % loss (84 %); all others on request within 250 ms",
        why: "the node asks others of the group after two requests to the sender, theirs the sender only",
        plan,
        judge,
    }]
}

fn plan(scale: Scale) -> Plan {
    let names = || RATES.map(|rate| format!("{rate} % loss"));
    let shares = || ["by repairs", "in all", "within 250 ms"];
    let panels = vec![
        PanelPlan::new("real: recovered after (ms, classes of 10 ms)", "share of the lost (%)", names())
            .log_y(),
        PanelPlan::new("real: loss rate (%)", "share of the lost (%)", shares()),
        PanelPlan::new("simulated: recovered after (ms, classes of 10 ms)", "share of the lost (%)", names())
            .log_y(),
        PanelPlan::new("simulated: loss rate (%)", "share of the lost (%)", shares()),
        PanelPlan::new(
            "real: loss rate (%)",
            "carried by the machine (%)",
            ["of 1,000 a second sent", "of the packets astray"],
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

/// In the panels of the simulation.
fn behind(samples: Vec<Sample>) -> Vec<Sample> {
    samples.into_iter().map(|sample| Sample { panel: sample.panel + PANELS, ..sample }).collect()
}

/// What the machine carried of what was asked of it, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Carried {
    /// The rate that was reached, of the one that was to be.
    rate: f64,
    /// Packets, of those that nodes were to receive, that were lost or had no room though nobody dropped them on purpose.
    astray: f64,
}

impl Carried {
    /// A run that carried as much is one of the rate and of the losses that the figure names.
    const SOUND: Self = Self { rate: 98.0, astray: 0.1 };

    /// What is still shown if no run is sound, and told beside it. A quick run may have to share its machine.
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

    /// The least of all runs, as a panel has it.
    fn seen(panel: &Panel) -> Self {
        let [rate, astray] = &panel.series[..] else { unreachable!("two series are planned") };
        Self { rate: rate.least(), astray: astray.most() }
    }

    fn is_at_least(&self, least: &Self) -> bool {
        self.rate >= least.rate && self.astray <= least.astray
    }
}

/// A run of real nodes; one, since the figure shows a distribution.
fn real(setting: Setting, loss_percent: f64, series: usize, bearable: Carried) -> Job {
    let setup = format!(
        "real {setting:?} {}, measured by {MEASURE:?}, tried {TRIES} times for {:?}, at least {bearable:?}",
        behaviour(Program::Nodes),
        Carried::SOUND
    );
    Job::real(setup, 1, move |seed, lab: &Lab<'_>| {
        let setting = Setting { seed, ..setting.clone() };
        let (figures, carried) = carry(&setting, &bearable, lab)?;
        let told = [carried.rate, carried.astray].into_iter().enumerate();
        let told = told.map(|(series, y)| Sample { panel: CARRIED, series, x: loss_percent, y });
        Ok(samples(&figures, series, loss_percent).into_iter().chain(told).collect())
    })
}

/// The first run that is sound, or else the one that reached the greatest rate.
fn carry(setting: &Setting, bearable: &Carried, lab: &Lab<'_>) -> Result<(Figures, Carried), RunError> {
    let mut best: Option<(Figures, Carried)> = None;
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let ran = stage::nodes::run(setting, &mut |_| Ok(lab.go_on()?));
        lab.go_on()?;
        let ran = ran.map_err(|error| RunError::Failed(format!("{error:#}")))?;
        let carried = Carried::of(&ran, setting);
        let Carried { rate, astray } = carried;
        let apart = if ran.carried.parted { ", nodes no longer knew each other" } else { "" };
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
            "expected {:.0} % of {} packets a second at each node with {} % astray, saw in {TRIES} runs {}: give it a \
             machine that does nothing else",
            bearable.rate,
            setting.rate,
            bearable.astray,
            seen.join("; ")
        ))
    })
}

fn judge(panels: &[Panel]) -> Verdict {
    let row = |panel: usize, series: usize| {
        let series = &panels[panel].series[series];
        format!("{:.1} / {:.1} / {:.1} %", series.at(10.0), series.at(15.0), series.at(20.0))
    };
    let mut ours = format!(
        "real, at 10 / 15 / 20 %: by repairs {}, in all {}, within 250 ms {}; simulated: by repairs {}, in all {}",
        row(1, 0),
        row(1, 1),
        row(1, 2),
        row(3, 0),
        row(3, 1)
    );
    ours += &spoilt(&panels[CARRIED]);
    let [repaired, all, in_time] = &panels[1].series[..] else { unreachable!("three series are planned") };
    let asked = Asked::of(&Carried::seen(&panels[CARRIED]));
    let falls = repaired.last() < repaired.first() + asked.rise && repaired.last() < 99.9;
    let at_once = come_at_once(&panels[0], asked.at_once, asked.peak_ms);
    let by_repairs = falls && at_once && repaired.least() > asked.repaired;
    Verdict { ours, holds: by_repairs && all.least() > 99.9 && in_time.least() > asked.in_time }
}

/// What a verdict asks for, shares in percent.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// By repairs, at all rates.
    repaired: f64,
    /// Before anybody asks.
    at_once: f64,
    /// The fullest class of the histogram is before.
    peak_ms: f64,
    /// So much more may come back by repairs at the greatest loss than at the least.
    rise: f64,
    /// Within 250 ms.
    in_time: f64,
}

impl Asked {
    /// As of the simulation; less of a quick run on a machine too busy for it: with fewer packets bins fill more slowly.
    fn of(carried: &Carried) -> Self {
        if carried.is_at_least(&Carried::SOUND) {
            Self { repaired: 80.0, at_once: 80.0, peak_ms: CLASS_MS, rise: 0.0, in_time: 99.0 }
        } else {
            Self { repaired: 60.0, at_once: 60.0, peak_ms: 5.0 * CLASS_MS, rise: 1.0, in_time: 97.0 }
        }
    }
}

/// What the machine did not carry, in words; nothing if it carried all.
fn spoilt(carried: &Panel) -> String {
    let seen = Carried::seen(carried);
    if seen.is_at_least(&Carried::SOUND) {
        return String::new();
    }
    format!(
        "; spoilt: the machine was too busy, and reached {:.0} % of 1,000 packets a second, with {:.2} % of the packets lost \
         on its own account",
        seen.rate, seen.astray
    )
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

    #[test]
    fn a_run_that_did_not_carry_all_is_not_told_as_if_it_had() {
        assert_eq!(spoilt(&carried(99.0, 0.05)), "");
        let slow = spoilt(&carried(71.4, 0.0));
        assert!(slow.contains("reached 71 % of 1,000"), "{slow}");
        let lossy = spoilt(&carried(100.0, 0.5));
        assert!(lossy.contains("0.50 % of the packets"), "{lossy}");
    }

    /// What `first` percent in the first class, `next` in the one behind it and `late` on request come to, with these shares at
    /// the three rates, where the machine carried this share of the rate.
    fn holds([first, next, late]: [f64; 3], repaired: [f64; 3], [all, in_time]: [f64; 2], rate: f64) -> bool {
        let classes = [(0.0, first), (10.0, next), (150.0, late)];
        let of = |y: [f64; 3]| [(10.0, y[0]), (15.0, y[1]), (20.0, y[2])];
        let (repaired, all, in_time) = (of(repaired), of([all; 3]), of([in_time; 3]));
        let histogram = || Panel::drawn(&[("", &classes[..]); 3]);
        let shares = || Panel::drawn(&[("", &repaired[..]), ("", &all), ("", &in_time)]);
        judge(&[histogram(), shares(), histogram(), shares(), carried(rate, 0.0)]).holds
    }

    #[test]
    fn repairs_that_come_late_or_seldom_and_losses_that_stay_are_told() {
        let (classes, repaired, back) = ([92.0, 5.0, 3.0], [99.4, 98.0, 97.5], [100.0, 100.0]);
        assert!(holds(classes, repaired, back, 99.0));
        assert!(holds([70.0, 15.0, 15.0], [95.0, 90.0, 84.0], back, 99.0), "theirs");
        assert!(!holds([50.0, 20.0, 30.0], repaired, back, 99.0), "too much on request");
        assert!(!holds([30.0, 65.0, 5.0], repaired, back, 99.0), "later, not at once");
        assert!(!holds(classes, [97.5, 98.0, 97.6], back, 99.0), "as much whatever is lost");
        assert!(!holds(classes, [95.0, 90.0, 70.0], back, 99.0), "repairs bring back too little");
        assert!(!holds(classes, repaired, [99.8, 99.8], 99.0), "some are never back");
        assert!(!holds(classes, repaired, [100.0, 98.0], 99.0), "or too late");
    }

    #[test]
    fn a_machine_that_was_too_busy_is_asked_for_less_but_not_for_nothing() {
        let (classes, repaired, back) = ([30.0, 50.0, 20.0], [97.5, 98.0, 97.6], [100.0, 98.0]);
        assert!(holds(classes, repaired, back, 70.0));
        assert!(!holds([20.0, 35.0, 45.0], repaired, back, 70.0), "too much on request");
        assert!(!holds(classes, [96.0, 97.0, 98.0], back, 70.0), "more where more is lost");
        assert!(!holds(classes, repaired, [99.8, 98.0], 70.0), "some are never back");
    }

    #[test]
    fn a_full_run_bears_nothing_that_a_sound_one_would_not() {
        let half = Carried { rate: 55.0, astray: 1.0 };
        assert!(half.is_at_least(&Carried::bearable(Scale::Quick)));
        assert!(!half.is_at_least(&Carried::bearable(Scale::Full)));
    }
}
