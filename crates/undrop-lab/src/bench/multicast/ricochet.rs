//! Ricochet's participant, which this program runs as `bench ricochet`.

use std::io::{BufRead as _, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use ricochet::{Event, JoinOptions, Node, Order, Policy, RepairMode, Subscription, parse_follow};

use super::message::{MAGIC, Name};
use super::run::now_ns;
use super::soak::Seen;

const PORT: u16 = 7900;
const HEADER_LEN: usize = 32;
const MEMBERS_PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which a receiver looks whether the order of its groups has settled.
const ORDER_CHECK: Duration = Duration::from_millis(20);
/// Interval at which a receiver checks whether it must stop.
const STOP_CHECK: Duration = Duration::from_millis(100);
const QUEUE: usize = 1 << 17;
/// Bytes of messages that may wait.
const QUEUE_BYTES: usize = 1 << 28;

/// Command line of a participant; see `docs/participants.md`.
#[derive(Debug, Args)]
pub(crate) struct Part {
    #[arg(long)]
    role: Role,
    #[arg(long)]
    index: u32,
    #[arg(long)]
    receivers: usize,
    #[arg(long)]
    senders: usize,
    #[arg(long)]
    groups: u32,
    #[arg(long)]
    interface: String,
    #[arg(long)]
    address: IpAddr,
    #[arg(long)]
    size: usize,
    #[arg(long)]
    rate: f64,
    #[arg(long)]
    count: u64,
    #[arg(long)]
    seed: u64,
    #[arg(long, default_value = "")]
    settings: String,
    /// Counts messages in place of recording them, so that memory does not grow with their number.
    #[arg(long)]
    soak: bool,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Send,
    Recv,
}

/// Runs one participant, from `ready` to `done`.
pub(crate) fn play(part: &Part) -> anyhow::Result<()> {
    let node = part.start()?;
    let names: Vec<String> = (0..part.groups).map(|group| format!("group/{group}")).collect();
    if part.role == Role::Recv { part.receive(&node, &names) } else { part.send(&node, &names) }?;
    for (name, count) in node.status().counts {
        say(&format!("stat {name} {count}"))?;
    }
    say("done")
}

impl Part {
    fn start(&self) -> anyhow::Result<Node> {
        let mut builder = Node::builder(self.interface.clone()).address(self.address).port(PORT);
        if self.index > 0 {
            builder = builder.seed(format!("10.88.0.1:{PORT}"));
        }
        for setting in self.settings.split(',').filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once('=').context("expected settings as key=value")?;
            let wrong = || format!("expected a number for {key}, saw {value:?}");
            let ms = || value.parse::<f64>().map(|ms| Duration::from_secs_f64(ms / 1e3)).with_context(wrong);
            builder = match (key, value) {
                ("repair", "xor") => builder.repair(RepairMode::Xor),
                ("repair", "digest") => builder.repair(RepairMode::Digest),
                ("r", _) => builder.r(value.parse().with_context(wrong)?),
                ("c", _) => builder.c(value.parse().with_context(wrong)?),
                ("max_delay_ms", _) => builder.max_delay(Some(ms()?)),
                ("repair", "auto") => builder.repair(RepairMode::Auto),
                ("flow", _) => {
                    let follow = parse_follow(value);
                    builder.follow(follow.context("expected flow=all, quorum:K, max or off")?)
                }
                ("linger_us", _) => builder.linger_us(value.parse().with_context(wrong)?),
                ("queue", _) => builder.queue(value.parse().with_context(wrong)?),
                ("policy", "block") => builder.policy(Policy::Block),
                ("nak_ms", _) => builder.nak_after(ms()?),
                ("gap_ms", _) => builder.nak_gap_after(Some(ms()?)),
                // An option of the subscription.
                ("order", "fifo" | "total" | "safe") => builder,
                _ => anyhow::bail!(
                    "expected repair=xor|digest|auto, r, c, max_delay_ms, nak_ms, gap_ms, flow, linger_us, \
                     queue, policy=block or order=fifo|total|safe, saw {setting:?}"
                ),
            };
        }
        Ok(builder.start()?)
    }

    fn receive(&self, node: &Node, names: &[String]) -> anyhow::Result<()> {
        let queue = QUEUE.min(QUEUE_BYTES / self.size.max(1)).max(16);
        // A queue that blocks has the library's length, so that it does block where a sender is faster.
        let mut settings = self.settings.split(',');
        let is_default = settings.any(|setting| setting.starts_with("queue=") || setting == "policy=block");
        let order = self.order();
        let is_total = matches!(order, Order::Total | Order::TotalSafe);
        let options = JoinOptions {
            queue: (!is_default).then_some(queue),
            order,
            // Receivers that start at the same time begin one order together.
            founders: is_total.then_some(self.receivers / 2 + 1),
            ..JoinOptions::default()
        };
        let subscription = node.join_many_with(names, &options)?;
        wait_for_members(node, names, self.receivers - 1)?;
        if is_total {
            let is_sequencer = wait_for_order(node, names, self.receivers)?;
            say(&format!("stat sequencer {}", u8::from(is_sequencer)))?;
        }
        let stop = AtomicBool::new(false);
        if self.soak {
            let seen = until_stopped(&stop, || self.count(&subscription, &stop))?;
            return seen
                .stats()
                .into_iter()
                .try_for_each(|(name, count)| say(&format!("stat {name} {count}")));
        }
        let (records, corrupt) = until_stopped(&stop, || self.collect(&subscription, &stop))?;
        std::fs::write(&self.out, records).with_context(|| format!("cannot write {}", self.out.display()))?;
        say(&format!("stat corrupt {corrupt}"))
    }

    fn order(&self) -> Order {
        let named = self.settings.split(',').rev().find_map(|setting| setting.strip_prefix("order="));
        match named {
            Some("fifo") => Order::Fifo,
            Some("total") => Order::Total,
            Some("safe") => Order::TotalSafe,
            _ => Order::default(),
        }
    }

    /// Counts messages until `stop` is set.
    fn count(&self, subscription: &Subscription, stop: &AtomicBool) -> Seen {
        let mut seen = Seen::default();
        while !stop.load(Ordering::SeqCst) {
            match subscription.recv_event_timeout(STOP_CHECK) {
                Ok(Event::Message(message)) => {
                    let whole =
                        Name::read(message.payload()).filter(|_| self.send_ns(message.payload()).is_some());
                    seen.note(whole);
                }
                Ok(Event::Lost(lost)) => seen.lost += lost.packets(),
                _ => {}
            }
        }
        seen
    }

    /// Records messages until `stop` is set. Returns the lines of records, and the number of messages with
    /// wrong content.
    fn collect(&self, subscription: &Subscription, stop: &AtomicBool) -> (String, u64) {
        // There is room for twice the expected messages, so that the loop does not allocate memory.
        let mut records = Vec::with_capacity(self.senders * self.count as usize * 2);
        let mut corrupt = 0;
        while !stop.load(Ordering::SeqCst) {
            let Ok(message) = subscription.recv_timeout(STOP_CHECK) else { continue };
            let receive_ns = now_ns().unwrap_or(0);
            let group = message.group().rsplit('/').next().and_then(|group| group.parse::<u32>().ok());
            match (Name::read(message.payload()), group, self.send_ns(message.payload())) {
                (Some(name), Some(group), Some(send_ns)) => records.push((group, name, send_ns, receive_ns)),
                _ => corrupt += 1,
            }
        }
        let line = |(group, name, send, receive): (u32, Name, u64, u64)| {
            format!("{group} {} {} {send} {receive}\n", name.sender, name.number)
        };
        (records.into_iter().map(line).collect(), corrupt)
    }

    /// Returns the sending time in a message, or `None` if the content of the message is wrong.
    fn send_ns(&self, message: &[u8]) -> Option<u64> {
        let name = Name::read(message)?;
        let time = message.get(24..HEADER_LEN)?.try_into().ok()?;
        let whole = message.len() == self.size
            && (HEADER_LEN..self.size).all(|at| message[at] == filler(at, name.number));
        whole.then(|| u64::from_le_bytes(time))
    }

    fn send(&self, node: &Node, names: &[String]) -> anyhow::Result<()> {
        wait_for_members(node, names, self.receivers)?;
        let fragments = self.size > node.payload_max();
        let sender = |name: &String| node.sender(name).map(|sender| sender.fragments(fragments));
        let senders = names.iter().map(sender).collect::<Result<Vec<_>, _>>()?;
        say("ready")?;
        let start_ns: u64 = wait_for("go")?.trim().parse().context("expected a time with go")?;
        let mut message = vec![0; self.size.max(HEADER_LEN)];
        for number in 0..self.count {
            let name = Name { sender: self.index, number };
            let group = name.group(self.seed, self.groups);
            message[..8].copy_from_slice(&MAGIC);
            message[8..12].copy_from_slice(&self.index.to_le_bytes());
            message[12..16].copy_from_slice(&group.to_le_bytes());
            message[16..24].copy_from_slice(&number.to_le_bytes());
            for (at, byte) in message.iter_mut().enumerate().skip(HEADER_LEN) {
                *byte = filler(at, number);
            }
            let due_ns = start_ns + (number as f64 * 1e9 / self.rate) as u64;
            // Without pace, a system call for each message would take longer than its sending.
            if now_ns()? < due_ns {
                sleep_until(due_ns);
            }
            message[24..HEADER_LEN].copy_from_slice(&now_ns()?.to_le_bytes());
            senders[group as usize].send(&message)?;
        }
        anyhow::ensure!(node.flush(MEMBERS_PATIENCE), "expected room for all messages, saw none");
        say(&format!("sent {}", self.count))?;
        wait_for("stop").map(drop)
    }
}

