//! Loss of a link that changes while traffic flows.
//!
//! | text | loss |
//! |---|---|
//! | `uniform:0.01` | any loss model, for the whole time |
//! | `0s none, 10s uniform:5%, 20s none` | a model from each time on; the first time is 0 |
//! | `ramp 0.01% 5% 10s 70s` | uniform loss that grows evenly between two times |
//! | `pulses uniform:0.01% uniform:2% 60s 10s 180s` | the second model in the last 10 s of each 60 s, 180 s long |
//! | `recording FILE 60` | losses of a recording, 60 times as fast as they were recorded |
//!
//! A recording is a CSV file with the columns `at_s`, `loss_percent` and `mean_burst`: from each time on,
//! losses of a Markov model.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use loss::{LossModel, parse_rate};
use netlab::Direction;
use netlab::emulator::Emulator;
use simnet::units;

/// Interval of the changes of a ramp, in microseconds.
const RAMP_STEP_US: u64 = 250_000;
/// Maximum number of changes.
const STEPS_MAX: usize = 100_000;
const RECORDING_HEADER: &str = "at_s,loss_percent,mean_burst";

/// Loss of a link over time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Course {
    text: String,
    /// In ascending order; the first begins at 0.
    steps: Vec<Step>,
    /// Beginnings of the parts that are judged separately, in microseconds; the first is 0.
    phases: Vec<u64>,
}

/// A loss model, and the time from which on it holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) at_us: u64,
    pub(crate) loss: LossModel,
}

impl Course {
    /// Returns the model at the beginning.
    pub(crate) fn first(&self) -> &LossModel {
        &self.steps[0].loss
    }

    pub(crate) fn is_constant(&self) -> bool {
        self.steps.len() == 1
    }

    /// Returns the beginnings of the parts that are judged separately, in microseconds.
    pub(crate) fn phases(&self) -> &[u64] {
        &self.phases
    }

    /// Returns the model that holds at a time.
    pub(crate) fn at(&self, at_us: u64) -> &LossModel {
        let after = self.steps.partition_point(|step| step.at_us <= at_us);
        &self.steps[after.max(1) - 1].loss
    }

    /// Returns a course of models that follow each other, each for the same time.
    ///
    /// # Panics
    /// If there is no model.
    pub(crate) fn of_equal_parts(models: &[LossModel], part_us: u64) -> Self {
        assert!(!models.is_empty(), "expected a model, saw none");
        let step = |(at, loss): (u64, &LossModel)| Step { at_us: at * part_us, loss: loss.clone() };
        let steps: Vec<Step> = (0..).zip(models).map(step).collect();
        let texts: Vec<String> = steps
            .iter()
            .map(|step| format!("{} {}", units::format_duration_us(step.at_us), step.loss))
            .collect();
        let phases = steps.iter().map(|step| step.at_us).collect();
        Self { text: texts.join(", "), steps, phases }
    }

