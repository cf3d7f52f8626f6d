//! `undrop-lab figures`: the papers' figures, run again.

#[allow(clippy::disallowed_methods, reason = "shows the remaining time")]
mod bar;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use ::figures::{Figure, Kept, Made, Outcome, RunError, Runner, Scale, Store};
use anyhow::Context as _;
use netlab::privilege;

use self::bar::Bar;
use undrop::failure::usage;
use undrop::interrupt::{EXIT_INTERRUPTED, Interrupt};
use undrop::output;

const EXAMPLES: &str = "\
Examples:
  undrop-lab figures --quick                       all of them, within minutes
  undrop-lab figures --only 4.10 --only 4.14       two of them, as large as in the papers
  undrop-lab figures --list                        list the figures
  undrop-lab figures --out docs/figures --page-only

The exit code is 1 if a figure failed or does not have the expected shape: which line is greater, and which
way it slopes. The expected shape is that of the source, except for a few figures that are known to differ.";

/// Run the papers' figures again, and compare them with the claims of the papers.
///
/// Simulated figures (sim) are the same on every machine and use all processors. Real figures are measured on
/// TCP and UDP of this kernel, in network namespaces, one run after another; they need an otherwise idle
/// machine, and root or a user namespace. Without these rights they are skipped.
///
/// A figure in the folder is not run again if its set-up is the same. A figure that was stopped continues
/// when the command is repeated.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Run only this figure; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Fewer points, shorter runs, small packets
    #[arg(long)]
    quick: bool,
    /// Directory of data (JSON) and pictures (SVG); the page goes beside it, as DIR.md
    #[arg(long, value_name = "DIR", default_value = "figures")]
    out: PathBuf,
    /// Run figures of the directory again, from the beginning
    #[arg(long)]
    again: bool,
    /// List the figures
    #[arg(long)]
    list: bool,
    /// Write the page and the pictures from the data in the directory, and run nothing
    #[arg(long, conflicts_with_all = ["list", "quick", "again"])]
    page_only: bool,
}

