//! Cost of one received packet for the thread of a node on real sockets, including system calls.
//!
//! The node has its own network namespace, and 63 neighbours are at the other end of a virtual wire. Groups
//! have ten members on average, drawn as in the papers; packets are 1,024 bytes at (8,5), and 1 % of them are
//! lost. The neighbours' packets and repairs are made in advance and sent in bursts, one per millisecond; the
//! node sends its own repairs to them. The result is the processor time of the node's thread, as the kernel
//! counts it, per data packet delivered to the application.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use membership::{Me, MemberFile, Membership, Static, StaticConfig};
use netlab::Namespace;
use ricochet::{Builder, JoinOptions, Node, NodeId, Policy, RepairMode, Status, Subscription};
use ricochet_core::GroupId;
use ricochet_core::wire::{Kind, Peek};
use sim::neighbours::{Lan, NODES, Trace, Traffic};

use super::clock::{Clock, nodes_cpu_ns};

const NODE: [u8; 4] = [10, 9, 0, 1];
const NEIGHBOURS: [u8; 4] = [10, 9, 0, 2];
const FIRST_PORT: u16 = 20_000;
const GROUPS_BASE: Ipv4Addr = Ipv4Addr::new(239, 255, 79, 0);
const GROUP_PORT: u16 = 7_899;
const IP_GROUPS: u64 = 64;
/// The first of this many parts of the packets is not counted.
const WARM_UP: usize = 5;
/// Time without change after which all packets have been handled.
const STILL: Duration = Duration::from_millis(50);

/// Settings of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostPlan {
    /// Groups of each node.
    pub groups_per_node: usize,
    /// Number of data packets, the first fifth of them for warming up.
    pub packets: usize,
    /// Packets per second.
    pub per_second: u64,
    /// Whether repairs wait until they are full, and requests a tenth of a second, as in the papers.
    pub papers: bool,
}

/// Result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Processor time of the node per delivered data packet, in microseconds.
    pub us_per_packet: f64,
    /// Share of one processor that the node used.
    pub core_share: f64,
    /// Number of delivered data packets.
    pub delivered: u64,
    /// Datagrams that did not fit its sockets' buffers.
    pub overflowed: u64,
    /// Datagrams that did not fit its ring.
    pub dropped: u64,
    /// Packets of streams that it had no space to track.
    pub no_room: u64,
    /// Repairs sent per data packet.
    pub repairs_sent: f64,
    /// Repairs received per data packet.
    pub repairs_received: f64,
    /// Symbols added to sums per data packet.
    pub xors: f64,
}

impl Cost {
    /// Returns whether the node fell behind. Then its time includes the handling of packets that it missed,
    /// and is no measure of its cost.
    pub fn fell_behind(&self) -> bool {
        self.overflowed + self.dropped > 0
    }

    fn between(before: &Seen, after: &Seen) -> Self {
        let delivered = after.delivered - before.delivered;
        let used_us = after.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e3;
        let per_packet = |count: u64| count as f64 / delivered.max(1) as f64;
        let [from, to] = [&before.status, &after.status];
        let bins = |status: &Status, key| status.bins.get(key).copied().unwrap_or(0);
        let grown = |key| bins(to, key) - bins(from, key);
        Self {
            us_per_packet: used_us / delivered.max(1) as f64,
            core_share: used_us / (after.now_us - before.now_us).max(1) as f64,
            delivered,
            overflowed: to.kernel.overflowed,
            dropped: to.ring.dropped,
            no_room: to.counts.get("no_room").copied().unwrap_or(0),
            repairs_sent: per_packet(to.sent.repairs.packets - from.sent.repairs.packets),
            repairs_received: per_packet(to.received.repairs.packets - from.received.repairs.packets),
            xors: grown("additions") as f64 / grown("packets").max(1) as f64,
        }
    }
}

/// Counters at one moment.
struct Seen {
    now_us: u64,
    cpu_ns: u64,
    delivered: u64,
    status: Status,
}

