//! `undrop-lab multicast`: Ricochet in virtual time and on real sockets, measured.

mod bench;

use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  undrop-lab multicast bench --nodes 64 --loss bursty:0.01:10    a cluster in virtual time
  undrop-lab multicast bench --real                              real nodes on this machine";

/// Measurements of multicast.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Command {
    Bench(bench::Args),
}

/// Runs the command.
pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Bench(args) => bench::run(args),
    }
}
