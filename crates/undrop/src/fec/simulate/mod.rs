//! `undrop fec simulate`: recovery, delay and cost of a code on a link with given losses.
//!
//! `report.rs` renders the figures as JSON and as text.

mod report;

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Instant;

use ::fec::simulate::{Naming, Packet, Report, Simulation, simulate};
use ::fec::{Code, RepairRate, Scheme};
use anyhow::{Context as _, bail};
use loss::LossModel;
use maelstrom::config::{Schedule, SchemeChoice};

use crate::failure::Advice as _;
use crate::{output, scheme};
use report::{Figures, Setup};

const EXAMPLES: &str = "\
Examples:
  undrop fec simulate                                        the gateway's default code at 1 % loss
  undrop fec simulate --scheme layered --interleaves 1,19,41 --delayed false --loss bursty:1%:20
  undrop fec simulate --scheme reed-solomon --r 8 --c 3 --interleaves 20 --loss bursty:1%:20
  undrop fec simulate --scheme sliding --rate 0.125 --window 256 --loss uniform:1%
  undrop fec simulate --scheme sliding --loss trace:drops.txt --seeds 1 --json

The exit code is 0 even if packets stay lost; see the figures.";

/// Simulate an erasure code on a link with losses: packets recovered, delay, overhead and processor time.
///
/// Runs the real encoder and decoder without network and clock. Losses hit source and repair packets alike,
/// in the order of sending. Those of a trace are losses of source packets: a repair shares the fate of the
/// packet with which it leaves. Delays are counted in source packets. Processor times are measured in a run
/// of their own, with packets of full size.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// FEC scheme; auto is the sliding window with which a gateway starts
    #[arg(long, value_parser = scheme::parser(), default_value_t)]
    scheme: SchemeChoice,
    /// Number of source packets in a repair or a block [layered, reed-solomon; default: 8]
    #[arg(long)]
    r: Option<u8>,
    /// Number of repairs for each block [reed-solomon; default: 3]. A layered code has one repair for each
    /// interleave
    #[arg(long)]
    c: Option<u8>,
    /// Interleave of each layer, separated by commas [layered; default: 1,11,19], or the number of blocks
    /// that are filled in turn [reed-solomon; default: 1]
    #[arg(long, visible_alias = "interleave", value_name = "I,...", value_delimiter = ',')]
    interleaves: Option<Vec<u16>>,
    /// Whether interleaved repairs wait for later packets, so that one burst does not take both a packet and
    /// its repair [layered, reed-solomon; default: true]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    delayed: Option<bool>,
    /// Number of repairs for each source packet: 3/8, 0.375 or 37.5% [sliding; default: 3/8]
    #[arg(long, visible_alias = "repair-rate")]
    rate: Option<RepairRate>,
    /// Number of packets in a repair, the newest ones [sliding; default: 256]
    #[arg(long, value_name = "PACKETS")]
    window: Option<u16>,
    /// Number of stripes of the window, which take turns: a repair contains the packets of one, 1 to 16
    /// [sliding; default: 1]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u8).range(1..=16))]
    stripes: Option<u8>,
    /// Density threshold of RFC 8681, 0 to 15: DT + 1 of 16 coefficients are not 0 [sliding; default: 15]
    #[arg(long, value_name = "DT")]
    density: Option<u8>,
    /// Rule for the names in repairs: each repair names the new packets, and repeats the names of older ones
    /// [sliding; default: early]
    #[arg(long, value_enum, value_name = "RULE")]
    names: Option<Names>,
    /// Loss model: none, uniform:P, bursty:P:LENGTH, markov:P:MEAN, gemodel:P:R:1-H:1-K
    /// (as of netem) or trace:FILE
    #[arg(long, value_name = "MODEL", default_value = "uniform:0.01")]
    loss: LossModel,
    /// Number of later packets after which the receiver gives a lost packet up
    #[arg(long, value_name = "PACKETS", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    wait: u32,
    /// Number of source packets in a run
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    packets: u64,
    /// Size of an IP packet in bytes, from which bytes on the wire and processor times are determined
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(64..))]
    size: u16,
    /// Random seed of the first run; the same seed gives the same losses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of runs, each with the next seed
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Names {
    /// Repeat a name in the next repair and s repairs later; no burst that can be recovered has s repairs
    #[default]
    Early,
    /// Repeat a name in the next repair and 2 s repairs later
    Late,
    /// Repeat a name in the next two repairs
    Adjacent,
    /// Repeat a name s and 2 s repairs later
    Spread,
    /// No names: packets carry sequence numbers
    None,
}

