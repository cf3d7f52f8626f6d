//! Repairs first, then NAKs: Thesis Figure 4.8.

use loss::LossModel;
use sim::{Figures, Setting};

use super::setting::{base, job};
use crate::outcome::Panel;
use crate::plan::{Figure, PanelPlan, Plan, Sample, Scale, Verdict};

/// Width of a class of the histogram in microseconds, and the number of classes; the last one is open.
const CLASS_US: u64 = 10_000;
const CLASSES: u64 = 31;
/// Width of a class in milliseconds.
pub(crate) const CLASS_MS: f64 = CLASS_US as f64 / 1e3;

/// Time within which all packets are recovered in the source, in microseconds.
const IN_TIME_US: u64 = 250_000;
/// Constants that decide the samples of given latencies: part of the set-ups.
pub(crate) const MEASURE: [u64; 3] = [CLASS_US, CLASSES, IN_TIME_US];

/// Time of the first NAKs, in milliseconds.
const NAK_MS: f64 = 100.0;

/// Loss rates in percent.
pub(crate) const RATES: [f64; 3] = [10.0, 15.0, 20.0];

pub(super) fn figures() -> Vec<Figure> {
    vec![Figure::new("4.8", plan, judge)]
}

fn plan(scale: Scale) -> Plan {
    let names = || RATES.map(|rate| format!("{rate} % loss"));
    let panels = vec![
        PanelPlan::new("recovery latency (ms, classes of 10 ms)", "share of losses (%)", names()).log_y(),
        PanelPlan::new("loss rate (%)", "share of losses (%)", ["by repairs", "in all", "within 250 ms"]),
    ];
    let jobs = RATES.iter().enumerate().map(|(series, &rate)| {
        let loss = LossModel::Uniform(rate / 100.0);
        let setting = Setting { nodes: 16, nak: true, loss_other: loss.clone(), loss, ..base(scale) };
        job(setting, move |figures| samples(figures, series, rate)).decided_by(MEASURE)
    });
    Plan { panels, jobs: jobs.collect() }
}

/// Returns the histogram in panel 0 and the shares in panel 1.
pub(crate) fn samples(figures: &Figures, series: usize, rate: f64) -> Vec<Sample> {
    let percent = |count: usize| 100.0 * count as f64 / figures.lost.max(1) as f64;
    let latencies = &figures.latencies_us;
    let class = |us: &u64| (us / CLASS_US).min(CLASSES - 1);
    let mut samples: Vec<Sample> = (0..CLASSES)
        .map(|at| {
            let count = latencies.iter().filter(|us| class(us) == at).count();
            Sample { panel: 0, series, x: (at * CLASS_US) as f64 / 1e3, y: percent(count) }
        })
        .collect();
    let in_time = latencies.iter().filter(|&&us| us <= IN_TIME_US).count();
    let shares = [percent(figures.repaired as usize), figures.recovered_percent, percent(in_time)];
    samples.extend(shares.iter().enumerate().map(|(series, &y)| Sample { panel: 1, series, x: rate, y }));
    samples
}

fn judge(panels: &[Panel]) -> Verdict {
    let [repaired, all, in_time] = &panels[1].series[..] else { unreachable!("three series are planned") };
    let fall = repaired.first() > repaired.last() && repaired.least() > 80.0;
    let at_once = come_at_once(&panels[0], 80.0, CLASS_MS);
    Verdict::new(fall && at_once && all.least() > 99.999 && in_time.least() > 99.0)
}

/// Whether each histogram has more than `least` percent before the first NAKs, and its largest class before
/// `peak_ms`.
pub(crate) fn come_at_once(histograms: &Panel, least: f64, peak_ms: f64) -> bool {
    histograms.series.iter().all(|series| {
        let before = |end_ms: f64| series.points.iter().filter(move |point| point.x < end_ms);
        let early: f64 = before(NAK_MS).map(|point| point.median).sum();
        early > least && before(peak_ms).any(|point| point.median >= series.most())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges histograms with `first` percent in the first class and `late` after NAKs, and these shares at
    /// the three rates.
    fn holds(first: f64, late: f64, repaired: [f64; 3], all: f64) -> bool {
        let classes = [(0.0, first), (10.0, 100.0 - first - late), (150.0, late)];
        let of = |y: [f64; 3]| [(10.0, y[0]), (15.0, y[1]), (20.0, y[2])];
        let (repaired, all, in_time) = (of(repaired), of([all; 3]), of([all; 3]));
        let shares: [(&str, &[_]); 3] = [("", &repaired), ("", &all), ("", &in_time)];
        judge(&[Panel::drawn(&[("", &classes[..]); 3]), Panel::drawn(&shares)]).holds
    }

    #[test]
    fn a_verdict_fails_where_repairs_are_late_or_few_or_losses_stay() {
        assert!(holds(80.0, 3.0, [99.2, 98.5, 97.1], 100.0));
        assert!(holds(70.0, 15.0, [95.0, 90.0, 84.0], 100.0), "theirs");
        assert!(!holds(70.0, 15.0, [95.0, 90.0, 70.0], 100.0), "repairs recover too little");
        assert!(!holds(70.0, 15.0, [90.0, 90.0, 90.0], 100.0), "as much at any loss");
        assert!(!holds(40.0, 25.0, [95.0, 90.0, 84.0], 100.0), "too much by NAKs");
        assert!(!holds(30.0, 10.0, [95.0, 90.0, 84.0], 100.0), "later, not at once");
        assert!(!holds(80.0, 3.0, [99.2, 98.5, 97.1], 99.9), "some are never recovered");
    }
}
