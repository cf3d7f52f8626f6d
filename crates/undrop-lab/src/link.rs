//! `undrop-lab link`: a long-haul link between two network namespaces.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use daemon::signals::Signals;
use netio::poll::{Interest, Poller};
use netlab::emulator::DirectionCounters;
use netlab::traffic::now_us;
use simnet::link::Reorder;

use loss::LossModel;
use netlab::Direction;
use netlab::Emulator;
use netlab::EmulatorConfig;
use netlab::Namespace;
use serde_json::{Value, json};
use simnet::LinkConfig;
use simnet::units;

use undrop::failure::{Advice as _, usage};
use undrop::output;

const EXAMPLES: &str = "\
Examples:
  undrop-lab link --a blue --b green --delay 50ms --rate 1gbit --loss uniform:0.01
  undrop-lab link --a pid:4711 --b /proc/4712/ns/net --loss bursty:1%:20 --loss-back none --drop-log drops.csv
  undrop-lab link --a blue --b green --rate unlimited --delay 0 --seconds 60 --json

The devices have no addresses; set one with `ip -n blue address add 10.81.9.1/24 dev wan0`. The devices disappear
when the command ends.";

/// Emulate a long-haul link: a device in each of two network namespaces; rate, delay and loss between them.
///
/// A packet meets, in this order: a finite queue; the wire with its rate; loss; corruption and duplication;
/// delay and reordering. The emulator first cuts the kernel's super-packets, so that each packet is lost or
/// delivered on its own.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Namespace of end a: a name below /run/netns, pid:N, self, or a path
    #[arg(long, value_name = "NETNS")]
    a: String,
    /// Namespace of end b, in the same form
    #[arg(long, value_name = "NETNS")]
    b: String,
    /// Name of the device at both ends
    #[arg(long, default_value = "wan0")]
    name: String,
    /// Maximum size of an IP packet in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(68..=65_535))]
    mtu: u32,
    /// One-way delay
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = units::parse_duration_us)]
    delay: u64,
    /// Maximum additional delay of a packet; the order of packets is kept
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::parse_duration_us)]
    jitter: u64,
    /// Rate in each direction, counted from the IP header, or `unlimited`
    #[arg(long, default_value = "1gbit", value_parser = parse_rate)]
    rate: Rate,
    /// Size of the queue in each direction, in bytes [default: rate times twice the delay, at least 256KiB]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    queue: Option<u64>,
    /// Loss model: none, uniform:P, bursty:P:LENGTH, markov:P:MEAN, gemodel:P:R:1-H:1-K
    /// (as of netem) or trace:FILE
    #[arg(long, value_name = "MODEL", default_value = "none")]
    loss: LossModel,
    /// Loss model from b to a [default: the same model]
    #[arg(long, value_name = "MODEL")]
    loss_back: Option<LossModel>,
    /// Share of packets that later ones overtake, and their additional delay, e.g. 0.001:5ms
    #[arg(long, value_name = "SHARE:TIME")]
    reorder: Option<Reorder>,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = loss::parse_rate)]
    duplicate: f64,
    /// Share of packets that arrive with one bit flipped
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = loss::parse_rate)]
    corrupt: f64,
    /// Random seed; the same seed loses the same packets
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// CSV file to which each packet that did not arrive is written: time, direction, reason, length, hash
    #[arg(long, value_name = "FILE")]
    drop_log: Option<PathBuf>,
    /// Exchange single packets with the kernel, not super-packets; this is slower and the same on the wire
    #[arg(long)]
    no_offload: bool,
    /// Time in seconds after which the link ends [default: at SIGINT or SIGTERM]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Print the totals as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
enum Rate {
    Unlimited,
    BitsPerSecond(u64),
}

fn parse_rate(text: &str) -> Result<Rate, units::UnitError> {
    if text == "unlimited" {
        Ok(Rate::Unlimited)
    } else {
        units::parse_bit_rate(text).map(Rate::BitsPerSecond)
    }
}

/// Serves the link until the time is over or a signal comes, then prints the totals.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // `Signals` comes before any thread: a thread that does not block the signals would take them.
    let signals = Signals::new().context("cannot listen for signals")?;
    let open =
        |spec: &str| Namespace::open(spec).advise("`ip netns list` shows the names; entering one needs root");
    let (a, b) = (open(&args.a)?, open(&args.b)?);
    if a.inode() == b.inode() {
        return Err(usage(format!(
            "expected two namespaces, but --a {} and --b {} are the same one",
            args.a, args.b
        )));
    }
    let link = Emulator::start(&a, &b, &configuration(args))?;
    eprintln!("{} is up in {} and {}", args.name, args.a, args.b);
    let elapsed_us = serve(&link, &signals, args)?;
    let missed = link.drop_log_missed();
    let totals = link.stop()?;
    if args.json {
        output::line(&as_json(&totals, elapsed_us, missed).to_string())?;
    } else {
        output::line(&as_table(&totals, elapsed_us))?;
    }
    if missed > 0 {
        eprintln!("warning: {missed} packets are missing in the drop log: the file was too slow for them");
    }
    Ok(ExitCode::SUCCESS)
}

