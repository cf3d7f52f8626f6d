//! `undrop-lab figures`: the papers' figures, run again.

#[allow(clippy::disallowed_methods, reason = "tells people how long it still takes")]
mod bar;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use ::figures::{Figure, Kept, Made, Outcome, RunError, Runner, Scale, Store};
use anyhow::{Context as _, bail};
use netlab::privilege;

use self::bar::Bar;
use undrop::interrupt::{EXIT_INTERRUPTED, Interrupt};
use undrop::output;

const EXAMPLES: &str = "\
Examples:
  undrop-lab figures --quick                       all of them, within minutes
  undrop-lab figures --only 4.10 --only 4.14       two of them, as large as in the papers
  undrop-lab figures --list                        which there are

Exit code 1 if a figure failed, or is not as its source claims: who wins, which way it slopes. A few differ from their source,
are known to, and have a shape of their own to keep.";

/// Run the papers' figures again, and hold them against what the papers claim.
///
/// Simulated figures (sim) are the same on every machine, and use all its processors. Real ones are measured on TCP and UDP of
/// this kernel, in network namespaces, one run after the other: leave the machine alone meanwhile. They need root or a user
/// namespace; without, they are skipped.
///
/// A figure that the folder holds already is not run again if its set-up is still the same, and one that was stopped midway
/// goes on where it was: the same command again is enough.
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
    /// Run also what the folder holds already, from its beginning
    #[arg(long)]
    again: bool,
    /// Name the figures and end
    #[arg(long)]
    list: bool,
}

/// Runs what was asked for.
///
/// To be called while the process has one thread: without root it enters a user namespace.
pub(crate) fn run(args: &Args, undrop: impl FnOnce() -> anyhow::Result<PathBuf>) -> anyhow::Result<ExitCode> {
    let all = ::figures::all();
    let scale = if args.quick { Scale::Quick } else { Scale::Full };
    if args.list {
        for figure in &all {
            let (made, id) = (made_text(&figure.made(scale)), figure.id);
            output::line(&format!("{id:<12} {made:<9} {} ({})", figure.prose.title, figure.prose.source))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = chosen(&all, &args.only)?;
    let needs_kernel = chosen.iter().any(|figure| figure.made(scale).contains(&Made::Real));
    let program = if needs_kernel { privileged(undrop) } else { Err(String::new()) };
    let work = Work {
        scale,
        again: args.again,
        store: Store::new(&args.out),
        program,
        interrupt: Interrupt::listen().context("listening for Ctrl-C")?,
    };
    let mut all_hold = true;
    for (at, figure) in chosen.iter().enumerate() {
        let bar = Bar::new(figure.id, at + 1, chosen.len());
        let came = work.outcome(figure, &bar)?;
        bar.clear();
        match came {
            Err(RunError::Stopped) => {
                let how = if args.again { "without --again this figure" } else { "the same command" };
                eprintln!("stopped; {how} goes on from here");
                return Ok(ExitCode::from(EXIT_INTERRUPTED));
            }
            Err(RunError::Unable(why)) => output::line(&format!("{:<12} SKIPPED: {why}", figure.id))?,
            Err(error) => {
                output::line(&format!("{:<12} BROKE: {error}", figure.id))?;
                all_hold = false;
            }
            Ok(outcome) => {
                output::line(&line(figure, &outcome))?;
                all_hold &= figure.is_as_expected(&outcome);
            }
        }
        // The page is of all figures that the folder holds, whichever were run now.
        let held = all.iter().filter_map(|figure| Some((figure, work.store.held(figure)?)));
        write_page(&args.out, &held.collect::<Vec<_>>())?;
    }
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the program whose processes are gateways, if networks can be built here; else the reason, and a remedy.
fn privileged(undrop: impl FnOnce() -> anyhow::Result<PathBuf>) -> Result<PathBuf, String> {
    privilege::enter_user_namespace().and_then(|_| privilege::check()).map_err(|error| {
        format!(
            "it builds network namespaces, and may not: {error}; run it as root, or allow user namespaces and /dev/net/tun"
        )
    })?;
    undrop().map_err(|error| format!("{error:#}"))
}

/// What all figures of one command share.
struct Work {
    scale: Scale,
    again: bool,
    store: Store,
    program: Result<PathBuf, String>,
    interrupt: Interrupt,
}

impl Work {
    /// From the folder, or run; what has come of it is in the folder.
    fn outcome(&self, figure: &Figure, bar: &Bar) -> anyhow::Result<Result<Outcome, RunError>> {
        if self.interrupt.is_requested() {
            return Ok(Err(RunError::Stopped));
        }
        if self.again {
            self.store.forget(figure, self.scale)?;
        }
        let kept = self.store.kept(figure, self.scale);
        // Runs that are kept are those of a run that was stopped, and younger than any outcome.
        let known = if self.again || kept.count() > 0 { None } else { self.store.load(figure, self.scale) };
        let came = known.map_or_else(|| self.run(figure, &kept, bar), Ok);
        if let Ok(outcome) = &came {
            // Also what was known: its claim may be told in other words by now.
            self.store.save(figure, outcome)?;
            self.store.forget(figure, self.scale)?;
        }
        Ok(came)
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
        bail!("--only: expected one of {}, saw {unknown:?}", ids.join(", "));
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

/// Beside the folder, under its name.
fn write_page(folder: &Path, outcomes: &[(&Figure, Outcome)]) -> anyhow::Result<()> {
    let name = folder.file_name().map_or_else(|| ".".into(), |name| name.to_string_lossy());
    let page = folder.with_extension("md");
    fs::write(&page, ::figures::page(outcomes, &name)).with_context(|| format!("writing {}", page.display()))
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
