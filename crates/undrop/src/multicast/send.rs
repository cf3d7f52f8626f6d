//! `undrop multicast send`: messages to a group.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use ricochet::{Node, SendError, Sender};

use super::node::{NodeArgs, seconds};
use crate::failure::Advice as _;
use crate::interrupt::{EXIT_INTERRUPTED, Interrupt};

/// How often it looks whether it is to stop while it waits.
const LOOK: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  tail -f prices.txt | undrop multicast send prices/AAPL --interface eth0 --seed 10.0.0.7:7900
  undrop multicast send load --interface eth0 --size 1024 --count 10000 --rate 1000
  echo hello | undrop multicast send greetings --interface lo --address 127.0.0.1 --unicast --seed 127.0.0.1:7900";

/// Send the lines of stdin to a group, or made-up messages.
///
/// Need not be a member. Waits at first until somebody is in the group, and at the end a moment for those who miss
/// something. A line that is too long is not sent, and told; the others are, and the exit code is 1.
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
    let interrupt = Interrupt::listen()?;
    let node = args.node.start()?;
    let sender = node.sender(&args.group)?.fragments(args.fragments);
    eprintln!("node {} at {}", node.id(), node.address());
    if args.members > 0 && !wait_for_members(args, &node, &interrupt) && !interrupt.is_asked() {
        eprintln!(
            "warning: expected {} members of {:?}, saw {} after {:.1} s; sending all the same",
            args.members,
            args.group,
            node.members(&args.group),
            args.patience.as_secs_f64()
        );
    }
    let outcome = match args.size {
        Some(size) => send_made_up(args, &sender, size, &interrupt).map(|sent| (sent, 0)),
        None => send_lines(args, &sender, room(args, &node), &interrupt),
    };
    // Who has lost the last ones is to learn of them, and to get them, also where sending ends with an error.
    std::thread::sleep(args.linger);
    let (sent, refused) = outcome?;
    tell(&node, sent, refused);
    Ok(match (interrupt.is_asked(), refused) {
        (true, _) => ExitCode::from(EXIT_INTERRUPTED),
        (false, 0) => ExitCode::SUCCESS,
        (false, _) => ExitCode::FAILURE,
    })
}

/// Longest message in bytes.
fn room(args: &Args, node: &Node) -> usize {
    if args.fragments { node.message_max() } else { node.payload_max() }
}

/// Whether enough others are in the group before the patience ends.
fn wait_for_members(args: &Args, node: &Node, interrupt: &Interrupt) -> bool {
    let mut left = args.patience;
    loop {
        let slice = left.min(LOOK);
        if node.wait_for_members(&args.group, args.members, slice) {
            return true;
        }
        left -= slice;
        if left.is_zero() || interrupt.is_asked() {
            return false;
        }
    }
}

