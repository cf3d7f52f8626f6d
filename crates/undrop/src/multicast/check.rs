//! `undrop multicast check`: every mistake in a node's configuration, in one pass.

use std::path::PathBuf;
use std::process::ExitCode;

use ricochet::Config;

use crate::output;

/// Configuration of the node whose file is not named.
const FILE_DEFAULT: &str = "/etc/undrop/node.toml";

const EXAMPLES: &str = "\
Examples:
  undrop multicast check node.toml
  undrop multicast check node.toml --json | jq '.diagnostics[].message'

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
    #[arg(value_name = "FILE", default_value = FILE_DEFAULT)]
    file: PathBuf,
    /// The node's configuration, in place of the argument FILE
    #[arg(long, short, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let report = Config::check_file(args.config.as_ref().unwrap_or(&args.file));
    output::line(&if args.json { report.to_json() } else { report.to_string() })?;
    Ok(if report.errors() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
