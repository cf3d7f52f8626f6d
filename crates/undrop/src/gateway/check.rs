//! `undrop gateway check`: every mistake in the configuration and on the machine, in one pass.

use std::process::ExitCode;

use maelstrom::config;

use super::file::FileArgs;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop gateway check /etc/undrop/gateway.toml
  undrop gateway check gateway.toml --json | jq '.diagnostics[].message'

Exit code 1 if there is an error; warnings and notes leave it 0.";

/// Check a configuration, and whether this machine can run it.
///
/// Shows every mistake in the file with its line and its remedy, and what this machine lacks: interfaces,
/// addresses, routes, the MTU budget, capabilities, kernel settings. Sends nothing and changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let report = config::check(args.file.path());
    output::line(&if args.json { report.to_json() } else { report.to_string() })?;
    Ok(if report.errors() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