/// Sends lines until they end; how many, and how many were refused for being too long.
fn send_lines(
    args: &Args,
    sender: &Sender,
    room: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<(u64, u64)> {
    let mut pace = Pace::new(args.rate);
    let (mut refused, mut number) = (0, 0);
    let mut line = Vec::new();
    let mut stdin = BufReader::new(File::from(std::io::stdin().as_fd().try_clone_to_owned()?));
    while args.count.is_none_or(|count| pace.sent < count) {
        if stdin.buffer().is_empty() && !wait_for_input(stdin.get_ref(), interrupt)? {
            break;
        }
        let Some(length) = read_line(&mut stdin, room, &mut line)? else { break };
        number += 1;
        if length > room {
            refused += 1;
            tell_refused(args, number, length, room, refused);
            continue;
        }
        if !pace.wait(interrupt) {
            break;
        }
        sender.send(&line)?;
    }
    Ok((pace.sent, refused))
}

/// Reads a line without its end, and keeps no more than `room` bytes of it; its length, or `None` at the end of all.
fn read_line(input: &mut impl BufRead, room: usize, line: &mut Vec<u8>) -> std::io::Result<Option<usize>> {
    line.clear();
    let (mut length, mut last) = (0, 0);
    loop {
        let read = input.fill_buf()?;
        if read.is_empty() {
            return Ok((length > 0).then_some(length));
        }
        let end = read.iter().position(|&byte| byte == b'\n');
        let text = &read[..end.unwrap_or(read.len())];
        line.extend_from_slice(&text[..text.len().min((room + 1).saturating_sub(line.len()))]);
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

/// Says which line was refused and why, for the first few.
fn tell_refused(args: &Args, number: u64, length: usize, room: usize, refused: u64) {
    /// So many are told one by one.
    const TOLD_MAX: u64 = 5;
    if refused <= TOLD_MAX {
        eprintln!("error: line {number}: expected at most {room} bytes, saw {length}: not sent");
    } else if refused == TOLD_MAX + 1 {
        eprintln!("error: line {number} and perhaps more are too long: not sent");
    }
    if refused == 1 && !args.fragments {
        eprintln!("help: with `--fragments` longer messages go in several packets");
    }
}

/// Waits for something to read, or the end of it; false if it is to stop before.
fn wait_for_input(input: &File, interrupt: &Interrupt) -> anyhow::Result<bool> {
    while !interrupt.is_asked() {
        let mut waiting = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, 100_u8) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

fn send_made_up(args: &Args, sender: &Sender, size: usize, interrupt: &Interrupt) -> anyhow::Result<u64> {
    let mut pace = Pace::new(args.rate);
    let mut payload: Vec<u8> = (0..size).map(|at| b'a' + (at % 26) as u8).collect();
    while args.count.is_none_or(|count| pace.sent < count) {
        if !pace.wait(interrupt) {
            break;
        }
        let number = pace.sent.to_string();
        let length = number.len().min(size);
        payload[..length].copy_from_slice(&number.as_bytes()[..length]);
        match sender.send(&payload) {
            Ok(_) => {}
            Err(error @ SendError::TooLong { .. }) if !args.fragments => {
                return Err(error)
                    .advise("give a smaller `--size`, or `--fragments` to send in several packets");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(pace.sent)
}

fn tell(node: &Node, sent: u64, refused: u64) {
    let counts = node.status().counts;
    let of = |key: &str| counts.get(key).copied().unwrap_or(0);
    let refused = if refused > 0 { format!(", {refused} too long and not sent") } else { String::new() };
    eprintln!("{sent} messages sent{refused}, {} packets sent again on request", of("answered"));
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

    /// Waits until the next message may leave, and counts it; false if it is to stop before.
    fn wait(&mut self, interrupt: &Interrupt) -> bool {
        while !interrupt.is_asked() {
            let due =
                self.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(self.sent as f64 / rate));
            let left = due.saturating_sub(self.start.elapsed());
            if left.is_zero() {
                self.sent += 1;
                return true;
            }
            std::thread::sleep(left.min(LOOK));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn lines_end_in_any_way_and_long_ones_take_no_room() {
        let text = b"one\r\n\ntwelve bytes\n\r\nlast".to_vec();
        // a buffer of one byte cuts every line and every end
        let mut input = BufReader::with_capacity(1, Cursor::new(text));
        let (mut line, mut seen) = (Vec::new(), Vec::new());
        while let Some(length) = read_line(&mut input, 4, &mut line).unwrap() {
            assert!(line.capacity() < 64 && line.len() == length.min(5));
            seen.push((length, String::from_utf8(line.clone()).unwrap()));
        }
        let seen: Vec<_> = seen.iter().map(|(length, line)| (*length, line.as_str())).collect();
        assert_eq!(seen, [(3, "one"), (0, ""), (12, "twelv"), (0, ""), (4, "last")]);
    }

    #[test]
    fn a_line_that_just_fits_with_its_carriage_return_is_whole() {
        let mut line = Vec::new();
        let length = read_line(&mut Cursor::new(b"four\r\n"), 4, &mut line).unwrap();
        assert_eq!((length, &line[..]), (Some(4), &b"four"[..]));
    }
}