impl Names {
    /// The rule as a word of the command line.
    fn rule(self) -> &'static str {
        match self {
            Self::Early => "early",
            Self::Late => "late",
            Self::Adjacent => "adjacent",
            Self::Spread => "spread",
            Self::None => "none",
        }
    }
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

/// Runs all random seeds and prints the figures.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let figures = figures(args)?;
    output::line(&if args.json { serde_json::to_string(&figures.document())? } else { figures.text() })?;
    Ok(ExitCode::SUCCESS)
}

fn figures(args: &Args) -> anyhow::Result<Figures> {
    let code = args.checked_code().wrong_usage()?;
    let runs = (0..args.seeds).map(|run| args.simulate(&code, run)).collect::<anyhow::Result<Vec<_>>>()?;
    let cost = args.measure(&code)?;
    let names = matches!(code, Code::Sliding(_)).then(|| args.names.unwrap_or_default().rule());
    let setup =
        Setup { code: &code, names, loss: args.loss.to_string(), packet_bytes: usize::from(args.size) };
    Ok(Figures::new(setup, &runs, &cost))
}

impl Args {
    fn checked_code(&self) -> anyhow::Result<Code> {
        const WRONG: &str = "the parameters of the code are not valid";
        let code = self.code()?;
        code.check().context(WRONG)?;
        // As in a gateway, and not for the code alone.
        self.schedule()?.check_reach().context(WRONG)?;
        Ok(code)
    }

    /// The code of a gateway with these parameters. A parameter that is not given has a gateway's default.
    fn code(&self) -> anyhow::Result<Code> {
        /// Longest symbol of the configuration. The simulation has its own lengths.
        const SYMBOL_MAX: usize = 1_536;
        let delayed = self.delayed.unwrap_or(Schedule::DELAYED);
        let mut code = self.schedule()?.code(delayed, u64::from(Schedule::MAX_DELAY_MS) * 1_000, SYMBOL_MAX);
        if let (Code::Sliding(config), Some(stripes)) = (&mut code, self.stripes) {
            config.stripes = stripes;
        }
        Ok(code)
    }

    fn schedule(&self) -> anyhow::Result<Schedule> {
        self.refuse_foreign()?;
        let r = self.r.unwrap_or(Schedule::R);
        let SchemeChoice::Fixed(scheme) = self.scheme else { return Ok(Schedule::Auto) };
        Ok(match scheme {
            Scheme::Layered => {
                let interleaves = self.interleaves.clone().unwrap_or_else(|| Schedule::INTERLEAVES.to_vec());
                Schedule::Layered { r, interleaves }
            }
            Scheme::ReedSolomon => {
                let interleave = match self.interleaves.as_deref() {
                    None => Schedule::INTERLEAVE,
                    Some(&[interleave]) => interleave,
                    Some(several) => {
                        bail!("--interleaves: expected one number for reed-solomon, saw {}", several.len())
                    }
                };
                Schedule::ReedSolomon { r, c: self.c.unwrap_or(Schedule::C), interleave }
            }
            Scheme::Sliding => Schedule::Sliding {
                rate: self.rate.unwrap_or(Schedule::RATE),
                window: self.window.unwrap_or(Schedule::WINDOW),
                density: self.density.unwrap_or(Schedule::DENSITY),
            },
        })
    }

