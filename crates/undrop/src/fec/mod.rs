//! `undrop fec`: one file for each subcommand.

mod simulate;

use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  undrop fec simulate                                  the gateway's default code at 1 % loss
  undrop fec simulate --scheme sliding --loss bursty:1%:20";

/// What can be done with erasure codes.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Command {
    Simulate(simulate::Args),
}

/// Does what was asked.
pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Simulate(args) => simulate::run(args),
    }
}
