//! `undrop gateway run`: the gateway itself.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use maelstrom::config::{GatewayConfig, Report};
use maelstrom::upgrade::Link;
use maelstrom::{Passive, StartError, config, findings};

use super::file::FileArgs;
use crate::failure::Advice as _;
use crate::{log, output};

const EXAMPLES: &str = "\
Examples:
  undrop gateway run /etc/undrop/gateway.toml
  undrop gateway run gateway.toml --log debug
  kill -HUP PID    reload the file; if it has mistakes, the running configuration stays
  kill PID         stop; no route, device or setting is left
  kill -USR1 PID   stop for a restart; routes that close tunnels are left
  undrop gateway upgrade    hand over to another version, while traffic flows";

/// Run the gateway until SIGTERM or SIGINT.
///
/// The kernel forwards the traffic, and the gateway reads copies of it. When the gateway stops or is killed,
/// the traffic continues without protection. Peers in tunnel mode are reached through the gateway alone: see
/// `fail`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("The configuration file:\n\n{}\n{EXAMPLES}", config::layout().describe()))]
pub struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Take over from the process at the other end of stdin (`undrop gateway upgrade`)
    #[arg(long, hide = true)]
    take_over: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.take_over {
        return begin(args, Passive::start);
    }
    let link = Link::from_stdin().context("expected a socket as stdin, from the gateway that hands over")?;
    let failing = link.try_clone().context("cannot copy a descriptor")?;
    begin(args, |path, config| Passive::take_over(path, config, link))
        .inspect_err(|error| failing.fail(&format!("the next process does not start: {error:#}")))
}

/// Checks the configuration, starts as `start` does, and runs.
fn begin(
    args: &Args,
    start: impl FnOnce(&Path, GatewayConfig) -> Result<Passive, StartError>,
) -> anyhow::Result<ExitCode> {
    let reading = config::read(args.file.path());
    let config = match reading.config() {
        Ok(config) => config,
        Err(report) => return refuse(args, &report, "the configuration has mistakes"),
    };
    // The same verdict as that of `undrop gateway check`: an error keeps the gateway from its work.
    let report = reading.check_machine();
    // The gateway that runs is the one that hands over.
    let report = if args.take_over { report.without("already-running") } else { report };
    if report.errors() > 0 {
        return refuse(args, &report, "this machine cannot run the configuration");
    }
    findings::log(&report);
    start(args.file.path(), config)?.run().context("the gateway failed")?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the findings because of which the gateway does not start.
fn refuse(args: &Args, report: &Report, why: &'static str) -> anyhow::Result<ExitCode> {
    if log::is_for_people() {
        output::note(report);
    } else {
        findings::log_refusal(report);
    }
    let remedy = format!("fix it, then run `undrop gateway check {}`", args.file.path().display());
    Err(anyhow::anyhow!(why)).advise(remedy)
}
