//! Medians of the runs of each cell and variant, and whether the targets are reached.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::cells::{BARE, Cell, Group, Table};
use super::figure::{Figure, Figures};
use super::sheet::Row;
use super::target::{Target, Verdict};
use crate::bench::rig;

/// Setups whose runs are summed up.
#[derive(Clone, Copy)]
pub(super) enum Setups<'a> {
    /// Of each cell and variant, that of the last row.
    Last,
    /// These. Other rows are as if there were none.
    Only(&'a HashSet<String>),
}

/// Variants of a group that have runs of another setup than the present one.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Others {
    pub(super) group: String,
    pub(super) variants: Vec<String>,
}

/// The runs of all cells.
pub(super) struct Summary<'a> {
    pub(super) table: &'a Table,
    /// By cell and variant.
    runs: BTreeMap<(String, String), Runs>,
}

/// The runs of a cell and a variant.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    /// Number of runs that count.
    pub(super) counted: usize,
    /// Number of runs that were disturbed or failed.
    pub(super) disturbed: usize,
    setup: String,
    spreads: BTreeMap<Figure, Spread>,
    /// The goodput of each run that counts, as it would be without the run's repairs.
    unburdened: Vec<f64>,
}

/// Median, least and greatest value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    fn of(values: Vec<f64>) -> Option<Self> {
        let is_empty = values.is_empty();
        let (median, least, most) = rig::spread(values);
        (!is_empty).then_some(Self { median, least, most })
    }
}

impl Runs {
    pub(super) fn spread(&self, figure: Figure) -> Option<Spread> {
        self.spreads.get(&figure).copied()
    }

    fn medians(&self) -> Figures {
        self.spreads.iter().map(|(&figure, spread)| (figure, spread.median)).collect()
    }

    fn of(rows: &[&Row]) -> Self {
        let counted: Vec<&&Row> = rows.iter().filter(|row| row.counts()).collect();
        let spread = |figure: Figure| {
            let values = counted.iter().filter_map(|row| row.figures.get(&figure).copied());
            Some((figure, Spread::of(values.collect())?))
        };
        let spreads = Figure::all().filter_map(spread).collect();
        let unburdened = counted.iter().filter_map(|row| {
            let overhead = row.figures.get(&Figure::Overhead).map_or(0.0, |percent| percent / 100.0);
            Some(row.figures.get(&Figure::Goodput)? * (1.0 + overhead))
        });
        let unburdened = unburdened.collect();
        let setup = rows.first().map_or(String::new(), |row| row.setup.clone());
        Self { counted: counted.len(), disturbed: rows.len() - counted.len(), setup, spreads, unburdened }
    }
}

impl<'a> Summary<'a> {
    /// Sums up the rows of some setups. The runs of a cell and a variant all have the same one.
    pub(super) fn of(table: &'a Table, rows: &[Row], setups: Setups<'_>) -> Self {
        let is_wanted = |row: &&Row| match setups {
            Setups::Last => true,
            Setups::Only(wanted) => wanted.contains(&row.setup),
        };
        let mut last: BTreeMap<(&str, &str), &str> = BTreeMap::new();
        for row in rows.iter().filter(is_wanted) {
            last.insert((&row.cell, &row.variant), &row.setup);
        }
        let mut runs = BTreeMap::new();
        for ((cell, variant), setup) in last {
            let rows: Vec<&Row> = rows
                .iter()
                .filter(|row| (&*row.cell, &*row.variant, &*row.setup) == (cell, variant, setup))
                .collect();
            runs.insert((cell.to_owned(), variant.to_owned()), Runs::of(&rows));
        }
        let mut summary = Self { table, runs };
        summary.add_shares();
        summary
    }

