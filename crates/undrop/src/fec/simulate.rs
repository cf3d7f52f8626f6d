//! `undrop fec simulate`: what a code would recover on a link with given losses, how late, and at what cost.
//!
//! `simulate/report.rs` puts the figures into JSON and text.

mod report;

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Instant;

use ::fec::simulate::{Naming, Report, Simulation, simulate};
use ::fec::{Code, LayeredConfig, ReedSolomonConfig, RepairRate, Sending, SlidingConfig};
use anyhow::{Context as _, bail};
use netlab::LossModel;

use crate::output;
use report::Figures;

const EXAMPLES: &str = "\
Examples:
  undrop fec simulate                                                       (8; 1,11,19) at 1 % loss
  undrop fec simulate --interleaves 1,19,41 --delayed --loss bursty:1%:20
  undrop fec simulate --scheme reed-solomon --r 8 --c 3 --interleaves 20 --delayed --loss bursty:1%:20
  undrop fec simulate --scheme sliding --rate 0.125 --window 256 --loss uniform:1%
  undrop fec simulate --scheme sliding --loss trace:drops.txt --seeds 1 --json

Exit code 0 also if packets stayed missing: the figures say so.";

/// What would this code do on my link? Packets recovered, how late, overhead and processor time.
///
/// The real encoder and decoder, without network and clock; losses hit repairs like packets, in the order of
/// sending. Delays are counted in source packets. Processor times are measured apart, with packets of full size.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// How repairs are made
    #[arg(long, value_enum, default_value_t = Scheme::Layered)]
    scheme: Scheme,
    /// Packets in a repair, or in a block [layered, reed-solomon; default: 8]
    #[arg(long)]
    r: Option<u8>,
    /// Repairs of a block [reed-solomon; default: 3]. A layered code has one repair for each interleave
    #[arg(long)]
    c: Option<u8>,
    /// Distances between the packets of a repair, with commas [layered; default: 1,11,19], or blocks fed in turn, one
    /// number [reed-solomon; default: 1]
    #[arg(long, value_name = "I,...", value_delimiter = ',')]
    interleaves: Option<Vec<u16>>,
    /// Send repairs one interleave later, so that a burst does not take them with their packets [layered, reed-solomon]
    #[arg(long)]
    delayed: bool,
    /// Repairs for each packet: 3/8, 0.375 or 37.5% [sliding; default: 3/8]
    #[arg(long)]
    rate: Option<RepairRate>,
    /// Packets in a repair, the last ones [sliding; default: 160]
    #[arg(long, value_name = "PACKETS")]
    window: Option<u16>,
    /// RFC 8681's density threshold, 0 to 15: of 16 coefficients so many and one are not 0 [sliding; default: 15]
    #[arg(long, value_name = "DT")]
    density: Option<u8>,
    /// How repairs tell the places of packets that arrived: by names of the new packets, and again of those before
    /// [sliding; default: early]
    #[arg(long, value_enum, value_name = "RULE")]
    names: Option<Names>,
    /// What is lost: none, uniform:P, bursty:P:LENGTH, markov:P:MEAN or trace:FILE
    #[arg(long, value_name = "MODEL", default_value = "uniform:0.01")]
    loss: LossModel,
    /// For how many packets the receiver waits for a lost one
    #[arg(long, value_name = "PACKETS", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    wait: u32,
    /// Packets in a run
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    packets: u64,
    /// Bytes of an IP packet, for bytes on the wire and for processor times
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(64..))]
    size: u16,
    /// Seed of the first run: the same seed gives the same losses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs, each with the next seed
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Scheme {
    /// XORs of r packets at several distances (Maelstrom)
    Layered,
    /// Blocks of r packets and c repairs, of which any r are enough
    ReedSolomon,
    /// Random sums of the last packets (RFC 8681)
    Sliding,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Names {
    /// Again in the next repair and s later, where s repairs are more than any burst takes that can be mended
    #[default]
    Early,
    /// Again in the next repair and 2 s later
    Late,
    /// Again in the next two repairs
    Adjacent,
    /// Again s and 2 s later
    Spread,
    /// None: packets carry numbers
    None,
}

impl From<Names> for Naming {
    fn from(names: Names) -> Self {
        match names {
            Names::Early => Self::Early,
            Names::Late => Self::Late,
            Names::Adjacent => Self::Adjacent,
            Names::Spread => Self::Spread,
            Names::None => Self::None,
        }
    }
}

/// Runs all seeds and tells what came of them.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let figures = figures(args)?;
    output::line(&if args.json { figures.json().to_string() } else { figures.text() })?;
    Ok(ExitCode::SUCCESS)
}

