//! The command line: the options of all subcommands, and the choice of the subcommand.

use std::env;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use daemon::fatal;

use crate::{failure, fec, gateway, help, log, moved, multicast, top};

const EXAMPLES: &str = "\
Examples:
  undrop gateway genkey --out peer.key        make the key for a pair of gateways
  undrop gateway check gateway.toml           find every mistake in the file and on this machine
  undrop gateway run gateway.toml             protect the traffic to the peers
  undrop gateway status                       show losses, recoveries and drops
  undrop top                                  watch the gateway or node of this machine
  undrop multicast doctor eth0                find what stops multicast on this machine
  undrop fec simulate --scheme sliding        try an erasure code on simulated losses

Exit codes: 0 success, 1 failure, 2 wrong usage, 70 internal error (a panic, or a main loop that hangs);
`gateway health` has exit codes of its own; `multicast send` ends with 3 if nobody gets the messages.
The demo, figures and benchmarks are commands of `undrop-lab`.";

/// Recovers lost packets before applications notice the loss.
#[derive(Debug, Parser)]
#[command(version, long_version = env!("UNDROP_VERSION"), after_help = EXAMPLES, max_term_width = 110, propagate_version = true)]
struct Cli {
    /// Log level for stderr: `info` or `debug`, or levels by module, such as `maelstrom=trace,info` [default:
    /// RUST_LOG, or `info`]
    #[arg(long, global = true, value_name = "FILTER", value_parser = log::parse_filter)]
    log: Option<String>,
    /// Form of log lines [default: `journald` if stderr is the journal of systemd, or else `text`]
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<log::Format>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Gateways that recover the losses of a long-haul link between two sites.
    #[command(subcommand)]
    Gateway(gateway::Command),
    /// Multicast that recovers lost packets within milliseconds.
    #[command(subcommand)]
    Multicast(Box<multicast::Command>),
    Top(top::Args),
    /// Simulations of erasure codes: recovery, delay and cost.
    #[command(subcommand)]
    Fec(fec::Command),
    #[command(hide = true)]
    Demo(moved::Rest),
    #[command(hide = true)]
    Figures(moved::Rest),
    #[command(hide = true)]
    Link(moved::Rest),
}

/// Returns the description of the command line, for man pages and completions.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command that the process was started with; returns its exit code.
pub fn main() -> ExitCode {
    let cli: Cli = match help::parse() {
        Ok(cli) => cli,
        Err(error) => {
            help::print(&error);
            let is_of_health = error.use_stderr() && asks_for_health(env::args());
            return if is_of_health {
                ExitCode::from(gateway::health::UNKNOWN)
            } else {
                help::exit_code(&error)
            };
        }
    };
    log::start(cli.log.as_deref(), cli.log_format);
    fatal::run(|| run(cli.command)).unwrap_or_else(|error| failure::report(&error))
}

/// Whether these are the words of `undrop gateway health`, whose exit code 2 has another meaning.
fn asks_for_health(words: impl Iterator<Item = String>) -> bool {
    let words: Vec<String> = words.collect();
    words.windows(2).any(|pair| pair == ["gateway", "health"])
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Gateway(command) => gateway::run(command),
        Command::Multicast(command) => multicast::run(&command),
        Command::Top(args) => top::run(&args),
        Command::Fec(command) => fec::run(&command),
        Command::Demo(rest) => Ok(moved::report("demo", &rest)),
        Command::Figures(rest) => Ok(moved::report("figures", &rest)),
        Command::Link(rest) => Ok(moved::report("link", &rest)),
    }
}
