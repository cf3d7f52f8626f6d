//! `undrop multicast bench`: how a cluster of Ricochet nodes recovers from loss, and what it costs.
//!
//! | file | what |
//! |---|---|
//! | `simulated.rs` | the cluster in virtual time (`ricochet-lab`): exact, the same on every machine |
//! | `report.rs` | the figures as JSON and as a table; of several seeds their median and spread |
//! | `plot.rs` | the latency of recoveries as a picture |

mod plot;
mod report;
mod simulated;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use netlab::{LossModel, units};
use ricochet_core::bins::Content;
use ricochet_lab::{Figures, Setting};

use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop multicast bench                                        the papers' setting: 64 nodes, 128 groups each
  undrop multicast bench --groups-per-node 1024 --seeds 5       medians of five seeds, least and most in brackets
  undrop multicast bench --nodes 16 --nak on --loss uniform:20% all is delivered, what repairs leave by request
  undrop multicast bench --loss bursty:1%:20 --stagger 6 --json --svg bursts.svg

Exit code 0 also if packets stayed missing: the figures say so.";

/// Measure recovery from loss in a cluster: how much, how fast, at what cost.
///
/// In virtual time, so that the figures are those of the protocol and the same on every machine, but for the processor
/// time. Each packet goes from a random member to all others of a random group; each receiver loses for itself. Measured
/// are the packets of the first `--seconds`; traffic then goes on for two seconds.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Nodes in the cluster
    #[arg(long, value_name = "N", default_value_t = 64)]
    nodes: usize,
    /// Groups that each node joins, at random
    #[arg(long, value_name = "D", default_value_t = 128)]
    groups_per_node: usize,
    /// Members of a group on average; there are nodes x groups-per-node / group-size groups
    #[arg(long, value_name = "S", default_value_t = 10)]
    group_size: usize,
    /// Let so many nodes that are in no group send all packets, instead of the members
    #[arg(long, value_name = "N", default_value_t = 0)]
    outside_senders: usize,
    /// Packets that a node receives in a second
    #[arg(long, value_name = "PACKETS", default_value_t = 1000.0)]
    rate: f64,
    /// Bytes of payload in a packet
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Packets in a repair
    #[arg(long, default_value_t = 8)]
    r: u8,
    /// Repairs that each packet enters at each receiver, on average
    #[arg(long, default_value_t = 5)]
    c: u8,
    /// Repairs in the making that packets enter in turn: mends bursts of that many
    #[arg(long, value_name = "I", default_value_t = 1)]
    stagger: u16,
    /// How long a repair may stay part-filled, or `none` as in the papers
    #[arg(long, value_name = "TIME", default_value = "none", value_parser = parse_max_delay)]
    max_delay: MaxDelay,
    /// What repairs carry: the XOR of their packets, their names alone (`digest`), or
    /// whichever suits (`auto`)
    #[arg(long, value_enum, default_value_t = Repair::Xor)]
    repair: Repair,
    /// Whether what repairs leave missing is asked for
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    nak: Switch,
    /// What each receiver loses: none, uniform:P, bursty:P:LENGTH, markov:P:MEAN or trace:FILE
    #[arg(long, value_name = "MODEL", default_value = "uniform:0.01")]
    loss: LossModel,
    /// What each receiver loses of repairs, requests and all else that is no data packet [default: as --loss]
    #[arg(long, value_name = "MODEL")]
    loss_other: Option<LossModel>,
    /// How long a datagram takes from node to node
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = units::parse_duration_us)]
    delay: u64,
    /// Up to so much longer, at random, so that datagrams overtake each other
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::parse_duration_us)]
    jitter: u64,
    /// How long is measured, in virtual seconds
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    seconds: f64,
    /// Seed of all chance: the same seed gives the same figures
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run so many seeds, from --seed on, and tell medians and spread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Write a picture of the recovery latencies
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Repair {
    Xor,
    Digest,
    Auto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

/// In microseconds, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MaxDelay(Option<u64>);

fn parse_max_delay(text: &str) -> Result<MaxDelay, units::UnitError> {
    if text == "none" {
        Ok(MaxDelay(None))
    } else {
        units::parse_duration_us(text).map(|us| MaxDelay(Some(us)))
    }
}

impl Args {
    fn setting(&self) -> Setting {
        Setting {
            nodes: self.nodes,
            groups_per_node: self.groups_per_node,
            group_size: self.group_size,
            outside_senders: self.outside_senders,
            rate: self.rate,
            size: self.size,
            r: self.r,
            c: self.c,
            stagger: self.stagger,
            max_delay_us: self.max_delay.0,
            content: match self.repair {
                Repair::Xor => Content::Xor,
                Repair::Digest => Content::Names,
                Repair::Auto => Content::Auto,
            },
            nak: self.nak == Switch::On,
            loss: self.loss.clone(),
            loss_other: self.loss_other.clone().unwrap_or_else(|| self.loss.clone()),
            delay_us: self.delay,
            jitter_us: self.jitter,
            seconds: self.seconds,
            seed: self.seed,
            clock: None,
        }
    }
}

/// Runs all seeds and tells what came of them.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let runs = simulated::run(&args.setting(), args.seeds)?;
    if let Some(file) = &args.svg {
        let svg = plot::render(&args.title(), &runs)?;
        fs::write(file, svg).with_context(|| format!("writing {}", file.display()))?;
    }
    let text = if args.json { report::json(&runs).to_string() } else { report::table(&args.title(), &runs) };
    output::line(&text)?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn title(&self) -> String {
        let Self { nodes, groups_per_node, group_size, r, c, loss, .. } = self;
        let nak = if self.nak == Switch::On { "NAK on" } else { "NAK off" };
        format!("{nodes} nodes, {groups_per_node} groups a node of {group_size}, ({r},{c}), {loss}, {nak}")
    }
}

