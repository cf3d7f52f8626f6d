//! `undrop fec`: one file for each subcommand.

mod simulate;

use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  undrop fec simulate                                  the gateway's default code at 1 % loss
  undrop fec simulate --scheme sliding --loss bursty:1%:20";

/// The subcommands of `undrop fec`.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Command {
    Simulate(simulate::Args),
}

/// Runs a subcommand.
pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Simulate(args) => simulate::run(args),
    }
}
