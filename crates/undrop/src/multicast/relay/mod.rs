//! `undrop multicast relay`: carries the plain UDP multicast of other programs (Thesis §4.5, the transparent
//! interface).
//!
//! | file | content |
//! |---|---|
//! | `hear.rs` | hears programs of this host, and sends what they say to the other relays |
//! | `hand_out.rs` | hands out what other relays send |
//! | `memory.rs` | tells copies of a datagram from a datagram that is the same again |
//! | `frame.rs` | a datagram as a message, with its source and time to live |
//! | `alive.rs` | signs of life for the service manager |
//! | `counts.rs` | counters, and their text and JSON |
//!
//! Loops are impossible: every relay hands out from one source port, and carries nothing from that port. One
//! relay alone serves a group at an interface of a host, so that programs hear each datagram once.

mod alive;
mod counts;
mod frame;
mod hand_out;
mod hear;
mod memory;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix;
use std::os::unix::net::UnixListener;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use daemon::supervisor::Supervisor;
use ricochet::{JoinOptions, Node, Order, Subscription};

use self::alive::Pulse;
use self::counts::{Counts, RelayStatus};
use self::hand_out::Mouth;
use self::hear::{Ear, now};
use self::memory::{Memory, Way};
use super::ip_group::{check_ip_groups, ip_group};
use super::isolation::isolation;
use super::node::{NodeArgs, seconds};
use super::reports::Reports;
use super::settings;
use crate::failure::Advice as _;
use crate::interrupt::Interrupt;
use crate::output;

/// Time after which a node with seed addresses that knows no other node says so.
const ALONE: Duration = Duration::from_secs(3);

const EXAMPLES: &str = "\
Examples:
  ip route add 239.1.1.1/32 dev lo               programs of this host use the loopback interface for the group
  undrop multicast relay 239.1.1.1:5000 --interface eth0 --seed 10.0.0.7:7900
  undrop multicast relay 239.1.1.1:5000 --interface eth0 --local eth1 --any-source --ttl keep

Programs must share the port of the group: a program that binds it without SO_REUSEADDR keeps the relay out.
Datagrams that are handed out come from the port of `--relay-port`, at an address of this host; the address of
the program is in the report. Nothing that comes from that port is carried, so there are no loops, whatever the
number of relays. Copies of a datagram that come by several relays are handed out once. Only one relay can serve
a group at an interface.";

/// Carry the plain UDP multicast of other programs over Ricochet.
///
/// Run a relay on each host. It hears what programs of this host send to the groups, sends it to the relays
/// of the other hosts, and hands out what these send. Lost packets are recovered on the way. The relay
/// reports at its end. The exit code is 1 if datagrams of other relays were lost for good.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The groups, each as ADDRESS:PORT
    #[arg(required = true, value_name = "GROUP", value_parser = ip_group)]
    groups: Vec<SocketAddr>,
    /// Interface at which programs are heard, and datagrams are handed out; may be repeated
    #[arg(long, value_name = "NAME", default_value = "lo")]
    local: Vec<String>,
    /// Time to live of datagrams that are handed out, or `keep` for that with which they were heard. 0 keeps
    /// them on this host
    #[arg(long, value_name = "TTL", default_value = "0", value_parser = ttl)]
    ttl: Ttl,
    /// Also carry what other hosts send to the groups at the local interfaces
    #[arg(long)]
    any_source: bool,
    /// Hand out datagrams as they come instead of in the order of each relay
    #[arg(long)]
    unordered: bool,
    /// Maximum rate in Mbit/s at which datagrams of each group are carried; 0 for no limit
    #[arg(long, value_name = "MBIT", default_value_t = 1_000)]
    rate: u32,
    /// Source port of all datagrams that relays hand out, the same for all relays
    #[arg(long, value_name = "PORT", default_value_t = 7912, value_parser = clap::value_parser!(u16).range(1..))]
    relay_port: u16,
    /// Report as JSON
    #[arg(long)]
    json: bool,
    /// Also report at this interval, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    every: Option<Duration>,
    #[command(flatten)]
    node: NodeArgs,
}