fn filler(at: usize, number: u64) -> u8 {
    (at as u64).wrapping_mul(31).wrapping_add(number) as u8
}

/// Runs a receiver on a thread until the bench says `stop`.
fn until_stopped<T: Send>(stop: &AtomicBool, receive: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let receiver = scope.spawn(receive);
        let stopped = say("ready").and_then(|()| wait_for("stop"));
        stop.store(true, Ordering::SeqCst);
        let received = receiver.join().map_err(|_| anyhow::anyhow!("the receiving thread panicked"))?;
        stopped.map(|_| received)
    })
}

/// Waits until all members keep the order of all groups. Returns whether this node numbers the messages of
/// the first one.
fn wait_for_order(node: &Node, names: &[String], members: usize) -> anyhow::Result<bool> {
    let mut seen = String::new();
    for _ in 0..MEMBERS_PATIENCE.as_millis() / ORDER_CHECK.as_millis() {
        let status = node.status();
        let groups = || status.groups.iter().filter(|group| names.contains(&group.name));
        let orders = || groups().filter_map(|group| group.order.as_ref());
        let settled = orders().filter(|order| order.sequencer.is_some() && order.members == members);
        if settled.count() == names.len() {
            let own = node.id().to_string();
            let first = groups().find(|group| Some(&group.name) == names.first());
            let sequencer = first.and_then(|group| group.order.as_ref()?.sequencer.clone());
            return Ok(sequencer == Some(own));
        }
        seen = format!("{:?}", orders().collect::<Vec<_>>());
        std::thread::sleep(ORDER_CHECK);
    }
    anyhow::bail!("expected {members} members to keep one order of each group, saw {seen}")
}

fn wait_for_members(node: &Node, names: &[String], count: usize) -> anyhow::Result<()> {
    for name in names {
        let there = node.wait_for_members(name, count, MEMBERS_PATIENCE);
        anyhow::ensure!(there, "expected {count} members of {name}, saw {}", node.members(name));
    }
    Ok(())
}

fn sleep_until(at_ns: u64) {
    let at = TimeSpec::new((at_ns / 1_000_000_000) as i64, (at_ns % 1_000_000_000) as i64);
    // A signal that interrupts the sleep sends this message early; the next one has its own time.
    let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at);
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).context("cannot answer the bench")
}

/// Reads lines until one begins with `word`, and returns the rest of that line.
fn wait_for(word: &str) -> anyhow::Result<String> {
    for line in std::io::stdin().lock().lines() {
        if let Some(rest) = line.context("cannot read from the bench")?.strip_prefix(word) {
            return Ok(rest.to_owned());
        }
    }
    anyhow::bail!("expected {word:?}, saw the end of the input")
}
