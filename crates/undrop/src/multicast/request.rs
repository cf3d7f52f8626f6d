//! `undrop multicast request`: a question to a group, and the replies.

use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use ricochet::Message;
use serde::Serialize;

use super::isolation::isolation;
use super::node::{NodeArgs, seconds};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  undrop multicast request stock 'how many?' --interface eth0 --seed 10.0.0.7:7900
  undrop multicast request hosts uptime --all --timeout 1 --interface eth0 --seed 10.0.0.7:7900 --json
  undrop multicast request files < query.sql --interface eth0 --seed 10.0.0.7:7900

A payload that is not UTF-8 is shown as 0x and its bytes in hexadecimal.
With --json, each line is a reply with sender, address, and payload, or payload_hex if it is not UTF-8.";

/// Send a request to a group and print the first reply, or all replies.
///
/// The members of the group that run `undrop multicast reply`, or programs that use the library, reply. The
/// exit code is 1 if there is no reply in time.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The group
    group: String,
    /// The request [default: all of stdin]
    text: Option<String>,
    /// Time to wait for replies, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    timeout: Duration,
    /// Print all replies that come in that time
    #[arg(long)]
    all: bool,
    /// With --all, stop after this many replies
    #[arg(long, value_name = "N", requires = "all")]
    count: Option<usize>,
    /// Print a JSON document for each reply
    #[arg(long)]
    json: bool,
    /// Number of members of the group to wait for
    #[arg(long, value_name = "N", default_value_t = 1)]
    members: usize,
    /// Longest wait for these members, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    patience: Duration,
    #[command(flatten)]
    node: NodeArgs,
}

/// A reply as a line of JSON.
#[derive(Serialize)]
struct ReplyLine<'a> {
    /// Identifier of the node that sent it.
    sender: String,
    /// Address of that node, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<std::net::SocketAddr>,
    /// The payload, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    /// The same in hexadecimal, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_hex: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let node = args.node.start()?;
    let payload = args.payload(node.message_max())?;
    if !node.wait_for_members(&args.group, args.members, args.patience) {
        let cause = isolation(&node.status(), &args.node.named());
        output::note(format_args!(
            "warning: expected {} members of {:?}, saw {}",
            args.members,
            args.group,
            node.members(&args.group)
        ));
        if let Some(cause) = cause {
            output::note(format_args!("warning: {}\nhelp: {}", cause.what, cause.remedy));
        }
    }
    if !args.all {
        let reply = node.request(&args.group, &payload, args.timeout)?;
        output::line(&line(&reply, args.json)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let count = args.count.unwrap_or(usize::MAX);
    let replies = node.request_all(&args.group, &payload, count, args.timeout)?;
    for reply in &replies {
        output::line(&line(reply, args.json)?)?;
    }
    if replies.is_empty() {
        output::note(format_args!(
            "error: expected replies within {} s, saw none\nhelp: start `undrop multicast reply {}` on another host, \
             or give a longer `--timeout`",
            args.timeout.as_secs_f64(),
            args.group
        ));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// Returns the request: the argument, or stdin up to one byte more than a message has.
    fn payload(&self, message_max: usize) -> anyhow::Result<Vec<u8>> {
        if let Some(text) = &self.text {
            return Ok(text.clone().into_bytes());
        }
        let mut payload = Vec::new();
        let stdin = std::io::stdin().lock();
        stdin.take(message_max as u64 + 1).read_to_end(&mut payload).context("cannot read stdin")?;
        Ok(payload)
    }
}

fn line(reply: &Message, json: bool) -> anyhow::Result<String> {
    let text = std::str::from_utf8(reply.payload()).ok();
    let hex = || reply.payload().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    if json {
        let (sender, address) = (reply.sender().to_string(), reply.address());
        let payload_hex = text.is_none().then(hex);
        return Ok(serde_json::to_string(&ReplyLine { sender, address, payload: text, payload_hex })?);
    }
    Ok(text.map_or_else(|| format!("0x{}", hex()), str::to_owned))
}
