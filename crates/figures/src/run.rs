//! Runs jobs: simulations on all threads, then measurements one by one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use crate::kept::Kept;
use crate::memory::{Memory, memory_to_use};
use crate::outcome::{Made, Outcome, Panel, Point};
use crate::plan::{Figure, Job, Lab, PanelPlan, Plan, Run, RunError, Sample, Samples, Scale};

/// Runs figures.
pub struct Runner<'a> {
    /// Threads for simulations.
    pub threads: usize,
    /// Rough memory in bytes that simultaneous simulations may use ([`memory_to_use`]); one always runs.
    pub memory_bytes: u64,
    /// The program of the gateways, for figures of the real kernel; or the reason why there is none, and the
    /// remedy.
    pub program: Result<&'a Path, String>,
    /// Whether the user wants to stop.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
    /// Called at the start and after each run with the number of finished runs and of all runs.
    pub on_progress: &'a (dyn Fn(usize, usize) + Sync),
}

/// Runs a simulated figure on a number of threads; `on_progress` is called after each run with the number of
/// finished runs and of all runs.
///
/// # Errors
/// If a set-up cannot be run: the error of the simulation.
pub fn run(
    figure: &Figure,
    scale: Scale,
    threads: usize,
    on_progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Outcome, RunError> {
    let program = Err("expected a program for its gateways, saw none".to_owned());
    let runner =
        Runner { threads, memory_bytes: memory_to_use(), program, is_stopped: &|| false, on_progress };
    runner.run(figure, scale, None)
}

impl Runner<'_> {
    /// Runs the jobs of a figure that are not in `kept`, and stores their samples there.
    ///
    /// # Errors
    /// If a job cannot be run, fails, or is stopped; the finished runs are kept.
    pub fn run(&self, figure: &Figure, scale: Scale, kept: Option<&Kept>) -> Result<Outcome, RunError> {
        let plan = (figure.plan)(scale);
        let samples = Course::new(self, &plan, scale, kept).run()?;
        let panels = fill(&plan.panels, &samples);
        let claim = figure.claim(&panels);
        Ok(Outcome {
            id: figure.id.to_owned(),
            title: figure.prose.title.clone(),
            source: figure.prose.source.clone(),
            setup: figure.prose.setup.clone(),
            quick: scale != Scale::Full,
            runs: plan.runs(scale),
            fingerprint: figure.fingerprint(scale),
            panels,
            claim,
        })
    }
}

/// A job with one of its random seeds.
struct Task<'a> {
    at: usize,
    job: &'a Job,
    seed: u64,
}

/// One figure being run.
struct Course<'a> {
    runner: &'a Runner<'a>,
    kept: Option<&'a Kept>,
    tasks: Vec<Task<'a>>,
    results: Vec<Mutex<Option<Samples>>>,
    done: AtomicUsize,
}

