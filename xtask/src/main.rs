//! Developer tasks: `cargo xtask test` is the gate that people and CI run alike, `cargo xtask demo` shows what it is for.

mod gate;
mod process;
mod python;
mod release;
mod style;
mod tally;

use std::env;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask TASK

  test          style, format, lints, tests, the papers' figures, Python module, documentation, licences, fuzz targets;
                closes with what was skipped
  style         the style rules alone
  python        the tests of the Python module alone
  demo ARGS     build with optimisation and run `undrop-lab demo ARGS`
  figures ARGS  build with optimisation and run `undrop-lab figures ARGS`: the papers' figures, simulated and measured
  bench ARGS    build with optimisation and run `undrop-lab bench ARGS`: tcp, udp, speed, soak or multicast
";

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let task = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let done = match task.as_str() {
        "test" => gate::run(),
        "style" => style::run(),
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
