//! The `undrop` command: one file for each subcommand.

mod demo;
mod failure;
mod fec;
mod figures;
mod gateway;
mod interrupt;
mod key;
mod link;
mod log;
mod multicast;
mod output;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  undrop demo                                 two sites and a lossy link on this machine
  undrop gateway genkey --out peer.key        make the key for a pair of gateways
  undrop gateway check --config gateway.toml  every mistake in the file and on this machine
  undrop gateway run --config gateway.toml    protect the traffic to the peers
  undrop gateway status                       what the running gateway sees
  undrop multicast bench                      how a cluster recovers lost multicast, simulated
  undrop fec simulate --scheme sliding        what an erasure code would do on my link

Exit codes: 0 fine, 1 failed, 2 wrong usage.";

const DEMO_EXAMPLES: &str = "\
Examples:
  undrop demo                                 cubic, 1 Gbit/s, 50 ms one way, 1 % loss
  undrop demo --congestion reno --seconds 20
  undrop demo --loss bursty:0.01:10 --json
  undrop demo --scheme reed-solomon --c 3 --interleave 20 --delayed

Exit code 1 if the gateways did not mask the losses.";

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
    /// See TCP collapse on a lossy long-haul link, and run at line rate again behind gateways.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(demo::DemoArgs),
    Figures(figures::Args),
    Link(link::Args),
    /// Multicast that recovers lost packets within milliseconds.
    #[command(subcommand)]
    Multicast(multicast::Command),
    /// Erasure codes: what they recover, how late, at what cost.
    #[command(subcommand)]
    Fec(fec::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    log::start(cli.log.as_deref());
    let done = match cli.command {
        Command::Gateway(command) => gateway::run(command),
        Command::Demo(args) => demo::run(&args),
        Command::Figures(args) => figures::run(&args),
        Command::Link(args) => link::run(&args),
        Command::Multicast(command) => multicast::run(&command),
        Command::Fec(command) => fec::run(&command),
    };
    done.unwrap_or_else(|error| failure::report(&error))
}