    /// Adds the shares: the goodput of each run relative to what its overhead leaves of the goodput without
    /// loss.
    fn add_shares(&mut self) {
        let mut shares = Vec::new();
        for (_, cell) in self.table.cells().filter(|(_, cell)| cell.workload.has_share()) {
            let lossless = self.median(&cell.lossless_id(), BARE, Figure::Goodput);
            let Some(lossless) = lossless.filter(|goodput| *goodput > 0.0) else { continue };
            for ((id, variant), runs) in self.runs.iter().filter(|((id, _), _)| *id == cell.id) {
                let of_run = runs.unburdened.iter().map(|goodput| goodput * 100.0 / lossless);
                let Some(spread) = Spread::of(of_run.collect()) else { continue };
                shares.push(((id.clone(), variant.clone()), spread));
            }
        }
        for (key, spread) in shares {
            if let Some(runs) = self.runs.get_mut(&key) {
                runs.spreads.insert(Figure::Share, spread);
            }
        }
    }

    /// Returns the runs of a cell and a variant.
    pub(super) fn runs(&self, cell: &str, variant: &str) -> Option<&Runs> {
        self.runs.get(&(cell.to_owned(), variant.to_owned()))
    }

    fn median(&self, cell: &str, variant: &str, figure: Figure) -> Option<f64> {
        self.runs(cell, variant)?.spread(figure).map(|spread| spread.median)
    }

