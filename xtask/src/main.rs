//! Developer tasks. `cargo xtask test` is the gate that both people and CI run.

mod assure;
mod dist;
mod gate;
mod habits;
mod lanes;
mod links;
mod native;
mod process;
mod programs;
mod python;
mod release;
mod schema;
mod style;
mod tally;
mod transcript;
mod verdict;
mod wings;
mod wire;

use std::error::Error;
use std::process::ExitCode;
use std::{env, fmt};

use anyhow::{bail, ensure};

use crate::gate::Extent;
use crate::tally::Tally;

const USAGE: &str = "\
Usage: cargo xtask TASK

  test          style, format, lints, tests, Python module, C library, documentation, licences, fuzz targets; the last lines list
                the skipped tests
  test --quick  style, format, lints, and tests that need neither the kernel nor simulated figures
  assure [STEP] interleavings, memory, fuzzing, coverage, alerts, advisories, mutants: hours of search for faults that tests
                miss; without a name, all steps; `assure mutants -- ARGS` passes arguments on to cargo-mutants
  style         the style rules alone; --record makes the present counts of writing habits the new limits
  schema        the JSON Schema files in docs/schema and docs/book/json.md; --write writes them from the types in the source
  wire          the tables of docs/wire.md and the dissector ops/undrop.lua; --write writes both from docs/wire.toml
  python        the tests of the Python module alone
  c             the tests of the C library alone: examples in C, C++ and Go, in C and C++ with sanitizers too
  dist          a release in target/dist: static programs, packages, an image, a bill of materials, checksums; --target TRIPLE
                builds for one processor, --twice compares with a second build, --test installs the package in two fresh systems and
                protects traffic between them
  demo ARGS     build with optimisation and run `undrop-lab demo ARGS`
  figures ARGS  build with optimisation and run `undrop-lab figures ARGS`: the papers' figures, simulated and measured
  bench ARGS    build with optimisation and run `undrop-lab bench ARGS`: links, tcp, udp, speed, overload, stall, soak or multicast
";

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let task = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let done = match task.as_str() {
        "test" => flag(&rest, "--quick").and_then(|is_quick| gate::run(Extent::of(is_quick))).map(code),
        "style" => flag(&rest, "--record").and_then(style::run).map(code),
        "assure" => assure::run(&rest).map(code),
        "schema" => flag(&rest, "--write").and_then(schema::run).map(code),
        "wire" => flag(&rest, "--write").and_then(wire::run).map(code),
        "python" => none(&rest).and_then(|()| alone(python::test)).map(code),
        "c" => none(&rest).and_then(|()| alone(native::test)).map(code),
        "dist" => dist::run(&rest).map(code),
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
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        if error.is::<WrongUsage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
    })
}

/// Options that a task does not have, with the expected ones.
#[derive(Debug)]
struct WrongUsage(String);

impl fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; `cargo xtask help` lists all tasks", self.0)
    }
}

impl Error for WrongUsage {}

/// Runs tests; prints the last line as a test program of cargo does, which the gate counts.
fn alone(test: impl FnOnce(&mut Tally) -> anyhow::Result<bool>) -> anyhow::Result<bool> {
    let mut tally = Tally::default();
    let success = test(&mut tally)?;
    tally.print_result(success);
    Ok(success)
}

fn code(is_success: bool) -> ExitCode {
    if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns whether the only option of a task was given.
fn flag(given: &[String], known: &str) -> anyhow::Result<bool> {
    match given {
        [] => Ok(false),
        [only] if only == known => Ok(true),
        other => bail!(WrongUsage(format!("expected nothing or {known}, saw {:?}", other.join(" ")))),
    }
}

fn none(given: &[String]) -> anyhow::Result<()> {
    ensure!(given.is_empty(), WrongUsage(format!("expected no option, saw {:?}", given.join(" "))));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_options_of_a_task_are_wrong_usage() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert!(!flag(&[], "--quick").unwrap() && flag(&words(&["--quick"]), "--quick").unwrap());
        let errors = [
            flag(&words(&["--quik"]), "--quick").unwrap_err(),
            flag(&words(&["--quick", "--quick"]), "--quick").unwrap_err(),
            none(&words(&["all"])).unwrap_err(),
            assure::run(&words(&["everything"])).unwrap_err(),
        ];
        for error in errors {
            assert!(error.is::<WrongUsage>(), "{error}");
            assert!(error.to_string().starts_with("expected "), "{error}");
        }
    }
}
