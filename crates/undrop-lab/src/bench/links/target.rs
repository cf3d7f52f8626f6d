//! Targets: bounds of figures, absolute or relative to other runs.

use std::fmt;

use super::figure::{Figure, Figures};

/// A bound of a figure of one variant.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) variant: String,
    pub(super) figure: Figure,
    pub(super) bound: Bound,
    pub(super) scale: Scale,
}

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// Meaning of the number of a bound.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scale {
    Absolute,
    /// A multiple of what the controller's model expects for the loss.
    TimesExpected,
    /// A multiple of the same figure of another variant.
    Times(Reference),
    /// A difference from the same figure of another variant.
    Above(Reference),
}

/// Another variant, perhaps with another workload on the same link with the same losses.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reference {
    pub(super) variant: String,
    pub(super) workload: Option<String>,
    /// Whether its figure is divided by 1 + the overhead of the judged variant.
    pub(super) after_overhead: bool,
}

/// Whether a target is reached.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    Reached,
    /// Not reached: the figure and its bound.
    Missed {
        value: f64,
        limit: f64,
    },
    /// A run is missing that the target needs.
    Unknown,
}

impl Target {
    /// Returns the other runs that the bound refers to.
    pub(super) fn reference(&self) -> Option<&Reference> {
        match &self.scale {
            Scale::Absolute | Scale::TimesExpected => None,
            Scale::Times(reference) | Scale::Above(reference) => Some(reference),
        }
    }

    /// Judges the medians of a cell. `reference` returns the medians of another variant, by name and
    /// workload.
    ///
    /// Returns `None` if there is no such target for this cell.
    pub(super) fn judge(
        &self,
        own: Option<&Figures>,
        expected_percent: Option<f64>,
        reference: impl Fn(&str, Option<&str>) -> Option<Figures>,
    ) -> Option<Verdict> {
        let (Bound::AtLeast(number) | Bound::AtMost(number)) = self.bound;
        let of = |reference_to: &Reference| {
            let figures = reference(&reference_to.variant, reference_to.workload.as_deref())?;
            let overhead = own?.get(&Figure::Overhead).copied().unwrap_or(0.0) / 100.0;
            let divisor = if reference_to.after_overhead { 1.0 + overhead } else { 1.0 };
            Some(figures.get(&self.figure)? / divisor)
        };
        let limit = match &self.scale {
            Scale::Absolute => Some(number),
            Scale::TimesExpected => Some(number * expected_percent?),
            Scale::Times(reference) => of(reference).map(|value| number * value),
            Scale::Above(reference) => of(reference).map(|value| number + value),
        };
        let value = own.and_then(|own| own.get(&self.figure)).copied();
        let (Some(value), Some(limit)) = (value, limit) else { return Some(Verdict::Unknown) };
        let is_reached = match self.bound {
            Bound::AtLeast(_) => value >= limit,
            Bound::AtMost(_) => value <= limit,
        };
        Some(if is_reached { Verdict::Reached } else { Verdict::Missed { value, limit } })
    }

    /// Returns the reason of a missed target, for tables.
    pub(super) fn reason(&self, value: f64, limit: f64) -> String {
        let sign = if matches!(self.bound, Bound::AtLeast(_)) { "≥" } else { "≤" };
        format!(
            "{} {}, not {sign} {}",
            self.figure.heading(),
            self.figure.text(value),
            self.figure.text(limit)
        )
    }
}

impl fmt::Display for Target {
    /// Writes `share, % ≥ 95`, or `queue drops ≤ 1.1 × bare`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, number) = match self.bound {
            Bound::AtLeast(number) => ("≥", number),
            Bound::AtMost(number) => ("≤", number),
        };
        write!(f, "{}: {} {sign} {number}", self.variant, self.figure.heading())?;
        let other = |reference: &Reference| {
            let workload =
                reference.workload.as_ref().map(|name| format!(" with {name}")).unwrap_or_default();
            let overhead = if reference.after_overhead { " / (1 + overhead)" } else { "" };
            format!("{}{workload}{overhead}", reference.variant)
        };
        match &self.scale {
            Scale::Absolute => Ok(()),
            Scale::TimesExpected => write!(f, " × the model's"),
            Scale::Times(reference) => write!(f, " × {}", other(reference)),
            Scale::Above(reference) => write!(f, " above {}", other(reference)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(bound: Bound, scale: Scale) -> Target {
        Target { variant: "auto".to_owned(), figure: Figure::Goodput, bound, scale }
    }

    fn bare(after_overhead: bool) -> Reference {
        Reference { variant: "bare".to_owned(), workload: Some("bbr".to_owned()), after_overhead }
    }

    #[test]
    fn a_bound_is_absolute_or_relative_to_another_run_or_to_the_model() {
        let own = Figures::from([(Figure::Goodput, 90.0), (Figure::Overhead, 25.0)]);
        let reference = |variant: &str, workload: Option<&str>| {
            assert_eq!((variant, workload), ("bare", Some("bbr")));
            Some(Figures::from([(Figure::Goodput, 100.0)]))
        };
        let judge = |bound, scale| target(bound, scale).judge(Some(&own), Some(60.0), reference);
        assert_eq!(judge(Bound::AtLeast(90.0), Scale::Absolute), Some(Verdict::Reached));
        let missed = |limit| Some(Verdict::Missed { value: 90.0, limit });
        assert_eq!(judge(Bound::AtMost(89.0), Scale::Absolute), missed(89.0));
        assert_eq!(judge(Bound::AtLeast(0.95), Scale::Times(bare(false))), missed(95.0));
        assert_eq!(judge(Bound::AtLeast(1.0), Scale::Times(bare(true))), Some(Verdict::Reached));
        assert_eq!(judge(Bound::AtMost(-11.0), Scale::Above(bare(false))), missed(89.0));
        assert_eq!(judge(Bound::AtMost(1.25), Scale::TimesExpected), missed(75.0));
    }

    #[test]
    fn a_target_without_its_runs_is_unknown_and_one_without_a_model_is_none() {
        let own = Figures::from([(Figure::Goodput, 90.0)]);
        let nothing = |_: &str, _: Option<&str>| None;
        let absolute = target(Bound::AtLeast(1.0), Scale::Absolute);
        assert_eq!(absolute.judge(None, None, nothing), Some(Verdict::Unknown));
        let relative = target(Bound::AtLeast(1.0), Scale::Times(bare(false)));
        assert_eq!(relative.judge(Some(&own), None, nothing), Some(Verdict::Unknown));
        let modelled = target(Bound::AtMost(1.25), Scale::TimesExpected);
        assert_eq!(modelled.judge(Some(&own), None, nothing), None);
    }
}
