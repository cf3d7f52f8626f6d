//! The parts of a figure: jobs, panels, samples, verdict.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use netlab::LabError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::fingerprint;
use crate::outcome::{Claim, Made, Panel, Point, Runs, Series};
use crate::prose::{self, Prose, Values};

/// Size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As small as the claims allow, with a single random seed: for tests.
    Smallest,
    /// All figures within minutes: fewer points and seconds, small packets.
    Quick,
    /// As in the source, and further where that shows more.
    Full,
}

impl Scale {
    /// Returns one of two values; the smallest scale has that of a quick run.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Smallest | Self::Quick => quick,
            Self::Full => full,
        }
    }

    /// Returns one of three values, the first one at the smallest scale.
    pub fn pick_smallest<T>(self, least: T, quick: T, full: T) -> T {
        if self == Self::Smallest { least } else { self.pick(quick, full) }
    }

    /// Returns the random seeds of each point of a simulated figure: as many runs as in the papers (Ricochet
    /// §5).
    pub fn seeds(self) -> Range<u64> {
        if self == Self::Smallest { 1..2 } else { 1..6 }
    }
}

/// One measured value and its place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Panel, from 0.
    pub panel: usize,
    /// Series of the panel, from 0.
    pub series: usize,
    /// Place on the horizontal axis.
    pub x: f64,
    /// The value.
    pub y: f64,
}

/// Why there is no figure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
    /// This machine or this user cannot run it: the reason, and the remedy.
    #[error("{0}")]
    Unable(String),
    /// It was tried and failed.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for RunError {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl From<LabError> for RunError {
    fn from(error: LabError) -> Self {
        if error.is_permission() {
            Self::Unable(format!("{error}; run it as root, or allow user namespaces and /dev/net/tun"))
        } else {
            Self::Failed(error.to_string())
        }
    }
}

/// The samples of one random seed of a job, or the reason why there are none.
pub type Samples = Result<Vec<Sample>, RunError>;

/// The surroundings of a run on the real kernel.
#[derive(Clone, Copy)]
pub struct Lab<'a> {
    /// The program whose processes are gateways.
    pub program: &'a Path,
    /// Whether the user wants to stop; a run asks ten times a second.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Lab<'_> {
    /// Fails if the user wants to stop.
    ///
    /// # Errors
    /// [`RunError::Stopped`].
    pub fn go_on(&self) -> Result<(), RunError> {
        if (self.is_stopped)() { Err(RunError::Stopped) } else { Ok(()) }
    }
}

