//! `undrop gateway`: the gateway of one site.

mod advise;
mod cache;
mod capture;
mod check;
mod file;
mod genkey;
pub(crate) mod health;
mod losses;
mod metrics;
mod report;
mod run;
mod status;
mod upgrade;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;

pub(crate) use status::duration;

const EXAMPLES: &str = "\
Examples:
  undrop gateway genkey --out peer.key
  undrop gateway check /etc/undrop/gateway.toml
  undrop gateway run /etc/undrop/gateway.toml
  undrop gateway status --json
  undrop gateway health
  undrop gateway losses
  undrop gateway cache --flow 10.81.2.9
  undrop gateway report --html link.html
  undrop gateway capture --out gateway.pcapng
  undrop gateway advise
  undrop gateway upgrade";

/// The commands of `undrop gateway`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
#[allow(missing_docs, reason = "the help of each command stands at its arguments")]
pub enum Command {
    Run(run::Args),
    Check(check::Args),
    Genkey(genkey::Args),
    Status(status::Args),
    Health(health::Args),
    Metrics(metrics::Args),
    Losses(losses::Args),
    Cache(cache::Args),
    Report(report::Args),
    Capture(capture::Args),
    Advise(advise::Args),
    Upgrade(upgrade::Args),
}

/// Runs the command; returns its exit code.
///
/// # Errors
/// Anything that keeps the command from its work, with a remedy where there is one.
pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    // The commands that handle keys are among these.
    keyfile::forbid_dumps().context("cannot forbid core dumps of the keys")?;
    match command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Genkey(args) => genkey::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Health(args) => health::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Losses(args) => losses::run(&args),
        Command::Cache(args) => cache::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Upgrade(args) => upgrade::run(&args),
    }
}
