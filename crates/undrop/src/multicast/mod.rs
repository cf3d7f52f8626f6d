//! `undrop multicast`: one file for each subcommand.

mod check;
mod config;
mod doctor;
mod genkey;
mod ip_group;
mod isolation;
mod metrics;
mod moldudp64;
mod node;
mod recv;
mod relay;
mod reply;
mod reports;
mod request;
mod send;
mod settings;
mod status;
mod top;

use std::process::ExitCode;

use anyhow::Context as _;

pub(crate) use status::CONTROL_DEFAULT;

const EXAMPLES: &str = "\
Examples:
  undrop multicast doctor eth0                          find what stops a node on this machine
  undrop multicast check node.toml                      find every mistake in a configuration
  undrop multicast recv prices/AAPL --interface eth0    receive; the first node needs no seed address
  undrop multicast send prices/AAPL --interface eth0 --seed 10.0.0.7:7900
  undrop multicast relay 239.1.1.1:5000 --interface eth0 --seed 10.0.0.7:7900    carry what other programs send
  undrop multicast moldudp64 in 233.54.12.111:26477 --group itch --local eth1 --interface eth0    carry a feed";

/// The subcommands of `undrop multicast`.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Command {
    Send(send::Args),
    Recv(recv::Args),
    Relay(relay::Args),
    /// Bridges for feeds in NASDAQ's MoldUDP64.
    #[command(subcommand)]
    Moldudp64(moldudp64::Command),
    Request(request::Args),
    Reply(reply::Args),
    Status(status::Args),
    Top(top::Args),
    Metrics(metrics::Args),
    Doctor(doctor::Args),
    Check(check::Args),
    Genkey(genkey::Args),
    #[command(hide = true)]
    Bench(crate::moved::Rest),
}

/// Runs a subcommand.
pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    keyfile::forbid_dumps().context("cannot forbid core dumps of the key")?;
    match command {
        Command::Send(args) => send::run(args),
        Command::Recv(args) => recv::run(args),
        Command::Relay(args) => relay::run(args),
        Command::Moldudp64(command) => moldudp64::run(command),
        Command::Request(args) => request::run(args),
        Command::Reply(args) => reply::run(args),
        Command::Status(args) => status::run(args),
        Command::Top(args) => top::run(args),
        Command::Metrics(args) => metrics::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Check(args) => check::run(args),
        Command::Genkey(args) => genkey::run(args),
        Command::Bench(rest) => Ok(crate::moved::report("multicast bench", rest)),
    }
}
