//! Gateways on many links, beside the same links without gateways: loss, changes of loss, congestion, sparse
//! traffic, cost.
//!
//! | file | content |
//! |---|---|
//! | `cells.toml`, `cells.rs` | the table of links, losses, workloads, codes and targets |
//! | `order.rs` | the order of the runs, those that are missing, the time left |
//! | `run.rs`, `workload.rs` | one run: what hosts, link and gateways counted |
//! | `vendor.rs` | a table of loss thresholds as a controller |
//! | `sheet.rs`, `figure.rs` | the runs in a file |
//! | `summary.rs`, `target.rs`, `report.rs` | medians, verdicts, tables |

mod cells;
mod figure;
mod order;
mod report;
mod run;
mod sheet;
mod summary;
mod target;
mod vendor;
mod workload;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{process::ExitCode, thread};

use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use undrop::interrupt::{EXIT_INTERRUPTED, Interrupt, Interrupted};
use undrop::output;
use xxhash_rust::xxh3::xxh3_64;

use self::cells::{BARE, Cell, Table};
use self::figure::Figure;
use self::order::{ATTEMPTS_MAX, Clock, Task, time_text};
use self::run::{Job, Outcome};
use self::sheet::{Row, Sheet};
use self::summary::{Setups, Summary};
use crate::bench::guard::Machine;
use crate::bench::stop;
use crate::program::fingerprint;

const EXAMPLES: &str = "\
Examples:
  undrop-lab bench links --list                          the cells, and the time that they take
  undrop-lab bench links --out results                   all of them; the same command continues where it was stopped
  undrop-lab bench links --cells lossy-cubic --out results
  undrop-lab bench links --cells gigabit/uniform:1%/cubic --variants auto --quick --out trial
  undrop-lab bench links --cells sparse --shared --out sparse &
  undrop-lab bench links --cells twenty --shared --out twenty         two at once, on links of low rate
  undrop-lab bench links --report --out results          the tables of the runs so far";

/// Gateways on many links: goodput, losses, latency and cost, beside the same link without gateways.
///
/// Each run is added to runs.csv in the directory as it ends, and what happened over time to courses.jsonl.
/// The same command continues with the runs that are missing. A run during which the machine was disturbed
/// does not count and is repeated. Runs of another build of the gateways, or of another length (`--quick`),
/// do not count either, and are in no table of this command. Two commands cannot write to one directory at
/// the same time.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Plan {
    /// Table of cells in TOML [default: the one of this program]
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Only groups of these names, and cells whose ids contain one of these texts
    #[arg(long, value_delimiter = ',', value_name = "TEXT,...")]
    cells: Vec<String>,
    /// Only these variants; runs without gateways are always made
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    variants: Vec<String>,
    /// Number of rounds of each cell [default: as in the table]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// One round of runs that are a quarter as long; the figures mean little
    #[arg(long)]
    quick: bool,
    /// Most attempts of a run that is disturbed
    #[arg(long, default_value_t = ATTEMPTS_MAX, value_parser = clap::value_parser!(u32).range(1..=100))]
    attempts: u32,
    /// The machine is shared with other commands of this kind: the processor time of other programs does not
    /// disturb a run, as long as the emulator is in time
    #[arg(long)]
    shared: bool,
    /// Recorded losses, for the cells that replay them: CSV with the columns at_s, loss_percent and
    /// mean_burst
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,
    /// Directory of the runs
    #[arg(long, value_name = "DIR", default_value = "bench-links")]
    out: PathBuf,
    /// Print the tables of the runs in the directory, and run nothing. Of each cell and variant the last runs
    /// count, of whichever build; a line below names those that this program would make again
    #[arg(long, conflicts_with = "list")]
    report: bool,
    /// List the cells, and run nothing
    #[arg(long)]
    list: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

impl Plan {
    /// Returns whether the command runs anything.
    pub(in crate::bench) fn needs_network(&self) -> bool {
        !self.list && !self.report
    }

    /// Returns the whole table, and the part of it that was asked for.
    fn tables(&self) -> anyhow::Result<(Table, Table)> {
        let mut whole = match &self.table {
            Some(path) => {
                let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
                Table::parse(&text, self.recording.as_deref())
                    .with_context(|| format!("in {}", path.display()))?
            }
            None => Table::standard(self.recording.as_deref())?,
        };
        if self.quick {
            whole.make_quick();
        }
        whole.rounds = self.rounds.unwrap_or(whole.rounds);
        let mut table = whole.clone();
        table.keep(&self.cells, &self.variants)?;
        Ok((whole, table))
    }
}