    /// Returns the same course in a share of the time.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        let scale = |at_us: u64| (at_us as f64 * factor).round() as u64;
        let steps = self.steps.iter().map(|step| Step { at_us: scale(step.at_us), loss: step.loss.clone() });
        Self {
            text: self.text.clone(),
            steps: steps.collect(),
            phases: self.phases.iter().map(|&phase| scale(phase)).collect(),
        }
    }

    fn of_steps(text: &str, steps: Vec<Step>, phases: Vec<u64>) -> anyhow::Result<Self> {
        ensure!(
            steps.first().is_some_and(|step| step.at_us == 0),
            "{text:?}: expected a loss model from 0s on, saw none"
        );
        ensure!(
            steps.is_sorted_by(|a, b| a.at_us < b.at_us),
            "{text:?}: expected times in ascending order, saw others"
        );
        ensure!(
            steps.len() <= STEPS_MAX,
            "{text:?}: expected at most {STEPS_MAX} changes, saw {}",
            steps.len()
        );
        Ok(Self { text: text.to_owned(), steps, phases })
    }

    fn parse_steps(text: &str) -> anyhow::Result<Self> {
        let step = |part: &str| {
            let (at, model) = part
                .trim()
                .split_once(' ')
                .with_context(|| format!("expected TIME MODEL, such as 10s uniform:5%, saw {part:?}"))?;
            anyhow::Ok(Step { at_us: time(at)?, loss: model.trim().parse()? })
        };
        let steps = text.split(',').map(step).collect::<anyhow::Result<Vec<_>>>()?;
        let phases = steps.iter().map(|step| step.at_us).collect();
        Self::of_steps(text, steps, phases)
    }

    fn parse_ramp(text: &str, words: &[&str]) -> anyhow::Result<Self> {
        let [from, to, begin, end] = words else {
            bail!("{text:?}: expected `ramp FROM TO BEGIN END`, such as ramp 0.01% 5% 10s 70s");
        };
        let (from, to, begin, end) = (parse_rate(from)?, parse_rate(to)?, time(begin)?, time(end)?);
        ensure!(begin < end, "{text:?}: expected an end after the begin of the ramp");
        let count = ((end - begin) / RAMP_STEP_US).max(1);
        let mut steps = vec![Step { at_us: 0, loss: LossModel::Uniform(from) }];
        for step in 1..=count.min(STEPS_MAX as u64) {
            let share = step as f64 / count as f64;
            let at_us = begin + ((end - begin) as f64 * share) as u64;
            steps.push(Step { at_us, loss: LossModel::Uniform(from + (to - from) * share) });
        }
        let phases = if begin > 0 { vec![0, begin, end] } else { vec![0, end] };
        Self::of_steps(text, steps, phases)
    }

    fn parse_pulses(text: &str, words: &[&str]) -> anyhow::Result<Self> {
        let [calm, lossy, every, length, total] = words else {
            bail!("{text:?}: expected `pulses CALM LOSSY EVERY LENGTH TOTAL`");
        };
        let (calm, lossy): (LossModel, LossModel) = (calm.parse()?, lossy.parse()?);
        let (every, length, total) = (time(every)?, time(length)?, time(total)?);
        ensure!(length > 0 && length < every, "{text:?}: expected pulses shorter than their interval");
        let mut steps = Vec::new();
        for pulse in 0..(total / every).clamp(1, STEPS_MAX as u64) {
            steps.push(Step { at_us: pulse * every, loss: calm.clone() });
            steps.push(Step { at_us: (pulse + 1) * every - length, loss: lossy.clone() });
        }
        let phases = steps.iter().map(|step| step.at_us).collect();
        Self::of_steps(text, steps, phases)
    }

    fn parse_recording(text: &str, words: &[&str]) -> anyhow::Result<Self> {
        let [file, factor] = words else {
            bail!("{text:?}: expected `recording FILE FACTOR`, such as recording day.csv 60");
        };
        let factor: f64 = factor.parse().with_context(|| format!("{text:?}: expected a factor"))?;
        ensure!(factor.is_finite() && factor > 0.0, "{text:?}: expected a factor above 0");
        let steps = read_recording(Path::new(file), factor)
            .with_context(|| format!("reading the recording {file}"))?;
        Self::of_steps(text, steps, vec![0])
    }
}

impl FromStr for Course {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["ramp", rest @ ..] => Self::parse_ramp(text, rest),
            ["pulses", rest @ ..] => Self::parse_pulses(text, rest),
            ["recording", rest @ ..] => Self::parse_recording(text, rest),
            [model] => Self::of_steps(text, vec![Step { at_us: 0, loss: model.parse()? }], vec![0]),
            _ => Self::parse_steps(text),
        }
    }
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn time(text: &str) -> anyhow::Result<u64> {
    Ok(units::parse_duration_us(text)?)
}

/// Reads a recording, `factor` times as fast.
fn read_recording(path: &Path, factor: f64) -> anyhow::Result<Vec<Step>> {
    let text = fs::read_to_string(path)?;
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    ensure!(header == RECORDING_HEADER, "expected the header {RECORDING_HEADER}, saw {header:?}");
    let mut steps = Vec::new();
    for (number, line) in lines.enumerate() {
        let values: Vec<f64> = line.split(',').filter_map(|value| value.trim().parse().ok()).collect();
        let [at_s, percent, mean_burst] = values[..] else {
            bail!("line {}: expected three numbers, saw {line:?}", number + 2);
        };
        let loss = if percent > 0.0 {
            LossModel::markov(percent / 100.0, mean_burst.max(1.0))?
        } else {
            LossModel::None
        };
        steps.push(Step { at_us: (at_s * 1e6 / factor) as u64, loss });
    }
    steps.dedup_by(|later, earlier| later.loss == earlier.loss);
    Ok(steps)
}

/// Sets the losses of a link, both ways, as a course has them.
pub(crate) struct Conductor<'a> {
    course: &'a Course,
    link: &'a Emulator,
    next: usize,
    /// Times in microseconds at which the phases began in fact.
    began_us: Vec<u64>,
}

impl<'a> Conductor<'a> {
    /// Returns the conductor of a link that was built with the course's first model.
    pub(crate) fn new(course: &'a Course, link: &'a Emulator) -> Self {
        Self { course, link, next: 1, began_us: vec![0] }
    }