/// Measures once. No other node may run in this process.
///
/// # Errors
/// If namespaces are not permitted, or the node does not learn of its neighbours.
pub fn cost(plan: &CostPlan) -> anyhow::Result<Cost> {
    let (wire, clock) = (Wire::build()?, Clock::start());
    let d = plan.groups_per_node;
    let names: Vec<String> = (0..Lan::groups_of(d)).map(|number| format!("group/{number}")).collect();
    let all: Vec<GroupId> = names.iter().map(|name| GroupId::of_name(name)).collect();
    let by_id: HashMap<GroupId, &String> = all.iter().copied().zip(&names).collect();
    let name_of = |group: &GroupId| by_id[group];
    // The grouping depends on d alone, so the node's id may be determined later.
    let traffic = Traffic {
        loss: 0.01,
        between_us: 1_000_000 / plan.per_second,
        max_delay_us: (!plan.papers).then_some(3_000),
    };
    let mut ids: Vec<NodeId> = (0..NODES as u32).map(|node| NodeId(1_000 + node)).collect();
    let drawn = Lan::new(d, &all, ids.clone(), traffic);
    let file = wire.member_file(&drawn.grouping, |group| name_of(group).clone());
    let node = wire.start(&file, streams_of(&drawn.grouping), plan.papers)?;
    ids[0] = node.id();
    let mut lan = Lan::new(d, &all, ids.clone(), traffic);
    let options = JoinOptions { policy: Some(Policy::DropOldest), ..JoinOptions::default() };
    let subscription = node.join_many_with(lan.grouping[0].iter().map(name_of), &options)?;
    let mut trace = Trace::default();
    lan.record(&mut trace, plan.packets);

    let stop = StopOnDrop::default();
    let (neighbours, sockets) = wire.answer(&lan, &ids, node.address(), clock, &stop.0)?;
    let known = |group: &GroupId| {
        let others = lan.grouping[1..].iter().filter(|groups| groups.contains(group)).count();
        node.wait_for_members(name_of(group), others, Duration::from_secs(60))
    };
    ensure!(
        lan.grouping[0].iter().all(known),
        "the membership did not settle: {:?}",
        node.status().membership
    );

    let taken = Arc::new(AtomicU64::new(0));
    let reader = read(subscription, &taken, &stop.0);
    let look = || Seen {
        now_us: clock.now_us(),
        cpu_ns: nodes_cpu_ns(),
        delivered: taken.load(Ordering::Relaxed),
        status: node.status(),
    };
    let mut sending = Sending {
        sockets,
        trace: &trace,
        node: node.address(),
        per_second: plan.per_second,
        clock,
        at: 0,
        data: 0,
    };
    sending.send_until(plan.packets / WARM_UP)?;
    thread::sleep(STILL);
    let before = look();
    sending.send_until(plan.packets)?;
    thread::sleep(STILL);
    let after = look();
    drop(stop);
    drop(node);
    for thread in [neighbours, reader] {
        thread.join().map_err(|_| anyhow!("a thread panicked"))?;
    }
    ensure!(after.cpu_ns > 0, "expected the processor time of threads from the kernel, saw none");
    Ok(Cost::between(&before, &after))
}

/// Returns the number of streams that may reach the first node: one per other member of each of its groups.
fn streams_of(grouping: &[Vec<GroupId>]) -> usize {
    let own: HashSet<&GroupId> = grouping[0].iter().collect();
    grouping[1..].iter().flatten().filter(|group| own.contains(group)).count()
}

/// Ends the threads, even if the measurement fails.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two hosts and the wire between them.
struct Wire {
    here: Namespace,
    there: Namespace,
}

impl Wire {
    fn build() -> anyhow::Result<Self> {
        let (here, there) = (Namespace::create("node")?, Namespace::create("neighbours")?);
        here.add_veth("eth0", &there, "eth0", 1_500)?;
        for (host, address) in [(&here, NODE), (&there, NEIGHBOURS)] {
            host.add_address("eth0", format!("{}/24", Ipv4Addr::from(address)).parse()?)?;
        }
        Ok(Self { here, there })
    }

    fn address(neighbour: usize) -> SocketAddr {
        (NEIGHBOURS, FIRST_PORT + neighbour as u16).into()
    }

    fn member_file(&self, grouping: &[Vec<GroupId>], name_of: impl Fn(&GroupId) -> String) -> String {
        let entry = |(neighbour, groups): (usize, &Vec<GroupId>)| {
            let names: Vec<String> = groups.iter().map(&name_of).collect();
            format!("[[member]]\naddress = \"{}\"\ngroups = {names:?}\n", Self::address(neighbour))
        };
        grouping.iter().enumerate().skip(1).map(entry).collect()
    }