    /// Refuses parameters of another scheme: the figures would not be those of the expected code.
    fn refuse_foreign(&self) -> anyhow::Result<()> {
        use Scheme::{Layered, ReedSolomon, Sliding};
        let parameters = [
            ("--r", self.r.is_some(), &[Layered, ReedSolomon][..]),
            ("--c", self.c.is_some(), &[ReedSolomon]),
            ("--interleaves", self.interleaves.is_some(), &[Layered, ReedSolomon]),
            ("--delayed", self.delayed.is_some(), &[Layered, ReedSolomon]),
            ("--rate", self.rate.is_some(), &[Sliding]),
            ("--window", self.window.is_some(), &[Sliding]),
            ("--stripes", self.stripes.is_some(), &[Sliding]),
            ("--density", self.density.is_some(), &[Sliding]),
        ];
        let owns = |owners: &[Scheme]| owners.iter().any(|&owner| self.scheme == SchemeChoice::Fixed(owner));
        let foreign = parameters.iter().find(|(_, given, owners)| *given && !owns(owners));
        if self.names.is_some() && !owns(&[Sliding]) && self.scheme != SchemeChoice::Auto {
            bail!("--names belongs to the schemes `auto` and `sliding`, saw `{}`; leave it out", self.scheme)
        }
        let Some((name, _, owners)) = foreign else { return Ok(()) };
        let owners: Vec<String> = owners.iter().map(|scheme| format!("`{scheme}`")).collect();
        let hint = if *name == "--c" { " (a layered code has one repair for each interleave)" } else { "" };
        bail!(
            "{name} belongs to the scheme {}, saw `{}`{hint}; leave it out, or choose that scheme",
            owners.join(" or "),
            self.scheme
        )
    }

    fn naming(&self) -> Naming {
        self.names.unwrap_or_default().into()
    }

    /// Simulates one run. Its number determines the random seeds of losses and coefficients.
    fn simulate(&self, code: &Code, run: u64) -> anyhow::Result<Report> {
        let mut code = code.clone();
        if let Code::Sliding(config) = &mut code {
            // A run uses several of the 65,536 seeds, so that the runs start far from each other.
            config.seed = ((self.seed.wrapping_add(run)).wrapping_mul(40_503) & 0xffff) as u16;
        }
        let simulation = Simulation {
            code,
            packets: self.packets,
            history: self.wait as usize,
            naming: self.naming(),
            ..Simulation::default()
        };
        checked(simulate(&simulation, self.fates(self.seed.wrapping_add(run)))?)
    }

    /// Decides which packets are lost. A trace does not count repairs: one of `undrop gateway losses` was
    /// taken beside repairs of another code, and others without any.
    fn fates(&self, seed: u64) -> impl FnMut(Packet) -> bool {
        let mut loss = self.loss.seeded(seed);
        let counts_repairs = !matches!(self.loss, LossModel::Trace(_));
        let mut is_lost = false;
        move |packet| {
            if counts_repairs || matches!(packet, Packet::Source(_)) {
                is_lost = loss.lose();
            }
            is_lost
        }
    }

    /// Measures processor times in a shorter run with packets of full size.
    fn measure(&self, code: &Code) -> anyhow::Result<Report> {
        /// Difference between symbol and packet in bytes (docs/wire.md).
        const SYMBOL_HEAD: usize = 12;
        const PACKETS_MAX: u64 = 20_000;
        let simulation = Simulation {
            code: code.clone(),
            packets: self.packets.min(PACKETS_MAX),
            history: self.wait as usize,
            symbol: usize::from(self.size) + SYMBOL_HEAD,
            naming: self.naming(),
            clock: Some(clock_ns),
        };
        checked(simulate(&simulation, self.fates(self.seed))?)
    }
}

