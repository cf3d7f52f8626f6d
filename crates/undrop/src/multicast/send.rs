//! `undrop multicast send`: messages to a group.

use std::io::BufRead as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use ricochet::{Node, Sender};

use super::node::{NodeArgs, seconds};

const EXAMPLES: &str = "\
Examples:
  tail -f prices.txt | undrop multicast send prices/AAPL --interface eth0 --seed 10.0.0.7:7900
  undrop multicast send load --interface eth0 --size 1024 --count 10000 --rate 1000
  echo hello | undrop multicast send greetings --interface lo --address 127.0.0.1 --unicast --seed 127.0.0.1:7900";

/// Send the lines of stdin to a group, or made-up messages.
///
/// Need not be a member. Waits at first until somebody is in the group, and at the end a moment for those who miss
/// something.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The group
    group: String,
    /// Messages per second at the most
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Send made-up messages of so many bytes instead of lines
    #[arg(long, value_name = "BYTES")]
    size: Option<usize>,
    /// Stop after so many messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Messages longer than a packet go in several
    #[arg(long)]
    fragments: bool,
    /// Wait until so many others are in the group
    #[arg(long, value_name = "N", default_value_t = 1)]
    members: usize,
    /// ... but no longer than so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    patience: Duration,
    /// Stay for so many seconds after the last message
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    linger: Duration,
    #[command(flatten)]
    node: NodeArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(rate) = args.rate.filter(|rate| !rate.is_finite() || *rate <= 0.0) {
        bail!("--rate: expected more than 0 messages a second, saw {rate}");
    }
    let node = args.node.start()?;
    let sender = node.sender(&args.group)?.fragments(args.fragments);
    eprintln!("node {} at {}", node.id(), node.address());
    if args.members > 0 && !node.wait_for_members(&args.group, args.members, args.patience) {
        eprintln!(
            "warning: expected {} members of {:?}, saw {} after {:.1} s; sending all the same",
            args.members,
            args.group,
            node.members(&args.group),
            args.patience.as_secs_f64()
        );
    }
    let sent = match args.size {
        Some(size) => send_made_up(args, &sender, size)?,
        None => send_lines(args, &sender)?,
    };
    // Who has lost the last ones is to learn of them, and to get them.
    std::thread::sleep(args.linger);
    tell(&node, sent);
    Ok(ExitCode::SUCCESS)
}

fn send_lines(args: &Args, sender: &Sender) -> anyhow::Result<u64> {
    let mut pace = Pace::new(args.rate);
    let mut line = Vec::new();
    let mut stdin = std::io::stdin().lock();
    while args.count.is_none_or(|count| pace.sent < count) {
        line.clear();
        if stdin.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        pace.wait();
        sender.send(text.strip_suffix(b"\r").unwrap_or(text))?;
    }
    Ok(pace.sent)
}

fn send_made_up(args: &Args, sender: &Sender, size: usize) -> anyhow::Result<u64> {
    let mut pace = Pace::new(args.rate);
    let mut payload: Vec<u8> = (0..size).map(|at| b'a' + (at % 26) as u8).collect();
    while args.count.is_none_or(|count| pace.sent < count) {
        pace.wait();
        let number = pace.sent.to_string();
        let length = number.len().min(size);
        payload[..length].copy_from_slice(&number.as_bytes()[..length]);
        sender.send(&payload)?;
    }
    Ok(pace.sent)
}

fn tell(node: &Node, sent: u64) {
    let counts = node.status().counts;
    let of = |key: &str| counts.get(key).copied().unwrap_or(0);
    eprintln!("{sent} messages sent, {} packets sent again on request", of("answered"));
}

/// Keeps a rate: each message has its time, and one that is late delays none of the others.
struct Pace {
    start: Instant,
    rate: Option<f64>,
    sent: u64,
}

impl Pace {
    fn new(rate: Option<f64>) -> Self {
        #[expect(clippy::disallowed_methods, reason = "no core: messages leave by the clock")]
        let start = Instant::now();
        Self { start, rate, sent: 0 }
    }

    /// Waits until the next message may leave, and counts it.
    fn wait(&mut self) {
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.sent as f64 / rate);
            std::thread::sleep(due.saturating_sub(self.start.elapsed()));
        }
        self.sent += 1;
    }
}
