//! Measures the gateways and multicast systems on real packets, each figure beside its baseline in one run.
//!
//! Prints a table in Markdown for `docs/bench.md`; progress goes to stderr.
#![allow(clippy::disallowed_methods, reason = "a stopwatch")]

mod multicast;
mod rig;
mod soak;
mod speed;
mod tcp;
mod udp;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use netlab::privilege;
use undrop::failure::Advice as _;

const EXAMPLES: &str = "\
Examples:
  undrop-lab bench tcp                        goodput by loss rate, cubic and reno
  undrop-lab bench udp --help                 what can be set
  undrop-lab --program ./undrop bench speed   the gateways of another build";

/// What to measure.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Command {
    /// TCP goodput against loss, with and without gateways.
    Tcp(tcp::Plan),
    /// Recovery of a UDP stream: share and delay, by loss model.
    Udp(udp::Plan),
    /// Goodput through the pair on the fastest link the emulator gives; processor time per packet; added delay.
    Speed(speed::Plan),
    /// Multicast systems side by side on one bridge.
    Multicast(multicast::Plan),
    /// Ricochet's participant in `multicast`.
    #[command(hide = true)]
    Ricochet(multicast::ricochet::Part),
    /// Memory and recovery over minutes.
    Soak(soak::Plan),
}

/// Runs one measurement; `program` finds the `undrop` whose gateways are measured.
///
/// Must be called while the process has one thread: without root it enters a user namespace.
pub(crate) fn run(
    command: &Command,
    program: impl FnOnce() -> anyhow::Result<PathBuf>,
) -> anyhow::Result<ExitCode> {
    privilege::enter_user_namespace()
        .context("the measurement builds network namespaces and may not")
        .advise("run it as root, or allow user namespaces")?;
    match command {
        Command::Multicast(plan) => multicast::run(plan),
        Command::Ricochet(part) => multicast::ricochet::play(part),
        Command::Tcp(plan) => tcp::run(&program()?, plan),
        Command::Udp(plan) => udp::run(&program()?, plan),
        Command::Speed(plan) => speed::run(&program()?, plan),
        Command::Soak(plan) => soak::run(&program()?, plan),
    }?;
    Ok(ExitCode::SUCCESS)
}
