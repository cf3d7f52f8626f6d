//! Repairs first, then requests, with real nodes: Thesis Figure 4.8.

use netlab::LossModel;
use ricochet_lab::{Figures, Setting};

use crate::outcome::Panel;
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, RunError, Sample, Scale, Verdict};
use crate::ricochet::ladder::{RATES, samples};
use crate::ricochet::{base, job};

/// Panels of a histogram and of its shares, of each kind.
const PANELS: usize = 2;

pub(super) fn figures() -> Vec<Figure> {
    vec![Figure {
        id: "4.8-real",
        title: "When lost packets come back, with real nodes: by repairs, then on request",
        source: "Thesis Figure 4.8, Ricochet Figure 8",
        setup: "16 real nodes, each in a network namespace of its own, on one bridge and two processors; each in 128 groups \
                of ten, (8,5), 1,000 packets a second at each, uniform loss of all datagrams between socket and node; \
                requests 100 ms after a packet was found missing, then each 50 ms. Beside it the same in virtual time",
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
    ];
    let of_rate = |(series, &rate): (usize, &f64)| {
        let loss = LossModel::Uniform(rate / 100.0);
        let seconds = scale.pick(1.0, 10.0);
        let setting =
            Setting { nodes: 16, nak: true, loss_other: loss.clone(), loss, seconds, ..base(scale) };
        let simulated = job(setting.clone(), move |figures| behind(samples(figures, series, rate)));
        [real(setting, move |figures| samples(figures, series, rate)), simulated]
    };
    Plan { panels, jobs: RATES.iter().enumerate().flat_map(of_rate).collect() }
}

/// In the panels of the simulation.
fn behind(samples: Vec<Sample>) -> Vec<Sample> {
    samples.into_iter().map(|sample| Sample { panel: sample.panel + PANELS, ..sample }).collect()
}

/// A run of real nodes; one, since the figure shows a distribution.
fn real(setting: Setting, read: impl Fn(&Figures) -> Vec<Sample> + Send + Sync + 'static) -> Job {
    let setup = format!("real {setting:?}");
    Job::real(setup, 1, move |seed, lab: &Lab<'_>| {
        let setting = Setting { seed, ..setting.clone() };
        let ran = ricochet_stage::run(&setting, &mut |_| Ok(lab.go_on()?));
        lab.go_on()?;
        let ran = ran.map_err(|error| RunError::Failed(format!("{error:#}")))?;
        Ok(read(&ran.figures))
    })
}

fn judge(panels: &[Panel]) -> Verdict {
    let row = |panel: usize, series: usize| {
        let series = &panels[panel].series[series];
        format!("{:.1} / {:.1} / {:.1} %", series.at(10.0), series.at(15.0), series.at(20.0))
    };
    let ours = format!(
        "real, at 10 / 15 / 20 %: by repairs {}, in all {}, within 250 ms {}; simulated: by repairs {}, in all {}",
        row(1, 0),
        row(1, 1),
        row(1, 2),
        row(3, 0),
        row(3, 1)
    );
    let [repaired, all, in_time] = &panels[1].series[..] else { unreachable!("three series are planned") };
    let most = repaired.least() > 60.0 && repaired.last() < 99.9;
    Verdict { ours, holds: most && all.least() > 99.9 && in_time.least() > 97.0 }
}
