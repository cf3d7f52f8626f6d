//! `undrop gateway run`: the gateway itself.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use maelstrom::config::Report;
use maelstrom::{Passive, config, findings};

use crate::failure::Advice as _;
use crate::{log, output};

const EXAMPLES: &str = "\
Examples:
  undrop gateway run --config /etc/undrop/gateway.toml
  undrop gateway run --config gateway.toml --log debug
  kill -HUP PID    reload the file; if it has mistakes, the running configuration stays
  kill PID         stop; no route, device or setting is left";

/// Run the gateway until SIGTERM or SIGINT.
///
/// The kernel forwards the traffic, and the gateway reads copies of it. When the gateway stops or is killed,
/// the traffic continues without protection.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("The configuration file:\n\n{}\n{EXAMPLES}", config::layout().describe()))]
pub struct Args {
    /// The gateway's configuration
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let reading = config::read(&args.config);
    let config = match reading.config() {
        Ok(config) => config,
        Err(report) => return refuse(args, &report, "the configuration has mistakes"),
    };
    // The same verdict as that of `undrop gateway check`: an error keeps the gateway from its work.
    let report = reading.check_machine();
    if report.errors() > 0 {
        return refuse(args, &report, "this machine cannot run the configuration");
    }
    findings::log(&report);
    Passive::start(&args.config, config)?.run().context("the gateway failed")?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the findings because of which the gateway does not start.
fn refuse(args: &Args, report: &Report, why: &'static str) -> anyhow::Result<ExitCode> {
    if log::is_for_people() {
        output::note(report);
    } else {
        findings::log_refusal(report);
    }
    let remedy = format!("fix it, then run `undrop gateway check --config {}`", args.config.display());
    Err(anyhow::anyhow!(why)).advise(remedy)
}
