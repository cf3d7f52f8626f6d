//! `undrop multicast check`: every mistake in a node's configuration, in one pass.

use std::path::PathBuf;
use std::process::ExitCode;

use ricochet::Config;

use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop multicast check --config node.toml
  undrop multicast check --config node.toml --json | jq '.diagnostics[].message'

Exit code 1 if there is an error; warnings and notes leave it 0.";

/// Check a node's configuration.
///
/// Shows every mistake in the file with its line and its remedy. Also reads the key file and the member file
/// that the configuration names. Sends nothing and changes nothing. `undrop multicast doctor` checks the
/// machine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("The configuration file:\n\n{}\n{EXAMPLES}", Config::describe()))]
pub(crate) struct Args {
    /// The node's configuration
    #[arg(long, short, value_name = "FILE", default_value = "node.toml")]
    config: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let report = Config::check_file(&args.config);
    output::line(&if args.json { report.to_json() } else { report.to_string() })?;
    Ok(if report.errors() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
