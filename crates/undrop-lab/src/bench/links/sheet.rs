//! The runs in a CSV file, to which each run is added as it ends.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use super::figure::{Figure, Figures};
use crate::bench::csv;

/// Columns before those of the figures.
const COLUMNS: [&str; 8] =
    ["setup", "cell", "variant", "number", "attempt", "disturbed", "stayed_lost_by_phase", "counters"];

/// A run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    /// Fingerprint of the cell, the variant and the program. Rows of another fingerprint do not count.
    pub(super) setup: String,
    pub(super) cell: String,
    pub(super) variant: String,
    /// Number of the run among those of this cell and variant.
    pub(super) number: u32,
    /// Number of the attempt, from 1.
    pub(super) attempt: u32,
    /// Reasons why the run does not count; empty if it does.
    pub(super) disturbed: String,
    /// Packets that stayed lost in each part of a run whose loss changes.
    pub(super) by_phase: String,
    /// Counters of the gateways that only some versions have.
    pub(super) counters: String,
    pub(super) figures: Figures,
}

impl Row {
    pub(super) fn counts(&self) -> bool {
        self.disturbed.is_empty()
    }
}

/// The file.
#[derive(Debug)]
pub(super) struct Sheet {
    path: PathBuf,
    rows: Vec<Row>,
    file: Option<File>,
    /// Held by the only writer, from before it reads the rows. The kernel takes it from a process that ends.
    lock: Option<File>,
}

impl Sheet {
    /// Reads a file to add runs to it, and keeps other commands from doing the same.
    ///
    /// # Errors
    /// If another command adds runs to it, or the file is of another kind or cannot be read.
    pub(super) fn open_to_add(path: &Path) -> anyhow::Result<Self> {
        let lock = lock(path)?;
        Ok(Self { lock: Some(lock), ..Self::open(path)? })
    }

    /// Reads a file, if it exists. A last line that is not whole, because its writer was killed, is ignored.
    ///
    /// # Errors
    /// If the file is of another kind or cannot be read.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let mut lines = text.lines();
        if let Some(first) = lines.next() {
            ensure!(
                first == header(),
                "{}: expected the columns of this version, saw others; move the file away",
                path.display()
            );
        }
        let rows = lines.filter_map(parse).collect();
        Ok(Self { path: path.to_owned(), rows, file: None, lock: None })
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Adds a run and writes it at once.
    ///
    /// # Errors
    /// If the file cannot be written.
    ///
    /// # Panics
    /// If the file was not opened to add runs.
    pub(super) fn add(&mut self, row: Row) -> anyhow::Result<()> {
        assert!(self.lock.is_some(), "a file that was opened to be read gets no runs");
        let path = self.path.display().to_string();
        if self.file.is_none() {
            self.file = Some(self.rewrite().with_context(|| format!("writing {path}"))?);
        }
        let file = self.file.as_mut().expect("it was just made");
        // A single write: a process that is killed leaves the whole line, or a part that is ignored.
        file.write_all(line(&row).as_bytes()).with_context(|| format!("writing {path}"))?;
        self.rows.push(row);
        Ok(())
    }

    /// Writes the whole rows that were read, so that no part of a line precedes the next one.
    fn rewrite(&self) -> std::io::Result<File> {
        let text: String = std::iter::once(header() + "\n").chain(self.rows.iter().map(line)).collect();
        let part = self.path.with_extension("part");
        fs::write(&part, text)?;
        fs::rename(&part, &self.path)?;
        File::options().append(true).open(&self.path)
    }
}

/// Locks the file beside a file of runs, which itself is replaced by its writer.
fn lock(runs: &Path) -> anyhow::Result<File> {
    let directory = runs.parent().unwrap_or(Path::new("."));
    let path = runs.with_extension("lock");
    let open = || {
        fs::create_dir_all(directory)?;
        File::options().create(true).truncate(false).write(true).open(&path)
    };
    let file = open().with_context(|| format!("opening {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let other = fs::read_to_string(&path).unwrap_or_default();
            bail!(
                "another command writes to {} (process {}); wait for it or choose another --out",
                directory.display(),
                other.trim()
            );
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("locking {}", path.display()));
        }
    }
    let write = || {
        file.set_len(0)?;
        (&file).write_all(format!("{}\n", std::process::id()).as_bytes())
    };
    write().with_context(|| format!("writing {}", path.display()))?;
    Ok(file)
}

fn header() -> String {
    let names: Vec<&str> = COLUMNS.into_iter().chain(Figure::all().map(Figure::name)).collect();
    names.join(",")
}