fn figures(args: &Args) -> anyhow::Result<Figures> {
    let code = args.code()?;
    code.check().context("this is no code")?;
    let runs = (0..args.seeds).map(|run| args.simulate(&code, run)).collect::<anyhow::Result<Vec<_>>>()?;
    let cost = args.measure(&code)?;
    Ok(Figures::new(&code, args.loss.to_string(), usize::from(args.size), &runs, &cost))
}

impl Args {
    fn code(&self) -> anyhow::Result<Code> {
        let sending = if self.delayed { Sending::Delayed } else { Sending::Immediate };
        self.refuse_strangers()?;
        Ok(match self.scheme {
            Scheme::Layered => {
                let default = LayeredConfig::default();
                let interleaves = self.interleaves.clone().unwrap_or(default.interleaves);
                LayeredConfig {
                    r: self.r.unwrap_or(default.r),
                    interleaves,
                    sending,
                    ..LayeredConfig::default()
                }
                .into()
            }
            Scheme::ReedSolomon => {
                let default = ReedSolomonConfig::default();
                let interleave = match self.interleaves.as_deref() {
                    None => default.interleave,
                    Some(&[interleave]) => interleave,
                    Some(several) => {
                        bail!("--interleaves: expected one number for blocks, saw {}", several.len())
                    }
                };
                let (r, c) = (self.r.unwrap_or(default.r), self.c.unwrap_or(default.c));
                ReedSolomonConfig { r, c, interleave, sending, ..default }.into()
            }
            Scheme::Sliding => {
                let default = SlidingConfig::default();
                let (rate, window) =
                    (self.rate.unwrap_or(default.rate), self.window.unwrap_or(default.window));
                SlidingConfig { rate, window, density: self.density.unwrap_or(default.density), ..default }
                    .into()
            }
        })
    }

    /// A setting that the scheme has no use for is a mistake: the figures would not be what the user thinks.
    fn refuse_strangers(&self) -> anyhow::Result<()> {
        let (blocks, sliding) = (self.scheme == Scheme::ReedSolomon, self.scheme == Scheme::Sliding);
        let settings = [
            ("--r", self.r.is_some(), !sliding, "`layered` and `reed-solomon`"),
            (
                "--c",
                self.c.is_some(),
                blocks,
                "`reed-solomon`; a layered code has one repair for each interleave",
            ),
            ("--interleaves", self.interleaves.is_some(), !sliding, "`layered` and `reed-solomon`"),
            ("--delayed", self.delayed, !sliding, "`layered` and `reed-solomon`"),
            ("--rate", self.rate.is_some(), sliding, "`sliding`"),
            ("--window", self.window.is_some(), sliding, "`sliding`"),
            ("--density", self.density.is_some(), sliding, "`sliding`"),
            ("--names", self.names.is_some(), sliding, "`sliding`"),
        ];
        match settings.iter().find(|(_, given, fits, _)| *given && !fits) {
            Some((name, _, _, schemes)) => bail!("{name} belongs to the scheme {schemes}"),
            None => Ok(()),
        }
    }

    fn naming(&self) -> Naming {
        self.names.unwrap_or_default().into()
    }

    /// One run: losses and coefficients have their seed from the number of the run.
    fn simulate(&self, code: &Code, run: u64) -> anyhow::Result<Report> {
        let mut code = code.clone();
        if let Code::Sliding(config) = &mut code {
            // A run takes some of the 65,536 seeds; the runs begin apart.
            config.seed = ((self.seed.wrapping_add(run)).wrapping_mul(40_503) & 0xffff) as u16;
        }
        let mut loss = self.loss.seeded(self.seed.wrapping_add(run));
        let simulation = Simulation {
            code,
            packets: self.packets,
            window: self.wait as usize,
            naming: self.naming(),
            ..Simulation::default()
        };
        checked(simulate(&simulation, |_| loss.lose())?)
    }

    /// A shorter run with packets of full size, by the clock.
    fn measure(&self, code: &Code) -> anyhow::Result<Report> {
        /// The symbol is longer than the packet by so much (docs/wire.md).
        const SYMBOL_HEAD: usize = 12;
        const PACKETS_MAX: u64 = 20_000;
        let simulation = Simulation {
            code: code.clone(),
            packets: self.packets.min(PACKETS_MAX),
            window: self.wait as usize,
            symbol: usize::from(self.size) + SYMBOL_HEAD,
            naming: self.naming(),
            clock: Some(clock_ns),
        };
        let mut loss = self.loss.seeded(self.seed);
        checked(simulate(&simulation, |_| loss.lose())?)
    }
}