fn configuration(args: &Args) -> EmulatorConfig {
    let rate_bps = match args.rate {
        Rate::Unlimited => None,
        Rate::BitsPerSecond(rate) => Some(rate),
    };
    let mut config = EmulatorConfig::symmetric(LinkConfig {
        rate_bps,
        delay_us: args.delay,
        jitter_us: args.jitter,
        queue_bytes: args.queue,
        loss: args.loss.clone(),
        reorder: args.reorder,
        duplicate: args.duplicate,
        corrupt: args.corrupt,
        seed: args.seed,
    });
    if let Some(loss) = &args.loss_back {
        config.b_to_a.loss = loss.clone();
    }
    EmulatorConfig {
        interface: args.name.clone(),
        mtu: args.mtu,
        offload: !args.no_offload,
        drop_log: args.drop_log.clone(),
        ..config
    }
}

/// Serves the link until the end; returns the time that it was served, in microseconds.
fn serve(link: &Emulator, signals: &Signals, args: &Args) -> anyhow::Result<u64> {
    let mut poller = Poller::new()?;
    poller.add(signals, 0, Interest::Readable)?;
    let start_us = now_us();
    let end_us =
        args.seconds.map_or(u64::MAX, |seconds| start_us.saturating_add(seconds.saturating_mul(1_000_000)));
    let mut status = io::stderr().is_terminal().then(|| StatusLine::new(link, start_us));
    let mut tick_us = start_us;
    loop {
        let now = now_us();
        if signals.next()?.is_some() || now >= end_us || !link.is_running() {
            if let Some(status) = &mut status {
                status.clear();
            }
            return Ok(now - start_us);
        }
        if now >= tick_us + 1_000_000 {
            tick_us += (now - tick_us) / 1_000_000 * 1_000_000;
            if let Some(status) = &mut status {
                status.show(link, now);
            }
        }
        let wake_us = end_us.min(tick_us + 1_000_000);
        let _ = poller.wait(Some(Duration::from_micros(wake_us.saturating_sub(now))))?;
    }
}

/// Line on the terminal that is rewritten every second.
struct StatusLine {
    start_us: u64,
    last_us: u64,
    last: [DirectionCounters; 2],
}

impl StatusLine {
    fn new(link: &Emulator, start_us: u64) -> Self {
        Self { start_us, last_us: start_us, last: both(link) }
    }

    fn show(&mut self, link: &Emulator, now_us: u64) {
        let counters = both(link);
        let seconds = (now_us - self.last_us) as f64 / 1e6;
        let mut line = format!("\r{:>5} s", (now_us - self.start_us) / 1_000_000);
        for ((arrow, now), last) in ["a→b", "b→a"].iter().zip(&counters).zip(&self.last) {
            let mbit = (now.link.delivered_bytes - last.link.delivered_bytes) as f64 * 8e-6 / seconds;
            let lost = now.link.lost - last.link.lost;
            let queue = now.link.queue_full - last.link.queue_full;
            line += &format!("  {arrow} {mbit:>7.1} Mbit/s, {lost} lost, {queue} at a full queue");
        }
        (self.last, self.last_us) = (counters, now_us);
        eprint!("{line}\x1b[K");
        // The link continues without status if the terminal is closed.
        let _ = io::stderr().flush();
    }

    fn clear(&mut self) {
        eprint!("\r\x1b[K");
    }
}

fn both(link: &Emulator) -> [DirectionCounters; 2] {
    Direction::BOTH.map(|direction| link.counters(direction))
}