fn line(row: &Row) -> String {
    let (number, attempt) = (row.number.to_string(), row.attempt.to_string());
    let texts = [
        &row.setup,
        &row.cell,
        &row.variant,
        &number,
        &attempt,
        &row.disturbed,
        &row.by_phase,
        &row.counters,
    ];
    let mut fields: Vec<String> = texts.iter().map(|text| csv::quote(text)).collect();
    let figure = |figure| row.figures.get(&figure).map_or(String::new(), |value: &f64| value.to_string());
    fields.extend(Figure::all().map(figure));
    fields.join(",") + "\n"
}

fn parse(line: &str) -> Option<Row> {
    let fields = csv::split(line)?;
    let (texts, values) = fields.split_at_checked(COLUMNS.len())?;
    let [setup, cell, variant, number, attempt, disturbed, by_phase, counters] = texts else { return None };
    if values.len() != Figure::all().count() {
        return None;
    }
    let mut figures = Figures::new();
    for (figure, value) in Figure::all().zip(values).filter(|(_, value)| !value.is_empty()) {
        figures.insert(figure, value.parse().ok()?);
    }
    Some(Row {
        setup: setup.clone(),
        cell: cell.clone(),
        variant: variant.clone(),
        number: number.parse().ok()?,
        attempt: attempt.parse().ok()?,
        disturbed: disturbed.clone(),
        by_phase: by_phase.clone(),
        counters: counters.clone(),
        figures,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("undrop-sheet-{}-{name}.csv", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
            let _ = fs::remove_file(self.0.with_extension("lock"));
        }
    }

    fn row(number: u32) -> Row {
        Row {
            setup: "5f".to_owned(),
            cell: "gigabit/0s none, 5s uniform:1%/cubic".to_owned(),
            variant: "auto".to_owned(),
            number,
            attempt: 1,
            disturbed: "other programs used 90 %, mostly \"cargo\"".to_owned(),
            by_phase: "0;12".to_owned(),
            counters: String::new(),
            figures: Figures::from([(Figure::Goodput, 1.0 / 3.0), (Figure::LatencyMost, f64::INFINITY)]),
        }
    }

    #[test]
    fn runs_are_read_back_to_the_last_bit() {
        let file = Scratch::new("bits");
        let mut sheet = Sheet::open_to_add(&file.0).unwrap();
        sheet.add(row(0)).unwrap();
        sheet.add(row(1)).unwrap();
        assert_eq!(Sheet::open(&file.0).unwrap().rows(), [row(0), row(1)]);
    }

    #[test]
    fn a_truncated_line_is_dropped_and_the_next_run_follows_the_whole_ones() {
        let file = Scratch::new("cut");
        let mut sheet = Sheet::open_to_add(&file.0).unwrap();
        (0..3).for_each(|number| sheet.add(row(number)).unwrap());
        drop(sheet);
        let text = fs::read_to_string(&file.0).unwrap();
        for cut in [2, 20, 40] {
            fs::write(&file.0, &text[..text.len() - cut]).unwrap();
            let mut sheet = Sheet::open_to_add(&file.0).unwrap();
            assert_eq!(sheet.rows(), [row(0), row(1)], "{cut}");
            sheet.add(row(2)).unwrap();
            assert_eq!(fs::read_to_string(&file.0).unwrap(), text, "{cut}");
        }
    }

    #[test]
    fn a_second_writer_is_refused_until_the_first_one_ends_and_a_reader_never_is() {
        let file = Scratch::new("writers");
        let mut first = Sheet::open_to_add(&file.0).unwrap();
        let error = Sheet::open_to_add(&file.0).unwrap_err().to_string();
        let process = format!("(process {})", std::process::id());
        assert!(error.contains(&process) && error.contains("choose another --out"), "{error}");
        first.add(row(0)).unwrap();
        assert_eq!(Sheet::open(&file.0).unwrap().rows(), [row(0)]);
        drop(first);
        let mut second = Sheet::open_to_add(&file.0).unwrap();
        second.add(row(1)).unwrap();
        assert_eq!(Sheet::open(&file.0).unwrap().rows(), [row(0), row(1)]);
    }

    #[test]
    fn another_file_is_refused_and_left_alone() {
        let file = Scratch::new("foreign");
        fs::write(&file.0, "a,b\n1,2\n").unwrap();
        let error = Sheet::open(&file.0).unwrap_err().to_string();
        assert!(error.contains("expected the columns"), "{error}");
        assert_eq!(fs::read_to_string(&file.0).unwrap(), "a,b\n1,2\n");
    }
}
