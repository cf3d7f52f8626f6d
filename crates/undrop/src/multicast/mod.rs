//! `undrop multicast`: one file for each subcommand.

mod doctor;
mod genkey;
mod node;
mod recv;
mod send;
mod status;

use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  undrop multicast doctor eth0                                           what stands in the way on this machine
  undrop multicast recv prices/AAPL --interface eth0                     the first node needs no seed
  undrop multicast send prices/AAPL --interface eth0 --seed 10.0.0.7:7900";

/// What can be done with multicast.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Command {
    Send(send::Args),
    Recv(recv::Args),
    Status(status::Args),
    Doctor(doctor::Args),
    Genkey(genkey::Args),
    #[command(hide = true)]
    Bench(crate::moved::Rest),
}

/// Does what was asked.
pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Send(args) => send::run(args),
        Command::Recv(args) => recv::run(args),
        Command::Status(args) => status::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Genkey(args) => genkey::run(args),
        Command::Bench(rest) => Ok(crate::moved::report("multicast bench", rest)),
    }
}
