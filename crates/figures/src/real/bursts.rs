//! Burst length and two sets of interleaves, real and simulated: Thesis Figures 3.17 and 3.18.

use maelstrom::config::Schedule;
use stage::gateways::Setting;
use xxhash_rust::xxh3::xxh3_64;

use super::stream::{self, Burst, Lost};
use crate::maelstrom::{CLASS_MS, CLASSES, HistogramMeans, LENGTHS, SETS, burst_job, histogram_job};
use crate::outcome::Panel;
use crate::plan::{Figure, Job, PanelPlan, Plan, Sample, Scale, Verdict};

/// Least number of packets on the link between two bursts: with r = 8 and interleaves up to 41, the last
/// repair of a burst leaves after 8 · 41 packets and their repairs.
const APART: u64 = 8 * 41 * 11 / 8 + 30;
/// Least number between single losses, which rarely meet in one repair.
const SINGLES_APART: u64 = 90;
/// Single losses for each longer burst.
const SINGLES: usize = 5;
/// Most packets added at random, so that a burst begins anywhere among the repairs.
const SPREAD: u64 = 64;
/// Share of source packets on the link: three repairs for eight packets.
const SOURCES_SHARE: f64 = 8.0 / 11.0;

pub(super) fn figures() -> Vec<Figure> {
    vec![
        Figure::new("3.17-real", lengths, judge_lengths),
        Figure::new("3.18-real", histograms, judge_histograms),
    ]
}

/// Returns bursts of each length in each round, no two of them within reach of one repair.
fn schedule(lengths: &[u32], rounds: usize, seed: u64) -> Vec<Burst> {
    let one_round = lengths
        .iter()
        .flat_map(|&length| std::iter::repeat_n(u64::from(length), if length == 1 { SINGLES } else { 1 }));
    let all = std::iter::repeat_n(one_round, rounds).flatten().enumerate();
    let mut before = 2;
    let burst = |(at, length): (usize, u64)| {
        let apart = if length == 1 && before == 1 { SINGLES_APART } else { APART };
        before = length;
        let more = xxh3_64(&[seed.to_le_bytes(), (at as u64).to_le_bytes()].concat()) % SPREAD;
        Burst { after: apart + more, length }
    };
    all.map(burst).collect()
}

/// Returns the job of one set of interleaves; `read` takes samples from the losses of each length.
fn job(
    interleaves: &'static [u16],
    lengths: &'static [u32],
    (rounds, runs): (usize, u64),
    read: impl Fn(u32, &[Lost]) -> Vec<Sample> + Send + Sync + 'static,
) -> Job {
    let code = Schedule::Layered { r: 8, interleaves: interleaves.to_vec() };
    let setting = Setting { schedule: code, delayed: false, ..Setting::default() };
    let setup = format!(
        "{}, bursts of {lengths:?} in {rounds} rounds, {APART} apart, singles {SINGLES_APART} and \
         {SINGLES} of them, up to {SPREAD} more, {CLASSES} classes of {CLASS_MS} ms",
        stream::setup(&setting, SOURCES_SHARE)
    );
    Job::real(setup, runs, move |seed, lab| {
        let bursts = schedule(lengths, rounds, seed);
        let lost = stream::run(&setting, &bursts, SOURCES_SHARE, lab)?;
        let of_length = |&length: &u32| {
            let is_of = |lost: &&Lost| bursts[lost.burst].length == u64::from(length);
            let lost: Vec<Lost> = lost.iter().filter(is_of).copied().collect();
            read(length, &lost)
        };
        Ok(lengths.iter().flat_map(of_length).collect())
    })
}

fn lengths(scale: Scale) -> Plan {
    let x = "burst length (packets)";
    let names = ["(1,11,19), real", "(1,19,41), real", "(1,11,19), simulated", "(1,19,41), simulated"];
    let panels = vec![
        PanelPlan::new(x, "recovered (%)", names),
        PanelPlan::new(x, "mean recovery latency (ms)", names),
    ];
    let lengths: &[u32] = scale.pick(&[1, 10, 25, 40], &[1, 5, 10, 15, 20, 25, 30, 35, 40]);
    let size = scale.pick((3, 1), (6, 5));
    let simulated = lengths.iter().flat_map(|&burst| {
        SETS.into_iter().enumerate().map(move |(at, set)| burst_job(burst, set, at + SETS.len(), scale))
    });
    let real = SETS.into_iter().enumerate().map(|(series, interleaves)| {
        job(interleaves, lengths, size, move |length, lost| {
            let late: Vec<f64> = lost.iter().filter_map(|lost| lost.late_ms).collect();
            let sample = |panel, y| Sample { panel, series, x: f64::from(length), y };
            let share = (!lost.is_empty()).then(|| sample(0, 100.0 * late.len() as f64 / lost.len() as f64));
            let mean = (!late.is_empty()).then(|| sample(1, late.iter().sum::<f64>() / late.len() as f64));
            share.into_iter().chain(mean).collect()
        })
    });
    Plan { panels, jobs: simulated.chain(real).collect() }
}

