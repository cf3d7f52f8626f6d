//! Measures the gateways on real packets, each figure beside its baseline in one run.
//!
//! `cargo xtask bench tcp|udp|speed|soak|multicast`, or with the built program: `bench --program target/release/undrop tcp`. Needs
//! root or a user namespace. Prints a table in Markdown for `docs/bench.md`; progress goes to stderr.
#![allow(clippy::disallowed_methods, reason = "a stopwatch")]

mod multicast;
mod rig;
mod soak;
mod speed;
mod tcp;
mod udp;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// What to measure.
#[derive(Parser)]
struct Arguments {
    /// The `undrop` program whose gateways are measured.
    #[arg(long, default_value = "target/release/undrop")]
    program: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
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

fn main() -> anyhow::Result<()> {
    netlab::privilege::enter_user_namespace()?;
    let Arguments { program, what } = Arguments::parse();
    // Those that measure no gateway need none.
    match &what {
        What::Multicast(plan) => return multicast::run(plan),
        What::Ricochet(part) => return multicast::ricochet::play(part),
        _ => {}
    }
    let program = program.canonicalize()?;
    match what {
        What::Multicast(_) | What::Ricochet(_) => Ok(()),
        What::Tcp(plan) => tcp::run(&program, &plan),
        What::Udp(plan) => udp::run(&program, &plan),
        What::Speed(plan) => speed::run(&program, &plan),
        What::Soak(plan) => soak::run(&program, &plan),
    }
}
