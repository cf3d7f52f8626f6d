//! `undrop multicast recv`: a line for each message of some groups.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant, UNIX_EPOCH};

use ricochet::{
    Event, GroupChange, GroupNews, History, HistoryNews, JoinOptions, Lost, MemberChange, MemberNews,
    Message, Node, Order, OrderChange, OrderNews, RecvTimeoutError, RegistryNews, Start, Subscription,
};
use serde::Serialize;

use super::isolation::{Named, isolation};
use super::node::{NodeArgs, seconds};
use super::settings;
use crate::interrupt::{EXIT_INTERRUPTED, Interrupt};
use crate::output;

/// Interval between checks for a stop request while no message arrives.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Time after which a node with seed addresses that knows no other node says so.
const ALONE: Duration = Duration::from_secs(3);

const EXAMPLES: &str = "\
Examples:
  undrop multicast recv prices/AAPL prices/IBM --interface eth0 --seed 10.0.0.7:7900
  undrop multicast recv load --interface eth0 --json | jq 'select(.recovered) | .latency_us'
  undrop multicast recv audit --interface eth0 --fifo --count 100
  undrop multicast recv audit --interface eth0 --last 100
  undrop multicast recv prices --interface eth0 --last-per-key --json
  undrop multicast recv audit --interface eth0 --members
  undrop multicast recv 'prices/*' --interface eth0 --seed 10.0.0.7:7900

A payload that is not UTF-8 is shown as 0x and its bytes in hexadecimal.
With --json, each line is a message, a loss report, or news about a member. A message has group, sender, address
(of the sender), sequence, sent_us (time of sending in microseconds since 1970), recovered, past (whether it was
sent before, and kept by a member), latency_us (time from the discovery of its loss to its recovery), and payload,
or payload_hex if the payload is not UTF-8; also content_type, headers or headers_hex, and key or key_hex, if the
sender gave any.
A loss report has group, sender, lost (first and last sequence number) and reason. News about a member has group,
member, address and change: joined, left or failed.";

/// Receive the messages of groups, one line each.
///
/// On Ctrl-C or SIGTERM the node leaves the groups and the command ends. With --count, the exit code is then
/// 130. If messages were lost, dropped because the output is read too slowly, or, in total order, printed
/// otherwise than the other members agreed, the exit code is 1. So it is if no seed address answered.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The groups; a name with `*` is a pattern, such as 'prices/*', and `**` stands for any characters, also
    /// `/`
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
    /// Print a JSON document for each message
    #[arg(long)]
    json: bool,
    /// Print the messages of each sender to each group in order
    #[arg(long)]
    fifo: bool,
    /// Print the messages in this order: `fifo`, or in the same order at all members that ask for it:
    /// `total`, or `total-safe`, which waits until a majority of them has a message
    #[arg(long, value_name = "ORDER", value_parser = order, conflicts_with = "fifo")]
    order: Option<Order>,
    /// Begin with this many messages of the past of each group, as far as members keep them
    #[arg(long, value_name = "N", conflicts_with = "since")]
    last: Option<u64>,
    /// Begin with the messages of this time, such as `10s`, `500ms` or `2m`
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Duration>,
    /// Begin with the last value of each key, as far as members keep them
    #[arg(long, conflicts_with_all = ["last", "since"])]
    last_per_key: bool,
    /// Print a line whenever a node joins a group, leaves it or fails
    #[arg(long)]
    members: bool,
    /// Stop after this many messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    #[command(flatten)]
    node: NodeArgs,
}

/// A message that `recv --json` has received.
#[derive(Serialize)]
struct MessageLine<'a> {
    /// Its group.
    group: &'a str,
    /// Identifier of the node that sent it.
    sender: String,
    /// Address of that node, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<SocketAddr>,
    /// Its place among the messages from this sender to this group.
    sequence: u32,
    /// Its number in the total order, if the group is read in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    /// Time in microseconds since 1970 at which it was sent, if its sender says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_us: Option<u64>,
    /// Whether it was lost at first.
    recovered: bool,
    /// Whether it comes from the history of the group.
    past: bool,
    /// Microseconds from its discovery as missing until it came; 0 if it was not missing.
    latency_us: u64,
    /// Type of the payload, if its sender states one.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    /// Further data of the sender, if there is some and it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<&'a str>,
    /// The same in hexadecimal, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    headers_hex: Option<String>,
    /// Key whose last value it is, if it has one that is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    /// The same in hexadecimal, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    /// The payload, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    /// The same in hexadecimal, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_hex: Option<String>,
}

