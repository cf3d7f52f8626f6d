//! Measures gateways and multicast systems with real packets, each figure beside its baseline in one run.
//!
//! Each measurement prints a Markdown table for `docs/bench.md` to stdout, and its progress to stderr.
#![allow(clippy::disallowed_methods, reason = "a stopwatch")]

mod all;
mod csv;
mod endure;
mod fairness;
mod guard;
mod links;
mod multicast;
mod overload;
mod packet_cost;
mod page;
mod paths;
mod pepsal;
mod rig;
mod scrape;
mod soak;
mod speed;
mod split;
mod stall;
mod standstill;
mod stop;
mod tcp;
mod tunnel;
mod udp;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use netlab::privilege;
use undrop::failure::Advice as _;
use undrop::interrupt::EXIT_INTERRUPTED;
use undrop::output;

const EXAMPLES: &str = "\
Examples:
  undrop-lab bench tcp                        goodput by loss rate, cubic and reno
  undrop-lab bench links --list               cells of links, losses and traffic, with targets
  undrop-lab bench udp --help                 options of a measurement
  undrop-lab --program ./undrop bench speed   the gateways of another build

Ctrl-C or SIGTERM ends a measurement and its gateways, with exit code 130; a second one ends the process at
once, and leaves temporary files behind.";

/// A measurement.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Command {
    /// TCP goodput by loss model, with and without gateways.
    Tcp(tcp::Plan),
    /// Gateways on many links, with and without: loss, changes of loss, congestion, sparse traffic, cost.
    Links(links::Plan),
    /// Share of lost UDP packets that is recovered, and recovery delay, by loss model.
    Udp(udp::Plan),
    /// Goodput through a pair of gateways on the fastest link of the emulator, processor time per packet, and
    /// added delay.
    Speed(speed::Plan),
    /// Latency, loss and cost of multicast systems that run on the same bridge.
    Multicast(multicast::Plan),
    /// Memory of Ricochet nodes over an hour with losses, and whether each message came once.
    MulticastSoak(multicast::soak::Plan),
    /// Run Ricochet as a participant of `multicast`.
    #[command(hide = true)]
    Ricochet(multicast::ricochet::Part),
    /// Processor time per packet by packet rate, with ticks and without.
    PacketCost(packet_cost::Plan),
    /// Processor time of scrapes of a gateway's metrics.
    Scrape(scrape::Plan),
    /// TCP goodput and loss of small packets at more load than gateways can code.
    Overload(overload::Plan),
    /// Shares of protected and bare flows on one bottleneck, with and without gateways.
    Fairness(fairness::Plan),
    /// TCP by each way: without gateways, past passive ones, and ended by gateways in split mode.
    Split(split::Plan),
    /// Split connections under strain: gigabytes over a link that fails, compared byte by byte, and thousands
    /// of connections at once.
    Endure(endure::Plan),
    /// TCP goodput while a gateway is stopped for seconds.
    Stall(stall::Plan),
    /// A tunnel over two paths, of which one loses packets and the other dies for seconds.
    Paths(paths::Plan),
    /// Tunnel mode beside no tunnel and other tunnels: goodput, processor time, delay, aggregation, a killed
    /// end.
    Tunnel(tunnel::Plan),
    /// Memory use and recovery over minutes.
    Soak(soak::Plan),
    All(all::Plan),
    Page(page::Plan),
}

/// Returns the arguments of each command of this program that a page quotes.
#[cfg(test)]
pub(crate) fn quoted(page: &str) -> Vec<Vec<String>> {
    let commands = all::quoted(page).expect("the pages have whole commands, as a test shows");
    commands.into_iter().map(|command| command.words).collect()
}

/// Runs one measurement. `program` returns the path of the `undrop` program with the gateways to measure.
///
/// The process must have a single thread, because without root this function enters a user namespace.
pub(crate) fn run(
    command: &Command,
    program: impl FnOnce() -> anyhow::Result<PathBuf>,
) -> anyhow::Result<ExitCode> {
    match command {
        Command::Links(plan) if !plan.needs_network() => return links::run(program, plan),
        Command::All(plan) => return all::run(program, plan),
        Command::Page(plan) => return page::run(plan),
        _ => {}
    }
    privilege::enter_user_namespace()
        .context("the measurement needs to create network namespaces, which is not permitted")
        .advise("run it as root, or allow user namespaces")?;
    if let Command::Ricochet(part) = command {
        return multicast::ricochet::play(part).map(|()| ExitCode::SUCCESS);
    }
    let interrupt = stop::listen()?;
    match measure(command, program) {
        // Gateways end with the terminal's Ctrl-C too, so that any error may come of it.
        Err(_) if interrupt.is_requested() => {
            output::note("stopped");
            Ok(ExitCode::from(EXIT_INTERRUPTED))
        }
        done => done,
    }
}

fn measure(command: &Command, program: impl FnOnce() -> anyhow::Result<PathBuf>) -> anyhow::Result<ExitCode> {
    match command {
        Command::Multicast(plan) => multicast::run(plan),
        Command::MulticastSoak(plan) => multicast::soak::run(plan),
        Command::Links(plan) => return links::run(program, plan),
        Command::Ricochet(_) | Command::All(_) | Command::Page(_) => Ok(()),
        Command::Tcp(plan) => tcp::run(&program()?, plan),
        Command::Udp(plan) => udp::run(&program()?, plan),
        Command::Speed(plan) => speed::run(&program()?, plan),
        Command::PacketCost(plan) => packet_cost::run(&program()?, plan),
        Command::Scrape(plan) => scrape::run(&program()?, plan),
        Command::Overload(plan) => overload::run(&program()?, plan),
        Command::Fairness(plan) => fairness::run(&program()?, plan),
        Command::Split(plan) => split::run(&program()?, plan),
        Command::Endure(plan) => endure::run(&program()?, plan),
        Command::Stall(plan) => stall::run(&program()?, plan),
        Command::Paths(plan) => paths::run(&program()?, plan),
        Command::Tunnel(plan) => tunnel::run(&program()?, plan),
        Command::Soak(plan) => soak::run(&program()?, plan),
    }?;
    Ok(ExitCode::SUCCESS)
}
