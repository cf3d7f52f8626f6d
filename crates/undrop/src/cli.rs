//! The command line: options that all subcommands share, and which subcommand was given.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{failure, fec, gateway, log, moved, multicast};

const EXAMPLES: &str = "\
Examples:
  undrop gateway genkey --out peer.key        make the key for a pair of gateways
  undrop gateway check --config gateway.toml  every mistake in the file and on this machine
  undrop gateway run --config gateway.toml    protect the traffic to the peers
  undrop gateway status                       what the running gateway sees
  undrop multicast doctor eth0                what stands in the way of multicast on this machine
  undrop fec simulate --scheme sliding        what an erasure code would do on my link

Exit codes: 0 fine, 1 failed, 2 wrong usage.
The demo, figures and benchmarks are commands of `undrop-lab`.";

/// Brings back lost packets before anyone notices.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 110, propagate_version = true)]
struct Cli {
    /// What to log to stderr: `info`, `debug`, or by module as `maelstrom=trace,info` [default: RUST_LOG, or `info`]
    #[arg(long, global = true, value_name = "FILTER", value_parser = log::parse_filter)]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Mask the losses of a long-haul link from the hosts of two sites.
    #[command(subcommand)]
    Gateway(gateway::Command),
    /// Multicast that recovers lost packets within milliseconds.
    #[command(subcommand)]
    Multicast(multicast::Command),
    /// Erasure codes: what they recover, how late, at what cost.
    #[command(subcommand)]
    Fec(fec::Command),
    #[command(hide = true)]
    Demo(moved::Rest),
    #[command(hide = true)]
    Figures(moved::Rest),
    #[command(hide = true)]
    Link(moved::Rest),
}

/// Runs the command that the process was started with; returns its exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    log::start(cli.log.as_deref());
    let done = match cli.command {
        Command::Gateway(command) => gateway::run(command),
        Command::Multicast(command) => multicast::run(&command),
        Command::Fec(command) => fec::run(&command),
        Command::Demo(rest) => Ok(moved::report("demo", &rest)),
        Command::Figures(rest) => Ok(moved::report("figures", &rest)),
        Command::Link(rest) => Ok(moved::report("link", &rest)),
    };
    done.unwrap_or_else(|error| failure::report(&error))
}