/// Figures of one seed.
type Run = (u64, Figures);

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, String> {
        let words = ["bench"].into_iter().chain(line.split_whitespace());
        Command::try_parse_from(words).map(|command| command.args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_command_line_becomes_a_setting() {
        let line = "--nodes 16 --groups-per-node 8 --group-size 4 --rate 500 --size 200 --r 6 --c 3 --stagger 2 \
                    --repair digest --nak on --loss bursty:1%:10 --loss-other none --seconds 2 --seed 9 \
                    --max-delay 20ms --delay 1ms --jitter 200us";
        let setting = parse(line).unwrap().setting();
        assert_eq!((setting.nodes, setting.groups_per_node, setting.group_size), (16, 8, 4));
        assert_eq!(
            (setting.rate, setting.size, setting.r, setting.c, setting.stagger),
            (500.0, 200, 6, 3, 2)
        );
        assert_eq!((setting.content, setting.nak), (Content::Names, true));
        assert_eq!(setting.loss, LossModel::Bursty { rate: 0.01, burst: 10 });
        assert_eq!((setting.loss_other, setting.max_delay_us), (LossModel::None, Some(20_000)));
        assert_eq!((setting.delay_us, setting.jitter_us, setting.seed), (1_000, 200, 9));
        let setting = parse("--loss uniform:2%").unwrap().setting();
        assert_eq!(setting.loss_other, LossModel::Uniform(0.02), "all datagrams are lost alike");
    }

    #[test]
    fn mistakes_are_named() {
        for (line, said) in [
            ("--loss maybe", "expected a loss model"),
            ("--repair both", "possible values: xor, digest, auto"),
            ("--nak perhaps", "possible values: on, off"),
            ("--seeds 0", "1..=1000"),
            ("--r many", "invalid digit"),
            ("--max-delay soon", "--max-delay"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_before_it_runs() {
        let error = run(&parse("--nodes 4 --group-size 9").unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "group size: expected at most the 4 nodes there are, saw 9");
    }
}