fn checked(report: Report) -> anyhow::Result<Report> {
    if report.wrong > 0 {
        bail!(
            "expected recovered packets as they were sent, saw {} with other contents; please report this",
            report.wrong
        );
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
    use std::path::Path;

    use ::fec::simulate::repair_overhead_bytes;
    use ::fec::{LayeredConfig, ReedSolomonConfig, Sending, SlidingConfig};
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
        serde_json::to_value(figures(&parse(line).unwrap()).unwrap().document()).unwrap()
    }

    #[test]
    fn a_command_line_becomes_a_code() {
        let code = |line: &str| parse(line).unwrap().code().unwrap();
        let layered = LayeredConfig {
            r: 7,
            interleaves: vec![1, 19, 41],
            sending: Sending::Delayed,
            ..LayeredConfig::default()
        };
        for delayed in ["", "--delayed", "--delayed=true"] {
            assert_eq!(
                code(&format!("--scheme layered --r 7 --interleaves 1,19,41 {delayed}")),
                layered.clone().into()
            );
        }
        let at_once = Sending::Immediate;
        let layered = LayeredConfig { sending: at_once, ..LayeredConfig::default() };
        assert_eq!(code("--scheme layered --delayed false"), layered.into());
        let blocks = ReedSolomonConfig {
            r: 9,
            c: 4,
            interleave: 20,
            sending: at_once,
            ..ReedSolomonConfig::default()
        };
        assert_eq!(code("--scheme reed-solomon --r 9 --c 4 --interleaves 20 --delayed false"), blocks.into());
        assert_eq!(
            code("--scheme reed-solomon --interleave 20"),
            code("--scheme reed-solomon --interleaves 20")
        );
        assert_eq!(code("--scheme sliding --repair-rate 1/8"), code("--scheme sliding --rate 1/8"));
        let sliding = SlidingConfig {
            rate: RepairRate::new(1, 8).unwrap(),
            window: 512,
            stripes: 4,
            density: 7,
            ..SlidingConfig::default()
        };
        assert_eq!(
            code("--scheme sliding --rate 0.125 --window 512 --stripes 4 --density 7"),
            sliding.into()
        );
    }

    /// The code of a gateway with the shortest configuration file for this scheme.
    fn gateway(scheme: &str, directory: &Path) -> maelstrom::config::Code {
        let text = format!(
            "[gateway]\nwan = \"w\"\nlisten = \"10.0.0.1:1\"\n[code]\nscheme = \"{scheme}\"\n\
             [[peer]]\naddress = \"10.0.0.2:1\"\nnetworks = [\"10.2.0.0/16\"]\nkey_file = \"peer.key\"\n"
        );
        maelstrom::config::parse(&directory.join("gateway.toml"), &text).config().unwrap().code
    }

    #[test]
    fn defaults_are_those_of_a_gateway() {
        let directory = std::env::temp_dir().join(format!("undrop-defaults-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        keyfile::KeyText::generate().unwrap().write_new(&directory.join("peer.key")).unwrap();
        for scheme in ["auto", "layered", "reed-solomon", "sliding"] {
            let gateway = gateway(scheme, &directory);
            let line = format!("--scheme {scheme}");
            let simulated = parse(&line).unwrap();
            assert_eq!(simulated.schedule().unwrap(), gateway.schedule);
            let code = gateway.schedule.code(gateway.delayed, gateway.max_delay_us(), 1_536);
            assert_eq!(simulated.code().unwrap(), code);
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_repair_has_as_many_bytes_as_a_gateway_sends() {
        /// A gateway leaves room for four packets of other flows, of three bytes each.
        const EXCEPTIONS: usize = 4 * 3;
        for line in [
            "",
            "--scheme layered",
            "--scheme layered --r 24",
            "--scheme reed-solomon --r 32 --c 4",
            "--scheme sliding",
            "--scheme sliding --rate 1/8",
            "--scheme sliding --rate 1/22",
            "--scheme sliding --rate 1/33",
            "--scheme sliding --rate 10/27",
        ] {
            let args = parse(line).unwrap();
            let most = args.schedule().unwrap().repair_overhead(false);
            assert_eq!(repair_overhead_bytes(&args.code().unwrap()) + EXCEPTIONS, most, "{line}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (line, said) in [
            ("--rate 0.1", "--rate belongs to the scheme `sliding`"),
            ("--c 3", "--c belongs to the scheme `reed-solomon`, saw `auto`"),
            ("--scheme layered --c 3", "--c belongs to the scheme `reed-solomon`, saw `layered` (a layered"),
            ("--scheme sliding --delayed", "--delayed belongs to the scheme `layered`"),
            ("--scheme layered --names none", "--names belongs to the schemes `auto` and `sliding`"),
            ("--scheme reed-solomon --interleaves 1,2", "expected one number for reed-solomon, saw 2"),
            ("--scheme sliding --window 0", "window: expected 1 to 1024, saw 0"),
            ("--scheme sliding --window 2 --rate 1/8", "window: expected at least 8, the number of packets"),
            ("--scheme sliding --window 1024 --rate 1/100", "rate: expected at least 1/64"),
            ("--scheme layered --interleaves 3,3", "expected distinct ones, saw 3 twice"),
        ] {
            let error = figures(&parse(line).unwrap()).unwrap_err();
            assert!(format!("{error:#}").contains(said), "{line}: {error:#}");
        }
        for (line, said) in [
            ("--scheme raptor", "possible values: auto, layered, reed-solomon, sliding"),
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
        let layered = json(&format!("{small} --scheme layered --loss uniform:1%"));
        assert_eq!(layered["scheme"], "layered");
        assert!((layered["overhead_percent"]["packets"].as_f64().unwrap() - 37.5).abs() < 0.5);
        // In bytes, the overhead is larger by (1500 + 113) / 1500 (docs/wire.md).
        assert!((layered["overhead_percent"]["wire_bytes"].as_f64().unwrap() - 40.3).abs() < 0.5);
        assert!(layered["recovered_percent"].as_f64().unwrap() > 99.0);
        assert_eq!(layered["recovered_percent_of_runs"].as_array().unwrap().len(), 3);
        assert!(layered["encode_ns_per_packet"].as_f64().unwrap() > 0.0);
        let sliding = json(&format!("{small} --scheme sliding --loss bursty:1%:20"));
        assert_eq!(sliding["recovered_percent"], 100.0);
        assert_eq!(sliding["residual_loss"], 0.0);
        assert!(sliding["delay_packets"]["max"].as_u64() >= sliding["delay_packets"]["p50"].as_u64());
        assert_eq!((&layered["names"], &sliding["names"]), (&Value::Null, &"early".into()));
        let lossless = json(&format!("{small} --loss none"));
        assert_eq!((&lossless["lost"], &lossless["delay_packets"]["mean"]), (&0.into(), &Value::Null));
    }

    #[test]
    fn bursts_of_a_trace_are_of_source_packets() {
        let file = std::env::temp_dir().join(format!("undrop-runs-{}.txt", std::process::id()));
        std::fs::write(&file, "runs 5000 100").unwrap();
        let line = "--packets 20000 --seeds 1 --scheme sliding --window 512";
        let recovered = |rate: &str| {
            let figures = json(&format!("{line} --rate {rate} --loss trace:{}", file.display()));
            assert_eq!(figures["lost"], 3 * 100);
            figures["recovered_percent"].as_f64().unwrap()
        };
        // The last one of a burst may be alone in a window.
        let (low, high) = (recovered("3/16"), recovered("1/4"));
        assert!(low < 2.0 && high == 100.0, "{low} {high}");
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn the_json_has_these_figures() {
        let figures = json("--packets 2000 --seeds 1 --scheme sliding --names late");
        for name in [
            "/overhead_percent/packets",
            "/overhead_percent/wire_bytes",
            "/recovered_percent",
            "/residual_loss",
            "/delay_packets/mean",
            "/delay_packets/p50",
            "/delay_packets/p99",
            "/delay_packets/max",
            "/encode_ns_per_packet",
            "/decode_ns_per_packet",
        ] {
            assert!(figures.pointer(name).is_some_and(Value::is_number), "{name}: {figures}");
        }
        assert_eq!(figures["names"], "late");
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
