//! `undrop multicast send`: messages to a group.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use ricochet::{Node, SendError, SendOptions, Sender};

use super::isolation::isolation;
use super::node::{NodeArgs, seconds};
use super::settings;
use crate::failure::{Advice as _, usage};
use crate::interrupt::{EXIT_INTERRUPTED, Interrupt};
use crate::output;

/// Interval between checks for a stop request while the command waits.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Maximum number of refused lines that are reported one by one.
const REPORTED_MAX: u64 = 5;

/// Exit code if no other member of the group gets the messages.
const EXIT_NOBODY: u8 = 3;

const EXAMPLES: &str = "\
Examples:
  tail -f prices.txt | undrop multicast send prices/AAPL --interface eth0 --seed 10.0.0.7:7900
  undrop multicast send orders --interface eth0 --seed 10.0.0.7:7900 --held 2 < orders.txt
  echo 187.22 | undrop multicast send prices --interface eth0 --seed 10.0.0.7:7900 --value-of AAPL
  undrop multicast send load --interface eth0 --size 1024 --count 10000 --rate 1000
  echo hello | undrop multicast send greetings --interface lo --address 127.0.0.1 --unicast --seed 127.0.0.1:7900";

/// Send the lines of stdin to a group, or generated messages.
///
/// The sender need not be a member of the group. It waits until the group has members. After the last message
/// it stays for a moment, to answer requests for lost packets. Lines that are too long are reported and not
/// sent; the exit code is then 1. So it is if --require-members is given and the members are not found, or if
/// --held is given and too few members hold a message in time. The exit code is 3 if the group has no other
/// member when the wait for them ends and none after the last message, so that nobody gets the messages.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The group
    group: String,
    #[command(flatten)]
    messages: MessageArgs,
    /// Number of other members to wait for
    #[arg(long, value_name = "N", default_value_t = 1)]
    members: usize,
    /// Send nothing, and end with exit code 1, if these members are not found
    #[arg(long)]
    require_members: bool,
    /// Longest wait for these members, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    patience: Duration,
    /// Time to stay after the last message, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    linger: Duration,
    #[command(flatten)]
    node: NodeArgs,
}

/// The messages and their pace.
#[derive(Debug, clap::Args)]
struct MessageArgs {
    /// Maximum number of messages per second
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Send generated messages of this many bytes instead of lines
    #[arg(long, value_name = "BYTES")]
    size: Option<usize>,
    /// Stop after this many messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Send messages longer than a packet in several packets
    #[arg(long)]
    fragments: bool,
    /// Wait after each message until this many members hold it
    #[arg(long, value_name = "K")]
    held: Option<usize>,
    /// Longest wait for the members that hold a message, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds, requires = "held")]
    held_timeout: Duration,
    /// Age in seconds at which a message is worthless, so that receivers do not get it any more
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    deadline: Option<Duration>,
    /// Type of the messages, such as application/json
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Key of which each message is the value. Members keep the last value for receivers that join later with
    /// --last-per-key; an empty message deletes the key
    #[arg(long, value_name = "KEY")]
    value_of: Option<String>,
    /// Text that receivers get beside each message
    #[arg(long, value_name = "TEXT", default_value = "")]
    headers: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(rate) = args.messages.rate.filter(|rate| !rate.is_finite() || *rate <= 0.0) {
        return Err(usage(format!("--rate: expected more than 0 messages a second, saw {rate}")));
    }
    if args.messages.deadline.is_some_and(|deadline| deadline.is_zero()) {
        return Err(usage(
            "--deadline: expected more than 0 seconds, saw 0, with which nobody gets a message",
        ));
    }
    let interrupt = Interrupt::listen()?;
    let node = args.node.start()?;
    output::note(format_args!("node {} at {}", node.id(), node.address()));
    let mut is_heard = true;
    let mut transfer = Transfer::new(&args.messages, &node, &args.group, &interrupt)?;
    let is_over = || interrupt.is_requested() || node.ended().is_some();
    if args.members > 0 && !wait_for_members(args, &node, &interrupt) && !is_over() {
        report_members(args, &node)?;
        is_heard = node.members(&args.group) > 0;
    }
    let outcome = match args.messages.size {
        Some(size) => transfer.send_generated(size),
        None => transfer.send_lines(),
    };
    let flushed = flush(&node, &interrupt);
    is_heard |= node.members(&args.group) > 0;
    // Receivers learn of lost packets, and request them, during this time. Of errors, only the end of the
    // node shortens it.
    if flushed.is_ok() {
        sleep(args.linger, &interrupt);
    }
    outcome?;
    flushed?;
    transfer.report(&node);
    let differs = settings::report(&node.status(), false);
    let failed = differs || transfer.refused + transfer.unheld > 0;
    if !is_heard {
        output::note(format_args!(
            "error: expected another member of {:?}, saw none: nobody has the messages",
            args.group
        ));
    }
    Ok(match interrupt.is_requested() {
        true => ExitCode::from(EXIT_INTERRUPTED),
        false if failed => ExitCode::FAILURE,
        false if !is_heard => ExitCode::from(EXIT_NOBODY),
        false => ExitCode::SUCCESS,
    })
}