    /// Judges the targets of a group in one of its cells, except those that do not apply to it.
    pub(super) fn verdicts<'g>(&self, group: &'g Group, cell: &Cell) -> Vec<(&'g Target, Verdict)> {
        let judge = |target: &'g Target| {
            let own = self.runs(&cell.id, &target.variant).map(Runs::medians);
            let reference = |variant: &str, workload: Option<&str>| {
                let workload = workload.unwrap_or(&cell.workload_name);
                let id = Cell::id_of(&cell.link_name, &cell.loss_name, workload);
                self.runs(&id, variant).map(Runs::medians)
            };
            let verdict = target.judge(own.as_ref(), cell.expected_percent, reference)?;
            Some((target, verdict))
        };
        group.targets.iter().filter_map(judge).collect()
    }

    /// Returns the variants of each group with runs of other setups than the present ones.
    pub(super) fn others(&self, present: &HashSet<String>) -> Vec<Others> {
        let of_group = |group: &Group| {
            let is_other = |variant: &&str| {
                let of_cell = |cell: &Cell| self.runs(&cell.id, variant);
                group.cells.iter().filter_map(of_cell).any(|runs| !present.contains(&runs.setup))
            };
            let all = [BARE].into_iter().chain(self.table.variants.keys().map(String::as_str));
            let variants: Vec<String> = all.filter(is_other).map(str::to_owned).collect();
            (!variants.is_empty()).then(|| Others { group: group.id.clone(), variants })
        };
        self.table.groups.iter().filter_map(of_group).collect()
    }

    /// Returns the numbers of runs that count, and of runs that were disturbed or failed.
    pub(super) fn counts(&self) -> (usize, usize) {
        self.runs
            .values()
            .fold((0, 0), |(counted, disturbed), runs| (counted + runs.counted, disturbed + runs.disturbed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::links::tests::{SMALL, row};

    fn table() -> Table {
        Table::parse(SMALL, None).unwrap()
    }

    #[test]
    fn runs_have_median_and_spread_and_disturbed_ones_do_not_count() {
        let table = table();
        let cell = "narrow/uniform:1%/cubic";
        let mut rows: Vec<Row> =
            [7.0, 9.0, 8.0].iter().map(|goodput| row(cell, "layered", *goodput, 25.0)).collect();
        rows.push(Row { disturbed: "steal".to_owned(), ..row(cell, "layered", 1.0, 25.0) });
        rows.insert(0, Row { setup: "old build".to_owned(), ..row(cell, "layered", 2.0, 25.0) });
        let summary = Summary::of(&table, &rows, Setups::Last);
        let runs = summary.runs(cell, "layered").unwrap();
        assert_eq!((runs.counted, runs.disturbed), (3, 1));
        assert_eq!(runs.spread(Figure::Goodput), Some(Spread { median: 8.0, least: 7.0, most: 9.0 }));
        assert_eq!(runs.spread(Figure::Share), None, "there is no run without loss");
        assert_eq!(summary.counts(), (3, 1));
    }

    #[test]
    fn runs_of_another_build_or_length_never_stand_for_those_of_the_present_one() {
        let table = table();
        let cell = "narrow/uniform:1%/cubic";
        let other = |goodput| Row { setup: "quick".to_owned(), ..row(cell, "layered", goodput, 25.0) };
        let mut rows = vec![Row { setup: "old build".to_owned(), ..row(cell, BARE, 6.0, 0.0) }];
        rows.extend([7.0, 9.0, 8.0].map(|goodput| row(cell, "layered", goodput, 25.0)));
        rows.push(other(1.0));
        let present = HashSet::from(["this".to_owned()]);
        let summary = Summary::of(&table, &rows, Setups::Only(&present));
        let runs = summary.runs(cell, "layered").unwrap();
        assert_eq!((runs.counted, runs.spread(Figure::Goodput).unwrap().median), (3, 8.0));
        assert!(summary.runs(cell, BARE).is_none(), "not even as the reference of a target");
        assert_eq!((summary.counts(), summary.others(&present)), ((3, 0), Vec::new()));
        // A report of the file shows the last runs, and names them.
        let summary = Summary::of(&table, &rows, Setups::Last);
        assert_eq!(summary.runs(cell, "layered").unwrap().counted, 1);
        let variants = vec![BARE.to_owned(), "layered".to_owned()];
        assert_eq!(summary.others(&present), [Others { group: "lossy".to_owned(), variants }]);
    }

    #[test]
    fn the_share_is_relative_to_what_repairs_leave_and_targets_are_judged() {
        let table = table();
        let rows = [
            row("narrow/none/cubic", BARE, 10.0, 0.0),
            row("narrow/uniform:1%/cubic", BARE, 1.0, 0.0),
            row("narrow/uniform:1%/cubic", "layered", 7.6, 25.0),
        ];
        let group = table.groups.iter().find(|group| group.id == "lossy").unwrap();
        let summary = Summary::of(&table, &rows, Setups::Last);
        let share = summary.median("narrow/uniform:1%/cubic", "layered", Figure::Share).unwrap();
        assert!((share - 95.0).abs() < 1e-9, "{share}");
        let verdicts = summary.verdicts(group, &group.cells[0]);
        let of =
            |figure: Figure| verdicts.iter().find(|(target, _)| target.figure == figure).unwrap().1.clone();
        assert_eq!(of(Figure::Goodput), Verdict::Reached, "5 times bare");
        assert_eq!(of(Figure::Overhead), Verdict::Missed { value: 25.0, limit: 1.25 * 3.6 * 1.085 });
        assert_eq!(of(Figure::Residual), Verdict::Unknown);
        assert_eq!(verdicts.len(), 3);
    }

    #[test]
    fn the_share_of_flows_beside_bare_ones_is_that_of_what_these_left_them_without_loss() {
        let text =
            SMALL.replace(r#"congestion = "cubic" }"#, r#"congestion = "cubic", flows = 2, beside = 2 }"#);
        let table = Table::parse(&text, None).unwrap();
        let cell = "narrow/uniform:1%/cubic";
        let rows = [
            row("narrow/none/cubic", BARE, 4.8, 0.0),
            row(cell, BARE, 1.0, 0.0),
            row(cell, "layered", 6.0, 20.0),
        ];
        let summary = Summary::of(&table, &rows, Setups::Last);
        let share = |variant| summary.median(cell, variant, Figure::Share).unwrap();
        assert!((share("layered") - 150.0).abs() < 1e-9, "7.2 of 4.8, {}", share("layered"));
        assert!(share(BARE) < 21.0, "{}", share(BARE));
    }

    #[test]
    fn the_share_of_a_run_is_that_of_its_own_overhead() {
        let table = table();
        let cell = "narrow/uniform:1%/cubic";
        let mut rows = vec![row("narrow/none/cubic", BARE, 10.0, 0.0)];
        rows.extend(
            [(8.0, 25.0), (9.0, 0.0), (5.0, 50.0)]
                .map(|(goodput, overhead)| row(cell, "layered", goodput, overhead)),
        );
        let summary = Summary::of(&table, &rows, Setups::Last);
        let share = summary.runs(cell, "layered").unwrap().spread(Figure::Share);
        assert_eq!(share, Some(Spread { median: 90.0, least: 75.0, most: 100.0 }));
    }
}
