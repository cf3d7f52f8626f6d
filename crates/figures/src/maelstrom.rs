//! The figures of Maelstrom's code (Thesis ch. 3), simulated: Figures 3.10, 3.16, 3.17 and 3.18.
//!
//! One stream of packets through the real encoder and decoder; a packet and a repair are lost by the same generator in
//! the order in which they leave.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::fingerprint;
use crate::outcome::{Panel, Series};
use crate::plan::{Figure, Job, PanelPlan, Plan, Sample, Scale, Verdict};
use fec::simulate::{Report, Simulation, simulate};
use fec::{Code, LayeredConfig, ReedSolomonConfig, analysis};
use loss::LossModel;

/// Between two packets, in milliseconds: 10 Mbit/s of packets of 1,000 bytes.
const INTERVAL_MS: f64 = 0.8;

const WIDE: [u16; 3] = [1, 19, 41];
const NARROW: [u16; 3] = [1, 11, 19];

pub(crate) fn figures() -> Vec<Figure> {
    vec![
        Figure {
            id: "3.10",
            title: "Recovery probability of layered interleaving and of Reed-Solomon",
            source: "Thesis Figure 3.10",
            setup: "r = 7, c = 2, uniform loss of packets and repairs; layered interleaves (1,11); repairs \
                    sent at once, as theirs",
            claim: "the two curves are very close, above all between 0 and 10 % loss",
            why: "the closed form counts repairs that miss one packet only; the decoder also uses what other layers \
                  recovered, which brings layered interleaving nearer to Reed-Solomon, or above it. \"Yes\" means: at 1, 5 and 10 % \
                  loss the closed forms are less than ten points apart",
            plan: probabilities,
            judge: judge_probabilities,
        },
        Figure {
            id: "3.16",
            title: "Interleaves that are relatively prime",
            source: "Thesis Figure 3.16",
            setup: "r = 8, c = 3, interleaves (1,10,20) and (1,11,19), bursts of exactly ten packets, loss 0.1 to 10 %; \
                    repairs sent at once, as theirs",
            claim: "relatively prime interleaves recover substantially more where loss is high and bursty",
            why: "the figure's values and its burst length are not in the text. Up to 0.5 % loss, where two bursts seldom meet, \
                  (1,10,20) is up to a point ahead",
            plan: primes,
            judge: judge_primes,
        },
        Figure {
            id: "3.17",
            title: "Burst length: recovery and latency of two sets of interleaves",
            source: "Thesis Figure 3.17, Maelstrom Figure 14",
            setup: "r = 8, c = 3, 0.1 % loss in bursts of exactly so many packets, a packet each 0.8 ms (10 Mbit/s of 1,000 \
                    bytes); repairs sent at once, as theirs",
            claim: "larger interleaves recover more of long bursts, later: (1,19,41) nearly all of bursts of 25 after some \
                    45 ms, single losses after 2 to 3 ms; latency grows with the burst",
            why: "packets leave evenly and the link has no jitter here; the packet size is not in the text",
            plan: bursts,
            judge: judge_bursts,
        },
        Figure {
            id: "3.18",
            title: "Histograms of recovery latency for bursts of 1, 20 and 40",
            source: "Thesis Figure 3.18, Maelstrom Figure 15",
            setup: "as 3.17; panels: (1,11,19), (1,19,41)",
            claim: "recoveries take longer with longer bursts, and with larger interleaves",
            why: "as 3.17",
            plan: histograms,
            judge: judge_histograms,
        },
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

/// Trouble of all kinds for a small run.
const TROUBLE: LossModel = LossModel::Markov { rate: 0.05, mean_burst: 3.0 };
/// Packets of a small run.
const FEW: u64 = 4_000;

/// A number for what one code does, of a small run of it.
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

/// A number for what the codes do: of a small run of each. Other code that does the same has the same number.
fn behaviour() -> u64 {
    static BEHAVIOUR: OnceLock<u64> = OnceLock::new();
    let reckon = || {
        let blocks = Code::ReedSolomon(ReedSolomonConfig { r: 8, c: 3, ..ReedSolomonConfig::default() });
        let runs = [layered(8, &NARROW, FEW, &TROUBLE, 1), coded(blocks, FEW, &TROUBLE, 1)];
        fingerprint::number(&format!("{runs:?}"))
    };
    *BEHAVIOUR.get_or_init(reckon)
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
    let ours = format!(
        "closed form, layered and Reed-Solomon: {:.1} and {:.1} % at 5 % loss, {:.1} and {:.1} % at 10 %; simulated {:.1} \
         and {:.1} %, {:.1} and {:.1} %",
        layered.at(5.0),
        reed_solomon.at(5.0),
        layered.at(10.0),
        reed_solomon.at(10.0),
        layered_run.at(5.0),
        reed_solomon_run.at(5.0),
        layered_run.at(10.0),
        reed_solomon_run.at(10.0),
    );
    let close = [1.0, 5.0, 10.0].iter().all(|&x| (layered.at(x) - reed_solomon.at(x)).abs() < 10.0);
    let agree = [1.0, 5.0, 10.0].iter().all(|&x| {
        (reed_solomon_run.at(x) - reed_solomon.at(x)).abs() < 2.0 && layered_run.at(x) > layered.at(x) - 2.0
    });
    Verdict { ours, holds: close && agree }
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

/// More of the lost in a hundred, at least, where loss is high.
const SUBSTANTIAL: f64 = 3.0;

fn judge_primes(panels: &[Panel]) -> Verdict {
    let [even, prime] = &panels[0].series[..] else { unreachable!("two series are planned") };
    let ours = format!(
        "(1,10,20) and (1,11,19) at 0.1 %: {:.1} and {:.1} %; at 5 %: {:.1} and {:.1} %; at 10 %: {:.1} and {:.1} %",
        even.at(0.1),
        prime.at(0.1),
        even.at(5.0),
        prime.at(5.0),
        even.at(10.0),
        prime.at(10.0)
    );
    let is_substantial = |x: f64| prime.at(x) - even.at(x) >= SUBSTANTIAL;
    Verdict { ours, holds: is_substantial(5.0) && is_substantial(10.0) }
}

fn bursty(burst: u32) -> LossModel {
    LossModel::Bursty { rate: 0.001, burst }
}

/// (1,11,19) and (1,19,41).
pub(crate) const SETS: [&[u16]; 2] = [&NARROW, &WIDE];

fn bursts(scale: Scale) -> Plan {
    let x = "packets lost in a row";
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

/// Recovery in panel 0 and mean latency in panel 1, of bursts of one length.
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
    let ours = format!(
        "(1,19,41): bursts of 25 {:.1} % after {:.0} ms, single losses after {:.1} ms; (1,11,19): bursts of 25 {:.1} %; of 40: \
         {:.1} and {:.1} %",
        recovered[1].at(25.0),
        latency[1].at(25.0),
        latency[1].at(1.0),
        recovered[0].at(25.0),
        recovered[1].at(40.0),
        recovered[0].at(40.0),
    );
    let more = recovered[1].at(25.0) > 90.0 && recovered[1].at(40.0) > recovered[0].at(40.0);
    let later = latency[1].at(25.0) > latency[0].at(25.0);
    let grows = latency[1].at(25.0) > latency[1].at(10.0) && latency[1].at(10.0) > latency[1].at(1.0);
    Verdict { ours, holds: more && later && grows }
}

/// Width of a class, in milliseconds, and how many there are; the last holds all that is later.
pub(crate) const CLASS_MS: f64 = 10.0;
pub(crate) const CLASSES: usize = 31;
/// Bursts of which there are histograms.
pub(crate) const LENGTHS: [u32; 3] = [1, 20, 40];

fn histograms(scale: Scale) -> Plan {
    let names = || LENGTHS.map(|burst| format!("bursts of {burst}"));
    let panels = vec![
        PanelPlan::new(
            "(1,11,19): recovered after (ms, classes of 10 ms)",
            "share of the recovered (%)",
            names(),
        ),
        PanelPlan::new(
            "(1,19,41): recovered after (ms, classes of 10 ms)",
            "share of the recovered (%)",
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

/// When bursts of one length were recovered, as a series of a panel.
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

/// The mean of a histogram, by the middles of its classes.
pub(crate) fn mean_of_classes(series: &Series) -> f64 {
    let sum: f64 = series.points.iter().map(|point| (point.x + CLASS_MS / 2.0) * point.median).sum();
    sum / series.points.iter().map(|point| point.median).sum::<f64>().max(1e-9)
}

fn judge_histograms(panels: &[Panel]) -> Verdict {
    let mean = |panel: usize, series: usize| mean_of_classes(&panels[panel].series[series]);
    let ours = format!(
        "means (by the middles of classes of 10 ms) for bursts of 1 / 20 / 40: (1,11,19) {:.0} / {:.0} / {:.0} ms, (1,19,41) {:.0} / {:.0} / {:.0} ms",
        mean(0, 0),
        mean(0, 1),
        mean(0, 2),
        mean(1, 0),
        mean(1, 1),
        mean(1, 2)
    );
    // Of a burst of 40 (1,11,19) recovers part only, the sooner the earlier in it: not held against it.
    let longer = mean(0, 1) > mean(0, 0) && mean(1, 1) > mean(1, 0) && mean(1, 2) > mean(1, 1);
    Verdict { ours, holds: longer && mean(1, 1) > mean(0, 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primes(even: [f64; 3], prime: [f64; 3]) -> bool {
        let of = |y: [f64; 3]| [(0.1, y[0]), (5.0, y[1]), (10.0, y[2])];
        judge_primes(&[Panel::drawn(&[("", &of(even)), ("", &of(prime))])]).holds
    }

    #[test]
    fn interleaves_that_recover_hardly_more_are_told() {
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
    fn set_ups_tell_how_delays_become_classes() {
        let lengths = bursts(Scale::Quick).jobs;
        let classes = histograms(Scale::Quick).jobs;
        assert!(lengths.iter().all(|job| job.setup.ends_with("; 0.8")), "{lengths:?}");
        assert!(classes.iter().all(|job| job.setup.ends_with("; (0.8, 10.0, 31)")), "{classes:?}");
    }
}
