//! `undrop gateway advise`: the recorded losses of a link through every code, and three proposals.

mod document;
mod latest;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Instant;

use ::fec::Code;
use ::fec::simulate::{Carriage, Naming, Packet, Report, Simulation, simulate};
use anyhow::bail;
use maelstrom::config::{
    LADDER, SILENCE_US, SPAN_MIN, Schedule, Targets, WINDOW, WINDOW_LONG, keys_of_schemes,
};
use maelstrom::losses::PeerLosses;

use super::losses::read;
use super::status::Socket;
use crate::failure::usage;
use crate::output;
use document::Document;
use latest::{Latest, longest_of_windows, longest_recovered};

const EXAMPLES: &str = "\
Examples:
  undrop gateway advise
  undrop gateway advise --peer tokyo --residual 1e-6
  undrop gateway advise --late-ms 150 --json | jq '.peers[].proposals'";

/// Number of packets of a simulation, after long gaps were shortened: within these bounds.
const PACKETS: [u64; 2] = [20_000, 100_000];
/// Number of packets with which processor time is measured.
const MEASURED: u64 = 5_000;
/// Number of later packets for which a receiver waits.
const HISTORY: usize = 4_096;
/// Difference between symbol and packet in bytes (docs/wire.md).
const SYMBOL_HEAD: usize = 12;
/// MTU of most WANs.
const WAN_MTU: usize = 1_500;