/// Makes the runs that are missing, and prints the tables.
pub(crate) fn run(
    program: impl FnOnce() -> anyhow::Result<PathBuf>,
    plan: &Plan,
) -> anyhow::Result<ExitCode> {
    let (whole, table) = plan.tables()?;
    if plan.list {
        return list(&table);
    }
    let program = program()?;
    let build = fingerprint(&program)?;
    let runs = plan.out.join("runs.csv");
    let mut sheet = if plan.report { Sheet::open(&runs)? } else { Sheet::open_to_add(&runs)? };
    let mut is_whole = true;
    if !plan.report {
        let bench = Bench { plan, table: &table, build, program, interrupt: stop::listen()? };
        match bench.run_all(&mut sheet) {
            Err(error) if error.is::<Interrupted>() => {
                output::note("stopped; the same command continues from here");
                return Ok(ExitCode::from(EXIT_INTERRUPTED));
            }
            done => is_whole = done?,
        }
    }
    let present = present_setups(&whole, build);
    let setups = if plan.report { Setups::Last } else { Setups::Only(&present) };
    print(plan, &Summary::of(&table, sheet.rows(), setups), &present)?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the tables, and which of the runs in them have other setups than the present ones.
fn print(plan: &Plan, summary: &Summary<'_>, present: &HashSet<String>) -> anyhow::Result<()> {
    let others = summary.others(present);
    if plan.json {
        let mut document = report::document(summary);
        document["other_setups"] = json!(others);
        return output::line(&serde_json::to_string_pretty(&document)?);
    }
    output::line((report::markdown(summary) + &report::others(&others)).trim_end())
}

/// Returns the tables of a group from a file of runs.
///
/// # Errors
/// If the file cannot be read, there is no such group, or it has no runs.
pub(in crate::bench) fn group_table(runs: &Path, group: &str) -> anyhow::Result<String> {
    let table = Table::standard(None)?;
    let sheet = Sheet::open(runs)?;
    // A file of published runs has those of several builds on purpose.
    let summary = Summary::of(&table, sheet.rows(), Setups::Last);
    let group = table.groups.iter().find(|known| known.id == group);
    let text =
        report::group_markdown(&summary, group.context("expected a group of cells, saw another name")?);
    anyhow::ensure!(!text.is_empty(), "expected runs of the group in {}, saw none", runs.display());
    Ok(text)
}

/// Returns the names of all groups of cells.
#[cfg(test)]
pub(in crate::bench) fn group_names() -> anyhow::Result<Vec<String>> {
    Ok(Table::standard(None)?.groups.into_iter().map(|group| group.id).collect())
}

fn list(table: &Table) -> anyhow::Result<ExitCode> {
    let tasks = order::tasks(table, |cell, variant| format!("{} {variant}", cell.id));
    for group in &table.groups {
        let of_group = |task: &&Task<'_>| group.cells.iter().any(|cell| std::ptr::eq(cell, task.cell));
        let seconds: f64 = tasks.iter().filter(of_group).map(Task::usual_s).sum();
        output::line(&format!("{} ({}): {}", group.id, time_text(seconds), group.title))?;
        for cell in &group.cells {
            output::line(&format!("  {:<48} {:>4.0} s", cell.id, cell.seconds))?;
        }
        for target in &group.targets {
            output::line(&format!("  target {target}"))?;
        }
    }
    for cell in &table.omitted {
        output::line(&format!("  {cell:<48} needs --recording"))?;
    }
    let seconds: f64 = tasks.iter().map(Task::usual_s).sum();
    output::line(&format!("{} runs, about {}", tasks.len(), time_text(seconds)))?;
    Ok(ExitCode::SUCCESS)
}

struct Bench<'a> {
    plan: &'a Plan,
    table: &'a Table,
    program: PathBuf,
    /// Fingerprint of the program.
    build: u64,
    interrupt: &'a Interrupt,
}

