//! Developer tasks. `cargo xtask test` is the gate that both people and CI run.

mod assure;
mod gate;
mod habits;
mod lanes;
mod process;
mod programs;
mod python;
mod release;
mod style;
mod tally;
mod verdict;
mod wings;

use std::env;
use std::process::ExitCode;

use anyhow::bail;

use crate::gate::Extent;

const USAGE: &str = "\
Usage: cargo xtask TASK

  test          style, format, lints, tests, Python module, documentation, licences, fuzz targets; the last lines list
                the skipped tests
  test --quick  style, format, lints, and tests that need neither the kernel nor simulated figures
  assure [STEP] interleavings, memory, fuzzing, coverage, advisories, mutants: hours of search for faults that tests miss;
                without a name, all steps
  style         the style rules alone; --record makes the present counts of writing habits the new limits
  python        the tests of the Python module alone
  demo ARGS     build with optimisation and run `undrop-lab demo ARGS`
  figures ARGS  build with optimisation and run `undrop-lab figures ARGS`: the papers' figures, simulated and measured
  bench ARGS    build with optimisation and run `undrop-lab bench ARGS`: links, tcp, udp, speed, overload, stall, soak or multicast
";

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let task = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let done = match task.as_str() {
        "test" => flag(&rest, "--quick").and_then(|is_quick| gate::run(Extent::of(is_quick))),
        "style" => flag(&rest, "--record").and_then(style::run),
        "assure" => assure::run(&rest),
        "python" => python::run(),
        "demo" | "figures" | "bench" => release::lab(&task, &rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether the only option of a task was given.
fn flag(given: &[String], known: &str) -> anyhow::Result<bool> {
    match given {
        [] => Ok(false),
        [only] if only == known => Ok(true),
        other => bail!("expected nothing or {known}, saw {:?}", other.join(" ")),
    }
}
