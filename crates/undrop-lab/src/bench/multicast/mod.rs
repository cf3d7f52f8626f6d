//! Compares multicast systems with the same messages, the same bridge and the same loss.
//!
//! Each system is a *participant*: a program in any language that the bench starts once in each host.
//! `docs/participants.md` is its contract. Every receiver joins every group; senders receive nothing. A
//! kernel program drops packets where they arrive, and reports each message that it drops. A message counts
//! as recovered if it was lost on the wire and nevertheless delivered, whatever method the system uses.

mod judge;
mod message;
mod participant;
pub(crate) mod ricochet;
mod run;
pub(crate) mod soak;
mod table;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use loss::LossModel;
use netlab::DropFilter;

use crate::bench::stop;
use participant::System;
use run::Cell;
use table::Table;

/// Latency of lost and of other messages, messages never delivered, processor time and traffic, by system.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// System as `NAME=COMMAND LINE`, or as `NAME:key=value,key=value=COMMAND LINE` with its own settings;
    /// the command `@ricochet` runs Ricochet.
    #[arg(long = "system")]
    systems: Vec<System>,
    /// File with one system per line, in the form of --system.
    #[arg(long = "systems")]
    file: Option<PathBuf>,
    /// Number of hosts that receive; each joins all groups.
    #[arg(long, value_delimiter = ',', default_value = "8,24")]
    receivers: Vec<usize>,
    /// Number of hosts that send.
    #[arg(long, value_delimiter = ',', default_value = "1,8")]
    senders: Vec<usize>,
    /// Number of groups.
    #[arg(long, value_delimiter = ',', default_value = "1,32,128")]
    groups: Vec<u32>,
    /// Packets that the loss model applies to.
    #[arg(long, value_delimiter = ',', default_value = "data,all")]
    lose: Vec<Lose>,
    /// Loss model.
    #[arg(long, default_value = "uniform:1%")]
    loss: LossModel,
    /// Messages per second, of all senders together.
    #[arg(long, default_value_t = 1_000.0)]
    rate: f64,
    /// Size of a message in bytes.
    #[arg(long, default_value_t = 1_024)]
    size: usize,
    /// Time in seconds during which messages are sent.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Number of messages of each sender, instead of those of `seconds`. With a rate that no system reaches,
    /// such as 1e9, messages are sent without pace.
    #[arg(long)]
    count: Option<u64>,
    /// Time in seconds for recovery after the last message.
    #[arg(long, default_value_t = 2.0)]
    tail: f64,
    /// Time in seconds after the first message at which a receiver is killed: the sequencer of a total order,
    /// else the first one. The longest pause between two messages shows how soon the others go on.
    #[arg(long)]
    kill: Option<f64>,
    /// Random seed that chooses the group of each message.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of runs for each combination, each with the next seed.
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Print a line of JSON for each run instead of a table.
    #[arg(long)]
    json: bool,
    /// File for the figures of each run as CSV, which is replaced.
    #[arg(long)]
    csv: Option<PathBuf>,
}

/// Packets that the loss model applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Lose {
    /// None.
    None,
    /// Multicast UDP packets of at least 1,000 bytes, at receivers: the messages, not the control packets of
    /// the systems.
    Data,
    /// All IP packets that arrive, at senders too.
    All,
}

impl Lose {
    fn filter(self) -> DropFilter {
        match self {
            Self::Data => DropFilter {
                multicast_only: true,
                udp_only: true,
                length_min: 1_000,
                ..DropFilter::default()
            },
            Self::None | Self::All => DropFilter::default(),
        }
    }
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let systems = systems(plan)?;
    let mut table = Table::start(plan)?;
    let mut failed = 0;
    for (&lose, &receivers) in product(&plan.lose, &plan.receivers) {
        for (&senders, &groups) in product(&plan.senders, &plan.groups) {
            for (system, round) in product(&systems, &(0..plan.runs).collect::<Vec<_>>()) {
                let cell = Cell {
                    lose,
                    receivers,
                    senders,
                    groups,
                    loss: plan.loss.clone(),
                    rate: plan.rate / senders as f64,
                    size: plan.size,
                    count: plan
                        .count
                        .unwrap_or_else(|| (plan.rate * plan.seconds / senders as f64).round() as u64),
                    tail_s: plan.tail,
                    seed: plan.seed + round,
                    kill_s: plan.kill,
                };
                // A run that fails does not end the runs of the other systems.
                match run::run(&cell, system) {
                    Ok(figures) => table.add(&cell, system, &figures)?,
                    Err(error) => {
                        stop::check()?;
                        failed += 1;
                        eprintln!("{}: {}: {error:#}", system.name, cell.title());
                    }
                }
            }
        }
    }
    anyhow::ensure!(failed == 0, "{failed} runs failed");
    Ok(())
}

fn product<'p, A, B>(first: &'p [A], second: &'p [B]) -> impl Iterator<Item = (&'p A, &'p B)> {
    first.iter().flat_map(|a| second.iter().map(move |b| (a, b)))
}

fn systems(plan: &Plan) -> anyhow::Result<Vec<System>> {
    let mut systems = plan.systems.clone();
    if let Some(file) = &plan.file {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            systems.push(line.parse().map_err(anyhow::Error::msg)?);
        }
    }
    anyhow::ensure!(!systems.is_empty(), "expected --system NAME=COMMAND or --systems FILE, saw neither");
    Ok(systems)
}
