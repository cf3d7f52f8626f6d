//! `undrop-lab multicast bench`: recovery of a cluster of Ricochet nodes from loss, and its cost.
//!
//! | file | what |
//! |---|---|
//! | `simulated.rs` | the cluster in virtual time (`sim`): exact, the same on every machine |
//! | `real.rs` | the same with the real driver in network namespaces (`stage`), with `--real` |
//! | `report.rs` | the figures as JSON and as a table; for several seeds their median and spread |
//! | `beside.rs` | real figures next to simulated ones |
//! | `plot.rs` | the latency of recoveries as a picture |
//! | `display.rs` | progress on stderr |

mod beside;
mod display;
mod plot;
mod real;
mod report;
mod simulated;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use loss::LossModel;
use ricochet_core::bins::Content;
use sim::{Figures, Setting};
use simnet::units;
use stage::nodes::Real;

use self::beside::Beside;
use self::display::Display;
use undrop::interrupt::{EXIT_INTERRUPTED, Interrupt, Interrupted};
use undrop::output;

/// Nodes by default.
const NODES: usize = 64;
const NODES_REAL: usize = 16;
/// Delay between nodes by default, as between the papers' hosts.
const DELAY_US: u64 = 50;

const EXAMPLES: &str = "\
Examples:
  undrop-lab multicast bench                                        the papers' setting: 64 nodes, 128 groups each
  undrop-lab multicast bench --groups-per-node 1024 --seeds 5       medians of five seeds, least and greatest in brackets
  undrop-lab multicast bench --nodes 16 --nak on --loss uniform:20% everything is delivered, by repairs or NAKs
  undrop-lab multicast bench --loss bursty:1%:20 --stagger 6 --json --svg bursts.svg
  undrop-lab multicast bench --real                                 real nodes on this machine, next to the simulation

The exit code is 0 even if packets stayed missing; the figures show them.";

/// Measure recovery from loss in a cluster: how much, how fast, at what cost.
///
/// The cluster runs in virtual time, so that the figures, except processor time, are the same on every
/// machine. Each packet goes from a random member to all others of a random group, and each receiver loses
/// packets independently. The packets of the first `--seconds` are measured; traffic then goes on for two
/// seconds.
///
/// With `--real` the nodes are those of the library, each in a network namespace of its own, and send the
/// same packets over a bridge. Packets are lost between a node's sockets and the rest of the node. The
/// simulation is repeated at the rate that the machine reached and with the delay that packets had. Processor
/// time is then that of the nodes' threads and of sending, including system calls and the kernel's path to
/// the receivers; in the simulation it is that of the protocol alone. Bytes and frames on wires are those for
/// the members; a bridge floods, so the counts of its ports, gossip included, are shown too.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Run real nodes in network namespaces on this machine, and show the simulation next to them
    #[arg(long)]
    real: bool,
    /// With --real, authenticate all datagrams with a cluster key, to compare the cost
    #[arg(long, requires = "real")]
    key: bool,
    /// Nodes in the cluster [default: 64, with --real 16]
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// Groups that each node joins, at random
    #[arg(long, value_name = "D", default_value_t = 128)]
    groups_per_node: usize,
    /// Members of a group on average; there are nodes x groups-per-node / group-size groups
    #[arg(long, value_name = "S", default_value_t = 10)]
    group_size: usize,
    /// Nodes in no group that send all packets, instead of the members
    #[arg(long, value_name = "N", default_value_t = 0)]
    outside_senders: usize,
    /// Packets that a node receives each second
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
    /// Instances of each repair bin that packets enter in turn; recovers bursts of this length
    #[arg(long, value_name = "I", default_value_t = 1)]
    stagger: u16,
    /// Longest time a repair may stay part-filled, or `none` as in the papers
    #[arg(long, value_name = "TIME", default_value = "none", value_parser = parse_max_delay)]
    max_delay: MaxDelay,
    /// Content of repairs: the XOR of their packets, their names alone (`digest`), or the better one (`auto`)
    #[arg(long, value_enum, default_value_t = Repair::Xor)]
    repair: Repair,
    /// Whether NAKs request the packets that repairs leave missing
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    nak: Switch,
    /// Loss at each receiver: none, uniform:P, bursty:P:LENGTH, markov:P:MEAN, gemodel:P:R:1-H:1-K
    /// (as of netem) or trace:FILE
    #[arg(long, value_name = "MODEL", default_value = "uniform:0.01")]
    loss: LossModel,
    /// Loss of repairs, NAKs and other datagrams without data at each receiver, by a generator of its own
    /// [default: as --loss]
    #[arg(long, value_name = "MODEL")]
    loss_other: Option<LossModel>,
    /// Delay between nodes in the simulation [default: 50us; with --real the median delay of real datagrams]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration_us)]
    delay: Option<u64>,
    /// Greatest random addition to the delay in the simulation, by which datagrams overtake each other
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::parse_duration_us)]
    jitter: u64,
    /// Length of the measurement in seconds, virtual ones in the simulation
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    seconds: f64,
    /// Random seed: the same seed gives the same figures, except with real nodes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of random seeds, from --seed on; shows medians and spread
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
            nodes: self.nodes(),
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
            delay_us: self.delay.unwrap_or(DELAY_US),
            jitter_us: self.jitter,
            seconds: self.seconds,
            seed: self.seed,
            ..Setting::default()
        }
    }
}

