//! What a figure is made of.

use std::fmt;
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use crate::outcome::{Claim, Panel};

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

    /// The seeds of each point: as many runs as in the papers (Ricochet §5).
    #[must_use]
    pub fn seeds(self) -> Range<u64> {
        1..6
    }
}

/// One measured value: where it belongs, and what it is.
#[derive(Clone, Copy, Debug, PartialEq)]
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

/// What one seed of a job came to, or why it cannot be run.
pub type Samples = Result<Vec<Sample>, String>;

/// One set-up, to be run with each seed.
pub struct Job {
    /// All that decides its samples but the seed, in words; part of the figure's fingerprint.
    pub setup: String,
    /// Runs it with a seed.
    pub run: Box<dyn Fn(u64) -> Samples + Send + Sync>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("setup", &self.setup).finish_non_exhaustive()
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

    /// A number for the set-up: another set-up has another.
    #[must_use]
    pub fn fingerprint(&self, scale: Scale) -> String {
        let plan = (self.plan)(scale);
        let text = format!(
            "{} {:?} {scale:?} {:?} {:?}",
            env!("CARGO_PKG_VERSION"),
            plan.panels,
            plan.jobs,
            scale.seeds()
        );
        format!("{:016x}", xxh3_64(text.as_bytes()))
    }

    pub(crate) fn claim(&self, panels: &[Panel]) -> Claim {
        let Verdict { ours, holds } = (self.judge)(panels);
        Claim { theirs: self.claim.to_owned(), ours, holds, why: self.why.to_owned() }
    }
}