/// Reports that the group has too few members, and why, as far as the node can tell.
fn report_members(args: &Args, node: &Node) -> anyhow::Result<()> {
    let seen = format!(
        "expected at least {} other members of {:?}, saw {} after {:.1} s",
        args.members,
        args.group,
        node.members(&args.group),
        args.patience.as_secs_f64()
    );
    let cause = isolation(&node.status(), &args.node.named());
    if args.require_members {
        let what = cause.as_ref().map_or_else(String::new, |cause| format!(": {}", cause.what));
        let remedy = cause
            .map_or("start a receiver of this group, or wait longer with `--patience`", |cause| cause.remedy);
        return Err(anyhow!("{seen}{what}")).advise(remedy);
    }
    output::note(format_args!("warning: {seen}; sending without them"));
    if let Some(cause) = cause {
        output::note(format_args!("warning: {}\nhelp: {}", cause.what, cause.remedy));
    }
    Ok(())
}

/// Waits until enough other nodes are in the group; false if the patience ends first.
fn wait_for_members(args: &Args, node: &Node, interrupt: &Interrupt) -> bool {
    let mut left = args.patience;
    loop {
        let slice = left.min(STOP_CHECK);
        if node.wait_for_members(&args.group, args.members, slice) {
            return true;
        }
        left -= slice;
        if left.is_zero() || interrupt.is_requested() {
            return false;
        }
    }
}

/// Waits until all messages have been sent, or a stop is requested. Fails if the node ends before.
fn flush(node: &Node, interrupt: &Interrupt) -> Result<(), SendError> {
    while !interrupt.is_requested() && !node.flush(STOP_CHECK) {
        if let Some(ended) = node.ended() {
            return Err(ended);
        }
    }
    Ok(())
}

/// The messages on their way to the group.
struct Transfer<'a> {
    args: &'a MessageArgs,
    sender: Sender,
    interrupt: &'a Interrupt,
    pace: Pace,
    /// Longest message in bytes.
    length_max: usize,
    /// Number of lines that were too long.
    refused: u64,
    /// Number of messages that fewer members hold than required.
    unheld: u64,
}

impl<'a> Transfer<'a> {
    fn new(
        args: &'a MessageArgs,
        node: &Node,
        group: &str,
        interrupt: &'a Interrupt,
    ) -> Result<Self, SendError> {
        let sender = node.sender(group)?.fragments(args.fragments);
        let length_max = if args.fragments { node.message_max() } else { node.payload_max() };
        Ok(Self { args, sender, interrupt, pace: Pace::new(args.rate), length_max, refused: 0, unheld: 0 })
    }

