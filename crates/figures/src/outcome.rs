//! What a figure came to.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::plan::Made;

/// A value of several seeds at one place of the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The place.
    pub x: f64,
    /// The least of all seeds.
    pub least: f64,
    /// Their median.
    pub median: f64,
    /// The most.
    pub most: f64,
}

impl Point {
    /// Of the values of all seeds, in any order; at least one.
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
    /// Its name in the legend.
    pub name: String,
    /// In the order of the horizontal axis.
    pub points: Vec<Point>,
}

impl Series {
    /// The median at a place.
    ///
    /// # Panics
    /// If there is no point: the figure's own mistake.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        let point = self.points.iter().find(|point| (point.x - x).abs() < 1e-9);
        point.unwrap_or_else(|| panic!("expected a point at {x} in {}, saw none", self.name)).median
    }

    /// The median at the left end.
    #[must_use]
    pub fn first(&self) -> f64 {
        self.points.first().map_or(f64::NAN, |point| point.median)
    }

    /// The median at the right end.
    #[must_use]
    pub fn last(&self) -> f64 {
        self.points.last().map_or(f64::NAN, |point| point.median)
    }

    /// The place of the right end.
    #[must_use]
    pub fn end(&self) -> f64 {
        self.points.last().map_or(f64::NAN, |point| point.x)
    }

    /// Each median and the next.
    pub fn steps(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.points.windows(2).map(|pair| (pair[0].median, pair[1].median))
    }

    /// The least median.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.points.iter().map(|point| point.median).fold(f64::INFINITY, f64::min)
    }

    /// The greatest median.
    #[must_use]
    pub fn most(&self) -> f64 {
        self.points.iter().map(|point| point.median).fold(f64::NEG_INFINITY, f64::max)
    }
}

/// A pair of axes and what is drawn in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// The horizontal axis, with its unit.
    pub x: String,
    /// The vertical axis, with its unit.
    pub y: String,
    /// Whether the horizontal axis is logarithmic.
    pub x_log: bool,
    /// Whether the vertical axis is logarithmic.
    pub y_log: bool,
    /// What is drawn.
    pub series: Vec<Series>,
}

#[cfg(test)]
impl Panel {
    /// With series of these names and points, to be judged.
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

/// What the source says, and what we have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The source's claim in its numbers.
    pub theirs: String,
    /// Ours.
    pub ours: String,
    /// Whether ours has the shape of theirs: who wins, which way it slopes.
    pub holds: bool,
    /// Why the numbers differ.
    pub why: String,
}

/// How often points of one kind were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// Their kind.
    pub made: Made,
    /// Runs of the point that has the fewest.
    pub least: u64,
    /// Runs of the point that has the most.
    pub most: u64,
}

impl fmt::Display for Runs {
    /// Without the kind: `5`, or `1–2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most, .. } = self;
        if least == most { write!(f, "{most}") } else { write!(f, "{least}–{most}") }
    }
}

/// A figure, run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The figure's number.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Where it is from.
    pub source: String,
    /// How it was made.
    pub setup: String,
    /// Whether the run was a quick one.
    pub quick: bool,
    /// How often its points were made; nothing if that was not kept.
    #[serde(default)]
    pub runs: Vec<Runs>,
    /// The number of the set-up.
    pub fingerprint: String,
    /// What was measured.
    pub panels: Vec<Panel>,
    /// The source's claim, and ours.
    pub claim: Claim,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_the_ends_and_the_middle_of_its_seeds() {
        assert_eq!(Point::of(2.0, vec![3.0, 1.0, 2.0]), Point { x: 2.0, least: 1.0, median: 2.0, most: 3.0 });
        assert_eq!(Point::of(0.0, vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }
}
