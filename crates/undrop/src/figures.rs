//! `undrop figures`: the papers' figures, run again.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::{fs, thread};

use ::figures::{Figure, Outcome, Scale, Store};
use anyhow::{Context as _, anyhow, bail};

use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop figures --quick                       all of them, within minutes
  undrop figures --only 4.10 --only 4.14       two of them, as large as in the papers
  undrop figures --list                        which there are

Exit code 1 if a figure is not as its source claims: who wins, which way it slopes.";

/// Run the papers' figures again, and hold them against what the papers claim.
///
/// In virtual time, so that figures are the same on every machine. A figure that the folder holds already is not run
/// again if its set-up is still the same: a run that was stopped goes on where it was.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this figure; may be given several times
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Fewer points, shorter runs, small packets
    #[arg(long)]
    quick: bool,
    /// Where to write data (JSON) and pictures (SVG); the page that compares them goes beside it, as DIR.md
    #[arg(long, value_name = "DIR", default_value = "figures")]
    out: PathBuf,
    /// Run also what the folder holds already
    #[arg(long)]
    again: bool,
    /// Name the figures and end
    #[arg(long)]
    list: bool,
}

/// Runs what was asked for.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let all = ::figures::all();
    if args.list {
        for figure in &all {
            output::line(&format!("{:<12} {} ({})", figure.id, figure.title, figure.source))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let scale = if args.quick { Scale::Quick } else { Scale::Full };
    let store = Store::new(&args.out);
    let mut all_hold = true;
    for figure in chosen(&all, &args.only)? {
        let kept = if args.again { None } else { store.load(figure, scale) };
        let outcome = match kept {
            Some(outcome) => outcome,
            None => run_one(figure, scale)?,
        };
        // Also what was kept: its claim may be told in other words by now.
        store.save(figure, &outcome)?;
        output::line(&line(&outcome))?;
        all_hold &= outcome.claim.holds;
    }
    // The page is of all figures that the folder holds, whichever were run now.
    let kept = all.iter().filter_map(|figure| Some((figure, store.load(figure, scale)?)));
    write_page(&args.out, &kept.collect::<Vec<_>>())?;
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn chosen<'a>(all: &'a [Figure], only: &[String]) -> anyhow::Result<Vec<&'a Figure>> {
    if let Some(unknown) = only.iter().find(|id| all.iter().all(|figure| figure.id != **id)) {
        let ids: Vec<&str> = all.iter().map(|figure| figure.id).collect();
        bail!("--only: expected one of {}, saw {unknown:?}", ids.join(", "));
    }
    let wanted = |figure: &&Figure| only.is_empty() || only.iter().any(|id| id == figure.id);
    Ok(all.iter().filter(wanted).collect())
}

fn run_one(figure: &Figure, scale: Scale) -> anyhow::Result<Outcome> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let bar = Bar::new(figure.id);
    let outcome = ::figures::run(figure, scale, threads, &|done, of| bar.show(done, of));
    bar.clear();
    outcome.map_err(|error| anyhow!("figure {}: {error}", figure.id))
}

fn line(outcome: &Outcome) -> String {
    let verdict = if outcome.claim.holds { "holds" } else { "FAILS" };
    format!("{:<12} {verdict}  {}", outcome.id, outcome.claim.ours)
}

/// Beside the folder, under its name.
fn write_page(folder: &Path, outcomes: &[(&Figure, Outcome)]) -> anyhow::Result<()> {
    let name = folder.file_name().map_or_else(|| ".".into(), |name| name.to_string_lossy());
    let page = folder.with_extension("md");
    fs::write(&page, ::figures::table(outcomes, &name)).with_context(|| format!("writing {}", page.display()))
}

/// One line on stderr: on a terminal it is written anew, elsewhere nothing is said before the figure is done.
struct Bar {
    id: &'static str,
    is_terminal: bool,
    most: Mutex<usize>,
}

const BAR_WIDTH: usize = 30;

impl Bar {
    fn new(id: &'static str) -> Self {
        Self { id, is_terminal: io::stderr().is_terminal(), most: Mutex::new(0) }
    }

    fn show(&self, done: usize, of: usize) {
        let Ok(mut most) = self.most.lock() else { return };
        if !self.is_terminal || done <= *most {
            return;
        }
        *most = done;
        let full = BAR_WIDTH * done / of.max(1);
        let bar = format!("{}{}", "#".repeat(full), "-".repeat(BAR_WIDTH - full));
        // Progress that nobody can see is no failure.
        let _ = write!(io::stderr(), "\r{:<12} [{bar}] {done}/{of} runs\x1b[K", self.id);
    }

    fn clear(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_figure_is_refused_with_those_there_are() {
        let all = ::figures::all();
        let error = chosen(&all, &["9.9".to_owned()]).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("4.10") && text.contains("\"9.9\"")));
        assert_eq!(chosen(&all, &["4.12".to_owned()]).unwrap().len(), 1);
        assert_eq!(chosen(&all, &[]).unwrap().len(), all.len());
    }
}
