//! `undrop multicast top`: the groups of a running node, once a second.

use std::process::ExitCode;

use super::status::Socket;

const EXAMPLES: &str = "\
Examples:
  undrop multicast top
  undrop multicast top --control /run/undrop/prices.sock
  undrop multicast top --once --config node.toml";

/// Show the groups of a running node, once a second until Ctrl-C.
///
/// The busiest groups come first, each with its messages per second, the packets found missing per second,
/// and since the start of the node the packets recovered and lost, with the 99th percentile of the time that
/// a recovery takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Print one screen and end
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    crate::top::run_node(args.socket.path()?, args.once)
}
