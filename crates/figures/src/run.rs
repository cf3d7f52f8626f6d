//! Jobs: simulations on all threads, then measurements one by one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use crate::kept::Kept;
use crate::memory::{Memory, memory_to_use};
use crate::outcome::{Outcome, Panel, Point};
use crate::plan::{Figure, Job, Lab, Made, PanelPlan, Plan, Run, RunError, Sample, Samples, Scale};

/// Runs figures.
pub struct Runner<'a> {
    /// Threads for simulations.
    pub threads: usize,
    /// Memory in bytes that simulations may take together, roughly ([`memory_to_use`]); one always runs.
    pub memory_bytes: u64,
    /// The `undrop` program, for figures of the real kernel; or why there can be none here, and what would help.
    pub program: Result<&'a Path, String>,
    /// Whether the user wants to stop.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
    /// Called at the start and after each run with how many are done, and of how many.
    pub tell: &'a (dyn Fn(usize, usize) + Sync),
}

/// Runs a simulated figure on so many threads; `tell` is called after each run with how many are done, and of how many.
///
/// # Errors
/// If a set-up cannot be run: what the simulation said of it.
pub fn run(
    figure: &Figure,
    scale: Scale,
    threads: usize,
    tell: &(dyn Fn(usize, usize) + Sync),
) -> Result<Outcome, RunError> {
    let program = Err("no program was given for it".to_owned());
    let runner = Runner { threads, memory_bytes: memory_to_use(), program, is_stopped: &|| false, tell };
    runner.run(figure, scale, None)
}

impl Runner<'_> {
    /// Runs what of a figure was not `kept`, and keeps it.
    ///
    /// # Errors
    /// If a job cannot be run, fails, or is stopped; what was done until then is kept.
    pub fn run(&self, figure: &Figure, scale: Scale, kept: Option<&Kept>) -> Result<Outcome, RunError> {
        let plan = (figure.plan)(scale);
        let samples = Course::new(self, &plan, scale, kept).run()?;
        let panels = fill(&plan.panels, &samples);
        let claim = figure.claim(&panels);
        Ok(Outcome {
            id: figure.id.to_owned(),
            title: figure.title.to_owned(),
            source: figure.source.to_owned(),
            setup: figure.setup.to_owned(),
            quick: scale == Scale::Quick,
            runs: plan.runs(scale),
            fingerprint: figure.fingerprint(scale),
            panels,
            claim,
        })
    }
}