type Simulation = Box<dyn Fn(u64) -> Samples + Send + Sync>;
type Experiment = Box<dyn Fn(u64, &Lab<'_>) -> Samples + Send + Sync>;

pub(crate) enum Run {
    Simulated(Simulation),
    Real(Experiment),
}

/// One set-up, run with each random seed.
pub struct Job {
    /// Everything that decides its samples except the seed; its values are part of the figure's fingerprint.
    pub setup: String,
    /// Number of runs, with seeds from 1; none: the seeds of the scale.
    runs: Option<u64>,
    /// Rough memory of a run. It decides which runs are simultaneous, not their samples.
    bytes: u64,
    pub(crate) run: Run,
}

impl Job {
    /// Returns a simulation; `run` makes the samples of a seed.
    pub fn simulated(setup: impl Into<String>, run: impl Fn(u64) -> Samples + Send + Sync + 'static) -> Self {
        Self { setup: setup.into(), runs: None, bytes: 0, run: Run::Simulated(Box::new(run)) }
    }

    /// Returns a measurement of this many runs, none of them simultaneous with another job; `run` makes the
    /// samples of a seed.
    pub fn real(
        setup: impl Into<String>,
        runs: u64,
        run: impl Fn(u64, &Lab<'_>) -> Samples + Send + Sync + 'static,
    ) -> Self {
        Self { setup: setup.into(), runs: Some(runs), bytes: 0, run: Run::Real(Box::new(run)) }
    }

    /// Adds something else that decides the samples: the values of a formula, places, classes.
    #[must_use]
    pub fn decided_by(self, also: impl fmt::Debug) -> Self {
        Self { setup: format!("{}; {also:?}", self.setup), ..self }
    }

    /// Sets the rough memory of a run.
    #[must_use]
    pub fn of_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Returns the rough memory of a run in bytes; 0 where it is negligible.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the seeds of its runs.
    pub fn seeds(&self, scale: Scale) -> Range<u64> {
        self.runs.map_or_else(|| scale.seeds(), |runs| 1..runs + 1)
    }

    /// Returns how its samples are made.
    pub fn made(&self) -> Made {
        match self.run {
            Run::Simulated(_) => Made::Simulated,
            Run::Real(_) => Made::Real,
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("setup", &self.setup).field("runs", &self.runs).finish_non_exhaustive()
    }
}

/// A pair of axes and the labels of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PanelPlan {
    /// The horizontal axis, with its unit.
    pub x: &'static str,
    /// The vertical axis, with its unit.
    pub y: &'static str,
    /// Whether the horizontal axis is logarithmic.
    pub x_log: bool,
    /// Whether the vertical axis is logarithmic.
    pub y_log: bool,
    /// Labels of the lines.
    pub series: Vec<String>,
}

impl PanelPlan {
    /// Returns a panel with linear axes.
    pub fn new<T: Into<String>>(
        x: &'static str,
        y: &'static str,
        series: impl IntoIterator<Item = T>,
    ) -> Self {
        Self { x, y, x_log: false, y_log: false, series: series.into_iter().map(Into::into).collect() }
    }

    /// Makes the horizontal axis logarithmic.
    #[must_use]
    pub fn log_x(self) -> Self {
        Self { x_log: true, ..self }
    }

    /// Makes the vertical axis logarithmic.
    #[must_use]
    pub fn log_y(self) -> Self {
        Self { y_log: true, ..self }
    }

    /// Returns the panel with these points, series by series.
    pub(crate) fn filled(&self, points: impl IntoIterator<Item = Vec<Point>>) -> Panel {
        let series =
            self.series.iter().zip(points).map(|(name, points)| Series { name: name.clone(), points });
        Panel {
            x: self.x.to_owned(),
            y: self.y.to_owned(),
            x_log: self.x_log,
            y_log: self.y_log,
            series: series.collect(),
        }
    }
}

/// Everything that is run for a figure.
#[derive(Debug)]
pub struct Plan {
    /// The pairs of axes, from the top.
    pub panels: Vec<PanelPlan>,
    /// The set-ups.
    pub jobs: Vec<Job>,
}

impl Plan {
    /// Returns the number of runs behind a point, for each kind that the plan has.
    pub fn runs(&self, scale: Scale) -> Vec<Runs> {
        let of = |made: Made| {
            let jobs = self.jobs.iter().filter(|job| job.made() == made);
            let counts: Vec<u64> = jobs.map(|job| job.seeds(scale).count() as u64).collect();
            let (least, most) = (*counts.iter().min()?, *counts.iter().max()?);
            Some(Runs { made, least, most })
        };
        [Made::Simulated, Made::Real].into_iter().filter_map(of).collect()
    }
}

/// Whether a claim holds, and the values that a figure's texts name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether every part of the claim holds in its shape: which is greater, and which way it slopes.
    pub holds: bool,
    /// Names and values of placeholders that are not plain medians.
    pub values: Vec<(String, String)>,
}

impl Verdict {
    pub(crate) fn new(holds: bool) -> Self {
        Self { holds, values: Vec::new() }
    }

    /// Adds a value under its name in the texts.
    #[must_use]
    pub(crate) fn with(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.values.push((name.into(), value.to_string()));
        self
    }

    /// Adds a number with this many decimals.
    #[must_use]
    pub(crate) fn number(self, name: impl Into<String>, value: f64, decimals: usize) -> Self {
        self.with(name, format_args!("{value:.decimals$}"))
    }

    #[cfg(test)]
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(same, _)| same == name).map(|(_, value)| value.as_str())
    }
}

/// A figure of one of the papers.
pub struct Figure {
    /// Its number: `4.10`, `slingshot-4`.
    pub id: &'static str,
    /// Its texts.
    pub prose: &'static Prose,
    /// Returns what is run.
    pub plan: fn(Scale) -> Plan,
    /// Judges the filled panels by the claim.
    pub judge: fn(&[Panel]) -> Verdict,
}

impl Figure {
    /// Returns the figure of this number, whose texts `prose.toml` has.
    pub(crate) fn new(id: &'static str, plan: fn(Scale) -> Plan, judge: fn(&[Panel]) -> Verdict) -> Self {
        Self { id, prose: prose::of(id), plan, judge }
    }

    /// Returns the figure's name for files.
    pub fn slug(&self) -> String {
        if self.id.starts_with(|first: char| first.is_ascii_digit()) {
            format!("thesis-{}", self.id)
        } else {
            self.id.to_owned()
        }
    }

    /// Returns a number for the values of the set-up, and as a rule for what codes and nodes do: see
    /// [`fingerprint`]. It does not depend on any text of the page or the picture. It sees no other change in
    /// what is measured on the real kernel.
    pub fn fingerprint(&self, scale: Scale) -> String {
        let plan = (self.plan)(scale);
        let panels = plan.panels.iter().map(|panel| (panel.x_log, panel.y_log, panel.series.len()));
        let mut text = format!("{:?} {scale:?} {:?}", env!("CARGO_PKG_VERSION"), scale.seeds());
        panels.for_each(|panel| text += &format!(" {panel:?}"));
        plan.jobs.iter().for_each(|job| text += &format!("; {:?} {}", job.runs, job.setup));
        format!("{:016x}", fingerprint::number(&text))
    }

    /// Returns how it is made: simulated, real, or both.
    pub fn made(&self, scale: Scale) -> Vec<Made> {
        let mut made: Vec<Made> = (self.plan)(scale).jobs.iter().map(Job::made).collect();
        made.sort_unstable();
        made.dedup();
        made
    }

    pub(crate) fn claim(&self, panels: &[Panel]) -> Claim {
        let Verdict { holds, values } = (self.judge)(panels);
        let values = Values::new(panels, &values);
        Claim {
            theirs: values.put_into(&self.prose.claim),
            ours: values.put_into(&self.prose.ours),
            ours_brief: values.put_into(&self.prose.ours_brief),
            holds,
            why: values.put_into(&self.prose.why),
        }
    }
}
