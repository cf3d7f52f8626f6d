//! The outcome of a figure: points, panels, the claim and the verdict.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How samples are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Made {
    /// In virtual time: the same code and random seed give the same samples on every machine.
    #[serde(rename = "sim")]
    Simulated,
    /// By the real kernel, through network namespaces.
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

/// The values of all runs at one place of the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The place.
    pub x: f64,
    /// The least value.
    pub least: f64,
    /// The median.
    pub median: f64,
    /// The greatest value.
    pub most: f64,
}

impl Point {
    /// Returns the point of these values, at least one, in any order.
    pub(crate) fn of(x: f64, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Self { x, least: values[0], median, most: values[values.len() - 1] }
    }
}

/// A line of a panel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Label of the line.
    pub name: String,
    /// Points in the order of the horizontal axis.
    pub points: Vec<Point>,
}

impl Series {
    /// Returns the median at a place.
    ///
    /// # Panics
    /// If there is no point, which is a mistake in the figure's plan.
    pub fn at(&self, x: f64) -> f64 {
        let point = self.points.iter().find(|point| (point.x - x).abs() < 1e-9);
        point.unwrap_or_else(|| panic!("expected a point at {x} in {}, saw none", self.name)).median
    }

    /// Returns the median at the left end.
    pub fn first(&self) -> f64 {
        self.points.first().map_or(f64::NAN, |point| point.median)
    }

    /// Returns the median at the right end.
    pub fn last(&self) -> f64 {
        self.points.last().map_or(f64::NAN, |point| point.median)
    }

    /// Returns the place of the right end.
    pub fn end(&self) -> f64 {
        self.points.last().map_or(f64::NAN, |point| point.x)
    }

    /// Returns each median with the next.
    pub fn steps(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.points.windows(2).map(|pair| (pair[0].median, pair[1].median))
    }

    /// Returns the least median.
    pub fn least(&self) -> f64 {
        self.points.iter().map(|point| point.median).fold(f64::INFINITY, f64::min)
    }

    /// Returns the greatest median.
    pub fn most(&self) -> f64 {
        self.points.iter().map(|point| point.median).fold(f64::NEG_INFINITY, f64::max)
    }
}

/// A pair of axes with its lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// Label of the horizontal axis, with its unit.
    pub x: String,
    /// Label of the vertical axis, with its unit.
    pub y: String,
    /// Whether the horizontal axis is logarithmic.
    pub x_log: bool,
    /// Whether the vertical axis is logarithmic.
    pub y_log: bool,
    /// The lines.
    pub series: Vec<Series>,
}

#[cfg(test)]
impl Panel {
    /// Returns a panel with series of these names and points, for a verdict.
    pub(crate) fn drawn(series: &[(&str, &[(f64, f64)])]) -> Self {
        let point = |&(x, median): &(f64, f64)| Point { x, least: median, median, most: median };
        let series = series.iter().map(|(name, points)| Series {
            name: (*name).to_owned(),
            points: points.iter().map(point).collect(),
        });
        let (x, y) = ("place".to_owned(), "value".to_owned());
        Self { x, y, x_log: false, y_log: false, series: series.collect() }
    }
}

/// The claim of the source and the result beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The source's claim.
    pub theirs: String,
    /// The result.
    pub ours: String,
    /// The result in one phrase; empty in outcomes that were stored without it.
    #[serde(default)]
    pub ours_brief: String,
    /// Whether every part of the claim holds in its shape: which is greater, and which way it slopes.
    pub holds: bool,
    /// Why the numbers differ.
    pub why: String,
}

/// The number of runs behind the points of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// The kind.
    pub made: Made,
    /// Runs of the point that has the fewest.
    pub least: u64,
    /// Runs of the point that has the most.
    pub most: u64,
}

impl fmt::Display for Runs {
    /// Writes the number without the kind: `5`, or `1–2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most, .. } = self;
        if least == most { write!(f, "{most}") } else { write!(f, "{least}–{most}") }
    }
}

/// A figure that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The figure's number.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Its source.
    pub source: String,
    /// Its set-up.
    pub setup: String,
    /// Whether the run was a quick one.
    pub quick: bool,
    /// The runs behind its points; empty if that was not stored.
    #[serde(default)]
    pub runs: Vec<Runs>,
    /// The number of the set-up.
    pub fingerprint: String,
    /// The measured values.
    pub panels: Vec<Panel>,
    /// The claim and the result.
    pub claim: Claim,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_the_ends_and_the_median_of_its_values() {
        assert_eq!(Point::of(2.0, vec![3.0, 1.0, 2.0]), Point { x: 2.0, least: 1.0, median: 2.0, most: 3.0 });
        assert_eq!(Point::of(0.0, vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }
}