fn checked(report: Report) -> anyhow::Result<Report> {
    if report.wrong > 0 {
        bail!("{} packets were recovered wrong: the codec has a fault", report.wrong);
    }
    Ok(report)
}

#[expect(clippy::disallowed_methods, reason = "no core: a stopwatch")]
fn clock_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::Value;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, String> {
        let words = ["simulate"].into_iter().chain(line.split_whitespace());
        Command::try_parse_from(words).map(|command| command.args).map_err(|error| error.to_string())
    }

    fn json(line: &str) -> Value {
        figures(&parse(line).unwrap()).unwrap().json()
    }

    #[test]
    fn a_command_line_becomes_a_code() {
        let code = |line| parse(line).unwrap().code().unwrap();
        assert_eq!(code(""), Code::default());
        let layered = LayeredConfig {
            r: 7,
            interleaves: vec![1, 19, 41],
            sending: Sending::Delayed,
            ..LayeredConfig::default()
        };
        assert_eq!(code("--r 7 --interleaves 1,19,41 --delayed"), layered.into());
        let blocks = ReedSolomonConfig { r: 9, c: 4, interleave: 20, ..ReedSolomonConfig::default() };
        assert_eq!(code("--scheme reed-solomon --r 9 --c 4 --interleaves 20"), blocks.into());
        let sliding = SlidingConfig {
            rate: RepairRate::new(1, 8).unwrap(),
            window: 256,
            density: 7,
            ..SlidingConfig::default()
        };
        assert_eq!(code("--scheme sliding --rate 0.125 --window 256 --density 7"), sliding.into());
    }

    #[test]
    fn mistakes_are_named() {
        for (line, said) in [
            ("--rate 0.1", "--rate belongs to the scheme `sliding`"),
            ("--c 3", "--c belongs to the scheme `reed-solomon`; a layered"),
            ("--scheme sliding --delayed", "--delayed belongs to the scheme `layered`"),
            ("--names none", "--names belongs to the scheme `sliding`"),
            ("--scheme reed-solomon --interleaves 1,2", "expected one number for blocks, saw 2"),
            ("--scheme sliding --window 0", "window: expected 1 to 1024, saw 0"),
            ("--interleaves 3,3", "expected distinct ones, saw 3 twice"),
        ] {
            let error = figures(&parse(line).unwrap()).unwrap_err();
            assert!(format!("{error:#}").contains(said), "{line}: {error:#}");
        }
        for (line, said) in [
            ("--scheme raptor", "possible values: layered, reed-solomon, sliding"),
            ("--scheme sliding --rate much", "expected a fraction"),
            ("--loss maybe", "expected a loss model"),
            ("--packets 0", "1..="),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn figures_tell_what_was_lost_and_recovered() {
        let small = "--packets 4000 --seeds 3";
        let layered = json(&format!("{small} --loss uniform:1%"));
        assert_eq!(layered["scheme"], "layered");
        assert!((layered["overhead_percent"]["packets"].as_f64().unwrap() - 37.5).abs() < 0.5);
        // (1500 + 113) / 1500 of it in bytes (docs/wire.md).
        assert!((layered["overhead_percent"]["wire_bytes"].as_f64().unwrap() - 40.3).abs() < 0.5);
        assert!(layered["recovered_percent"].as_f64().unwrap() > 99.0);
        assert_eq!(layered["recovered_percent_of_runs"].as_array().unwrap().len(), 3);
        assert!(layered["encode_ns_per_packet"].as_f64().unwrap() > 0.0);
        let sliding = json(&format!("{small} --scheme sliding --loss bursty:1%:20"));
        assert_eq!(sliding["recovered_percent"], 100.0);
        assert_eq!(sliding["residual_loss"], 0.0);
        assert!(sliding["delay_packets"]["max"].as_u64() >= sliding["delay_packets"]["p50"].as_u64());
        let lossless = json(&format!("{small} --loss none"));
        assert_eq!((&lossless["lost"], &lossless["delay_packets"]["mean"]), (&0.into(), &Value::Null));
    }

    #[test]
    fn the_same_seed_gives_the_same_figures() {
        let run = |seed: u64| {
            let mut value = json(&format!("--scheme sliding --packets 3000 --seeds 2 --seed {seed}"));
            let fields = value.as_object_mut().unwrap();
            fields.remove("encode_ns_per_packet");
            fields.remove("decode_ns_per_packet");
            value
        };
        assert_eq!(run(4), run(4));
        assert_ne!(run(4), run(5));
    }
}
