//! Figures of Maelstrom's code (Thesis ch. 3), simulated: 3.10, 3.16, 3.17 and 3.18.
//!
//! One stream of packets passes the real encoder and decoder. One generator loses packets and repairs in the
//! order in which they leave.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::fingerprint;
use crate::outcome::{Panel, Series};
use crate::plan::{Figure, Job, PanelPlan, Plan, Sample, Scale, Verdict};
use fec::simulate::{Report, Simulation, simulate};
use fec::{Code, LayeredConfig, ReedSolomonConfig, analysis};
use loss::LossModel;

/// Interval between packets in milliseconds: 10 Mbit/s of packets of 1,000 bytes.
const INTERVAL_MS: f64 = 0.8;

const WIDE: [u16; 3] = [1, 19, 41];
const NARROW: [u16; 3] = [1, 11, 19];

pub(crate) fn figures() -> Vec<Figure> {
    vec![
        Figure::new("3.10", probabilities, judge_probabilities),
        Figure::new("3.16", primes, judge_primes),
        Figure::new("3.17", bursts, judge_bursts),
        Figure::new("3.18", histograms, judge_histograms),
    ]
}

fn packets(scale: Scale) -> u64 {
    scale.pick(200_000, 2_000_000)
}

fn layered(r: u8, interleaves: &[u16], packets: u64, loss: &LossModel, seed: u64) -> Result<Report, String> {
    let layers = LayeredConfig { r, interleaves: interleaves.to_vec(), ..LayeredConfig::default() };
    coded(Code::Layered(layers), packets, loss, seed)
}

fn coded(code: Code, packets: u64, loss: &LossModel, seed: u64) -> Result<Report, String> {
    let mut loss = loss.seeded(seed);
    let simulation = Simulation { code, packets, ..Simulation::default() };
    simulate(&simulation, |_| loss.lose()).map_err(|error| error.to_string())
}

fn layered_job(
    r: u8,
    interleaves: &'static [u16],
    scale: Scale,
    loss: LossModel,
    read: impl Fn(&Report) -> Vec<Sample> + Send + Sync + 'static,
) -> Job {
    let setup = format!(
        "layered ({r}; {interleaves:?}) {} packets {loss:?} {:x} {:x?}",
        packets(scale),
        behaviour(),
        layered(r, interleaves, FEW, &loss, 1).map(|report| fingerprint::number(&format!("{report:?}")))
    );
    let run = move |seed| Ok(read(&layered(r, interleaves, packets(scale), &loss, seed)?));
    Job::simulated(setup, run)
}

/// Loss of a small run that shows what a code does.
const TROUBLE: LossModel = LossModel::Markov { rate: 0.05, mean_burst: 3.0 };
/// Packets of such a run.
const FEW: u64 = 4_000;

/// Returns a number for what a code does in a small run.
pub(crate) fn behaviour_of(code: Code) -> u64 {
    static KNOWN: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = format!("{code:?}");
    if let Some(&number) = known().get(&key) {
        return number;
    }
    let number = fingerprint::number(&format!("{:?}", coded(code, FEW, &TROUBLE, 1)));
    known().insert(key, number);
    number
}

/// Returns a number for what the codes do in small runs; the same behaviour has the same number.
fn behaviour() -> u64 {
    static BEHAVIOUR: OnceLock<u64> = OnceLock::new();
    let run = || {
        let blocks = Code::ReedSolomon(ReedSolomonConfig { r: 8, c: 3, ..ReedSolomonConfig::default() });
        let runs = [layered(8, &NARROW, FEW, &TROUBLE, 1), coded(blocks, FEW, &TROUBLE, 1)];
        fingerprint::number(&format!("{runs:?}"))
    };
    *BEHAVIOUR.get_or_init(run)
}

const R: u8 = 7;
const C: usize = 2;

fn probabilities(scale: Scale) -> Plan {
    let names = [
        "layered, closed form",
        "Reed-Solomon, closed form",
        "layered, simulated",
        "Reed-Solomon, simulated",
    ];
    let panels = vec![PanelPlan::new("loss rate (%)", "probability of recovery (%)", names)];
    let rates: &[u8] = scale.pick(&[1, 5, 10, 20, 40], &[1, 2, 5, 7, 10, 15, 20, 25, 30, 40, 50]);
    let jobs = rates.iter().flat_map(|&percent| {
        let (x, p) = (f64::from(percent), f64::from(percent) / 100.0);
        let sample = move |series, share: f64| Sample { panel: 0, series, x, y: 100.0 * share };
        let shares = [analysis::layered_uniform(p, R, C), analysis::reed_solomon(p, R, C)];
        let closed = move |_| Ok(vec![sample(0, shares[0]), sample(1, shares[1])]);
        let code = ReedSolomonConfig { r: R, c: C as u8, ..ReedSolomonConfig::default() };
        let setup = format!("{code:?} {} packets, uniform {p} {:x}", packets(scale), behaviour());
        let simulated = move |seed| {
            let code = Code::ReedSolomon(code.clone());
            let report = coded(code, packets(scale), &LossModel::Uniform(p), seed)?;
            Ok(vec![sample(3, report.recovered_share())])
        };
        [
            Job::simulated(format!("closed forms ({R},{C}) {p} {shares:?}"), closed),
            layered_job(R, &[1, 11], scale, LossModel::Uniform(p), move |report| {
                vec![sample(2, report.recovered_share())]
            }),
            Job::simulated(setup, simulated),
        ]
    });
    Plan { panels, jobs: jobs.collect() }
}