/// Packets that `recv --json` reports as lost.
#[derive(Serialize)]
struct LostLine<'a> {
    /// Their group.
    group: &'a str,
    /// Identifier of the node that sent them.
    sender: String,
    /// Places of the first and the last one among the packets from this sender to this group.
    lost: [u32; 2],
    /// Reason why they were given up.
    reason: String,
}

/// News about a member, with `recv --json --members`.
#[derive(Serialize)]
struct MemberLine<'a> {
    /// The group.
    group: &'a str,
    /// Identifier of the node.
    member: String,
    /// Its address.
    address: SocketAddr,
    /// Its change: it joined the group, left it, or failed.
    change: &'static str,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let node = args.node.start()?;
    let order = args.order.unwrap_or(if args.fifo { Order::Fifo } else { Order::Unordered });
    let options = JoinOptions { order, from: args.start(), members: args.members, ..JoinOptions::default() };
    let subscription = node.join_many_with(&args.groups, &options)?;
    let groups = if args.groups.len() == 1 { "group" } else { "groups" };
    output::note(format_args!("node {} at {}, in {} {groups}", node.id(), node.address(), args.groups.len()));
    #[expect(clippy::disallowed_methods, reason = "no core: --seconds is a time of the clock")]
    let start = Instant::now();
    let (mut received, mut refused, mut disorder) = (0, 0, Disorder::default());
    // Whether the node knew of no other one when it was looked for.
    let mut was_alone = None;
    let is_time_left = || args.seconds.is_none_or(|all| start.elapsed() < all);
    while is_time_left() && args.count.is_none_or(|count| received < count) {
        if interrupt.is_requested() {
            // Without a count, a signal is the regular end. The node leaves its groups when it is dropped.
            let is_alone = received == 0 && is_isolated_at_end(&node, &args.node.named(), was_alone);
            let differs = settings::report(&node.status(), received == 0);
            let is_wrong = is_alone || differs || refused > 0;
            let code = if is_wrong { ExitCode::FAILURE } else { report_losses(&subscription, disorder) };
            return Ok(args.count.map_or(code, |_| ExitCode::from(EXIT_INTERRUPTED)));
        }
        if start.elapsed() >= ALONE && was_alone.is_none() {
            was_alone = Some(is_isolated(&node, &args.node.named(), false));
        }
        let left = args.seconds.map_or(STOP_CHECK, |all| all.saturating_sub(start.elapsed()));
        match subscription.recv_event_timeout(left.min(STOP_CHECK)) {
            Ok(Event::Message(message)) => {
                received += 1;
                output::line(&line(&message, args.json)?)?;
                disorder.on_printed(&message);
            }
            Ok(Event::Lost(lost)) => output::line(&lost_line(&lost, args.json)?)?,
            Ok(Event::History(history)) => args.note_history(&history),
            Ok(Event::Group(news)) => refused += u64::from(!note_group(&news)),
            Ok(Event::Order(change)) => disorder.note(&change),
            Ok(Event::Registry(news)) => note_registry(&news),
            Ok(Event::Member(news)) => output::line(&member_line(&news, args.json)?)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let code = report_losses(&subscription, disorder);
    let is_alone = received == 0 && is_isolated_at_end(&node, &args.node.named(), was_alone);
    let differs = settings::report(&node.status(), received == 0);
    Ok(if is_alone || differs || refused > 0 { ExitCode::FAILURE } else { code })
}

/// Returns whether the node never knew another one although it should; says why, unless that was told.
/// `was_alone`: the same after some seconds, if that was looked at.
fn is_isolated_at_end(node: &Node, named: &Named, was_alone: Option<bool>) -> bool {
    // One that knew others is not alone because they have ended.
    was_alone != Some(false) && is_isolated(node, named, was_alone.is_some())
}

/// Returns whether the node knows no other one although it should; says why unless that is told.
fn is_isolated(node: &Node, named: &Named, is_told: bool) -> bool {
    let cause = isolation(&node.status(), named);
    if let Some(cause) = cause.as_ref().filter(|_| !is_told) {
        output::note(format_args!("error: {}\nhelp: {}", cause.what, cause.remedy));
    }
    cause.is_some()
}

impl Args {
    /// Returns the first message that is wanted.
    fn start(&self) -> Start {
        match (self.last, self.since) {
            (Some(count), _) => Start::Last(count),
            (None, Some(age)) => Start::Since(age),
            (None, None) if self.last_per_key => Start::LastPerKey,
            (None, None) => Start::Live,
        }
    }

    /// Says which messages of the past there are, if those are not all.
    fn note_history(&self, history: &History) {
        let group = history.group();
        let wanted = match (self.last, self.since) {
            _ if self.last_per_key => "the last value of each key".to_owned(),
            (Some(count), _) => format!("{count} messages"),
            (None, age) => format!("messages of {:.1} s", age.unwrap_or_default().as_secs_f64()),
        };
        match history.news() {
            HistoryNews::Begins { messages, is_complete: false } if self.last_per_key => {
                output::note(format_args!(
                    "warning: expected {wanted} of {group}, saw {messages} of a member that may lack some\n\
                     help: let members join with the last values too, and raise `history.keyed_bytes` if they \
                     forget keys"
                ));
            }
            HistoryNews::Begins { messages, is_complete: false } => output::note(format_args!(
                "warning: expected {wanted} of the past of {group}, saw {messages} that a member keeps\n\
                 help: if there were more, raise `history.group_bytes` or `history.age_ms` of the members"
            )),
            HistoryNews::Nothing { asked: 0 } => output::note(format_args!(
                "warning: expected {wanted} of the past of {group}, saw no other member of the group\n\
                 help: check the seed address; a group has a past while it has members"
            )),
            HistoryNews::Nothing { asked } => output::note(format_args!(
                "warning: expected {wanted} of the past of {group}, saw no answer of {asked} members\n\
                 help: check that the members have this version"
            )),
            HistoryNews::Begins { .. } | HistoryNews::Ends => {}
        }
    }
}

/// Says that the members may be others than those that are known, or are known again.
fn note_registry(news: &RegistryNews) {
    match news.error() {
        Some(why) => output::note(format_args!(
            "warning: {} cannot be reached, and the members stay as they are known: {why}",
            news.kind()
        )),
        None => output::note(format_args!("{} is reached again", news.kind())),
    }
}

/// Numbers of total orders that were not printed as the members agreed.
#[derive(Debug, Default)]
struct Disorder {
    missed: u64,
    broken: u64,
    /// The number after that of the last message printed of each group.
    printed: HashMap<String, u64>,
}

impl Disorder {
    fn on_printed(&mut self, message: &Message) {
        if let Some(number) = message.number() {
            self.printed.insert(message.group().to_owned(), number + 1);
        }
    }

    /// Whether news concern messages that were printed, or stood between those.
    fn concerns(&self, change: &OrderChange) -> bool {
        let printed = self.printed.get(change.group()).copied().unwrap_or(0);
        match change.news() {
            OrderNews::Broken { from, .. } | OrderNews::Missed { from, .. } => from < printed,
            _ => false,
        }
    }

    /// Says that messages are not, or were not, in the agreed order, and counts them.
    fn note(&mut self, change: &OrderChange) {
        let group = change.group();
        match change.news() {
            OrderNews::Broken { from, delivered, continues } => {
                self.broken += delivered.saturating_sub(from);
                output::note(format_args!(
                    "warning: {group}: this node was cut off and printed numbers {from} to {} otherwise than the \
                     other members agreed\nhelp: discard them; the agreed messages follow from number {continues} on",
                    delivered.saturating_sub(1)
                ));
            }
            OrderNews::Missed { from, continues } => {
                self.missed += continues.saturating_sub(from);
                output::note(format_args!(
                    "warning: {group}: missed numbers {from} to {}, which no member keeps any more",
                    continues.saturating_sub(1)
                ));
            }
            OrderNews::Stalled => output::note(format_args!(
                "warning: {group}: messages wait, because no majority of the members is heard or no order has begun\n\
                 help: check the network; if the others are gone for good, start this command again"
            )),
            OrderNews::Resumed => output::note(format_args!("{group}: messages are numbered again")),
            OrderNews::Begins { .. } => {}
        }
    }
}

fn order(text: &str) -> Result<Order, String> {
    match text {
        "fifo" => Ok(Order::Fifo),
        "total" => Ok(Order::Total),
        "total-safe" => Ok(Order::TotalSafe),
        _ => Err("expected `fifo`, `total` or `total-safe`".to_owned()),
    }
}

/// Parses a time with its unit: `10s`, `500ms`, `2m`, `1h`; a number alone is in seconds.
fn time(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err("expected a time such as `10s`, `500ms`, `2m` or `1h`".to_owned()),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * scale);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| *time <= Duration::from_hours(24))
        .ok_or_else(|| "expected a time such as `10s`, at most a day".to_owned())
}