/// A job with one of its seeds.
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
            // The last set-ups of a sweep are the largest: first, lest one thread ends long after the others.
            Made::Simulated => (Made::Simulated, 0, plan.jobs.len() - task.at),
            // All set-ups once, then all again: what the machine does meanwhile hits all of them alike.
            Made::Real => (Made::Real, task.seed, task.at),
        });
        let known = |task: &Task<'_>| Mutex::new(kept.and_then(|kept| kept.find(task.at, task.seed)).map(Ok));
        let results: Vec<_> = tasks.iter().map(known).collect();
        Self { runner, kept, tasks, results, done: AtomicUsize::new(0) }
    }

    /// All samples, in an order of their own, whichever thread was first.
    fn run(self) -> Result<Vec<Sample>, RunError> {
        let is_open = |at: &usize| self.lock(*at).is_none();
        let open: Vec<usize> = (0..self.tasks.len()).filter(is_open).collect();
        self.done.store(self.tasks.len() - open.len(), Ordering::Relaxed);
        (self.runner.tell)(self.done.load(Ordering::Relaxed), self.tasks.len());
        let first_real = open.partition_point(|&at| self.tasks[at].job.made() == Made::Simulated);
        let (simulations, measurements) = open.split_at(first_real);
        // That nothing can be measured here is to be known before hours of simulation.
        if let (Err(why), false) = (&self.runner.program, measurements.is_empty()) {
            return Err(RunError::Unable(why.clone()));
        }
        let (next, memory) = (AtomicUsize::new(0), Memory::new(self.runner.memory_bytes));
        thread::scope(|scope| {
            for _ in 0..self.runner.threads.clamp(1, simulations.len().max(1)) {
                scope.spawn(|| {
                    while let Some(&at) = simulations.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let _taken = memory.take(self.tasks[at].job.bytes());
                        // While it waited another may have failed.
                        if self.has_failed() || self.perform(at).is_break() {
                            // The others find nothing more to do.
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
            (self.runner.tell)(self.done.fetch_add(1, Ordering::Relaxed) + 1, self.tasks.len());
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
        assert!(is_whole, "what was not run has a failure before or behind it");
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
        let told = Mutex::new(Vec::new());
        let figure = figure();
        run(&figure, Scale::Quick, 2, &|done, of| told.lock().unwrap().push((done, of))).unwrap();
        let mut told = told.into_inner().unwrap();
        told.sort_unstable();
        assert_eq!(told, (0..=10).map(|done| (done, 10)).collect::<Vec<_>>());
    }

    fn at_one(y: f64) -> Vec<Sample> {
        vec![Sample { panel: 0, series: 0, x: 1.0, y }]
    }

    /// Two simulations and two measurements, which panic if they ever run beside anything else.
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
        Runner { threads: 4, memory_bytes: u64::MAX, program, is_stopped, tell: &|_, _| {} }
    }

    #[test]
    fn a_measurement_is_made_as_often_as_it_says_and_beside_nothing() {
        let figure = Figure { plan: mixed, ..figure() };
        assert_eq!(figure.made(Scale::Quick), [Made::Simulated, Made::Real]);
        let told = Mutex::new((0, 0));
        let tell = |done, of| *told.lock().unwrap() = (done, of);
        let runner = Runner { tell: &tell, ..runner(Ok(Path::new("undrop")), &|| false) };
        let outcome = runner.run(&figure, Scale::Quick, None).unwrap();
        let runs = |made, least, most| Runs { made, least, most };
        assert_eq!(outcome.runs, [runs(Made::Simulated, 5, 5), runs(Made::Real, 2, 3)]);
        assert_eq!(*told.lock().unwrap(), (15, 15));
    }

    #[test]
    fn simulations_run_beside_each_other_only_while_they_fit_into_memory() {
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
    fn the_memory_that_a_job_takes_does_not_make_it_another() {
        let job = || Job::simulated("a", |_| Ok(Vec::new()));
        let (light, heavy) = (job(), job().of_bytes(7));
        assert_eq!((heavy.bytes(), format!("{heavy:?}")), (7, format!("{light:?}")));
    }

    #[test]
    fn where_nothing_can_be_measured_the_reason_is_told() {
        let figure = Figure { plan: mixed, ..figure() };
        let why = || "no namespaces here".to_owned();
        let error = runner(Err(why()), &|| false).run(&figure, Scale::Quick, None).unwrap_err();
        assert_eq!(error, RunError::Unable(why()));
    }

    #[test]
    fn a_run_that_was_stopped_goes_on_where_it_was_and_comes_to_the_same() {
        let folder = std::env::temp_dir().join(format!("undrop-stopped-{}", std::process::id()));
        let (figure, store) = (figure(), Store::new(&folder));
        let done = AtomicUsize::new(0);
        let is_stopped = || done.load(Ordering::SeqCst) >= 4;
        let tell = |so_far, _| done.store(so_far, Ordering::SeqCst);
        let first = Runner { threads: 1, tell: &tell, ..runner(Err(String::new()), &is_stopped) };
        let kept = store.kept(&figure, Scale::Full);
        assert_eq!(first.run(&figure, Scale::Full, Some(&kept)).unwrap_err(), RunError::Stopped);

        let kept = store.kept(&figure, Scale::Full);
        assert_eq!(kept.count(), 4);
        assert_eq!(store.kept(&figure, Scale::Quick).count(), 0);
        let told = Mutex::new(Vec::new());
        let tell = |done, of| told.lock().unwrap().push((done, of));
        let second = Runner { threads: 1, tell: &tell, ..runner(Err(String::new()), &|| false) };
        let outcome = second.run(&figure, Scale::Full, Some(&kept)).unwrap();
        assert_eq!(*told.lock().unwrap(), (4..=10).map(|done| (done, 10)).collect::<Vec<_>>());
        assert_eq!(outcome, run(&figure, Scale::Full, 1, &|_, _| {}).unwrap());
        store.forget(&figure, Scale::Full).unwrap();
        assert_eq!(store.kept(&figure, Scale::Full).count(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_job_that_fails_ends_the_figure_and_what_was_done_is_kept() {
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
        BROKEN.store(false, Ordering::SeqCst);
        let kept = store.kept(&figure, Scale::Full);
        assert_eq!(kept.count(), 1);
        let outcome = runner.run(&figure, Scale::Full, Some(&kept)).unwrap();
        assert_eq!(outcome.panels[0].series[0].points[0].median, 2.0);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