    fn start(&self, file: &str, streams: usize, papers: bool) -> anyhow::Result<Node> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("driver-cost-{}-{number}.toml", std::process::id()));
        fs::write(&path, file).with_context(|| format!("writing {}", path.display()))?;
        let mut config = Node::builder("eth0").groups_base(GROUPS_BASE).member_file(&path).config().clone();
        (config.node.address, config.node.group_port) = (Some(IpAddr::from(NODE)), GROUP_PORT);
        config.buffers.socket_bytes = 8 << 20;
        // The repairs of the made-up neighbours are sums too.
        config.repair.mode = RepairMode::Xor;
        // A node with space for fewer streams would drop packets of the others.
        config.buffers.streams = config.buffers.streams.max(streams);
        if papers {
            config.repair.max_delay_ms = Some(Duration::ZERO);
            (config.nak.first_ms, config.nak.gap_ms) = (Duration::from_millis(100), None);
            config.nak.retry_ms = Duration::from_millis(50);
        }
        let node = self.here.run(|| Builder::from(config).start());
        fs::remove_file(&path)?;
        Ok(node?)
    }

    /// Runs the neighbours' own sockets: they announce themselves to the node and receive its repairs.
    /// Returns the sockets by neighbour too, because the node accepts their datagrams from their addresses
    /// only.
    fn answer(
        &self,
        lan: &Lan,
        ids: &[NodeId],
        node: SocketAddr,
        clock: Clock,
        stop: &Arc<AtomicBool>,
    ) -> anyhow::Result<(thread::JoinHandle<()>, HashMap<NodeId, UdpSocket>)> {
        let file = MemberFile::parse(&format!("[[member]]\naddress = \"{node}\"\n"))?;
        let (mut neighbours, mut sockets) = (Vec::new(), HashMap::new());
        for (at, groups) in lan.grouping.iter().enumerate().skip(1) {
            let socket = self.there.run(|| UdpSocket::bind(Self::address(at)))?;
            socket.set_nonblocking(true)?;
            socket.set_multicast_loop_v4(false)?;
            sockets.insert(ids[at], socket.try_clone()?);
            let me = Me { id: ids[at], address: Self::address(at), life: 1 };
            let mut membership =
                Membership::Static(Static::new(StaticConfig::default(), me, &file, at as u64)?);
            let mut groups = groups.clone();
            groups.sort_unstable();
            membership.set_groups(0, &groups, &mut Post(&socket));
            neighbours.push((socket, membership));
        }
        let stop = Arc::clone(stop);
        let answering = thread::spawn(move || {
            let mut datagram = [0; 2_048];
            while !stop.load(Ordering::Relaxed) {
                let now_us = clock.now_us();
                for (socket, membership) in &mut neighbours {
                    while let Ok((length, from)) = socket.recv_from(&mut datagram) {
                        if datagram[0] == membership::wire::FIRST_BYTE {
                            membership.handle_datagram(now_us, from, &datagram[..length], &mut Post(socket));
                        }
                    }
                    if membership.poll_timeout().is_some_and(|due_us| due_us <= now_us) {
                        membership.handle_timeout(now_us, &mut Post(socket));
                    }
                }
                thread::sleep(Duration::from_millis(2));
            }
        });
        Ok((answering, sockets))
    }
}

struct Post<'a>(&'a UdpSocket);

impl membership::Output for Post<'_> {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        // A lost membership datagram is repeated.
        let _ = self.0.send_to(datagram, to);
    }
}

/// Sends prerecorded datagrams.
struct Sending<'a> {
    /// Sockets of the neighbours.
    sockets: HashMap<NodeId, UdpSocket>,
    trace: &'a Trace,
    node: SocketAddr,
    per_second: u64,
    clock: Clock,
    /// Index of the next datagram, and the number of data packets before it.
    at: usize,
    data: usize,
}

impl Sending<'_> {
    /// Sends until `data` data packets have left, at their rate.
    fn send_until(&mut self, data: usize) -> std::io::Result<()> {
        let (start_us, first) = (self.clock.now_us(), self.data);
        while self.data < data && self.at < self.trace.datagrams.len() {
            let due = (self.clock.now_us() - start_us) * self.per_second / 1_000_000;
            while self.data < data
                && ((self.data - first) as u64) < due
                && self.at < self.trace.datagrams.len()
            {
                let datagram = &self.trace.bytes[self.trace.datagrams[self.at].1.clone()];
                self.at += 1;
                let Ok(peek) = Peek::read(datagram) else { continue };
                let packet = Some(peek).filter(|peek| peek.kind == Kind::Data);
                self.data += usize::from(packet.is_some());
                let group = packet.and_then(|peek| peek.packet).map(|(group, _)| group);
                let to = group.map_or(self.node, address_of);
                let Some(socket) = self.sockets.get(&peek.sender) else { continue };
                while let Err(error) = socket.send_to(datagram, to) {
                    if error.kind() != ErrorKind::WouldBlock {
                        return Err(error);
                    }
                    thread::yield_now();
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Returns the address to which packets of a group are multicast (`docs/wire.md`).
fn address_of(group: GroupId) -> SocketAddr {
    let high = group.0 >> 32;
    let ip = GROUPS_BASE.to_bits() + (high % IP_GROUPS) as u32;
    (Ipv4Addr::from_bits(ip), GROUP_PORT).into()
}

/// Runs the application, which reads deliveries at intervals.
fn read(
    subscription: Subscription,
    taken: &Arc<AtomicU64>,
    stop: &Arc<AtomicBool>,
) -> thread::JoinHandle<()> {
    let (taken, stop) = (Arc::clone(taken), Arc::clone(stop));
    thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            while subscription.try_recv().is_ok() {
                taken.fetch_add(1, Ordering::Relaxed);
            }
            thread::sleep(Duration::from_millis(1));
        }
    })
}