impl Bench<'_> {
    /// Makes all missing runs; returns whether all of them count in the end.
    fn run_all(&self, sheet: &mut Sheet) -> anyhow::Result<bool> {
        let all = order::tasks(self.table, |cell, variant| setup(self.table, self.build, cell, variant));
        let missing = |sheet: &Sheet| order::missing(all.clone(), sheet.rows(), self.plan.attempts);
        let mut clock = Clock::default();
        let mut left = missing(sheet);
        output::note(format_args!(
            "{} of {} runs are missing, about {}",
            left.len(),
            all.len(),
            time_text(left.iter().map(Task::usual_s).sum())
        ));
        while let Some(first) = left.first() {
            // Repetitions come at the end of their cell, so that they are near the runs they are compared
            // with.
            let id = first.cell.id.clone();
            for task in left.iter().filter(|task| task.cell.id == id) {
                if task.attempt > 1 {
                    self.wait_for_calm()?;
                }
                self.interrupt.check()?;
                let started = Instant::now();
                let row = self.row(task)?;
                clock.add(task.usual_s(), started.elapsed().as_secs_f64());
                let rest: f64 = missing_after(&left, task).map(Task::usual_s).sum();
                output::note(progress(&row, clock.left_s(rest)));
                sheet.add(row)?;
            }
            left = missing(sheet);
        }
        let counted = |task: &Task<'_>| {
            sheet
                .rows()
                .iter()
                .any(|row| row.setup == task.setup && row.number == task.number && row.counts())
        };
        let uncounted = all.iter().filter(|task| !counted(task)).count();
        if uncounted > 0 {
            output::note(format_args!(
                "{uncounted} runs do not count, for the reasons in runs.csv; --attempts {} tries them again",
                self.plan.attempts + ATTEMPTS_MAX
            ));
        }
        Ok(uncounted == 0)
    }

    /// Makes a run. A run that fails is a row that does not count.
    fn row(&self, task: &Task<'_>) -> anyhow::Result<Row> {
        let job = Job {
            program: &self.program,
            cell: task.cell,
            variant: self.table.variants.get(&task.variant),
            // The runs of a round have the same losses.
            seed: 1_000 + u64::from(task.number),
            is_shared: self.plan.shared,
            interrupt: self.interrupt,
        };
        let mut row = Row {
            setup: task.setup.clone(),
            cell: task.cell.id.clone(),
            variant: task.variant.clone(),
            number: task.number,
            attempt: task.attempt,
            ..Row::default()
        };
        match run::run(&job) {
            Ok(outcome) => {
                self.keep_course(task, &outcome)?;
                row.disturbed = outcome.disturbed.join("; ");
                let by_phase: Vec<String> = outcome.by_phase.iter().map(u64::to_string).collect();
                if by_phase.len() > 1 {
                    row.by_phase = by_phase.join(";");
                }
                row.counters = outcome.counters;
                row.figures = outcome.figures;
            }
            // Gateways end with the terminal's Ctrl-C too, which is no failure of the run.
            Err(_) if self.interrupt.is_requested() => return Err(Interrupted.into()),
            Err(error) => row.disturbed = format!("failed: {error:#}").chars().take(2_000).collect(),
        }
        Ok(row)
    }

    /// Adds what happened over time to a file of its own.
    fn keep_course(&self, task: &Task<'_>, outcome: &Outcome) -> anyhow::Result<()> {
        let path = self.plan.out.join("courses.jsonl");
        let write = || -> anyhow::Result<()> {
            fs::create_dir_all(&self.plan.out)?;
            let line = json!({
                "setup": task.setup,
                "cell": task.cell.id,
                "variant": task.variant,
                "number": task.number,
                "attempt": task.attempt,
                "moments": outcome.moments,
            });
            let mut file = File::options().create(true).append(true).open(&path)?;
            Ok(file.write_all(format!("{line}\n").as_bytes())?)
        };
        write().with_context(|| format!("writing {}", path.display()))
    }

    /// Waits until the machine has been calm for some seconds, or for some minutes.
    fn wait_for_calm(&self) -> anyhow::Result<()> {
        const LOOKS_MAX: u32 = 60;
        for look in 0..LOOKS_MAX {
            let before = Machine::now()?;
            for _ in 0..50 {
                thread::sleep(Duration::from_millis(100));
                self.interrupt.check()?;
            }
            let load = Machine::now()?.since(&before);
            let reasons = if self.plan.shared { load.of_host } else { load.reasons() };
            if reasons.is_empty() {
                return Ok(());
            }
            if look == 0 {
                output::note(format_args!("waiting for a calm machine: {}", reasons.join("; ")));
            }
        }
        Ok(())
    }
}

/// Returns a fingerprint of everything that a run depends on.
fn setup(table: &Table, build: u64, cell: &Cell, variant: &str) -> String {
    let Cell { link, course, workload, seconds, learn, .. } = cell;
    let variant = table.variants.get(variant);
    let text =
        format!("{} {link:?} {course:?} {workload:?} {learn} {seconds} {variant:?} {build:x}", cell.id);
    format!("{:016x}", xxh3_64(text.as_bytes()))
}