/// Runs the chosen figures.
///
/// Must be called while the process has one thread: without root it enters a user namespace.
pub(crate) fn run(args: &Args, undrop: impl FnOnce() -> anyhow::Result<PathBuf>) -> anyhow::Result<ExitCode> {
    let all = ::figures::all();
    let scale = if args.quick { Scale::Quick } else { Scale::Full };
    if args.list {
        list(&all, scale)?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = chosen(&all, &args.only)?;
    if args.page_only {
        return draw_again(&all, &chosen, &args.out);
    }
    let needs_kernel = chosen.iter().any(|figure| figure.made(scale).contains(&Made::Real));
    let program = if needs_kernel { privileged(undrop) } else { Err(String::new()) };
    let work = Work {
        scale,
        again: args.again,
        store: Store::new(&args.out),
        program,
        interrupt: Interrupt::listen().context("listening for Ctrl-C")?,
    };
    let mut is_expected = true;
    for (at, figure) in chosen.iter().enumerate() {
        let bar = Bar::new(figure.id, at + 1, chosen.len());
        let outcome = work.outcome(figure, &bar)?;
        bar.clear();
        match outcome {
            Err(RunError::Stopped) => {
                let how = if args.again { "without --again this figure" } else { "the same command" };
                eprintln!("stopped; {how} continues from here");
                return Ok(ExitCode::from(EXIT_INTERRUPTED));
            }
            Err(RunError::Unable(why)) => output::line(&format!("{:<12} SKIPPED: {why}", figure.id))?,
            Err(error) => {
                output::line(&format!("{:<12} BROKE: {error}", figure.id))?;
                is_expected = false;
            }
            Ok(outcome) => {
                output::line(&line(figure, &outcome))?;
                is_expected &= figure.is_as_expected(&outcome);
            }
        }
        write_page(&all, &work.store, &args.out)?;
    }
    Ok(if is_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn list(all: &[Figure], scale: Scale) -> anyhow::Result<()> {
    for figure in all {
        let (made, id) = (made_text(&figure.made(scale)), figure.id);
        output::line(&format!("{id:<12} {made:<9} {} ({})", figure.prose.title, figure.prose.source))?;
    }
    Ok(())
}

/// Writes the pictures of the chosen figures and the page from the data in the directory.
fn draw_again(all: &[Figure], chosen: &[&Figure], folder: &Path) -> anyhow::Result<ExitCode> {
    let store = Store::new(folder);
    let mut is_expected = true;
    for figure in chosen {
        let Some(outcome) = store.held(figure) else {
            output::line(&format!("{:<12} SKIPPED: no data of it in {}", figure.id, folder.display()))?;
            continue;
        };
        store.save(figure, &outcome)?;
        output::line(&line(figure, &outcome))?;
        is_expected &= figure.is_as_expected(&outcome);
    }
    write_page(all, &store, folder)?;
    Ok(if is_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the program whose processes are gateways, if networks can be built here; else the reason, and a
/// remedy.
fn privileged(undrop: impl FnOnce() -> anyhow::Result<PathBuf>) -> Result<PathBuf, String> {
    privilege::enter_user_namespace().and_then(|_| privilege::check()).map_err(|error| {
        format!(
            "expected the right to build network namespaces, saw: {error}; run it as root, or allow user namespaces and /dev/net/tun"
        )
    })?;
    undrop().map_err(|error| format!("{error:#}"))
}

/// The parts that all figures of one command share.
struct Work {
    scale: Scale,
    again: bool,
    store: Store,
    program: Result<PathBuf, String>,
    interrupt: Interrupt,
}

impl Work {
    /// Returns the outcome of a figure, from the directory or by running it, and stores it there.
    fn outcome(&self, figure: &Figure, bar: &Bar) -> anyhow::Result<Result<Outcome, RunError>> {
        if self.interrupt.is_requested() {
            return Ok(Err(RunError::Stopped));
        }
        if self.again {
            self.store.forget(figure, self.scale)?;
        }
        let kept = self.store.kept(figure, self.scale);
        // Kept runs are of a figure that was stopped, and younger than any outcome.
        let known = if self.again || kept.count() > 0 { None } else { self.store.load(figure, self.scale) };
        let outcome = known.map_or_else(|| self.run(figure, &kept, bar), Ok);
        if let Ok(outcome) = &outcome {
            // A known outcome is stored again, with the present texts.
            self.store.save(figure, outcome)?;
            self.store.forget(figure, self.scale)?;
        }
        Ok(outcome)
    }

    fn run(&self, figure: &Figure, kept: &Kept, bar: &Bar) -> Result<Outcome, RunError> {
        let runner = Runner {
            threads: thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: ::figures::memory_to_use(),
            program: self.program.as_deref().map_err(Clone::clone),
            is_stopped: &|| self.interrupt.is_requested(),
            on_progress: &|done, of| bar.show(done, of),
        };
        runner.run(figure, self.scale, Some(kept))
    }
}

fn made_text(made: &[Made]) -> String {
    made.iter().map(Made::to_string).collect::<Vec<_>>().join(", ")
}

fn chosen<'a>(all: &'a [Figure], only: &[String]) -> anyhow::Result<Vec<&'a Figure>> {
    if let Some(unknown) = only.iter().find(|id| all.iter().all(|figure| figure.id != **id)) {
        let ids: Vec<&str> = all.iter().map(|figure| figure.id).collect();
        return Err(usage(format!("--only: expected one of {}, saw {unknown:?}", ids.join(", "))));
    }
    let wanted = |figure: &&Figure| only.is_empty() || only.iter().any(|id| id == figure.id);
    Ok(all.iter().filter(wanted).collect())
}

fn line(figure: &Figure, outcome: &Outcome) -> String {
    let verdict = match (outcome.claim.holds, figure.is_as_expected(outcome)) {
        (true, true) => "holds",
        (false, true) => "differs, as known",
        (_, false) => "FAILS",
    };
    format!("{:<12} {verdict}  {}", outcome.id, outcome.claim.ours)
}

/// Writes the page of all figures in the directory, beside it and under its name.
fn write_page(all: &[Figure], store: &Store, folder: &Path) -> anyhow::Result<()> {
    let held = all.iter().filter_map(|figure| Some((figure, store.held(figure)?)));
    let name = folder.file_name().map_or_else(|| ".".into(), |name| name.to_string_lossy());
    let page = folder.with_extension("md");
    fs::write(&page, ::figures::page(&held.collect::<Vec<_>>(), &name))
        .with_context(|| format!("writing {}", page.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with the published data of one figure, changed.
    fn folder(slug: &str, change: impl FnOnce(&mut Outcome)) -> PathBuf {
        let published = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures");
        let folder = std::env::temp_dir().join(format!("undrop-lab-page-{}-{slug}", std::process::id()));
        let json = fs::read_to_string(format!("{published}/{slug}.json")).unwrap();
        let mut outcome: Outcome = serde_json::from_str(&json).unwrap();
        change(&mut outcome);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{slug}.json")), serde_json::to_string(&outcome).unwrap()).unwrap();
        folder
    }

    #[test]
    fn a_page_is_written_from_data_and_an_unexpected_figure_fails_the_command() {
        let all = ::figures::all();
        let chosen = chosen(&all, &["3.16".to_owned()]).unwrap();
        let draw = |change: fn(&mut Outcome)| {
            let folder = folder("thesis-3.16", change);
            let code = draw_again(&all, &chosen, &folder).unwrap();
            let page = fs::read_to_string(folder.with_extension("md")).unwrap();
            assert!(folder.join("thesis-3.16.svg").exists());
            fs::remove_file(folder.with_extension("md")).unwrap();
            fs::remove_dir_all(folder).unwrap();
            (code, page)
        };
        let (code, page) = draw(|_| {});
        assert_eq!(code, ExitCode::SUCCESS);
        assert!(
            page.contains("\n## 3.16: Relatively prime interleaves\n") && !page.contains("**no**"),
            "{page}"
        );
        let (code, page) = draw(|outcome| outcome.panels[0].series.reverse());
        assert_eq!(code, ExitCode::FAILURE);
        assert!(page.contains("**no**"), "{page}");
    }

    #[test]
    fn an_unknown_figure_is_refused_with_those_there_are() {
        let all = ::figures::all();
        let error = chosen(&all, &["9.9".to_owned()]).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("4.10") && text.contains("\"9.9\"")));
        assert_eq!(chosen(&all, &["4.12".to_owned()]).unwrap().len(), 1);
        assert_eq!(chosen(&all, &[]).unwrap().len(), all.len());
    }
}