/// Try every code on the recorded losses of a link, and propose three.
///
/// The real encoder and decoder run over the latest part of the trace of `undrop gateway losses`: at most
/// 100,000 packets, after long gaps between losses were shortened. Outages that no code recovers are counted
/// and left out. These are losses of packets from the peer to this gateway, so the proposals are for the
/// peer's file. Losses are those of the link at the time of the record; a code that sends more may cause
/// others.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Advise only for packets from this peer, given by its name or its address
    #[arg(long, value_name = "PEER")]
    peer: Option<String>,
    /// Share of packets that may stay lost or come too late
    #[arg(long, value_name = "SHARE", default_value_t = Targets::RESIDUAL)]
    residual: f64,
    /// Time in milliseconds after which a recovered packet is of no use [default: that of the peer]
    #[arg(long, value_name = "MS")]
    late_ms: Option<u32>,
    /// Size of an IP packet in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1300, value_parser = clap::value_parser!(u16).range(64..))]
    size: u16,
    /// Print the figures of all codes as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !(0.0..1.0).contains(&args.residual) {
        return Err(usage(format!("--residual: expected a share from 0 to 1, saw {}", args.residual)));
    }
    let losses = read(&args.socket, args.peer.as_deref())?;
    let advice =
        losses.peers.iter().map(|peer| Advice::new(peer, args)).collect::<anyhow::Result<Vec<_>>>()?;
    output::line(&if args.json {
        serde_json::to_string_pretty(&Document::of(&advice))?
    } else {
        advice.iter().map(Advice::text).collect::<Vec<_>>().join("\n\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// One code on one trace.
#[derive(Clone, Debug)]
struct Trial {
    schedule: Schedule,
    /// Share of packets that stay lost, and of those that come too late.
    residual: f64,
    late: f64,
    /// Median and 99th percentile of the delay of recovered packets, in packets; `None` if there are none.
    delays: Option<[usize; 2]>,
    /// Bytes of a repair on the wire.
    repair: usize,
    /// Repair bytes for each byte of the packets.
    overhead: f64,
    /// Time to encode and to decode a packet, in nanoseconds.
    ns: u64,
}

impl Trial {
    fn failing(&self) -> f64 {
        self.residual + self.late
    }

    /// Delay of recovered packets, for comparisons. A code that recovers nothing comes last.
    fn slowness(&self) -> [usize; 2] {
        self.delays.map_or([usize::MAX; 2], |[p50, p99]| [p99, p50])
    }
}

/// Facts about a link on which the figures depend, beside its losses.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Number of packets after which a recovered one is too late; the greatest number if that is not known.
    late: usize,
    /// Bytes of a packet.
    size: usize,
    carriage: Carriage,
}

impl Link {
    fn of(peer: &PeerLosses, args: &Args) -> Self {
        let late_us = args.late_ms.map_or(u64::from(peer.late_us), |ms| 1_000 * u64::from(ms));
        let late = if late_us == 0 || peer.packets_per_second == 0 {
            usize::MAX
        } else {
            // Sparse traffic has repairs in time too, as `auto` assumes.
            let in_time = late_us.saturating_mul(peer.packets_per_second) / 1_000_000;
            usize::try_from(in_time.max(SPAN_MIN)).unwrap_or(usize::MAX)
        };
        let carriage = Carriage { ipv6: peer.address.is_ipv6(), is_numbered: peer.is_tunnel };
        Self { late, size: usize::from(args.size), carriage }
    }
}

/// All codes on the trace of one peer.
struct Advice<'a> {
    peer: &'a PeerLosses,
    target: f64,
    latest: Latest,
    link: Link,
    trials: Vec<Trial>,
}

impl<'a> Advice<'a> {
    fn new(peer: &'a PeerLosses, args: &Args) -> anyhow::Result<Self> {
        let latest = Latest::of(&peer.trace);
        let link = Link::of(peer, args);
        let mut trials = Vec::new();
        if latest.lost > 0 {
            for schedule in schedules() {
                trials.push(try_code(schedule, &latest, link)?);
            }
        }
        Ok(Self { peer, target: args.residual, latest, link, trials })
    }

    /// Codes that reach the target, or else those that leave little more than the best one.
    fn candidates(&self) -> impl Iterator<Item = &Trial> {
        let best = self.trials.iter().map(Trial::failing).fold(f64::INFINITY, f64::min);
        let limit = self.target.max(1.25 * best);
        self.trials.iter().filter(move |trial| trial.failing() <= limit)
    }

    /// The codes with the fewest bytes, the shortest delay, and the least processor time.
    fn proposals(&self) -> [(&'static str, Option<&Trial>); 3] {
        let bytes = self.candidates().min_by(|a, b| a.overhead.total_cmp(&b.overhead));
        let delay = self
            .candidates()
            .min_by(|a, b| a.slowness().cmp(&b.slowness()).then(a.overhead.total_cmp(&b.overhead)));
        [
            ("fewest bytes", bytes),
            ("shortest delay", delay),
            ("least processor time", self.candidates().min_by_key(|trial| trial.ns)),
        ]
    }

    fn text(&self) -> String {
        let label = self.peer.label();
        if self.trials.is_empty() {
            let but = match self.latest.outages.count {
                0 => String::new(),
                count => format!(
                    " but {count} bursts of more than {} packets, which none of the codes recovers",
                    longest_recovered()
                ),
            };
            return format!(
                "packets from {label}: nothing lost since the gateway's start{but}, so that there is nothing to advise"
            );
        }
        let mut text = format!(
            "packets from {label}: {} codes on the losses of the last {} packets; target: at most {:e} lost or late\n\n",
            self.trials.len(),
            self.latest.recorded,
            self.target
        );
        let _ = writeln!(
            text,
            "{:<26}{:>10}{:>10}{:>16}{:>10}{:>11}",
            "code", "residual", "late", "delay p50, p99", "bytes", "time"
        );
        for trial in &self.trials {
            let _ = writeln!(text, "{}", self.line(trial));
        }
        text.push_str(&self.present());
        for (title, trial) in self.proposals() {
            let Some(trial) = trial else { continue };
            let _ = write!(text, "\n{title}: {}\n{}", trial.schedule, difference(&trial.schedule));
        }
        text.push_str(&self.caveats());
        text.push_str(&self.long_bursts());
        text.truncate(text.trim_end().len());
        text
    }

    /// Bursts that windows or all codes leave.
    fn long_bursts(&self) -> String {
        let Latest { lost, hopeless, outages, .. } = &self.latest;
        if hopeless.count == 0 {
            return String::new();
        }
        let share = 100.0 * hopeless.packets as f64 / (lost + outages.packets) as f64;
        let mut text = format!(
            "\n{} bursts of more than {} packets, with {share:.1} % of the lost packets, are longer than any window of \
             {WINDOW_LONG} at {} recovers.\nLayers with wide interleaves recover some of them, later.\n",
            hopeless.count,
            longest_of_windows(),
            Targets::RATE_MAX
        );
        if outages.count > 0 {
            let _ = writeln!(
                text,
                "The figures leave out {} of them, of more than {} packets, which none of these codes recovers as a whole.",
                outages.count,
                longest_recovered()
            );
        }
        text
    }

    /// The code that `auto` uses at present.
    fn present(&self) -> String {
        let PeerLosses { is_auto, rate, window, stripes, .. } = self.peer;
        if !is_auto {
            return String::new();
        }
        let shape = match (window, stripes) {
            _ if self.trials.iter().any(|trial| self.is_in_force(&trial.schedule)) => {
                " (marked with *)".to_owned()
            }
            (0, _) => String::new(),
            (_, 0 | 1) => format!(", with windows of {window} packets, which no row shows"),
            _ => format!(", with windows of {window} packets in {stripes} stripes, which no row shows"),
        };
        format!(
            "\n`auto` is in force and sends at {rate} at present{shape}. It changes rate and windows with the losses and \
             the traffic, and requests what a code leaves.\n"
        )
    }

    fn line(&self, trial: &Trial) -> String {
        let ms = |packets: usize| match self.peer.packets_per_second {
            0 => format!("{packets} p"),
            pace => format!("{:.1} ms", 1e3 * packets as f64 / pace as f64),
        };
        format!(
            "{:<26}{:>10.6}{:>10.6}{:>16}{:>8.1} %{:>8} ns{}",
            trial.schedule.to_string(),
            trial.residual,
            trial.late,
            trial.delays.map_or("-".to_owned(), |[p50, p99]| format!("{}, {}", ms(p50), ms(p99))),
            100.0 * trial.overhead,
            trial.ns,
            if self.is_in_force(&trial.schedule) { " *" } else { "" }
        )
    }

    /// Whether `auto` uses this code at present.
    fn is_in_force(&self, schedule: &Schedule) -> bool {
        let Schedule::Sliding { rate, window, .. } = schedule else { return false };
        let PeerLosses { is_auto, rate: present, window: packets, stripes, .. } = self.peer;
        // The window of a row has no stripes.
        *is_auto && *stripes == 1 && window == packets && rate.to_string() == *present
    }

    /// Whether it is known when a recovered packet is too late.
    fn has_deadline(&self) -> bool {
        self.link.late != usize::MAX
    }

    /// Whether the peer sends repairs out of turn, because the next packet comes too late for a regular one.
    fn is_sparse(&self) -> bool {
        let pace = self.peer.packets_per_second;
        pace > 0 && SILENCE_US.saturating_mul(pace) < 1_000_000
    }

    /// Facts that the proposals do not consider.
    fn caveats(&self) -> String {
        let mut text = String::new();
        let proposals = self.proposals().into_iter().filter_map(|(_, trial)| trial);
        let cut = proposals.filter(|trial| self.link.size <= WAN_MTU && trial.repair > WAN_MTU);
        let cut: BTreeSet<String> = cut.map(|trial| trial.schedule.to_string()).collect();
        if !cut.is_empty() {
            let _ = writeln!(
                text,
                "\nRepairs of {} are longer than {WAN_MTU} bytes for packets of {}. Where the WAN has this MTU, each is cut in two, \
                 and lost with either part; `auto` avoids such rates. State the size of your packets with --size.",
                cut.into_iter().collect::<Vec<_>>().join(" and "),
                self.link.size
            );
        }
        if self.is_sparse() {
            let _ = writeln!(
                text,
                "\nPackets come more than {} ms apart, so that most repairs leave out of turn, after a silence. They come sooner \
                 than these figures say, and cost more bytes.",
                SILENCE_US / 1_000
            );
        }
        if !self.has_deadline() {
            text.push_str(
                "\nNo deadline is known, so that nothing counts as late: the peer is down, or has a code without \
                 `late_ms`, or there is no traffic. State one with --late-ms.\n",
            );
        }
        text.push_str(
            "\n`late_ms`, `max_repair_rate` and `overhead_max` belong to `auto` alone: with any of these codes nothing \
             else bounds the repairs. A class with a rate needs `auto` or `sliding`.\n",
        );
        text
    }
}

/// The change of the peer's file, of which nothing is known here.
fn difference(schedule: &Schedule) -> String {
    // None of those of another scheme may stay.
    let old: String = keys_of_schemes().iter().map(|key| format!("-{key} = …, if it is there\n")).collect();
    let new: String = settings(schedule).iter().map(|line| format!("+{line}\n")).collect();
    format!(" [code]\n{old}{new}")
}

/// The codes that are tried.
fn schedules() -> Vec<Schedule> {
    let highest = Targets::RATE_MAX;
    let windows = LADDER.into_iter().filter(|&rate| rate <= highest);
    let window = |rate, window| Schedule::Sliding { rate, window, density: Schedule::DENSITY };
    let mut all: Vec<Schedule> = windows.map(|rate| window(rate, WINDOW)).collect();
    // `auto` has such windows where `late_ms` leaves time for them.
    all.push(window(highest, WINDOW_LONG));
    all.push(window(highest, Schedule::WINDOW));
    all.push(Schedule::layered());
    for interleaves in [vec![1, 19, 41], vec![1, 41, 401]] {
        all.push(Schedule::Layered { r: Schedule::R, interleaves });
    }
    all.push(Schedule::ReedSolomon { r: Schedule::R, c: Schedule::C, interleave: 20 });
    all
}

/// The lines of a file that choose this code.
fn settings(schedule: &Schedule) -> Vec<String> {
    match schedule {
        Schedule::Sliding { rate, window, .. } => {
            vec![
                "scheme = \"sliding\"".to_owned(),
                format!("rate = \"{rate}\""),
                format!("window = {window}"),
            ]
        }
        Schedule::Layered { r, interleaves } => {
            vec![
                "scheme = \"layered\"".to_owned(),
                format!("r = {r}"),
                format!("interleaves = {interleaves:?}"),
            ]
        }
        Schedule::ReedSolomon { r, c, interleave } => vec![
            "scheme = \"reed-solomon\"".to_owned(),
            format!("r = {r}"),
            format!("c = {c}"),
            format!("interleave = {interleave}"),
        ],
        Schedule::Auto => vec!["scheme = \"auto\"".to_owned()],
    }
}

/// A code as gateways use it. The simulation has its own lengths of symbols.
fn code(schedule: &Schedule) -> Code {
    /// Longest symbol of the configuration.
    const SYMBOL_MAX: usize = 1_536;
    schedule.code(Schedule::DELAYED, u64::from(Schedule::MAX_DELAY_MS) * 1_000, SYMBOL_MAX)
}

fn try_code(schedule: Schedule, latest: &Latest, link: Link) -> anyhow::Result<Trial> {
    let Link { late, size, carriage } = link;
    let code = code(&schedule);
    let simulation = Simulation {
        code: code.clone(),
        packets: latest.packets.clamp(PACKETS[0], PACKETS[1]),
        history: HISTORY,
        naming: if carriage.is_numbered { Naming::None } else { Naming::Early },
        ..Simulation::default()
    };
    let report = replay(&simulation, &latest.runs)?;
    let clocked =
        Simulation { packets: MEASURED, symbol: size + SYMBOL_HEAD, clock: Some(clock_ns), ..simulation };
    let cost = replay(&clocked, &latest.runs)?;
    let delay = |quantile| report.delay_quantile(quantile);
    let repair = size + carriage.repair_overhead_bytes(&code);
    let too_late: u64 = report.delays.iter().skip(late.saturating_add(1)).sum();
    Ok(Trial {
        residual: latest.of_all(report.residual_loss()),
        late: latest.of_all(too_late as f64 / report.sent as f64),
        delays: delay(0.5).zip(delay(0.99)).map(|(p50, p99)| [p50, p99]),
        repair,
        overhead: (report.overhead() * repair as f64 + carriage.apart_bytes(&code)) / size as f64,
        ns: (cost.encode_ns + cost.decode_ns) / cost.sources_sent.max(1),
        schedule,
    })
}

/// Runs a code over the trace, again and again if it is shorter. The trace has the source packets alone, so
/// that a repair shares the fate of the packet with which it leaves.
fn replay(simulation: &Simulation, trace: &[u32]) -> anyhow::Result<Report> {
    let mut runs = trace.iter().copied().zip([false, true].into_iter().cycle()).cycle();
    let (mut left, mut is_lost) = (0, false);
    let report = simulate(simulation, |packet| {
        if let Packet::Source(_) = packet {
            while left == 0 {
                (left, is_lost) = runs.next().expect("a trace has runs");
            }
            left -= 1;
        }
        is_lost
    })?;
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
    use clap::Parser as _;

    use super::super::losses::tests::peer;
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn trial(schedule: Schedule, residual: f64, overhead: f64, p99: usize, ns: u64) -> Trial {
        Trial { schedule, residual, late: 0.0, delays: Some([1, p99]), repair: 1_487, overhead, ns }
    }

    /// A link in passive mode over IPv4.
    fn link(late: usize) -> Link {
        Link { late, size: 1_300, carriage: Carriage::default() }
    }

    #[test]
    fn the_proposals_reach_the_target_where_a_code_does() {
        let window = |rate: &str| Schedule::Sliding { rate: rate.parse().unwrap(), window: 512, density: 15 };
        let peer = PeerLosses { rate: "1/8".to_owned(), ..peer(vec![100, 1, 50, 400]) };
        let advice = Advice {
            peer: &peer,
            target: 1e-5,
            latest: Latest::of(&peer.trace),
            link: link(200),
            trials: vec![
                trial(window("1/32"), 1e-3, 0.04, 300, 200),
                trial(window("1/8"), 0.0, 0.14, 90, 600),
                trial(window("3/8"), 0.0, 0.41, 9, 1_400),
                trial(Schedule::layered(), 1e-6, 0.41, 100, 100),
            ],
        };
        let names = |advice: &Advice<'_>| {
            advice
                .proposals()
                .map(|(_, trial)| trial.map_or(String::new(), |trial| trial.schedule.to_string()))
        };
        assert_eq!(names(&advice), ["sliding (512; 1/8)", "sliding (512; 3/8)", "layered (8; 1,11,19)"]);
        let advices = [advice];
        let document = serde_json::to_value(Document::of(&advices)).unwrap();
        assert_eq!(document["schema"], "undrop.gateway.advise/1");
        assert_eq!(document["peers"][0]["proposals"]["fewest_bytes"]["settings"][1], "rate = \"1/8\"");
        let [mut advice] = advices;
        let text = advice.text();
        // The row of the rate in force is marked, and no other.
        let marked: Vec<&str> = text.lines().filter(|line| line.ends_with(" ns *")).collect();
        let in_force = format!("sliding (512; {})", peer.rate);
        assert!(marked.len() == 1 && marked[0].starts_with(&in_force), "{marked:?}");
        assert!(
            text.contains(&format!("`auto` is in force and sends at {} at present", peer.rate)),
            "{text}"
        );
        for (window, stripes, shape) in [
            (1_024, 2, "at 1/8 at present, with windows of 1024 packets in 2 stripes, which no row shows."),
            (256, 1, "at 1/8 at present, with windows of 256 packets, which no row shows."),
            (0, 0, "at 1/8 at present. It changes"),
        ] {
            let other = PeerLosses { window, stripes, ..peer.clone() };
            let (latest, trials) = (Latest::of(&peer.trace), advice.trials.clone());
            let text = Advice { peer: &other, latest, trials, ..advice }.text();
            assert!(text.contains(shape) && !text.contains(" ns *"), "{text}");
        }
        for expected in [
            "fewest bytes: sliding (512; 1/8)\n [code]\n-scheme = …, if it is there\n-residual = …, if it is there\n",
            "-delayed = …, if it is there\n+scheme = \"sliding\"\n+rate = \"1/8\"\n+window = 512\n",
            "belong to `auto` alone",
            "1 bursts of more than 384 packets, with 99.8 % of the lost packets",
            "least processor time: layered (8; 1,11,19)\n [code]\n",
            "+scheme = \"layered\"\n+r = 8\n+interleaves = [1, 11, 19]\n",
            "0.1 ms, 30.0 ms",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
        assert!(!text.contains("No deadline is known"), "{text}");
        advice.link.late = usize::MAX;
        assert!(advice.text().contains("No deadline is known"));
        let advices = [advice];
        let document = serde_json::to_value(Document::of(&advices)).unwrap();
        assert_eq!(document["peers"][0]["has_deadline"], false);
        let [mut advice] = advices;
        // Where no code reaches the target, the best ones count.
        advice.trials.retain(|trial| trial.residual > 1e-4);
        assert_eq!(names(&advice)[1], "sliding (512; 1/32)");
    }

    #[test]
    fn figures_for_sparse_traffic_have_a_caveat_and_a_deadline_of_some_packets() {
        let Command { args } = Command::parse_from(["advise"]);
        for (packets_per_second, late, is_sparse) in
            [(50, 8, true), (499, 12, true), (500, 12, false), (10_000, 250, false)]
        {
            // Nothing is lost: the codes need not run.
            let peer = PeerLosses { packets_per_second, ..peer(vec![100, 0]) };
            let advice = Advice::new(&peer, &args).unwrap();
            assert_eq!(advice.link.late, late, "{packets_per_second}");
            assert_eq!(advice.caveats().contains("leave out of turn"), is_sparse, "{packets_per_second}");
            let document = serde_json::to_value(Document::of(&[advice])).unwrap();
            let peer = &document["peers"][0];
            assert_eq!((&peer["is_sparse"], &peer["has_deadline"]), (&is_sparse.into(), &true.into()));
        }
    }

    /// Applies a change to the section of a file.
    fn changed(section: &str, change: &str) -> String {
        let removed: Vec<&str> =
            change.lines().filter_map(|line| line.strip_prefix('-')?.split(' ').next()).collect();
        let stays = |line: &&str| !removed.contains(&line.split(' ').next().unwrap_or_default());
        let added = change.lines().filter_map(|line| line.strip_prefix('+'));
        section.lines().filter(stays).chain(added).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_change_fits_the_file_of_any_other_code() {
        let sections = [
            "scheme = \"auto\"\nresidual = \"1e-4\"\nlate_ms = 200\noverhead_max = \"1/4\"\nmax_repair_rate = \"10Mbit/s\"",
            "scheme = \"layered\"\nr = 8\ninterleaves = [1, 11, 19]\ndelayed = true\nmax_delay_ms = 30",
            "scheme = \"reed-solomon\"\nr = 8\nc = 3\ninterleave = 20\ndelayed = false\nmax_delay_ms = 30",
            "scheme = \"sliding\"\nrate = \"1/8\"\nwindow = 256\ndensity = 9\nmax_delay_ms = 30",
        ];
        for (section, schedule) in
            sections.iter().flat_map(|section| schedules().into_iter().map(move |it| (section, it)))
        {
            let code = changed(section, &difference(&schedule));
            let file = format!(
                "[gateway]\nwan='w'\nlisten='10.0.0.1:1'\n[code]\n{code}\n[[peer]]\naddress='10.0.0.2:1'\nnetworks=['10.2.0.0/16']\nkey_file='/no/key'"
            );
            let report = maelstrom::config::parse(std::path::Path::new("/x.toml"), &file).report();
            let found: Vec<_> = report.diagnostics().iter().map(|found| found.code).collect();
            assert!(
                found.iter().all(|code| *code == "key-file" || *code == "interleaves-overlap"),
                "{section} to {schedule}: {report}"
            );
        }
    }

    #[test]
    fn the_settings_of_a_proposal_are_those_of_a_file() {
        for schedule in schedules() {
            let file = format!(
                "[gateway]\nwan='w'\nlisten='10.0.0.1:1'\n[code]\n{}\n[[peer]]\naddress='10.0.0.2:1'\nnetworks=['10.2.0.0/16']\nkey_file='/no/key'",
                settings(&schedule).join("\n")
            );
            let report = maelstrom::config::parse(std::path::Path::new("/x.toml"), &file).report();
            let found: Vec<_> = report.diagnostics().iter().map(|found| found.code).collect();
            assert!(
                found.iter().all(|code| *code == "key-file" || *code == "interleaves-overlap"),
                "{schedule}: {report}"
            );
        }
    }

    #[test]
    fn a_trace_that_codes_run_over_has_the_shares_of_the_whole() {
        // A single loss, and ten million packets since then.
        let single = Latest::of(&[50, 1, 10_000_000, 0]);
        let layers = try_code(Schedule::layered(), &single, link(usize::MAX)).unwrap();
        assert!(layers.residual < 1e-6, "{layers:?}");
        let one = Schedule::Sliding { rate: "1/40".parse().unwrap(), window: 512, density: 15 };
        let sum = |schedule: &Schedule, carriage| {
            let link = Link { size: 100, carriage, ..link(usize::MAX) };
            try_code(schedule.clone(), &single, link).unwrap().overhead
        };
        let [passive, ipv6, tunnel] = [(false, false), (true, false), (false, true)]
            .map(|(ipv6, is_numbered)| Carriage { ipv6, is_numbered });
        let bytes = sum(&one, passive);
        assert!(bytes > 0.12, "names travel apart, and cost more where packets are short: {bytes}");
        assert!(sum(&one, tunnel) < 0.06, "no names in a tunnel: {}", sum(&one, tunnel));
        assert_eq!(sum(&Schedule::layered(), tunnel), sum(&Schedule::layered(), passive), "layers name them");
        // Twenty bytes with each 40th packet, and with the names of 120.
        let more = sum(&one, ipv6) - bytes;
        assert!((0.006..0.008).contains(&more), "longer headers: {more}");
    }

    #[test]
    fn a_proposal_whose_repairs_are_cut_has_a_caveat() {
        let Command { args } = Command::parse_from(["advise"]);
        let v4 = peer(vec![20_000, 1]);
        let v6 = PeerLosses { address: "[2001:db8::2]:4700".parse().unwrap(), ..v4.clone() };
        let tunnel = PeerLosses { is_tunnel: true, ..v6.clone() };
        for (peer, bytes, is_cut) in [(v4, 1_487, false), (v6, 1_507, true), (tunnel, 1_411, false)] {
            let advice = Advice::new(&peer, &args).unwrap();
            let text = advice.text();
            let document = serde_json::to_value(Document::of(&[advice])).unwrap();
            let fewest = &document["peers"][0]["proposals"]["fewest_bytes"];
            assert_eq!(
                (&fewest["code"], &fewest["repair_bytes"]),
                (&"sliding (512; 1/40)".into(), &bytes.into())
            );
            let is_told =
                text.contains("sliding (512; 1/40) are longer than 1500 bytes for packets of 1300.");
            assert_eq!(is_told, is_cut, "{text}");
        }
    }

    #[test]
    fn an_outage_changes_no_proposal() {
        let Command { args } = Command::parse_from(["advise"]);
        let bursts = |count| [7_992, 8].repeat(count);
        let after = |outage: [u32; 2], count| [bursts(4 - count), outage.to_vec(), bursts(count)].concat();
        let fewest = |trace: Vec<u32>| {
            let peer = peer(trace);
            let advice = Advice::new(&peer, &args).unwrap();
            let [(_, fewest), ..] = advice.proposals();
            let fewest = fewest.unwrap();
            (fewest.schedule.to_string(), fewest.failing() <= args.residual, advice.text())
        };
        let (expected, reaches, text) = fewest(bursts(4));
        assert!(reaches && expected != schedules()[0].to_string(), "{text}");
        for (trace, outages) in [
            ([bursts(4), vec![300, 5_000_000, 200, 0]].concat(), 1),
            (after([300, 2_000], 2), 1),
            ([bursts(4), [1, 500].repeat(30)].concat(), 30),
        ] {
            let (found, reaches, text) = fewest(trace);
            assert!(reaches && found == expected, "{expected} became {found}: {text}");
            assert!(
                text.contains(&format!("The figures leave out {outages} of them, of more than 401")),
                "{text}"
            );
        }
        let outage = peer(vec![300, 5_000_000, 200, 0]);
        let advice = Advice::new(&outage, &args).unwrap();
        assert!(
            advice.text().contains("nothing lost since the gateway's start but 1 bursts"),
            "{}",
            advice.text()
        );
        let document = serde_json::to_value(Document::of(&[advice])).unwrap();
        assert_eq!(document["peers"][0]["bursts_left_out"]["packets"], 5_000_000);
    }

    #[test]
    fn a_code_that_recovers_nothing_has_no_delay() {
        let all_lost = Latest { runs: vec![0, 1], ..Latest::default() };
        let nothing = try_code(schedules()[0].clone(), &all_lost, link(usize::MAX)).unwrap();
        assert_eq!(nothing.delays, None);
        let peer = peer(Vec::new());
        let mut advice = Advice {
            peer: &peer,
            target: 1.0,
            latest: all_lost,
            link: link(usize::MAX),
            trials: vec![nothing, trial(Schedule::layered(), 0.0, 0.41, 100, 100)],
        };
        let [_, (_, shortest), _] = advice.proposals();
        assert_eq!(shortest.unwrap().schedule, Schedule::layered());
        advice.trials.truncate(1);
        assert!(advice.text().contains(" - "), "{}", advice.text());
        let document = serde_json::to_value(Document::of(&[advice])).unwrap();
        assert!(document["peers"][0]["codes"][0]["delay_packets"].is_null());
    }

    #[test]
    fn bursts_of_a_trace_take_their_packets_and_the_repairs_between_them() {
        let window =
            |rate: &str, window| Schedule::Sliding { rate: rate.parse().unwrap(), window, density: 15 };
        for (burst, schedule, is_recovered) in [
            (100, window("3/16", 512), false),
            (100, window("1/4", 512), true),
            (400, window("3/8", 1_024), false),
            (300, window("3/8", 1_024), true),
        ] {
            let trial = try_code(schedule, &Latest::of(&[20_000, burst]), link(usize::MAX)).unwrap();
            // Three bursts in the 20,000 packets, of which a round stands for 20,000 and the burst.
            let lost = f64::from(3 * burst) / 20_000.0 * f64::from(5_120 + burst) / f64::from(20_000 + burst);
            let expected = if is_recovered { 0.0 } else { lost };
            // The last one of a burst may be alone in a window.
            assert!((trial.residual - expected).abs() <= 0.02 * expected, "{burst}, {expected}: {trial:?}");
        }
    }

    #[test]
    fn a_trace_is_replayed_through_a_code() {
        // One packet in a hundred; a burst of three every thousand packets.
        let trace: Vec<u32> = (0..40).flat_map(|n| [99, if n % 10 == 9 { 3 } else { 1 }]).collect();
        let window = |rate: &str| Schedule::Sliding { rate: rate.parse().unwrap(), window: 512, density: 15 };
        let latest = Latest::of(&trace);
        let tried = |rate, late| try_code(window(rate), &latest, link(late)).unwrap();
        let (low, high) = (tried("1/32", usize::MAX), tried("1/8", usize::MAX));
        assert_eq!((high.residual, high.late), (0.0, 0.0));
        assert!(low.slowness() > high.slowness() && low.overhead < high.overhead);
        assert!(tried("1/32", 5).late > 0.001, "packets that wait for more than five others are late");
    }
}