    /// Makes the changes that are due; call it several times a second.
    pub(crate) fn tick(&mut self, elapsed_us: u64) {
        let due = self.course.steps[self.next..].partition_point(|step| step.at_us <= elapsed_us);
        if due == 0 {
            return;
        }
        self.next += due;
        let model = &self.course.steps[self.next - 1].loss;
        for direction in Direction::BOTH {
            self.link.set_loss(direction, model);
        }
        let begun = self.course.phases.partition_point(|&phase| phase <= elapsed_us);
        self.began_us.resize(begun.max(self.began_us.len()), elapsed_us);
    }

    /// Returns the times in microseconds at which the phases began in fact.
    pub(crate) fn began_us(&self) -> &[u64] {
        &self.began_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(text: &str) -> Course {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error:#}"))
    }

    #[test]
    fn a_model_alone_holds_for_the_whole_time() {
        let course = course("markov:1%:8");
        assert!(course.is_constant() && course.phases() == [0]);
        assert_eq!(course.at(u64::MAX), &LossModel::Markov { rate: 0.01, mean_burst: 8.0 });
    }

    #[test]
    fn steps_hold_from_their_times_on() {
        let course = course("0s uniform:0.01%, 20s uniform:5%, 50s uniform:0.01%");
        assert_eq!(course.phases(), [0, 20_000_000, 50_000_000]);
        for (at_us, rate) in [(0, 0.0001), (19_999_999, 0.0001), (20_000_000, 0.05), (60_000_000, 0.0001)] {
            assert_eq!(course.at(at_us), &LossModel::Uniform(rate), "{at_us}");
        }
        assert_eq!(course.scaled(0.5).phases(), [0, 10_000_000, 25_000_000]);
        assert_eq!(course.to_string(), "0s uniform:0.01%, 20s uniform:5%, 50s uniform:0.01%");
    }

    #[test]
    fn equal_parts_have_the_text_of_steps() {
        let models = [LossModel::None, LossModel::Uniform(0.05), LossModel::None];
        let parts = Course::of_equal_parts(&models, 6_000_000);
        assert_eq!(parts, course(&parts.to_string()));
        assert_eq!(parts.at(7_000_000), &LossModel::Uniform(0.05));
    }

    #[test]
    fn a_ramp_grows_evenly_and_ends_at_its_target() {
        let course = course("ramp 0% 6% 10s 70s");
        assert_eq!(course.phases(), [0, 10_000_000, 70_000_000]);
        assert_eq!(course.at(9_999_999).rate(), 0.0);
        assert!((course.at(40_000_000).rate() - 0.03).abs() < 1e-3, "{:?}", course.at(40_000_000));
        assert!((course.at(80_000_000).rate() - 0.06).abs() < 1e-12);
    }

    #[test]
    fn pulses_come_at_the_end_of_each_interval() {
        let course = course("pulses none uniform:2% 60s 10s 180s");
        assert_eq!(course.phases().len(), 6);
        for (at_s, rate) in [(0, 0.0), (49, 0.0), (50, 0.02), (59, 0.02), (60, 0.0), (175, 0.02)] {
            assert_eq!(course.at(at_s * 1_000_000).rate(), rate, "{at_s}");
        }
    }

    #[test]
    fn a_recording_is_compressed_in_time() {
        let path = std::env::temp_dir().join(format!("undrop-course-{}.csv", std::process::id()));
        fs::write(&path, "at_s,loss_percent,mean_burst\n0,0,0\n60,0.5,2.5\n120,0,0\n180,0,0\n").unwrap();
        let course = course(&format!("recording {} 60", path.display()));
        assert_eq!(course.steps.len(), 3);
        assert_eq!(course.at(1_500_000), &LossModel::Markov { rate: 0.005, mean_burst: 2.5 });
        assert_eq!(course.at(2_500_000), &LossModel::None);
        fs::write(&path, "time\n").unwrap();
        let error = format!("recording {} 60", path.display()).parse::<Course>().unwrap_err();
        assert!(format!("{error:#}").contains("at_s,loss_percent,mean_burst"), "{error:#}");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_wrong_course_is_refused_with_what_is_expected() {
        for (text, needle) in [
            ("5s none", "0s"),
            ("5s none, 6s none", "0s"),
            ("0s none, 5s none, 5s none", "ascending"),
            ("0s none, later", "TIME MODEL"),
            ("ramp 0 5%", "BEGIN END"),
            ("ramp 0 5% 9s 3s", "end after"),
            ("pulses none none 5s 9s 20s", "shorter"),
            ("recording x 0", "above 0"),
            ("heavy", "uniform:P"),
            ("", "TIME MODEL"),
        ] {
            let Err(error) = text.parse::<Course>() else { panic!("{text:?} was accepted") };
            assert!(format!("{error:#}").contains(needle), "{text:?}: {error:#}");
        }
    }
}