/// Leaves the groups, and reports the messages that were not printed as agreed; returns the exit code.
fn report_losses(subscription: &Subscription, mut disorder: Disorder) -> ExitCode {
    let counts = subscription.counts();
    // News about what was printed may wait behind messages that are not printed any more.
    subscription.leave();
    while let Ok(event) = subscription.try_recv_event() {
        if let Event::Order(change) = event
            && disorder.concerns(&change)
        {
            disorder.note(&change);
        }
    }
    let Disorder { missed, broken, .. } = disorder;
    if counts.lost > 0 {
        output::note(format_args!("error: expected every message, saw {} packets lost", counts.lost));
    }
    if counts.dropped > 0 {
        output::note(format_args!(
            "error: expected every message, saw {} dropped because the output was read too slowly\n\
             help: read faster, raise `buffers.queue`, or set `buffers.policy` to \"block\", in the file \
             given with `--config`",
            counts.dropped
        ));
    }
    if missed + broken > 0 {
        output::note(format_args!(
            "error: expected the agreed message at every number, saw {missed} missed and {broken} printed \
             otherwise"
        ));
    }
    if counts.expired > 0 {
        output::note(format_args!("{} packets came after their deadline, or not at all", counts.expired));
    }
    let losses = counts.lost + counts.dropped + missed + broken;
    if losses == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn line(message: &Message, json: bool) -> anyhow::Result<String> {
    let latency_us = u64::try_from(message.latency().as_micros()).unwrap_or(u64::MAX);
    let text = std::str::from_utf8(message.payload()).ok();
    let headers = std::str::from_utf8(message.headers()).ok();
    let key = message.key().map(std::str::from_utf8);
    if json {
        return Ok(serde_json::to_string(&MessageLine {
            group: message.group(),
            sender: message.sender().to_string(),
            address: message.address(),
            sequence: message.seq(),
            number: message.number(),
            sent_us: sent_us(message),
            recovered: message.recovered(),
            past: message.is_past(),
            latency_us,
            content_type: message.content_type(),
            headers: headers.filter(|headers| !headers.is_empty()),
            headers_hex: headers.is_none().then(|| hex(message.headers())),
            key: key.and_then(Result::ok),
            key_hex: message.key().filter(|_| key.is_some_and(|key| key.is_err())).map(hex),
            payload: text,
            payload_hex: text.is_none().then(|| hex(message.payload())),
        })?);
    }
    let recovery = match message.recovered() {
        true => format!(" recovered after {:.1} ms:", latency_us as f64 / 1_000.0),
        false => ":".to_owned(),
    };
    let payload = text.map_or_else(|| format!("0x{}", hex(message.payload())), str::to_owned);
    Ok(format!("{} {} {}{recovery} {payload}", message.group(), message.sender(), message.seq()))
}

/// Returns the microseconds from 1970 to the time at which a message was sent.
fn sent_us(message: &Message) -> Option<u64> {
    let since_1970 = message.sent()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since_1970.as_micros()).ok()
}

/// Says which group a pattern has found. Returns whether it is joined.
fn note_group(news: &GroupNews) -> bool {
    let (group, pattern) = (news.group(), news.pattern());
    match news.change() {
        GroupChange::Found => output::note(format_args!("group {group} matches {pattern}")),
        GroupChange::Refused(why) => {
            output::note(format_args!("error: group {group} matches {pattern}, and is not joined: {why}"));
            return false;
        }
    }
    true
}

fn member_line(news: &MemberNews, json: bool) -> anyhow::Result<String> {
    let (group, member, address) = (news.group(), news.member().id.to_string(), news.member().address);
    let change = match news.change() {
        MemberChange::Joined => "joined",
        MemberChange::Left => "left",
        MemberChange::Failed => "failed",
    };
    if json {
        return Ok(serde_json::to_string(&MemberLine { group, member, address, change })?);
    }
    Ok(format!("{group} {member} at {address}: {change}"))
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
