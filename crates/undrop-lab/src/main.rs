//! The `undrop-lab` command: demonstrations and measurements, one file for each subcommand.

mod bench;
mod code;
mod course;
mod demo;
mod figures;
mod link;
mod multicast;
mod program;
mod timeline;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use undrop::{failure, gateway, help, log};

const EXAMPLES: &str = "\
Examples:
  undrop-lab demo                             two sites and a lossy link on this machine
  undrop-lab multicast bench                  recovery of lost multicast in a simulated cluster
  undrop-lab figures --quick                  the papers' figures, reproduced
  undrop-lab bench tcp                        TCP goodput by loss rate, with and without gateways

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 stopped by Ctrl-C or SIGTERM.";

const DEMO_EXAMPLES: &str = "\
Examples:
  undrop-lab demo                                 cubic, 1 Gbit/s, 50 ms one way, 1 % loss
  undrop-lab demo --congestion reno --seconds 20
  undrop-lab demo --loss bursty:0.01:10 --json
  undrop-lab demo --scheme reed-solomon --c 3 --interleave 20 --delayed

The exit code is 1 if the gateways did not mask the losses.";

/// Demonstrates and measures Undrop.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 110, propagate_version = true)]
struct Cli {
    /// Log level for stderr: `info` or `debug`, or levels by module, such as `maelstrom=trace,info` [default:
    /// RUST_LOG, or `info`]
    #[arg(long, global = true, value_name = "FILTER", value_parser = log::parse_filter)]
    log: Option<String>,
    /// `undrop` program that runs the gateways [default: this program, which contains the same gateway]
    #[arg(long, global = true, value_name = "FILE")]
    program: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show TCP on a lossy long-haul link: alone it collapses, behind gateways it stays fast.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(demo::DemoArgs),
    Figures(figures::Args),
    Link(link::Args),
    /// Measure recovery of lost multicast, in virtual time or on this machine.
    #[command(subcommand)]
    Multicast(multicast::Command),
    /// Measure gateways and multicast systems with real packets, each beside its baseline in the same run.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Run the gateway of `undrop`; demonstrations and measurements start it.
    #[command(subcommand, hide = true)]
    Gateway(gateway::Command),
}

fn main() -> ExitCode {
    let Cli { log: filter, program, command } = match help::parse() {
        Ok(cli) => cli,
        Err(error) => {
            help::print(&error);
            return help::exit_code(&error);
        }
    };
    log::start(filter.as_deref(), None);
    let program = || program::find(program.as_deref());
    let done = match command {
        Command::Demo(args) => program().and_then(|program| demo::run(&args, program)),
        Command::Figures(args) => figures::run(&args, program),
        Command::Link(args) => link::run(&args),
        Command::Multicast(command) => multicast::run(&command),
        Command::Bench(command) => bench::run(&command, program),
        Command::Gateway(command) => gateway::run(command),
    };
    done.unwrap_or_else(|error| failure::report(&error))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Returns the words of a command with values in place of the words that stand for values.
    fn with_values(words: &[String]) -> Vec<String> {
        let value = |word: &String| match word.as_str() {
            "D" | "…" => "16".to_owned(),
            word if word.ends_with(":P") => word.replace(":P", ":0.1"),
            word => word.to_owned(),
        };
        words.iter().map(value).collect()
    }

    #[test]
    fn the_commands_of_the_published_figures_exist() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let read = |page: &str| fs::read_to_string(root.join("docs").join(page)).unwrap();
        let page = read("bench.md") + &read("load.md");
        let commands = bench::quoted(&page);
        assert!(commands.len() >= 8, "{commands:?}");
        for words in commands {
            let line = ["undrop-lab".to_owned()].into_iter().chain(with_values(&words));
            if let Err(error) = Cli::try_parse_from(line) {
                panic!("`{}`: {error}", words.join(" "));
            }
        }
        // Examples and tests that are run by themselves.
        let text = page.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut found = 0;
        for (option, directory) in [(" --example ", "examples"), (" --test ", "tests")] {
            for (before, after) in text.match_indices(option).map(|(at, _)| text.split_at(at)) {
                let package = before.rsplit(" -p ").next().unwrap();
                let name = after[option.len()..].split(['`', ' ']).next().unwrap();
                let file = root.join("crates").join(package).join(directory).join(name);
                assert!(file.with_extension("rs").exists() || file.is_dir(), "{}", file.display());
                found += 1;
            }
        }
        assert!(found >= 3, "{found}");
    }
}