fn judge_probabilities(panels: &[Panel]) -> Verdict {
    let [layered, reed_solomon, layered_run, reed_solomon_run] = &panels[0].series[..] else {
        unreachable!("four series are planned")
    };
    let close = [1.0, 5.0, 10.0].iter().all(|&x| (layered.at(x) - reed_solomon.at(x)).abs() < 10.0);
    let agree = [1.0, 5.0, 10.0].iter().all(|&x| {
        (reed_solomon_run.at(x) - reed_solomon.at(x)).abs() < 2.0 && layered_run.at(x) > layered.at(x) - 2.0
    });
    Verdict::new(close && agree)
}

fn primes(scale: Scale) -> Plan {
    const SETS: [&[u16]; 2] = [&[1, 10, 20], &NARROW];
    let panels = vec![PanelPlan::new("loss rate (%)", "recovered (%)", ["(1,10,20)", "(1,11,19)"]).log_x()];
    let rates: &[f64] = scale.pick(&[0.1, 1.0, 5.0, 10.0], &[0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0]);
    let jobs = rates.iter().flat_map(|&x| {
        SETS.into_iter().enumerate().map(move |(series, interleaves)| {
            let loss = LossModel::Bursty { rate: x / 100.0, burst: 10 };
            layered_job(8, interleaves, scale, loss, move |report| {
                vec![Sample { panel: 0, series, x, y: 100.0 * report.recovered_share() }]
            })
        })
    });
    Plan { panels, jobs: jobs.collect() }
}

/// Least lead in points that is substantial.
const SUBSTANTIAL: f64 = 3.0;

fn judge_primes(panels: &[Panel]) -> Verdict {
    let [even, prime] = &panels[0].series[..] else { unreachable!("two series are planned") };
    let is_substantial = |x: f64| prime.at(x) - even.at(x) >= SUBSTANTIAL;
    Verdict::new(is_substantial(5.0) && is_substantial(10.0))
}

fn bursty(burst: u32) -> LossModel {
    LossModel::Bursty { rate: 0.001, burst }
}

/// (1,11,19) and (1,19,41).
pub(crate) const SETS: [&[u16]; 2] = [&NARROW, &WIDE];

fn bursts(scale: Scale) -> Plan {
    let x = "burst length (packets)";
    let names = ["(1,11,19)", "(1,19,41)"];
    let panels = vec![
        PanelPlan::new(x, "recovered (%)", names),
        PanelPlan::new(x, "mean recovery latency (ms)", names),
    ];
    let lengths: &[u32] = scale.pick(&[1, 10, 25, 40], &[1, 5, 10, 15, 20, 25, 30, 35, 40]);
    let jobs = lengths.iter().flat_map(|&burst| {
        SETS.into_iter()
            .enumerate()
            .map(move |(series, interleaves)| burst_job(burst, interleaves, series, scale))
    });
    Plan { panels, jobs: jobs.collect() }
}

/// Returns the job of bursts of one length: recovery in panel 0, mean latency in panel 1.
pub(crate) fn burst_job(burst: u32, interleaves: &'static [u16], series: usize, scale: Scale) -> Job {
    layered_job(8, interleaves, scale, bursty(burst), move |report| {
        let sample = |panel, y| Sample { panel, series, x: f64::from(burst), y };
        let delay = report.delay_mean().map(|packets| sample(1, packets * INTERVAL_MS));
        delay.into_iter().chain([sample(0, 100.0 * report.recovered_share())]).collect()
    })
    .decided_by(INTERVAL_MS)
}

fn judge_bursts(panels: &[Panel]) -> Verdict {
    let (recovered, latency) = (&panels[0].series, &panels[1].series);
    let more = recovered[1].at(25.0) > 90.0 && recovered[1].at(40.0) > recovered[0].at(40.0);
    let later = latency[1].at(25.0) > latency[0].at(25.0);
    let grows = latency[1].at(25.0) > latency[1].at(10.0) && latency[1].at(10.0) > latency[1].at(1.0);
    Verdict::new(more && later && grows)
}

/// Width of a class in milliseconds, and the number of classes; the last one is open.
pub(crate) const CLASS_MS: f64 = 10.0;
pub(crate) const CLASSES: usize = 31;
/// Lengths of bursts that have a histogram.
pub(crate) const LENGTHS: [u32; 3] = [1, 20, 40];