fn judge_lengths(panels: &[Panel]) -> Verdict {
    let (recovered, latency) = (&panels[0].series, &panels[1].series);
    // Means of few bursts scatter, and on a busy machine single packets are late: only the shape is judged.
    let more = recovered[1].at(25.0) > 85.0 && recovered[1].at(40.0) > recovered[0].at(40.0);
    let later = latency[1].at(25.0) > 0.9 * latency[0].at(25.0);
    let grows = (0..2).all(|set| {
        let at = |burst| latency[set].at(burst);
        at(1.0) < 25.0 && at(10.0) > at(1.0) && at(25.0) > 1.5 * at(1.0)
    });
    Verdict::new(more && later && grows)
}

fn histograms(scale: Scale) -> Plan {
    let names = || LENGTHS.map(|burst| format!("bursts of {burst}"));
    let y = "share of recoveries (%)";
    let panels = [
        "real, (1,11,19): recovery latency (ms, classes of 10 ms)",
        "real, (1,19,41): recovery latency (ms, classes of 10 ms)",
        "simulated, (1,11,19): recovery latency (ms, classes of 10 ms)",
        "simulated, (1,19,41): recovery latency (ms, classes of 10 ms)",
    ]
    .map(|x| PanelPlan::new(x, y, names()));
    let simulated = SETS.into_iter().enumerate().flat_map(|(at, set)| {
        LENGTHS
            .into_iter()
            .enumerate()
            .map(move |(series, burst)| histogram_job(burst, set, (at + SETS.len(), series), scale))
    });
    let size = scale.pick((2, 1), (9, 5));
    let real = SETS.into_iter().enumerate().map(|(panel, interleaves)| {
        job(interleaves, &LENGTHS, size, move |length, lost| {
            let series = LENGTHS.iter().position(|&of| of == length).expect("it is one of them");
            classes(lost, panel, series)
        })
    });
    Plan { panels: panels.into(), jobs: simulated.chain(real).collect() }
}

fn classes(lost: &[Lost], panel: usize, series: usize) -> Vec<Sample> {
    let mut classes = [0_u32; CLASSES];
    let late: Vec<f64> = lost.iter().filter_map(|lost| lost.late_ms).collect();
    late.iter().for_each(|late_ms| classes[((late_ms / CLASS_MS) as usize).min(CLASSES - 1)] += 1);
    let whole = late.len().max(1) as f64;
    let sample = |(at, &count): (usize, &u32)| Sample {
        panel,
        series,
        x: at as f64 * CLASS_MS,
        y: 100.0 * f64::from(count) / whole,
    };
    classes.iter().enumerate().map(sample).collect()
}

fn judge_histograms(panels: &[Panel]) -> Verdict {
    let means = HistogramMeans::of(panels);
    let [narrow, wide] = [means.0[0], means.0[1]];
    let longer = narrow[1] > narrow[0] && wide[1] > wide[0] && wide[2] > wide[1];
    let names = ["narrow", "wide", "sim_narrow", "sim_wide"];
    means.put_into(Verdict::new(longer && wide[1] > narrow[1]), names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_bursts_are_within_reach_of_one_repair() {
        let bursts = schedule(&[1, 25, 40], 2, 7);
        assert_eq!(bursts.len(), 2 * (SINGLES + 2));
        assert_eq!(bursts.iter().filter(|burst| burst.length == 25).count(), 2);
        let after_long = bursts.windows(2).filter(|pair| pair[0].length > 1 || pair[1].length > 1);
        assert!(after_long.clone().count() > 0);
        assert!(after_long.map(|pair| pair[1].after).all(|after| after >= APART));
        assert_ne!(bursts, schedule(&[1, 25, 40], 2, 8));
    }
}
