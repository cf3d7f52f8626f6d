//! Jobs on all threads.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::outcome::{Outcome, Panel, Point, Series};
use crate::plan::{Figure, PanelPlan, Plan, Sample, Samples, Scale};

/// Runs a figure on so many threads; `tell` is called after each run with how many are done, and of how many.
///
/// # Errors
/// If a set-up cannot be run: what the simulation said of it.
pub fn run(
    figure: &Figure,
    scale: Scale,
    threads: usize,
    tell: &(dyn Fn(usize, usize) + Sync),
) -> Result<Outcome, String> {
    let plan = (figure.plan)(scale);
    let samples = run_jobs(&plan, scale, threads, tell)?;
    let panels = fill(&plan.panels, &samples);
    let claim = figure.claim(&panels);
    Ok(Outcome {
        id: figure.id.to_owned(),
        title: figure.title.to_owned(),
        source: figure.source.to_owned(),
        setup: figure.setup.to_owned(),
        quick: scale == Scale::Quick,
        seeds: scale.seeds().count() as u64,
        fingerprint: figure.fingerprint(scale),
        panels,
        claim,
    })
}

/// Samples in the order of jobs and seeds, whichever thread was first.
fn run_jobs(
    plan: &Plan,
    scale: Scale,
    threads: usize,
    tell: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Sample>, String> {
    // The last set-ups of a sweep are the largest: first, lest one thread ends long after the others.
    let tasks: Vec<_> =
        plan.jobs.iter().rev().flat_map(|job| scale.seeds().map(move |seed| (job, seed))).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Vec<Mutex<Option<Samples>>> = tasks.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((job, seed)) = tasks.get(at) else { return };
                    let samples = (job.run)(*seed);
                    *results[at].lock().expect("nothing panics with the lock held") = Some(samples);
                    tell(done.fetch_add(1, Ordering::Relaxed) + 1, tasks.len());
                }
            });
        }
    });
    let mut all = Vec::new();
    for result in results {
        let samples = result.into_inner().expect("nothing panics with the lock held");
        all.extend(samples.expect("each task was run")?);
    }
    Ok(all)
}

fn fill(plans: &[PanelPlan], samples: &[Sample]) -> Vec<Panel> {
    let of_panel = |(at, plan): (usize, &PanelPlan)| Panel {
        x: plan.x.to_owned(),
        y: plan.y.to_owned(),
        x_log: plan.x_log,
        y_log: plan.y_log,
        series: plan
            .series
            .iter()
            .enumerate()
            .map(|(series, name)| Series { name: name.clone(), points: points(samples, at, series) })
            .collect(),
    };
    plans.iter().enumerate().map(of_panel).collect()
}

fn points(samples: &[Sample], panel: usize, series: usize) -> Vec<Point> {
    // Places are at least 0, where the bits of a float have the order of its value.
    let mut places: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| (sample.panel, sample.series) == (panel, series)) {
        places.entry(sample.x.abs().to_bits()).or_default().push(sample.y);
    }
    places.into_iter().map(|(x, values)| Point::of(f64::from_bits(x), values)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Job, Verdict};

    fn figure() -> Figure {
        Figure {
            id: "0.0",
            title: "",
            source: "",
            setup: "",
            claim: "",
            why: "",
            plan: |_| Plan {
                panels: vec![PanelPlan::new("x", "y", ["a", "b"])],
                jobs: [10.0, 2.0].into_iter().map(job).collect(),
            },
            judge: |_| Verdict { ours: String::new(), holds: true },
        }
    }

    fn job(x: f64) -> Job {
        let run = move |seed: u64| {
            Ok(vec![
                Sample { panel: 0, series: 0, x, y: x * seed as f64 },
                Sample { panel: 0, series: 1, x, y: 1.0 },
            ])
        };
        Job { setup: format!("{x}"), run: Box::new(run) }
    }

    #[test]
    fn any_number_of_threads_makes_the_same_figure() {
        let figure = figure();
        let one = run(&figure, Scale::Quick, 1, &|_, _| {}).unwrap();
        assert_eq!(run(&figure, Scale::Quick, 7, &|_, _| {}).unwrap(), one);
        let points = &one.panels[0].series[0].points;
        assert_eq!(points[0], Point { x: 2.0, least: 2.0, median: 6.0, most: 10.0 });
        assert_eq!(points[1], Point { x: 10.0, least: 10.0, median: 30.0, most: 50.0 });
    }

    #[test]
    fn progress_counts_every_run() {
        let told = Mutex::new(Vec::new());
        let figure = figure();
        run(&figure, Scale::Quick, 2, &|done, of| told.lock().unwrap().push((done, of))).unwrap();
        let mut told = told.into_inner().unwrap();
        told.sort_unstable();
        assert_eq!(told, (1..=10).map(|done| (done, 10)).collect::<Vec<_>>());
    }
}