fn histograms(scale: Scale) -> Plan {
    let names = || LENGTHS.map(|burst| format!("bursts of {burst}"));
    let panels = vec![
        PanelPlan::new(
            "(1,11,19): recovery latency (ms, classes of 10 ms)",
            "share of recoveries (%)",
            names(),
        ),
        PanelPlan::new(
            "(1,19,41): recovery latency (ms, classes of 10 ms)",
            "share of recoveries (%)",
            names(),
        ),
    ];
    let jobs = SETS.into_iter().enumerate().flat_map(|(panel, interleaves)| {
        LENGTHS
            .into_iter()
            .enumerate()
            .map(move |(series, burst)| histogram_job(burst, interleaves, (panel, series), scale))
    });
    Plan { panels, jobs: jobs.collect() }
}

/// Returns the job of one histogram: when bursts of one length were recovered.
pub(crate) fn histogram_job(
    burst: u32,
    interleaves: &'static [u16],
    (panel, series): (usize, usize),
    scale: Scale,
) -> Job {
    layered_job(8, interleaves, scale, bursty(burst), move |report| histogram(report, panel, series))
        .decided_by((INTERVAL_MS, CLASS_MS, CLASSES))
}

fn histogram(report: &Report, panel: usize, series: usize) -> Vec<Sample> {
    let mut classes = [0_u64; CLASSES];
    for (delay, count) in report.delays.iter().enumerate() {
        classes[((delay as f64 * INTERVAL_MS / CLASS_MS) as usize).min(CLASSES - 1)] += count;
    }
    let whole = report.recovered.max(1) as f64;
    let sample = |(at, &count): (usize, &u64)| Sample {
        panel,
        series,
        x: at as f64 * CLASS_MS,
        y: 100.0 * count as f64 / whole,
    };
    classes.iter().enumerate().map(sample).collect()
}

/// Means of the histograms of each panel, for bursts of each of [`LENGTHS`].
pub(crate) struct HistogramMeans(pub(crate) Vec<[f64; 3]>);

impl HistogramMeans {
    pub(crate) fn of(panels: &[Panel]) -> Self {
        Self(panels.iter().map(|panel| [0, 1, 2].map(|at| mean_of_classes(&panel.series[at]))).collect())
    }

    /// Adds the means to a verdict, each panel's under its name.
    pub(crate) fn put_into<const N: usize>(&self, verdict: Verdict, names: [&str; N]) -> Verdict {
        let of_panel = |(means, name): (&[f64; 3], &str)| {
            LENGTHS
                .iter()
                .zip(*means)
                .map(|(length, mean)| (format!("{name}_{length}"), mean))
                .collect::<Vec<_>>()
        };
        let named = self.0.iter().zip(names).flat_map(of_panel);
        named.fold(verdict, |verdict, (name, mean)| verdict.number(name, mean, 0))
    }
}

/// Returns the mean of a histogram, by the middles of its classes.
fn mean_of_classes(series: &Series) -> f64 {
    let sum: f64 = series.points.iter().map(|point| (point.x + CLASS_MS / 2.0) * point.median).sum();
    sum / series.points.iter().map(|point| point.median).sum::<f64>().max(1e-9)
}

fn judge_histograms(panels: &[Panel]) -> Verdict {
    let means = HistogramMeans::of(panels);
    let [narrow, wide] = [means.0[0], means.0[1]];
    // (1,11,19) recovers only part of a burst of 40, the early part sooner: not held against it.
    let longer = narrow[1] > narrow[0] && wide[1] > wide[0] && wide[2] > wide[1];
    means.put_into(Verdict::new(longer && wide[1] > narrow[1]), ["narrow", "wide"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primes(even: [f64; 3], prime: [f64; 3]) -> bool {
        let of = |y: [f64; 3]| [(0.1, y[0]), (5.0, y[1]), (10.0, y[2])];
        judge_primes(&[Panel::drawn(&[("", &of(even)), ("", &of(prime))])]).holds
    }

    #[test]
    fn a_verdict_fails_where_prime_interleaves_recover_hardly_more() {
        let even = [99.9, 89.0, 76.6];
        assert!(primes(even, [99.0, 96.4, 87.9]));
        assert!(!primes(even, [99.9, 91.0, 87.9]), "two points more at 5 %");
        assert!(!primes(even, [99.9, 96.4, 79.0]), "hardly more at 10 %");
        assert!(!primes(even, even), "as much");
    }

    #[test]
    fn another_code_has_another_number_and_the_same_one_the_same() {
        let layers = |r| Code::Layered(LayeredConfig { r, ..LayeredConfig::default() });
        assert_eq!(behaviour_of(layers(8)), behaviour_of(layers(8)));
        assert_ne!(behaviour_of(layers(8)), behaviour_of(layers(7)));
    }

    #[test]
    fn a_set_up_contains_the_classes_of_delays() {
        let lengths = bursts(Scale::Quick).jobs;
        let classes = histograms(Scale::Quick).jobs;
        assert!(lengths.iter().all(|job| job.setup.ends_with("; 0.8")), "{lengths:?}");
        assert!(classes.iter().all(|job| job.setup.ends_with("; (0.8, 10.0, 31)")), "{classes:?}");
    }
}