/// Runs all seeds and prints their figures.
///
/// Must be called while the process has one thread: real nodes without root need a user namespace.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.real {
        return match run_real(args) {
            Err(error) if error.is::<Interrupted>() => Ok(ExitCode::from(EXIT_INTERRUPTED)),
            other => other,
        };
    }
    let runs = simulated::run(&args.setting(), args.seeds)?;
    args.draw(&[("simulated", &runs)])?;
    let text = if args.json { report::json(&runs).to_string() } else { report::table(&args.title(), &runs) };
    output::line(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs each seed with real nodes, then in the simulation at the rate that they reached.
fn run_real(args: &Args) -> anyhow::Result<ExitCode> {
    let setting = args.setting();
    real::check(&setting)?;
    real::prepare()?;
    let interrupt = Interrupt::listen().context("listening for Ctrl-C")?;
    let mut beside = Beside::new(setting.rate);
    for number in 0..args.seeds {
        let seed = setting.seed.wrapping_add(number);
        let setting = Setting { seed, ..setting.clone() };
        let mut display = Display::new("real", args.seeds);
        let Real { figures, carried } = real::run(&setting, args.key, &interrupt, &mut display, number)?;
        drop(display);
        interrupt.check()?;
        let delay_us = args.delay.unwrap_or_else(|| carried.median_delay_us());
        let setting = Setting { rate: carried.rate, delay_us, ..setting };
        beside.simulated.push(simulated::run_one(&setting, &interrupt)?);
        beside.real.push((seed, figures));
        beside.carried.push(carried);
        beside.delays_us.push(delay_us);
        interrupt.check()?;
    }
    args.draw(&[("simulated", &beside.simulated), ("real", &beside.real)])?;
    beside.warnings().iter().for_each(|warning| eprintln!("note: {warning}"));
    let text = if args.json { beside.json().to_string() } else { beside.table(&args.title()) };
    output::line(&text)?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn nodes(&self) -> usize {
        self.nodes.unwrap_or(if self.real { NODES_REAL } else { NODES })
    }

    fn title(&self) -> String {
        let Self { groups_per_node, group_size, r, c, loss, .. } = self;
        let nodes = self.nodes();
        let nak = if self.nak == Switch::On { "NAK on" } else { "NAK off" };
        format!("{nodes} nodes, {groups_per_node} groups a node of {group_size}, ({r},{c}), {loss}, {nak}")
    }

    fn draw(&self, kinds: &[plot::Kind<'_>]) -> anyhow::Result<()> {
        let Some(file) = &self.svg else { return Ok(()) };
        let svg = plot::render(&self.title(), kinds)?;
        fs::write(file, svg).with_context(|| format!("writing {}", file.display()))
    }
}

/// A random seed and its figures.
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
        assert_eq!(setting.loss_other, LossModel::Uniform(0.02), "the loss of all datagrams");
    }

    #[test]
    fn real_nodes_are_fewer_unless_their_number_is_given() {
        for (line, nodes) in [("", 64), ("--real", 16), ("--real --nodes 5", 5), ("--nodes 7", 7)] {
            let args = parse(line).unwrap();
            assert_eq!(
                (args.setting().nodes, args.title().split(' ').next()),
                (nodes, Some(&*nodes.to_string()))
            );
        }
    }

    #[test]
    fn invalid_values_are_named() {
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
    fn an_impossible_setting_is_refused_before_it_runs() {
        let error = run(&parse("--nodes 4 --group-size 9").unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "group size: expected at most the number of nodes, 4, saw 9");
    }
}