impl<'a> Course<'a> {
    fn new(runner: &'a Runner<'_>, plan: &'a Plan, scale: Scale, kept: Option<&'a Kept>) -> Self {
        let seeds = |(at, job): (usize, &'a Job)| job.seeds(scale).map(move |seed| Task { at, job, seed });
        let mut tasks: Vec<Task<'_>> = plan.jobs.iter().enumerate().flat_map(seeds).collect();
        tasks.sort_by_key(|task| match task.job.made() {
            // The last set-ups of a sweep are the largest. They run first, so that no thread ends long after
            // the others.
            Made::Simulated => (Made::Simulated, 0, plan.jobs.len() - task.at),
            // All set-ups once, then all again, so that other load of the machine affects all of them.
            Made::Real => (Made::Real, task.seed, task.at),
        });
        let known = |task: &Task<'_>| Mutex::new(kept.and_then(|kept| kept.find(task.at, task.seed)).map(Ok));
        let results: Vec<_> = tasks.iter().map(known).collect();
        Self { runner, kept, tasks, results, done: AtomicUsize::new(0) }
    }

    /// Returns all samples in an order that does not depend on the threads.
    fn run(self) -> Result<Vec<Sample>, RunError> {
        let is_open = |at: &usize| self.lock(*at).is_none();
        let open: Vec<usize> = (0..self.tasks.len()).filter(is_open).collect();
        self.done.store(self.tasks.len() - open.len(), Ordering::Relaxed);
        (self.runner.on_progress)(self.done.load(Ordering::Relaxed), self.tasks.len());
        let first_real = open.partition_point(|&at| self.tasks[at].job.made() == Made::Simulated);
        let (simulations, measurements) = open.split_at(first_real);
        // The user learns before hours of simulation that nothing can be measured.
        if let (Err(why), false) = (&self.runner.program, measurements.is_empty()) {
            return Err(RunError::Unable(why.clone()));
        }
        let (next, memory) = (AtomicUsize::new(0), Memory::new(self.runner.memory_bytes));
        thread::scope(|scope| {
            for _ in 0..self.runner.threads.clamp(1, simulations.len().max(1)) {
                scope.spawn(|| {
                    while let Some(&at) = simulations.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let _taken = memory.take(self.tasks[at].job.bytes());
                        // Another one may have failed while this one waited.
                        if self.has_failed() || self.perform(at).is_break() {
                            // The other threads find no more work.
                            next.store(simulations.len(), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        for &at in measurements {
            if self.has_failed() || self.perform(at).is_break() {
                break;
            }
        }
        self.collect()
    }

    fn perform(&self, at: usize) -> ControlFlow<()> {
        let task = &self.tasks[at];
        let samples = self.samples(task);
        let flow = if samples.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        *self.lock(at) = Some(samples);
        if flow.is_continue() {
            (self.runner.on_progress)(self.done.fetch_add(1, Ordering::Relaxed) + 1, self.tasks.len());
        }
        flow
    }

    fn samples(&self, task: &Task<'_>) -> Samples {
        let runner = self.runner;
        let program = runner.program.as_ref().map(|program| *program);
        if (runner.is_stopped)() {
            return Err(RunError::Stopped);
        }
        let samples = match &task.job.run {
            Run::Simulated(run) => run(task.seed)?,
            Run::Real(run) => {
                let program = program.map_err(|why| RunError::Unable(why.clone()))?;
                run(task.seed, &Lab { program, is_stopped: runner.is_stopped })?
            }
        };
        if let Some(kept) = self.kept {
            kept.keep(task.at, task.seed, &samples).map_err(|error| RunError::Failed(error.to_string()))?;
        }
        Ok(samples)
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Option<Samples>> {
        self.results[at].lock().expect("nothing panics with the lock held")
    }

    fn has_failed(&self) -> bool {
        (0..self.results.len()).any(|at| matches!(*self.lock(at), Some(Err(_))))
    }

    fn collect(self) -> Result<Vec<Sample>, RunError> {
        let mut all = Vec::new();
        let mut is_whole = true;
        for result in self.results {
            match result.into_inner().expect("nothing panics with the lock held") {
                Some(samples) => all.extend(samples?),
                None => is_whole = false,
            }
        }
        assert!(is_whole, "a figure without a failure is whole");
        Ok(all)
    }
}

fn fill(plans: &[PanelPlan], samples: &[Sample]) -> Vec<Panel> {
    let of_panel = |(at, plan): (usize, &PanelPlan)| {
        plan.filled((0..plan.series.len()).map(|series| points(samples, at, series)))
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
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::outcome::Runs;
    use crate::plan::Verdict;
    use crate::store::Store;

    fn figure() -> Figure {
        Figure {
            id: "0.0",
            prose: Box::leak(Box::default()),
            plan: |_| Plan {
                panels: vec![PanelPlan::new("x", "y", ["a", "b"])],
                jobs: [10.0, 2.0].into_iter().map(job).collect(),
            },
            judge: |_| Verdict::new(true),
        }
    }

    fn job(x: f64) -> Job {
        let run = move |seed: u64| {
            Ok(vec![
                Sample { panel: 0, series: 0, x, y: x * seed as f64 },
                Sample { panel: 0, series: 1, x, y: 1.0 },
            ])
        };
        Job::simulated(format!("{x}"), run)
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
        let seen = Mutex::new(Vec::new());
        let figure = figure();
        run(&figure, Scale::Quick, 2, &|done, of| seen.lock().unwrap().push((done, of))).unwrap();
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, (0..=10).map(|done| (done, 10)).collect::<Vec<_>>());
    }

    fn at_one(y: f64) -> Vec<Sample> {
        vec![Sample { panel: 0, series: 0, x: 1.0, y }]
    }

    /// Two simulations and two measurements, which panic if they are not alone.
    fn mixed(_: Scale) -> Plan {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        let alone = |_: u64, _: &Lab<'_>| {
            assert_eq!(RUNNING.fetch_add(1, Ordering::SeqCst), 0, "a measurement has the machine to itself");
            thread::sleep(std::time::Duration::from_millis(5));
            RUNNING.fetch_sub(1, Ordering::SeqCst);
            Ok(at_one(2.0))
        };
        let beside = |_| {
            RUNNING.fetch_add(1, Ordering::SeqCst);
            thread::sleep(std::time::Duration::from_millis(5));
            RUNNING.fetch_sub(1, Ordering::SeqCst);
            Ok(at_one(1.0))
        };
        let jobs = vec![
            Job::real("a", 3, alone),
            Job::simulated("b", beside),
            Job::real("c", 2, alone),
            Job::simulated("d", beside),
        ];
        Plan { panels: vec![PanelPlan::new("x", "y", ["a"])], jobs }
    }

    fn runner<'a>(
        program: Result<&'a Path, String>,
        is_stopped: &'a (dyn Fn() -> bool + Sync),
    ) -> Runner<'a> {
        Runner { threads: 4, memory_bytes: u64::MAX, program, is_stopped, on_progress: &|_, _| {} }
    }

    #[test]
    fn a_measurement_has_its_number_of_runs_and_is_alone() {
        let figure = Figure { plan: mixed, ..figure() };
        assert_eq!(figure.made(Scale::Quick), [Made::Simulated, Made::Real]);
        let seen = Mutex::new((0, 0));
        let on_progress = |done, of| *seen.lock().unwrap() = (done, of);
        let runner = Runner { on_progress: &on_progress, ..runner(Ok(Path::new("undrop")), &|| false) };
        let outcome = runner.run(&figure, Scale::Quick, None).unwrap();
        let runs = |made, least, most| Runs { made, least, most };
        assert_eq!(outcome.runs, [runs(Made::Simulated, 5, 5), runs(Made::Real, 2, 3)]);
        assert_eq!(*seen.lock().unwrap(), (15, 15));
    }

    #[test]
    fn simulations_are_simultaneous_only_while_they_fit_into_memory() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let plan = |_| {
            let run = |_| {
                MOST.fetch_max(RUNNING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(std::time::Duration::from_millis(5));
                RUNNING.fetch_sub(1, Ordering::SeqCst);
                Ok(at_one(1.0))
            };
            let jobs = ["a", "b"].map(|setup| Job::simulated(setup, run).of_bytes(2));
            Plan { panels: vec![PanelPlan::new("x", "y", ["a"])], jobs: jobs.into() }
        };
        let figure = Figure { plan, ..figure() };
        let most = |memory_bytes: u64| {
            MOST.store(0, Ordering::SeqCst);
            let runner = Runner { memory_bytes, ..runner(Err(String::new()), &|| false) };
            assert_eq!(runner.run(&figure, Scale::Quick, None).unwrap().runs[0].least, 5);
            MOST.load(Ordering::SeqCst)
        };
        assert_eq!(most(1), 1, "each is larger than the budget, and runs alone");
        assert!(most(4) <= 2);
        assert!(most(u64::MAX) <= 4);
    }

    #[test]
    fn the_memory_of_a_job_is_not_part_of_its_set_up() {
        let job = || Job::simulated("a", |_| Ok(Vec::new()));
        let (light, heavy) = (job(), job().of_bytes(7));
        assert_eq!((heavy.bytes(), format!("{heavy:?}")), (7, format!("{light:?}")));
    }

    #[test]
    fn where_nothing_can_be_measured_the_error_has_the_reason() {
        let figure = Figure { plan: mixed, ..figure() };
        let why = || "no namespaces here".to_owned();
        let error = runner(Err(why()), &|| false).run(&figure, Scale::Quick, None).unwrap_err();
        assert_eq!(error, RunError::Unable(why()));
    }

    #[test]
    fn a_stopped_run_continues_and_has_the_same_outcome() {
        let folder = std::env::temp_dir().join(format!("undrop-stopped-{}", std::process::id()));
        let (figure, store) = (figure(), Store::new(&folder));
        let done = AtomicUsize::new(0);
        let is_stopped = || done.load(Ordering::SeqCst) >= 4;
        let on_progress = |finished, _| done.store(finished, Ordering::SeqCst);
        let first =
            Runner { threads: 1, on_progress: &on_progress, ..runner(Err(String::new()), &is_stopped) };
        let kept = store.kept(&figure, Scale::Full);
        assert_eq!(first.run(&figure, Scale::Full, Some(&kept)).unwrap_err(), RunError::Stopped);
        drop(kept);

        let kept = store.kept(&figure, Scale::Full);
        assert_eq!(kept.count(), 4);
        assert_eq!(store.kept(&figure, Scale::Quick).count(), 0);
        let seen = Mutex::new(Vec::new());
        let on_progress = |done, of| seen.lock().unwrap().push((done, of));
        let second =
            Runner { threads: 1, on_progress: &on_progress, ..runner(Err(String::new()), &|| false) };
        let outcome = second.run(&figure, Scale::Full, Some(&kept)).unwrap();
        assert_eq!(*seen.lock().unwrap(), (4..=10).map(|done| (done, 10)).collect::<Vec<_>>());
        assert_eq!(outcome, run(&figure, Scale::Full, 1, &|_, _| {}).unwrap());
        store.forget(&figure, Scale::Full).unwrap();
        assert_eq!(store.kept(&figure, Scale::Full).count(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_job_that_fails_ends_the_figure_and_finished_runs_are_kept() {
        static BROKEN: AtomicBool = AtomicBool::new(true);
        let plan = |_| Plan {
            panels: vec![PanelPlan::new("x", "y", ["a"])],
            jobs: vec![
                Job::real("a", 1, |_, _| Ok(at_one(1.0))),
                Job::real("b", 1, |_, _| {
                    if BROKEN.load(Ordering::SeqCst) { Err("it broke".to_owned())? } else { Ok(at_one(3.0)) }
                }),
            ],
        };
        let folder = std::env::temp_dir().join(format!("undrop-broken-{}", std::process::id()));
        let (figure, store) = (Figure { plan, ..figure() }, Store::new(&folder));
        let runner = runner(Ok(Path::new("undrop")), &|| false);
        let kept = store.kept(&figure, Scale::Full);
        let error = runner.run(&figure, Scale::Full, Some(&kept)).unwrap_err();
        assert_eq!(error, RunError::Failed("it broke".to_owned()));
        drop(kept);
        BROKEN.store(false, Ordering::SeqCst);
        let kept = store.kept(&figure, Scale::Full);
        assert_eq!(kept.count(), 1);
        let outcome = runner.run(&figure, Scale::Full, Some(&kept)).unwrap();
        assert_eq!(outcome.panels[0].series[0].points[0].median, 2.0);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
