//! `undrop multicast`: one file for each subcommand.

mod bench;

use std::process::ExitCode;

/// What can be done with multicast.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Bench(bench::Args),
}

/// Does what was asked.
pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Bench(args) => bench::run(args),
    }
}
