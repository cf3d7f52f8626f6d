//! The order of the runs, those that a file already has, and the time that the others take.

use std::collections::{HashMap, HashSet};

use super::cells::{BARE, Cell, Table};
use super::sheet::Row;

/// Usual limit of the attempts of a run that is disturbed again and again.
pub(super) const ATTEMPTS_MAX: u32 = 4;
/// Time in seconds that a run takes beside its traffic: building sites, starting and stopping gateways,
/// settling.
const AROUND_S: f64 = 6.0;

/// A run to make.
#[derive(Clone, Debug)]
pub(super) struct Task<'a> {
    pub(super) cell: &'a Cell,
    pub(super) variant: String,
    /// Number of the run among those of this cell and variant.
    pub(super) number: u32,
    pub(super) setup: String,
    /// Number of the next attempt.
    pub(super) attempt: u32,
}

impl Task<'_> {
    /// Returns the usual time of this run in seconds.
    pub(super) fn usual_s(&self) -> f64 {
        let learn = if self.variant == BARE { 0.0 } else { self.cell.learn };
        learn + self.cell.seconds + AROUND_S
    }
}

/// Returns the variants of a round in order: without gateways, then each variant.
fn round(variants: &[String]) -> impl Iterator<Item = &str> {
    [BARE].into_iter().chain(variants.iter().map(String::as_str))
}

/// Returns the runs in order: a cell after the other, in each the rounds after each other.
///
/// A cell of several groups runs once for each of its variants. `setup` returns the fingerprint of a cell
/// and a variant.
pub(super) fn tasks(table: &Table, setup: impl Fn(&Cell, &str) -> String) -> Vec<Task<'_>> {
    let mut tasks: Vec<Task<'_>> = Vec::new();
    let mut made: HashSet<(String, String, u32)> = HashSet::new();
    for (group, cell) in table.cells() {
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        for _ in 0..table.rounds {
            for variant in round(&group.variants) {
                let number = numbers.entry(variant).or_default();
                let task = Task {
                    cell,
                    variant: variant.to_owned(),
                    number: *number,
                    setup: setup(cell, variant),
                    attempt: 1,
                };
                *number += 1;
                if made.insert((cell.id.clone(), task.variant.clone(), task.number)) {
                    tasks.push(task);
                }
            }
        }
    }
    tasks
}

/// Leaves the runs that the rows lack. A run whose attempts are used up is not made again.
pub(super) fn missing<'a>(tasks: Vec<Task<'a>>, rows: &[Row], attempts_max: u32) -> Vec<Task<'a>> {
    let mut attempts: HashMap<(&str, u32), (bool, u32)> = HashMap::new();
    for row in rows {
        let state = attempts.entry((&row.setup, row.number)).or_default();
        *state = (state.0 || row.counts(), state.1.max(row.attempt));
    }
    let left = tasks.into_iter().filter_map(|mut task| {
        let (is_done, made) = attempts.get(&(task.setup.as_str(), task.number)).copied().unwrap_or_default();
        task.attempt = made + 1;
        (!is_done && made < attempts_max).then_some(task)
    });
    left.collect()
}

/// Estimate of the time left, from the usual times of the runs and those that were taken.
#[derive(Debug, Default)]
pub(super) struct Clock {
    usual_s: f64,
    taken_s: f64,
}

impl Clock {
    /// Counts a run that took some seconds.
    pub(super) fn add(&mut self, usual_s: f64, taken_s: f64) {
        self.usual_s += usual_s;
        self.taken_s += taken_s;
    }

    /// Returns the seconds that runs of this usual time will take.
    pub(super) fn left_s(&self, usual_s: f64) -> f64 {
        if self.usual_s > 0.0 { usual_s * self.taken_s / self.usual_s } else { usual_s }
    }
}

/// Writes a time as `50 s`, `12 min` or `3 h 20 min`.
pub(super) fn time_text(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        0..=1 => format!("{:.0} s", seconds.max(0.0)),
        2..=119 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::links::tests::SMALL;

    fn small() -> Table {
        Table::parse(SMALL, None).unwrap()
    }

    fn setup(cell: &Cell, variant: &str) -> String {
        format!("{} {variant}", cell.id)
    }

    fn names(tasks: &[Task<'_>]) -> Vec<String> {
        tasks.iter().map(|task| format!("{} {} {}", task.cell.loss_name, task.variant, task.number)).collect()
    }

    #[test]
    fn each_round_begins_without_gateways() {
        let table = small();
        let tasks = tasks(&table, setup);
        let expected = [
            "none bare 0",
            "none bare 1",
            "uniform:1% bare 0",
            "uniform:1% layered 0",
            "uniform:1% table 0",
            "uniform:1% bare 1",
            "uniform:1% layered 1",
            "uniform:1% table 1",
        ];
        assert_eq!(names(&tasks), expected);
    }

    #[test]
    fn only_runs_that_are_missing_are_made_and_disturbed_ones_are_repeated() {
        let table = small();
        let row = |task: &Task<'_>, attempt, disturbed: &str| Row {
            setup: task.setup.clone(),
            number: task.number,
            attempt,
            disturbed: disturbed.to_owned(),
            ..Row::default()
        };
        let all = tasks(&table, setup);
        let mut rows = vec![row(&all[0], 1, ""), row(&all[3], 1, "steal"), row(&all[3], 2, "")];
        rows.push(row(&all[4], 1, "steal"));
        rows.extend((1..=ATTEMPTS_MAX).map(|attempt| row(&all[5], attempt, "steal")));
        // The same cell of another program.
        rows.push(Row { setup: "another".to_owned(), ..row(&all[1], 1, "") });
        let left = missing(all.clone(), &rows, ATTEMPTS_MAX);
        let expected: Vec<String> = names(&all)
            .into_iter()
            .enumerate()
            .filter(|(at, _)| ![0, 3, 5].contains(at))
            .map(|(_, n)| n)
            .collect();
        assert_eq!(names(&left), expected);
        let again = left.iter().find(|task| task.variant == "table").unwrap();
        assert_eq!((again.number, again.attempt), (0, 2));
    }

    #[test]
    fn the_time_left_follows_the_times_taken() {
        let mut clock = Clock::default();
        assert_eq!(clock.left_s(600.0), 600.0);
        clock.add(20.0, 30.0);
        assert_eq!(clock.left_s(600.0), 900.0);
        assert_eq!([50.0, 720.0, 12_000.0].map(time_text), ["50 s", "12 min", "3 h 20 min"]);
    }
}
