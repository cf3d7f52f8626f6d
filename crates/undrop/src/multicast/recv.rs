//! `undrop multicast recv`: a line for each message of some groups.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use ricochet::{Event, JoinOptions, Lost, Message, Order, RecvTimeoutError};
use serde::Serialize;

use super::node::{NodeArgs, seconds};
use crate::interrupt::{EXIT_INTERRUPTED, Interrupt};
use crate::output;

/// How often it looks whether it is to stop while nothing comes.
const LOOK: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  undrop multicast recv prices/AAPL prices/IBM --interface eth0 --seed 10.0.0.7:7900
  undrop multicast recv load --interface eth0 --json | jq 'select(.recovered) | .latency_us'
  undrop multicast recv audit --interface eth0 --fifo --count 100

A payload that is no UTF-8 is shown as 0x and its bytes in hexadecimal.
With --json a line is a message: group, sender, sequence, recovered, latency_us (how long it was known to be missing), and
payload, or payload_hex if that is no UTF-8; or it is a report: group, sender, lost (first and last sequence number), reason.";

/// Receive the messages of groups, a line for each.
///
/// Ctrl-C and SIGTERM leave the groups and end it; only with --count that is no success.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The groups
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
    /// A JSON document for each message
    #[arg(long)]
    json: bool,
    /// Those of one sender to one group in the order in which they were sent
    #[arg(long)]
    fifo: bool,
    /// Stop after so many messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Stop after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    #[command(flatten)]
    node: NodeArgs,
}

/// A message as a line of JSON.
#[derive(Serialize)]
struct MessageLine<'a> {
    group: &'a str,
    sender: String,
    sequence: u32,
    recovered: bool,
    latency_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_hex: Option<String>,
}

/// A report of a loss as a line of JSON.
#[derive(Serialize)]
struct LostLine<'a> {
    group: &'a str,
    sender: String,
    lost: [u32; 2],
    reason: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let node = args.node.start()?;
    let order = if args.fifo { Order::Fifo } else { Order::Unordered };
    let subscription = node.join_many_with(&args.groups, &JoinOptions { order, ..JoinOptions::default() })?;
    eprintln!("node {} at {}, in {} groups", node.id(), node.address(), args.groups.len());
    #[expect(clippy::disallowed_methods, reason = "no core: it stops by the clock")]
    let start = Instant::now();
    let mut received = 0;
    while args.count.is_none_or(|count| received < count) {
        if interrupt.is_asked() {
            // Without a count this is how it ends; the node leaves when it is dropped.
            return Ok(args.count.map_or(ExitCode::SUCCESS, |_| ExitCode::from(EXIT_INTERRUPTED)));
        }
        let left = args.seconds.map_or(LOOK, |all| all.saturating_sub(start.elapsed()));
        match subscription.recv_event_timeout(left.min(LOOK)) {
            Ok(Event::Message(message)) => {
                received += 1;
                output::line(&line(&message, args.json)?)?;
            }
            Ok(Event::Lost(lost)) => output::line(&lost_line(&lost, args.json)?)?,
            Err(RecvTimeoutError::Timeout) if left.is_zero() => break,
            Err(RecvTimeoutError::Timeout) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn line(message: &Message, json: bool) -> anyhow::Result<String> {
    let latency_us = u64::try_from(message.latency().as_micros()).unwrap_or(u64::MAX);
    let text = std::str::from_utf8(message.payload()).ok();
    if json {
        return Ok(serde_json::to_string(&MessageLine {
            group: message.group(),
            sender: message.sender().to_string(),
            sequence: message.seq(),
            recovered: message.recovered(),
            latency_us,
            payload: text,
            payload_hex: text.is_none().then(|| hex(message.payload())),
        })?);
    }
    let how = match message.recovered() {
        true => format!(" recovered after {:.1} ms:", latency_us as f64 / 1_000.0),
        false => ":".to_owned(),
    };
    let payload = text.map_or_else(|| format!("0x{}", hex(message.payload())), str::to_owned);
    Ok(format!("{} {} {}{how} {payload}", message.group(), message.sender(), message.seq()))
}

fn lost_line(lost: &Lost, json: bool) -> anyhow::Result<String> {
    let (group, sender, reason) = (lost.group(), lost.sender().to_string(), lost.reason().to_string());
    let (first, last) = (*lost.range().start(), *lost.range().end());
    if json {
        return Ok(serde_json::to_string(&LostLine { group, sender, lost: [first, last], reason })?);
    }
    Ok(format!("{group} {sender} {first} to {last}: lost, {reason}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