type Column = (&'static str, fn(&DirectionCounters) -> u64);

/// Counters of a direction that the totals show, in the order in which a packet meets them.
const COLUMNS: [Column; 14] = [
    ("offered_packets", |c| c.link.offered_packets),
    ("offered_bytes", |c| c.link.offered_bytes),
    ("queue_full", |c| c.link.queue_full),
    ("lost", |c| c.link.lost),
    ("corrupted", |c| c.link.corrupted),
    ("duplicated", |c| c.link.duplicated),
    ("reordered", |c| c.link.reordered),
    ("overflow", |c| c.link.overflow),
    ("delivered_packets", |c| c.link.delivered_packets),
    ("delivered_bytes", |c| c.link.delivered_bytes),
    ("device_drops", |c| c.device_drops),
    ("uncut", |c| c.uncut),
    ("refused", |c| c.refused),
    ("late", |c| c.late),
];

fn as_json(totals: &[DirectionCounters; 2], elapsed_us: u64, missed: u64) -> Value {
    let direction = |counters: &DirectionCounters| -> Value {
        let mut fields: serde_json::Map<String, Value> =
            COLUMNS.iter().map(|(name, value)| ((*name).to_owned(), value(counters).into())).collect();
        fields.insert("loss_rate".to_owned(), loss_rate(counters).into());
        fields.insert("cpu_seconds".to_owned(), (counters.cpu_us as f64 / 1e6).into());
        fields.into()
    };
    json!({
        "seconds": elapsed_us as f64 / 1e6,
        "a_to_b": direction(&totals[0]),
        "b_to_a": direction(&totals[1]),
        "drop_log_missed": missed,
    })
}

fn as_table(totals: &[DirectionCounters; 2], elapsed_us: u64) -> String {
    let [forward, back] = totals;
    let mut text = format!("{:<20}{:>16}{:>16}", format!("{:.1} s", elapsed_us as f64 / 1e6), "a→b", "b→a");
    for (name, value) in COLUMNS {
        text += &format!("\n{:<20}{:>16}{:>16}", name.replace('_', " "), value(forward), value(back));
    }
    let percent = |counters| format!("{:.4} %", loss_rate(counters) * 100.0);
    text + &format!("\n{:<20}{:>16}{:>16}", "loss rate", percent(forward), percent(back))
}

/// Returns the share of the packets on the wire that the loss model dropped.
fn loss_rate(counters: &DirectionCounters) -> f64 {
    let on_wire = counters.link.offered_packets - counters.link.queue_full;
    if on_wire == 0 { 0.0 } else { counters.link.lost as f64 / on_wire as f64 }
}

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
        let words = ["link"].into_iter().chain(line.split_whitespace());
        Command::try_parse_from(words).map(|command| command.args).map_err(|e| e.to_string())
    }

    #[test]
    fn a_command_line_becomes_a_link() {
        let line = "--a x --b y --delay 20ms --jitter 1ms --rate 100mbit --queue 1MB --loss bursty:1%:10 \
                    --loss-back none --reorder 0.001:5ms --duplicate 0.1% --corrupt 0.002 --seed 9 --mtu 9000 \
                    --no-offload --drop-log d.csv --name far0";
        let config = configuration(&parse(line).unwrap());
        let forward = LinkConfig {
            rate_bps: Some(100_000_000),
            delay_us: 20_000,
            jitter_us: 1_000,
            queue_bytes: Some(1_000_000),
            loss: LossModel::Bursty { rate: 0.01, burst: 10 },
            reorder: Some(Reorder { share: 0.001, extra_us: 5_000 }),
            duplicate: 0.001,
            corrupt: 0.002,
            seed: 9,
        };
        let expected = EmulatorConfig {
            interface: "far0".to_owned(),
            mtu: 9000,
            offload: false,
            drop_log: Some("d.csv".into()),
            ..EmulatorConfig::symmetric(forward)
        };
        assert_eq!(config.a_to_b, expected.a_to_b);
        assert_eq!(config.b_to_a.loss, LossModel::None);
        assert_ne!(config.b_to_a.seed, config.a_to_b.seed);
        assert_eq!(config, EmulatorConfig { b_to_a: config.b_to_a.clone(), ..expected });
    }

    #[test]
    fn the_default_is_a_gigabit_over_fifty_milliseconds_without_loss() {
        let config = configuration(&parse("--a x --b y").unwrap());
        assert_eq!((config.a_to_b.rate_bps, config.a_to_b.delay_us), (Some(1_000_000_000), 50_000));
        assert_eq!(config.a_to_b.loss, LossModel::None);
        assert!(config.offload);
        assert_eq!(configuration(&parse("--a x --b y --rate unlimited").unwrap()).a_to_b.rate_bps, None);
    }

    #[test]
    fn the_loss_model_holds_both_ways_by_default() {
        let config = configuration(&parse("--a x --b y --loss 1%").map_or_else(
            |_| parse("--a x --b y --loss uniform:1%").unwrap(),
            |args| panic!("expected 1% alone to be refused, saw {args:?}"),
        ));
        assert_eq!(config.b_to_a.loss, LossModel::Uniform(0.01));
    }

    #[test]
    fn the_error_for_a_wrong_argument_says_what_is_expected() {
        for (line, needle) in [
            ("--b y", "--a"),
            ("--a x --b y --rate fast", "1gbit"),
            ("--a x --b y --delay 50", "50ms"),
            ("--a x --b y --loss heavy", "uniform:P"),
            ("--a x --b y --duplicate 2", "0 to 1"),
            ("--a x --b y --reorder 0.1", "SHARE:DURATION"),
            ("--a x --b y --mtu 20", "68"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(needle), "{line}: {error}");
        }
    }

    #[test]
    fn totals_name_every_counter_in_both_forms() {
        let mut forward = DirectionCounters::default();
        forward.link.offered_packets = 1_000;
        forward.link.queue_full = 200;
        forward.link.lost = 8;
        let totals = [forward, DirectionCounters::default()];
        let value = as_json(&totals, 2_500_000, 3);
        assert_eq!(value["seconds"], 2.5);
        assert_eq!(value["a_to_b"]["loss_rate"], 0.01);
        assert_eq!(value["b_to_a"]["loss_rate"], 0.0);
        let table = as_table(&totals, 2_500_000);
        assert!(table.contains("1.0000 %"), "{table}");
        assert_eq!(table.lines().count(), COLUMNS.len() + 2);
    }
}