/// Time to live of datagrams that are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ttl {
    /// That with which they were heard.
    Keep,
    Fixed(u8),
}

/// A group of other programs.
#[derive(Debug)]
struct Group {
    address: SocketAddr,
    /// Name of its Ricochet group.
    name: String,
    counts: Counts,
}

/// State that all threads share.
#[derive(Debug)]
struct Shared {
    groups: Vec<Group>,
    /// Address of the node, which stands for loopback addresses of this host.
    node: SocketAddr,
    port: u16,
    ttl: Ttl,
    any_source: bool,
    rate_mbit: u32,
    memory: Mutex<Memory>,
    /// Whether the network itself brings datagrams of other hosts.
    has_other_way: AtomicBool,
    stop: AtomicBool,
    start: Instant,
    /// Of each loop that hears.
    pulses: Vec<Pulse>,
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the time since the start.
    fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Notes a copy of a datagram. Returns whether it is the first.
    fn note(&self, group: usize, source: SocketAddr, payload: &[u8], way: Way) -> bool {
        let now_ms = self.now_us() / 1_000;
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let identity = memory.identity(group, source, payload);
        memory.is_first(now_ms, identity, way)
    }

    /// Returns the address by which other hosts know a source.
    fn outside(&self, source: SocketAddr) -> SocketAddr {
        if source.ip().is_loopback() { SocketAddr::new(self.node.ip(), source.port()) } else { source }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    check_ip_groups(&args.groups, &args.node)?;
    let node = args.node.start()?;
    let group = |&address: &SocketAddr| Group {
        address,
        name: format!("relay/{address}"),
        counts: Counts::default(),
    };
    let mut shared = Shared {
        groups: Vec::new(),
        node: node.address(),
        port: args.relay_port,
        ttl: args.ttl,
        any_source: args.any_source,
        rate_mbit: args.rate,
        memory: Mutex::default(),
        has_other_way: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        start: now(),
        pulses: Vec::new(),
    };
    for address in &args.groups {
        if !shared.groups.iter().any(|known| known.address == *address) {
            shared.groups.push(group(address));
        }
    }
    shared.pulses.resize_with(shared.groups.len() * args.local.len(), Pulse::default);
    let order = if args.unordered { Order::Unordered } else { Order::Fifo };
    let options = JoinOptions { order, fragments: true, ..JoinOptions::default() };
    let names = shared.groups.iter().map(|group| &*group.name);
    let subscription = node.join_many_with(names, &options)?;
    let relay = Relay { args, node: &node, shared: &shared, subscription: &subscription };
    relay.run(&interrupt)
}

/// A relay with its node.
struct Relay<'a> {
    args: &'a Args,
    node: &'a Node,
    shared: &'a Shared,
    subscription: &'a Subscription,
}

