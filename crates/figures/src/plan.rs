//! What a figure is made of.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use crate::fingerprint;
use crate::outcome::{Claim, Panel, Point, Runs, Series};
use netlab::LabError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How large a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// All figures within minutes: fewer points and seconds, small packets.
    Quick,
    /// As in the source, and further where that says something.
    Full,
}

impl Scale {
    /// One of two values.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    /// The seeds of each point of a simulated figure: as many runs as in the papers (Ricochet §5).
    #[must_use]
    pub fn seeds(self) -> Range<u64> {
        1..6
    }
}

/// One measured value: where it belongs, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Which panel, from 0.
    pub panel: usize,
    /// Which series of the panel, from 0.
    pub series: usize,
    /// Its place on the horizontal axis.
    pub x: f64,
    /// The value.
    pub y: f64,
}

/// Why there is no figure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The user wants to stop.
    #[error("stopped")]
    Stopped,
    /// This machine, or this user, cannot run it: why, and what would help.
    #[error("{0}")]
    Unable(String),
    /// It was tried, and something broke.
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

/// What one seed of a job came to, or why it cannot be run.
pub type Samples = Result<Vec<Sample>, RunError>;

/// How samples are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Made {
    /// In virtual time: the same code and seed give the same samples, on every machine.
    #[serde(rename = "sim")]
    Simulated,
    /// By the real kernel, through namespaces.
    #[serde(rename = "real")]
    Real,
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Simulated => "sim",
            Self::Real => "real",
        })
    }
}

/// What a run on the real kernel is given.
#[derive(Clone, Copy)]
pub struct Lab<'a> {
    /// The `undrop` program: gateways are processes of it.
    pub program: &'a Path,
    /// Whether the user wants to stop; to be looked at ten times a second.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
}

impl Lab<'_> {
    /// [`RunError::Stopped`] when the user wants to stop.
    ///
    /// # Errors
    /// That one.
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

/// One set-up, to be run with each seed.
pub struct Job {
    /// Everything that decides its samples except the seed; its values are part of the figure's fingerprint.
    pub setup: String,
    /// How many seeds, from 1 on; none: as many as the scale says.
    runs: Option<u64>,
    /// Roughly the memory that a run takes. It decides what runs beside what, not what comes of it.
    bytes: u64,
    pub(crate) run: Run,
}

impl Job {
    /// A simulation: `run` makes the samples of a seed.
    pub fn simulated(setup: impl Into<String>, run: impl Fn(u64) -> Samples + Send + Sync + 'static) -> Self {
        Self { setup: setup.into(), runs: None, bytes: 0, run: Run::Simulated(Box::new(run)) }
    }

    /// A measurement, made so many times and never beside another job: `run` makes the samples of a seed.
    pub fn real(
        setup: impl Into<String>,
        runs: u64,
        run: impl Fn(u64, &Lab<'_>) -> Samples + Send + Sync + 'static,
    ) -> Self {
        Self { setup: setup.into(), runs: Some(runs), bytes: 0, run: Run::Real(Box::new(run)) }
    }

    /// The same, whose samples this decides too: what a formula gives, places, classes.
    #[must_use]
    pub fn decided_by(self, also: impl fmt::Debug) -> Self {
        Self { setup: format!("{}; {also:?}", self.setup), ..self }
    }

    /// The same, of which a run takes roughly so much memory.
    #[must_use]
    pub fn of_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Roughly the memory that a run takes, in bytes; 0 where it is next to nothing.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The seeds it is run with.
    #[must_use]
    pub fn seeds(&self, scale: Scale) -> Range<u64> {
        self.runs.map_or_else(|| scale.seeds(), |runs| 1..runs + 1)
    }

    /// How its samples are made.
    #[must_use]
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

/// A pair of axes and the names of what is drawn in it.
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
    /// Names in the legend.
    pub series: Vec<String>,
}

impl PanelPlan {
    /// Linear axes.
    pub fn new<T: Into<String>>(
        x: &'static str,
        y: &'static str,
        series: impl IntoIterator<Item = T>,
    ) -> Self {
        Self { x, y, x_log: false, y_log: false, series: series.into_iter().map(Into::into).collect() }
    }

    /// The panel with these points, series by series.
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

    /// With a logarithmic horizontal axis.
    #[must_use]
    pub fn log_x(self) -> Self {
        Self { x_log: true, ..self }
    }

    /// With a logarithmic vertical axis.
    #[must_use]
    pub fn log_y(self) -> Self {
        Self { y_log: true, ..self }
    }
}

/// All that is run for a figure.
#[derive(Debug)]
pub struct Plan {
    /// The pairs of axes, from the top.
    pub panels: Vec<PanelPlan>,
    /// The set-ups.
    pub jobs: Vec<Job>,
}

impl Plan {
    /// How often points are made, of each kind that there is.
    #[must_use]
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

/// What a figure says of the source's claim: what we have in numbers, and whether it has the claim's shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Ours in numbers.
    pub ours: String,
    /// Whether who wins, and which way it slopes, is as in the source.
    pub holds: bool,
}

/// A figure of one of the papers.
pub struct Figure {
    /// Its number: `4.10`, `slingshot-4`.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Where it is from.
    pub source: &'static str,
    /// How it was made there, and is here if nothing else is said.
    pub setup: &'static str,
    /// What the source claims, in its numbers.
    pub claim: &'static str,
    /// Why our numbers differ from the source's.
    pub why: &'static str,
    /// What is run.
    pub plan: fn(Scale) -> Plan,
    /// Holds the panels, filled, against the claim.
    pub judge: fn(&[Panel]) -> Verdict,
}

impl Figure {
    /// The figure's name for files.
    #[must_use]
    pub fn slug(&self) -> String {
        if self.id.starts_with(|first: char| first.is_ascii_digit()) {
            format!("thesis-{}", self.id)
        } else {
            self.id.to_owned()
        }
    }

    /// A number for the values of the set-up, and as a rule for what codes and nodes do: see [`fingerprint`]. It does not
    /// depend on any text of the page or the picture, and sees no other change in what is measured on the real kernel.
    #[must_use]
    pub fn fingerprint(&self, scale: Scale) -> String {
        let plan = (self.plan)(scale);
        let panels = plan.panels.iter().map(|panel| (panel.x_log, panel.y_log, panel.series.len()));
        let mut text = format!("{:?} {scale:?} {:?}", env!("CARGO_PKG_VERSION"), scale.seeds());
        panels.for_each(|panel| text += &format!(" {panel:?}"));
        plan.jobs.iter().for_each(|job| text += &format!("; {:?} {}", job.runs, job.setup));
        format!("{:016x}", fingerprint::number(&text))
    }

    /// How it is made: simulated, real, or both.
    #[must_use]
    pub fn made(&self, scale: Scale) -> Vec<Made> {
        let mut made: Vec<Made> = (self.plan)(scale).jobs.iter().map(Job::made).collect();
        made.sort_unstable();
        made.dedup();
        made
    }

    pub(crate) fn claim(&self, panels: &[Panel]) -> Claim {
        let Verdict { ours, holds } = (self.judge)(panels);
        Claim { theirs: self.claim.to_owned(), ours, holds, why: self.why.to_owned() }
    }
}
