//! `undrop gateway losses`: bursts and gaps of the losses that a gateway found, by minute, hour and day.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use maelstrom::losses::{self, Losses, PeerLosses, Span};
use maelstrom::status::BurstStatus;

use super::status::{Socket, remedy};
use crate::failure::{Advice as _, usage};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop gateway losses
  undrop gateway losses --by hour
  undrop gateway losses --peer tokyo --trace losses.txt
  undrop fec simulate --scheme sliding --rate 1/8 --window 512 --loss trace:losses.txt
  undrop gateway losses --json | jq '.peers[].minutes[0]'";

/// Show what the link does: the losses of packets that arrive here, in bursts and gaps.
///
/// The gateway counts bursts (consecutive lost packets) and gaps (packets that arrive between two bursts) for
/// the last hour, the last two days and the last month, and keeps the last 8,192 of them as a trace. The
/// record begins with the gateway's start, unless `loss_record` in the configuration names a file for it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Show only the losses of packets from this peer, given by its name or its address
    #[arg(long, value_name = "PEER")]
    peer: Option<String>,
    /// Length of the spans of time
    #[arg(long, value_enum, value_name = "SPAN", default_value_t = By::Minute)]
    by: By,
    /// Write the trace of the last bursts and gaps to this file, for `undrop fec simulate --loss trace:FILE`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print the whole record as JSON
    #[arg(long)]
    json: bool,
}

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// The last hour
    Minute,
    /// The last two days
    Hour,
    /// The last month
    Day,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let losses = read(&args.socket, args.peer.as_deref())?;
    if let Some(file) = &args.trace {
        write_trace(file, &losses)?;
    }
    output::line(&if args.json { serde_json::to_string_pretty(&losses)? } else { render(&losses, args.by) })?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the record of a running gateway, and drops all peers but the one that is named.
pub(super) fn read(socket: &Socket, peer: Option<&str>) -> anyhow::Result<Losses> {
    let mut losses = losses::read(&socket.path()?).or_else(|error| {
        let remedy = remedy(&error);
        Err(error).advise(remedy)
    })?;
    if let Some(peer) = peer {
        let names: Vec<String> = losses.peers.iter().map(PeerLosses::label).collect();
        let is_it = |one: &PeerLosses| [Some(one.label()), one.host.clone(), Some(one.address.to_string())];
        losses.peers.retain(|one| is_it(one).iter().flatten().any(|known| known == peer));
        if losses.peers.is_empty() {
            return Err(usage(format!("--peer: expected one of {}, saw `{peer}`", names.join(", "))));
        }
    }
    Ok(losses)
}

fn write_trace(file: &PathBuf, losses: &Losses) -> anyhow::Result<()> {
    let [peer] = &losses.peers[..] else {
        return Err(usage(format!(
            "--trace: expected the losses of one peer, saw {} peers; choose one with --peer",
            losses.peers.len()
        )));
    };
    if peer.trace.iter().skip(1).step_by(2).all(|&lost| lost == 0) {
        bail!("--trace: expected losses, saw none from {} since the gateway's start", peer.label());
    }
    let mut text = "# numbers of packets passed and lost, alternately\nruns\n".to_owned();
    for (index, run) in peer.trace.chunks_exact(2).enumerate() {
        // Only the first number of a trace may be 0.
        let passed = if index == 0 { run[0] } else { run[0].max(1) };
        // The last packets may have lost none behind them.
        let lost = Some(run[1]).filter(|&lost| lost > 0).map_or(String::new(), |lost| format!(" {lost}"));
        let _ = writeln!(text, "{passed}{lost}");
    }
    fs::write(file, text).with_context(|| format!("cannot write `{}`", file.display()))
}