impl Relay<'_> {
    /// Relays until a stop is requested, and reports.
    fn run(&self, interrupt: &Interrupt) -> anyhow::Result<ExitCode> {
        let _places = self.take_places()?;
        let ears = self.ears()?;
        let mouth = Mouth::new(self.shared, &self.args.local, self.subscription)
            .advise("name interfaces of this host with `--local`, and a free port with `--relay-port`")?;
        let groups = if self.shared.groups.len() == 1 { "group" } else { "groups" };
        let relays =
            format!("relays {} {groups} at {}", self.shared.groups.len(), self.args.local.join(", "));
        output::note(format_args!("node {} at {}, {relays}", self.node.id(), self.node.address()));
        let mut supervisor = Supervisor::from_environment()
            .context("cannot tell the service manager")
            .advise("leave NOTIFY_SOCKET unset, or set it to the path of a socket")?;
        supervisor.ready(&relays);
        let mut reports = Reports::start(self.args.json)?;
        let outcome = std::thread::scope(|scope| {
            let hearing: Vec<_> = ears
                .into_iter()
                .map(|ear| {
                    let stop = &self.shared.stop;
                    scope.spawn(move || {
                        let heard = ear.run();
                        // The relay ends with its first thread.
                        stop.store(true, Ordering::Relaxed);
                        heard
                    })
                })
                .collect();
            let spoken = self.hand_out(mouth, interrupt, &mut supervisor, &mut reports);
            self.shared.stop.store(true, Ordering::Relaxed);
            let heard = hearing.into_iter().map(|thread| thread.join().expect("a thread does not panic"));
            heard.fold(spoken, anyhow::Result::and)
        });
        supervisor.stopping(Duration::ZERO);
        let status = self.status();
        let reported = reports.finish(&status, || status.text());
        outcome.and(reported)?;
        let differs = settings::report(&self.node.status(), false);
        let is_wrong = differs || status.has_losses();
        Ok(if is_wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Takes the place of the relay for each group and interface, which it has as long as it keeps the
    /// sockets. Their abstract names belong to the network namespace, and vanish with the process.
    fn take_places(&self) -> anyhow::Result<Vec<UnixListener>> {
        let mut places = Vec::new();
        for group in &self.shared.groups {
            for interface in &self.args.local {
                let name = format!("undrop {} {interface}", group.name);
                let address = unix::net::SocketAddr::from_abstract_name(name)?;
                let place = UnixListener::bind_addr(&address).map_err(|error| match error.kind() {
                    ErrorKind::AddrInUse => {
                        anyhow!("expected no other relay for {} at {interface}, saw one", group.address)
                    }
                    _ => error.into(),
                });
                places.push(place.advise("end the other relay, or give both groups to one relay")?);
            }
        }
        Ok(places)
    }

    fn ears(&self) -> anyhow::Result<Vec<Ear<'_>>> {
        let mut ears = Vec::new();
        for (at, group) in self.shared.groups.iter().enumerate() {
            let sender = self.node.sender(&group.name)?;
            for interface in &self.args.local {
                let pulse = &self.shared.pulses[ears.len()];
                let ear = Ear::new(self.shared, at, interface, sender.clone(), pulse);
                ears
                    .push(ear.with_context(|| format!("cannot hear {} at {interface}", group.address)).advise(
                    "let other programs on this host bind the port with SO_REUSEADDR, and name an interface \
                     of this host with `--local`",
                )?);
            }
        }
        Ok(ears)
    }

    fn hand_out(
        &self,
        mut mouth: Mouth<'_>,
        interrupt: &Interrupt,
        supervisor: &mut Supervisor,
        reports: &mut Reports,
    ) -> anyhow::Result<()> {
        let mut alone = Some(self.args.node.named());
        let mut reported = now();
        while !interrupt.is_requested() && !self.shared.is_stopped() && mouth.turn()? {
            alive::tell(supervisor, &self.shared.pulses, self.shared.now_us());
            if self.shared.start.elapsed() >= ALONE
                && let Some(named) = alone.take()
                && let Some(cause) = isolation(&self.node.status(), &named)
            {
                output::note(format_args!("error: {}\nhelp: {}", cause.what, cause.remedy));
            }
            if self.args.every.is_some_and(|every| reported.elapsed() >= every) {
                reported = now();
                let status = self.status();
                reports.pass(&status, || status.text());
            }
        }
        Ok(())
    }

    fn status(&self) -> RelayStatus {
        let groups = self.shared.groups.iter().map(|group| (&group.address, &*group.name, &group.counts));
        RelayStatus::of(self.node, self.subscription.counts(), groups)
    }
}

/// Parses a time to live.
fn ttl(text: &str) -> Result<Ttl, String> {
    match text {
        "keep" => Ok(Ttl::Keep),
        _ => text.parse().map(Ttl::Fixed).map_err(|_| format!("expected 0 to 255 or keep, saw {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_are_numbers_or_kept() {
        assert_eq!(
            (ttl("keep"), ttl("255"), ttl("0")),
            (Ok(Ttl::Keep), Ok(Ttl::Fixed(255)), Ok(Ttl::Fixed(0)))
        );
        assert!(ttl("256").is_err() && ttl("-1").is_err() && ttl("kept").is_err());
    }
}