    /// Sends the lines of stdin until they end.
    fn send_lines(&mut self) -> anyhow::Result<()> {
        let mut number = 0;
        let mut line = Vec::new();
        let mut stdin = BufReader::new(File::from(std::io::stdin().as_fd().try_clone_to_owned()?));
        while !self.is_complete() {
            let wait = |input: &File| wait_for_input(input, self.interrupt);
            let Some(length) = read_line(&mut stdin, self.length_max, &mut line, wait)? else { break };
            number += 1;
            if length > self.length_max {
                self.refuse(number, length);
                continue;
            }
            if !self.pace.wait(self.interrupt) {
                break;
            }
            match self.send(&line) {
                Ok(true) => {}
                Ok(false) => break,
                // The content type and the headers take room too.
                Err(SendError::TooLong { length, .. }) => self.refuse(number, length),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends messages of `size` bytes that begin with their number.
    fn send_generated(&mut self, size: usize) -> anyhow::Result<()> {
        // Before any message of that size is made.
        let length_max = self.length_max;
        if size > length_max && self.args.fragments {
            return Err(usage(format!("--size: expected at most {length_max} bytes, saw {size}")));
        }
        if size > length_max {
            return Err(usage(format!(
                "--size: expected at most {length_max} bytes in one packet, saw {size}"
            )))
            .advise("give a smaller `--size`, or `--fragments` to send in several packets");
        }
        let mut payload: Vec<u8> = (0..size).map(|at| b'a' + (at % 26) as u8).collect();
        while !self.is_complete() {
            if !self.pace.wait(self.interrupt) {
                break;
            }
            let number = self.pace.sent.to_string();
            let length = number.len().min(size);
            payload[..length].copy_from_slice(&number.as_bytes()[..length]);
            match self.send(&payload) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error @ SendError::TooLong { .. }) if !self.args.fragments => {
                    return Err(error)
                        .advise("give a smaller `--size`, or `--fragments` to send in several packets");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends a message once its readers have room; false if a stop is requested first.
    fn send(&mut self, message: &[u8]) -> Result<bool, SendError> {
        let MessageArgs { held, held_timeout, deadline, content_type, headers, value_of, .. } = self.args;
        let (deadline, content_type) = (*deadline, content_type.as_deref());
        let key = value_of.as_deref().map(str::as_bytes);
        let options = SendOptions { deadline, content_type, headers: headers.as_bytes(), key };
        while !self.interrupt.is_requested() {
            let sent = match *held {
                Some(members) => {
                    self.sender.send_held_while(message, &options, members, *held_timeout, || {
                        !self.interrupt.is_requested()
                    })
                }
                None => self.sender.send_timeout_with(message, &options, STOP_CHECK),
            };
            match sent {
                Err(SendError::WouldBlock) => {}
                Err(error @ SendError::NotHeld { .. }) => {
                    self.report_unheld(&error);
                    return Ok(true);
                }
                sent => return sent.map(|_| true),
            }
        }
        Ok(false)
    }

    /// Counts a message that too few members hold; reports the first ones.
    fn report_unheld(&mut self, error: &SendError) {
        self.unheld += 1;
        if self.unheld <= REPORTED_MAX {
            output::note(format_args!("error: {error}"));
        }
    }

    /// Whether `--count` messages were sent.
    fn is_complete(&self) -> bool {
        self.args.count.is_some_and(|count| self.pace.sent >= count)
    }

    /// Counts a line that is too long; reports the first ones.
    fn refuse(&mut self, number: u64, length: usize) {
        self.refused += 1;
        if self.refused <= REPORTED_MAX {
            let max = self.length_max;
            output::note(format_args!(
                "error: line {number}: expected at most {max} bytes, saw {length}: not sent"
            ));
        } else if self.refused == REPORTED_MAX + 1 {
            output::note(format_args!(
                "error: line {number} is too long: not sent; further such lines are only counted"
            ));
        }
        if self.refused == 1 && !self.args.fragments {
            output::note(format_args!("help: `--fragments` sends longer messages in several packets"));
        }
    }

    /// Prints the totals.
    fn report(&self, node: &Node) {
        let answered = node.status().counts.get("answered").copied().unwrap_or(0);
        let unheld = match self.unheld {
            0 => String::new(),
            count => format!(", {count} held by too few members"),
        };
        let refused = match self.refused {
            0 => String::new(),
            count => format!(", {count} too long and not sent"),
        };
        output::note(format_args!(
            "{} messages sent{refused}{unheld}, {answered} packets sent again on request",
            self.pace.sent
        ));
        let left = node.status().flow.left_behind;
        if left > 0 {
            output::note(format_args!(
                "warning: {left} readers were left behind, because they made no progress; `[flow]` in the \
                 configuration sets for how long to wait"
            ));
        }
    }
}

/// Reads a line without its end, and keeps at most `length_max` + 1 bytes of it. Calls `wait` before each
/// part that the input may not have yet. Returns the length of the line, or `None` at the end of the input
/// and if `wait` returns false.
fn read_line<R: Read>(
    input: &mut BufReader<R>,
    length_max: usize,
    line: &mut Vec<u8>,
    wait: impl Fn(&R) -> anyhow::Result<bool>,
) -> anyhow::Result<Option<usize>> {
    line.clear();
    let (mut length, mut last) = (0, 0);
    loop {
        if input.buffer().is_empty() && !wait(input.get_ref())? {
            return Ok(None);
        }
        let read = input.fill_buf()?;
        if read.is_empty() {
            return Ok((length > 0).then_some(length));
        }
        let end = read.iter().position(|&byte| byte == b'\n');
        let text = &read[..end.unwrap_or(read.len())];
        line.extend_from_slice(&text[..text.len().min((length_max + 1).saturating_sub(line.len()))]);
        length += text.len();
        last = text.last().copied().unwrap_or(last);
        let used = text.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            if length > 0 && last == b'\r' {
                length -= 1;
                line.truncate(length);
            }
            return Ok(Some(length));
        }
    }
}

/// Waits until the input can be read or has ended; false if a stop is requested first.
fn wait_for_input(input: &File, interrupt: &Interrupt) -> anyhow::Result<bool> {
    while !interrupt.is_requested() {
        let mut waiting = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, 100_u8) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// A time in seconds, which may be longer than any clock runs.
fn due_after(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Waits, until a stop is requested.
fn sleep(time: Duration, interrupt: &Interrupt) {
    let mut left = time;
    while !left.is_zero() && !interrupt.is_requested() {
        std::thread::sleep(left.min(STOP_CHECK));
        left = left.saturating_sub(STOP_CHECK);
    }
}

/// A rate of messages. Each message has its own due time, so that a late one delays no other.
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

    /// Waits until the next message is due, and counts it; false if a stop is requested first.
    fn wait(&mut self, interrupt: &Interrupt) -> bool {
        while !interrupt.is_requested() {
            let due = self.rate.map_or(Duration::ZERO, |rate| due_after(self.sent as f64 / rate));
            let left = due.saturating_sub(self.start.elapsed());
            if left.is_zero() {
                self.sent += 1;
                return true;
            }
            std::thread::sleep(left.min(STOP_CHECK));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use ricochet::{JoinOptions, Policy};

    use super::*;

    #[test]
    fn a_node_that_ends_with_messages_that_wait_is_an_error() {
        let here = || Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
        let reader = here().start().unwrap();
        let options = JoinOptions { queue: Some(1), policy: Some(Policy::Block), ..JoinOptions::default() };
        let _still = reader.join_with("g", &options).unwrap();
        let node = here().seed(reader.address().to_string()).start().unwrap();
        assert!(node.wait_for_members("g", 1, Duration::from_secs(60)));
        let sender = node.sender("g").unwrap();
        while sender.send_timeout(&[0; 1_000], Duration::from_secs(2)).is_ok() {}
        let interrupt = Interrupt::listen().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| flush(&node, &interrupt));
            node.close();
            assert_eq!(waiting.join().unwrap(), Err(SendError::Closed));
        });
    }

    #[test]
    fn lines_end_in_any_way_and_long_ones_use_no_memory() {
        let text = b"one\r\n\ntwelve bytes\n\r\nlast".to_vec();
        // A buffer of one byte splits every line and every line end.
        let mut input = BufReader::with_capacity(1, Cursor::new(text));
        let (mut line, mut seen) = (Vec::new(), Vec::new());
        while let Some(length) = read_line(&mut input, 4, &mut line, |_| Ok(true)).unwrap() {
            assert!(line.capacity() < 64 && line.len() == length.min(5));
            seen.push((length, String::from_utf8(line.clone()).unwrap()));
        }
        let seen: Vec<_> = seen.iter().map(|(length, line)| (*length, line.as_str())).collect();
        assert_eq!(seen, [(3, "one"), (0, ""), (12, "twelv"), (0, ""), (4, "last")]);
    }

    #[test]
    fn a_line_that_just_fits_with_its_carriage_return_is_whole() {
        let mut line = Vec::new();
        let mut input = BufReader::new(Cursor::new(b"four\r\n"));
        let length = read_line(&mut input, 4, &mut line, |_| Ok(true)).unwrap();
        assert_eq!((length, &line[..]), (Some(4), &b"four"[..]));
    }
}
