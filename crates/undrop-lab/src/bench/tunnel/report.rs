//! Figures of runs, as lines of a file, tables, or a JSON document.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};
use undrop::output;

use crate::bench::{csv, rig};

/// A figure: its name, and its value in one run.
pub(super) type Figure = (&'static str, f64);

/// All rows, and the file to which runs are added.
pub(super) struct Sheet {
    file: Option<File>,
    rows: Vec<Row>,
}

/// The runs of one setting.
struct Row {
    /// Name of the table, and what tells the row from others of it.
    table: &'static str,
    labels: Vec<(&'static str, String)>,
    runs: Vec<Vec<Figure>>,
}

impl Sheet {
    /// Opens the file, if there is one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let open = |path: &Path| {
            let file = File::options().create(true).append(true).open(path);
            file.with_context(|| format!("opening {}", path.display()))
        };
        Ok(Self { file: path.map(open).transpose()?, rows: Vec::new() })
    }

    /// Adds a run. Runs with the same labels are one row.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn add(
        &mut self,
        table: &'static str,
        labels: &[(&'static str, String)],
        figures: Vec<Figure>,
    ) -> anyhow::Result<()> {
        let words: Vec<&str> = labels.iter().map(|(_, value)| value.as_str()).collect();
        let shown: Vec<String> = figures.iter().map(|(name, value)| format!("{name} {value:.2}")).collect();
        output::note(format_args!("{}: {}", words.join(", "), shown.join(", ")));
        if let Some(file) = &mut self.file {
            for (name, value) in &figures {
                let fields = [&[table][..], &words, &[*name]].concat();
                let fields: Vec<String> = fields.into_iter().map(csv::quote).collect();
                writeln!(file, "{},{value}", fields.join(",")).context("writing a line of CSV")?;
            }
        }
        let is_same = |row: &&mut Row| row.table == table && row.labels == labels;
        match self.rows.iter_mut().find(is_same) {
            Some(row) => row.runs.push(figures),
            None => self.rows.push(Row { table, labels: labels.to_vec(), runs: vec![figures] }),
        }
        Ok(())
    }

    /// All rows as a document.
    pub(super) fn document(&self) -> Value {
        let row = |row: &Row| {
            let labels = row.labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
            let figures = row.figures().into_iter().map(|(name, (median, least, most))| {
                (name.to_owned(), json!({ "median": median, "min": least, "max": most }))
            });
            json!({
                "table": row.table,
                "labels": serde_json::Map::from_iter(labels),
                "runs": row.runs.len(),
                "figures": serde_json::Map::from_iter(figures),
            })
        };
        json!({ "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }

    /// Prints a table for each of their names.
    ///
    /// # Errors
    /// If standard output is closed.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let mut table = "";
        for row in &self.rows {
            if row.table != table {
                table = row.table;
                let names = row.labels.iter().map(|(name, _)| *name);
                let figures: Vec<&str> = row.runs.iter().flatten().map(|(name, _)| *name).collect();
                let width = row.figures().len();
                let heads: Vec<&str> = names.chain(figures.into_iter().take(width)).collect();
                output::line(&format!("\n{table}; median (min–max) of {} runs\n", row.runs.len()))?;
                output::line(&format!("| {} |", heads.join(" | ")))?;
                output::line(&format!("|{}{}", "---|".repeat(row.labels.len()), "--:|".repeat(width)))?;
            }
            let labels = row.labels.iter().map(|(_, value)| value.clone());
            let figures = row.figures().into_iter();
            let figures =
                figures.map(|(_, (median, least, most))| format!("{median:.1} ({least:.1}–{most:.1})"));
            output::line(&format!("| {} |", labels.chain(figures).collect::<Vec<_>>().join(" | ")))?;
        }
        Ok(())
    }
}

impl Row {
    /// Median, minimum and maximum of each figure, in the order of the first run.
    fn figures(&self) -> Vec<(&'static str, (f64, f64, f64))> {
        let names = self.runs.first().into_iter().flatten().map(|(name, _)| *name);
        let of = |wanted: &'static str| {
            let values = self.runs.iter().flatten().filter(|(name, _)| *name == wanted);
            (wanted, rig::spread(values.map(|(_, value)| *value).collect()))
        };
        names.map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_setting_are_a_row_and_each_is_a_line_of_the_file() {
        let path = std::env::temp_dir().join(format!("undrop-tunnel-bench-{}.csv", std::process::id()));
        let mut sheet = Sheet::open(Some(&path)).unwrap();
        let labels = |system: &str| vec![("tunnel", system.to_owned()), ("loss", "a,b".to_owned())];
        for value in [3.0, 1.0, 2.0] {
            sheet.add("Goodput", &labels("undrop"), vec![("Mbit/s", value), ("s/GB", 7.0)]).unwrap();
        }
        sheet.add("Goodput", &labels("none"), vec![("Mbit/s", 5.0), ("s/GB", 0.0)]).unwrap();
        let document = sheet.document();
        let rows = document["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0]["figures"]["Mbit/s"], json!({ "median": 2.0, "min": 1.0, "max": 3.0 }));
        assert_eq!((&rows[0]["runs"], &rows[1]["labels"]["tunnel"]), (&json!(3), &json!("none")));
        sheet.print().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.lines().count(), 8);
        assert_eq!(
            csv::split(text.lines().next().unwrap()).unwrap(),
            ["Goodput", "undrop", "a,b", "Mbit/s", "3"]
        );
        assert!(Sheet::open(Some(Path::new("/nonexistent/file.csv"))).is_err());
    }
}