fn render(losses: &Losses, by: By) -> String {
    let mut text = String::new();
    for peer in &losses.peers {
        let (unit, spans) = match by {
            By::Minute => ("min", &peer.minutes),
            By::Hour => ("h", &peer.hours),
            By::Day => ("d", &peer.days),
        };
        let _ = writeln!(
            text,
            "packets from {}, {} per second while there is traffic",
            peer.label(),
            peer.packets_per_second
        );
        if spans.is_empty() {
            text += "  no packets yet\n";
        }
        for span in spans {
            span_lines(&mut text, span, unit);
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

fn span_lines(text: &mut String, span: &Span, unit: &str) {
    let when = match span.ago {
        0 => "now".to_owned(),
        ago => format!("{ago} {unit} ago"),
    };
    let percent = 100.0 * span.lost as f64 / span.packets.max(1) as f64;
    let _ = write!(text, "  {when:<12}{} of {} lost ({percent:.4} %)", span.lost, span.packets);
    if span.lost == 0 {
        text.push('\n');
        return;
    }
    let _ = writeln!(text, ", longest burst {}", span.longest);
    let _ = writeln!(text, "  {:<12}bursts  {}", "", buckets(&span.bursts));
    let _ = writeln!(text, "  {:<12}gaps    {}", "", buckets(&span.gaps));
}

fn buckets(buckets: &[BurstStatus]) -> String {
    let shown = |bucket: &BurstStatus| match bucket.to {
        Some(to) if to == bucket.from => format!("{to}: {}", bucket.count),
        Some(to) => format!("{}-{to}: {}", bucket.from, bucket.count),
        None => format!("{}+: {}", bucket.from, bucket.count),
    };
    buckets.iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn peer(trace: Vec<u32>) -> PeerLosses {
        let bucket = |from, to, count| BurstStatus { from, to, count };
        PeerLosses {
            name: Some("osaka".to_owned()),
            host: None,
            address: "10.81.9.2:4700".parse().unwrap(),
            packets_per_second: 10_000,
            rate: "1/16".to_owned(),
            is_auto: true,
            is_tunnel: false,
            window: 512,
            stripes: 1,
            late_us: 25_000,
            minutes: vec![
                Span { ago: 0, packets: 100, lost: 0, longest: 0, bursts: Vec::new(), gaps: Vec::new() },
                Span {
                    ago: 3,
                    packets: 10_000,
                    lost: 100,
                    longest: 4,
                    bursts: vec![bucket(1, Some(1), 60), bucket(3, Some(4), 10)],
                    gaps: vec![bucket(65, Some(128), 70)],
                },
            ],
            hours: Vec::new(),
            days: Vec::new(),
            trace,
            course: Vec::new(),
        }
    }

    #[test]
    fn spans_are_shown_with_bursts_and_gaps() {
        let losses = Losses { peers: vec![peer(Vec::new())], ..Losses::default() };
        let expected = "\
packets from osaka, 10000 per second while there is traffic
  now         0 of 100 lost (0.0000 %)
  3 min ago   100 of 10000 lost (1.0000 %), longest burst 4
              bursts  1: 60, 3-4: 10
              gaps    65-128: 70";
        assert_eq!(render(&losses, By::Minute), expected);
        assert!(render(&losses, By::Day).ends_with("no packets yet"));
    }

    #[test]
    fn a_trace_is_one_that_simulations_replay() {
        let file = std::env::temp_dir().join(format!("undrop-losses-{}.txt", std::process::id()));
        write_trace(&file, &Losses { peers: vec![peer(vec![0, 2, 98, 1, 0, 3])], ..Losses::default() })
            .unwrap();
        let trace = loss::Trace::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!((trace.packets(), (trace.rate() * 105.0).round()), (105, 6.0));
        write_trace(&file, &Losses { peers: vec![peer(vec![50, 1, 900, 0])], ..Losses::default() }).unwrap();
        let trace = loss::Trace::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!((trace.packets(), (trace.rate() * 951.0).round()), (951, 1.0));
        for peers in
            [vec![peer(Vec::new())], vec![peer(vec![9, 0])], vec![peer(vec![1, 1]), peer(vec![1, 1])]]
        {
            assert!(write_trace(&file, &Losses { peers, ..Losses::default() }).is_err());
        }
    }
}