/// Returns the fingerprints of all cells and variants of a whole table: targets refer to cells that were not
/// asked for.
fn present_setups(table: &Table, build: u64) -> HashSet<String> {
    let variants = || table.variants.keys().map(String::as_str).chain([BARE]);
    let of_cell = |cell| variants().map(move |variant| setup(table, build, cell, variant));
    table.cells().flat_map(|(_, cell)| of_cell(cell)).collect()
}

/// Returns the runs after a run, itself excluded.
fn missing_after<'t, 'a>(left: &'t [Task<'a>], task: &Task<'a>) -> impl Iterator<Item = &'t Task<'a>> {
    let at = left.iter().position(|other| std::ptr::eq(other, task)).unwrap_or(0);
    left.iter().skip(at + 1)
}

fn progress(row: &Row, left_s: f64) -> String {
    const SHOWN: [Figure; 5] =
        [Figure::Goodput, Figure::Overhead, Figure::StayedLost, Figure::LatencyMost, Figure::React];
    let figures: Vec<String> = SHOWN
        .iter()
        .filter_map(|figure| Some(format!("{} {}", figure.heading(), figure.text(*row.figures.get(figure)?))))
        .collect();
    let verdict = if row.counts() { String::new() } else { format!("; does not count: {}", row.disturbed) };
    format!(
        "{} {} {}: {}{verdict}; {} left",
        row.cell,
        row.variant,
        row.number,
        figures.join(", "),
        time_text(left_s)
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::figure::Figures;
    use super::*;

    /// A small table.
    pub(in crate::bench::links) const SMALL: &str = r#"
rounds = 2

[links]
narrow = { rate = "10mbit", delay = "5ms" }

[workloads]
cubic = { tcp = { congestion = "cubic" } }
voice = { datagrams = { per_second = 50, payload = 200 } }

[variants.layered]
title = "layered (8; 1,11,19)"
code = """
scheme = "layered"
"""

[variants.table]
title = "table"
thresholds = [
  { from_percent = 0, code = 'scheme = "layered"' },
  { from_percent = 1, code = 'scheme = "sliding"' },
]

[expected]
"uniform:1%" = 3.6

[[group]]
id = "lossy"
title = "A lossy link"
links = ["narrow"]
losses = ["uniform:1%"]
workloads = ["cubic"]
variants = ["layered", "table"]
seconds = 8
columns = ["bare.goodput_mbps", "layered.goodput_mbps", "layered.share_percent"]
targets = [
  { variant = "layered", figure = "goodput_mbps", at_least = 5, times = "bare" },
  { variant = "layered", figure = "overhead_percent", at_most = 1.25, times = "expected" },
  { variant = "layered", figure = "residual_ppm", at_most = 10 },
]
"#;

    /// A run with a goodput and an overhead.
    pub(in crate::bench::links) fn row(cell: &str, variant: &str, mbps: f64, overhead_percent: f64) -> Row {
        let mut figures = Figures::from([(Figure::Goodput, mbps)]);
        if overhead_percent > 0.0 {
            figures.insert(Figure::Overhead, overhead_percent);
        }
        Row {
            setup: "this".to_owned(),
            cell: cell.to_owned(),
            variant: variant.to_owned(),
            attempt: 1,
            figures,
            ..Row::default()
        }
    }

    #[test]
    fn the_table_of_this_program_is_whole() {
        let table = Table::standard(None).unwrap();
        assert!(table.rounds >= 3);
        assert!(table.groups.iter().all(|group| !group.title.is_empty() && !group.columns.is_empty()));
        assert_eq!(table.omitted.len(), 1, "a recorded day needs a recording: {:?}", table.omitted);
        let judged = table.groups.iter().filter(|group| !group.targets.is_empty()).count();
        assert!(judged >= 6, "{judged} groups have targets");
        // Shares need the link without loss.
        for (_, cell) in table.cells().filter(|(_, cell)| cell.workload.has_share()) {
            let id = cell.lossless_id();
            assert!(table.cells().any(|(_, other)| other.id == id), "{id} is missing");
        }
    }

    #[test]
    fn the_present_setups_are_those_of_all_runs_of_this_build_and_length() {
        let whole = Table::parse(SMALL, None).unwrap();
        let present = present_setups(&whole, 7);
        let setups = |table: &Table, build| -> Vec<String> {
            let tasks = order::tasks(table, |cell, variant| setup(table, build, cell, variant));
            tasks.into_iter().map(|task| task.setup).collect()
        };
        let mut kept = whole.clone();
        kept.keep(&["lossy".to_owned()], &["layered".to_owned()]).unwrap();
        assert!(setups(&kept, 7).iter().all(|setup| present.contains(setup)));
        assert!(setups(&whole, 7).iter().all(|setup| present.contains(setup)), "also those not asked for");
        assert!(!setups(&whole, 8).iter().any(|setup| present.contains(setup)), "another build");
        kept.make_quick();
        assert!(!setups(&kept, 7).iter().any(|setup| present.contains(setup)), "another length");
    }

    #[test]
    fn cells_are_kept_by_group_or_by_a_part_of_their_id_with_what_they_need() {
        let ids = |cells: &[&str], variants: &[&str]| {
            let mut table = Table::parse(SMALL, None).unwrap();
            let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
            table.keep(&names(cells), &names(variants))?;
            anyhow::Ok(
                table
                    .cells()
                    .map(|(group, cell)| (cell.id.clone(), group.variants.clone()))
                    .collect::<Vec<_>>(),
            )
        };
        let lossless = "narrow/none/cubic".to_owned();
        let kept = ids(&["uniform"], &["layered"]).unwrap();
        assert_eq!(kept[0].0, lossless);
        assert_eq!(kept[1], ("narrow/uniform:1%/cubic".to_owned(), vec!["layered".to_owned()]));
        assert_eq!(ids(&["lossless"], &[]).unwrap().len(), 1);
        assert!(ids(&["bursty"], &[]).unwrap_err().to_string().contains("--list"));
        assert!(ids(&[], &["auto"]).unwrap_err().to_string().contains("--variants"));
    }

    #[test]
    fn a_quick_table_has_one_round_of_short_runs() {
        let mut table =
            Table::parse(&SMALL.replace("uniform:1%\"]", "0s none, 4s uniform:1%\"]"), None).unwrap();
        table.make_quick();
        let (_, cell) = table.cells().last().unwrap();
        assert_eq!((table.rounds, cell.seconds), (1, 4.0));
        assert_eq!(cell.course.phases(), [0, 2_000_000]);
    }

    #[test]
    fn a_wrong_table_is_refused_with_what_is_expected() {
        for (from, to, needle) in [
            ("links = [\"narrow\"]", "links = [\"wide\"]", "expected a link, saw \"wide\""),
            ("variants = [\"layered\", \"table\"]", "variants = [\"auto\"]", "expected a defined variant"),
            ("layered.share_percent", "layered.speed", "expected a figure"),
            ("at_most = 10", "at_most = 10, at_least = 1", "either `at_least` or `at_most`"),
            ("layered.share_percent", "layered.beside_mbps", "columns: expected a figure that a cell"),
            ("bare.goodput_mbps", "bare.overhead_percent", "saw bare.overhead_percent"),
            ("\"residual_ppm\"", "\"react_s\"", "targets: expected a figure that a cell"),
            ("times = \"bare\"", "times = \"auto\"", "targets: expected a defined variant"),
            ("uniform:1%\"]", "heavy\"]", "uniform:P"),
            ("seconds = 8", "seconds = 0", "1 to 3600 seconds"),
            ("rate = \"10mbit\"", "rate = \"fast\"", "1gbit"),
            ("from_percent = 0", "from_percent = 2", "ascend from 0"),
            ("rounds = 2", "rounds = 0", "at least 1"),
            ("rounds = 2", "turns = 2", "turns"),
        ] {
            let text = SMALL.replace(from, to);
            assert_ne!(text, SMALL, "{from}");
            let error = Table::parse(&text, None).unwrap_err();
            assert!(format!("{error:#}").contains(needle), "{to}: {error:#}");
        }
    }

    #[test]
    fn a_line_of_progress_has_the_figures_and_why_a_run_does_not_count() {
        let mut row = row("narrow/uniform:1%/cubic", "layered", 7.6, 25.0);
        assert_eq!(
            progress(&row, 7_800.0),
            "narrow/uniform:1%/cubic layered 0: Mbit/s 7.6, added bytes, % 25.0; 2 h 10 min left"
        );
        row.disturbed = "the host took 5.0 % of the processor time".to_owned();
        assert!(progress(&row, 1.0).contains("does not count: the host took"));
    }
}
