//! What one received packet costs the thread of a node on real sockets, system calls included.
//!
//! `driver_cost [GROUPS_PER_NODE|all] [PACKETS] [PER_SECOND] [papers|prompt]`, without arguments for 2 and for 1,024 groups a
//! node: a node in a network namespace of its own, 63 neighbours at the other end of a virtual wire, groups of ten on average
//! drawn as in the papers, 1,024-byte packets at (8,5), 50,000 a second, 1 % of them lost. The neighbours' packets and repairs are
//! made beforehand and sent in bursts, a burst each millisecond; the node's own repairs go out to them. Counted is the processor time of
//! the node's thread, as the kernel has it, for each data packet that was handed to the application. Needs the right to make
//! namespaces.
#![allow(clippy::disallowed_methods, reason = "a stopwatch")]

#[path = "../../ricochet-core/examples/neighbours/mod.rs"]
mod neighbours;

use std::error::Error;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use membership::{Me, MemberFile, Membership, Static, StaticConfig};
use neighbours::{Lan, NODES, Trace, Traffic};
use netlab::Namespace;
use ricochet::{Builder, JoinOptions, Node, NodeId, Policy, Subscription};
use ricochet_core::GroupId;

const NODE: [u8; 4] = [10, 9, 0, 1];
const NEIGHBOURS: [u8; 4] = [10, 9, 0, 2];
const FIRST_PORT: u16 = 20_000;
const GROUPS_BASE: Ipv4Addr = Ipv4Addr::new(239, 255, 79, 0);
const GROUP_PORT: u16 = 7_899;
const IP_GROUPS: u64 = 64;
/// Of all packets, the first that are not counted: one in so many.
const WARM_UP: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let ds = match arguments.next().as_deref() {
        None => vec![2, 1_024],
        Some("all") => vec![2, 16, 128, 1_024],
        Some(d) => vec![d.parse()?],
    };
    let packets = arguments.next().map_or(Ok(200_000), |n| n.parse())?;
    let per_second = arguments.next().map_or(Ok(50_000), |n| n.parse())?;
    let papers = arguments.next().is_none_or(|name| name == "papers");
    if !netlab::privilege::namespaces_or_skip("driver_cost") {
        return Ok(());
    }
    let mut costs_us = Vec::new();
    for &d in &ds {
        costs_us.push(cost(d, packets, per_second, papers)?);
    }
    if let [first, .., last] = costs_us[..] {
        println!("{} groups a node cost {:.2} times what {} do", ds[ds.len() - 1], last / first, ds[0]);
    }
    Ok(())
}

/// Returns microseconds of processor time for each data packet.
fn cost(d: usize, packets: usize, per_second: u64, papers: bool) -> Result<f64, Box<dyn Error>> {
    let wire = Wire::build()?;
    let names: Vec<String> = (0..Lan::groups_of(d)).map(|number| format!("group/{number}")).collect();
    let all: Vec<GroupId> = names.iter().map(|name| GroupId::of_name(name)).collect();
    let name_of = |group: &GroupId| &names[all.iter().position(|id| id == group).expect("it is one of them")];
    // The grouping depends on nothing but d, so the node's id may be found out later.
    let traffic =
        Traffic { loss: 0.01, between_us: 1_000_000 / per_second, max_delay_us: (!papers).then_some(3_000) };
    let mut ids: Vec<NodeId> = (0..NODES as u32).map(|node| NodeId(1_000 + node)).collect();
    let drawn = Lan::new(d, &all, ids.clone(), traffic);
    let file = wire.member_file(&drawn.grouping, |group| name_of(group).clone());
    let node = wire.start(&file, papers)?;
    ids[0] = node.id();
    let mut lan = Lan::new(d, &all, ids.clone(), traffic);
    let options = JoinOptions { policy: Some(Policy::DropOldest), ..JoinOptions::default() };
    let subscription = node.join_many_with(lan.grouping[0].iter().map(name_of), &options)?;
    let mut trace = Trace::default();
    lan.record(&mut trace, packets);

    let stop = Arc::new(AtomicBool::new(false));
    let neighbours = wire.answer(&lan, &ids, node.address(), &stop)?;
    let known = |group: &GroupId| {
        let others = lan.grouping[1..].iter().filter(|groups| groups.contains(group)).count();
        node.wait_for_members(name_of(group), others, Duration::from_secs(60))
    };
    assert!(
        lan.grouping[0].iter().all(known),
        "the membership did not settle: {:#?}",
        node.status().membership
    );

    let taken = Arc::new(AtomicU64::new(0));
    let reader = read(subscription, &taken, &stop);
    let [warm, end] = [packets / WARM_UP, packets];
    let sender = wire.sender()?;
    let mut sending =
        Sending { socket: sender, trace: &trace, node: node.address(), per_second, at: 0, data: 0 };
    sending.send_until(warm)?;
    thread::sleep(Duration::from_millis(50));
    let before = (processor_us()?, taken.load(Ordering::Relaxed), node.status());
    let start = Instant::now();
    sending.send_until(end)?;
    thread::sleep(Duration::from_millis(50));
    let elapsed = start.elapsed();
    let after = (processor_us()?, taken.load(Ordering::Relaxed), node.status());
    stop.store(true, Ordering::Relaxed);
    let status = &after.2;
    let (used_us, delivered) = (after.0 - before.0, after.1 - before.1);
    let cost_us = used_us / delivered as f64;
    println!("{NODES} nodes, {} groups a node:", lan.groups.len());
    println!(
        "  a packet: {cost_us:.2} us of the node's thread; {delivered} delivered, {} overflowed, {} dropped in the ring; {:.0} % of a core",
        status.kernel.overflowed,
        status.ring.dropped,
        used_us * 100.0 / elapsed.as_secs_f64() / 1e6,
    );
    if status.kernel.overflowed + status.ring.dropped > 0 {
        println!(
            "  the node fell behind, so this is no figure of its cost: give it a core of its own or fewer packets a second"
        );
    }
    let (sent, came) = (status.sent.repairs.packets, status.received.repairs.packets);
    let (sent, came) = (sent - before.2.sent.repairs.packets, came - before.2.received.repairs.packets);
    let per_packet = |count: u64| count as f64 / delivered as f64;
    println!("  {:.3} repairs sent, {:.3} received for each", per_packet(sent), per_packet(came));
    drop(node);
    for thread in [neighbours, reader] {
        thread.join().map_err(|_| "a thread panicked")?;
    }
    Ok(cost_us)
}

/// Two hosts and the wire between them.
struct Wire {
    here: Namespace,
    there: Namespace,
}

impl Wire {
    fn build() -> Result<Self, Box<dyn Error>> {
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

    fn start(&self, file: &str, papers: bool) -> Result<Node, Box<dyn Error>> {
        let path = std::env::temp_dir().join(format!("driver-cost-{}.toml", std::process::id()));
        fs::write(&path, file)?;
        let mut config = Node::builder("eth0").groups_base(GROUPS_BASE).member_file(&path).config().clone();
        (config.node.address, config.node.group_port) = (Some(IpAddr::from(NODE)), GROUP_PORT);
        config.buffers.socket_bytes = 8 << 20;
        if papers {
            config.repair.max_delay_ms = Some(Duration::ZERO);
            (config.nak.first_ms, config.nak.gap_ms) = (Duration::from_millis(100), None);
            config.nak.retry_ms = Duration::from_millis(50);
        }
        let node = self.here.run(|| Builder::from(config).start());
        fs::remove_file(&path)?;
        Ok(node?)
    }

    fn sender(&self) -> std::io::Result<UdpSocket> {
        let socket = self.there.run(|| UdpSocket::bind((Ipv4Addr::from(NEIGHBOURS), 0)))?;
        socket.set_multicast_loop_v4(false)?;
        Ok(socket)
    }

    /// The neighbours' own sockets: they say Hello to the node, and take its repairs.
    fn answer(
        &self,
        lan: &Lan,
        ids: &[NodeId],
        node: SocketAddr,
        stop: &Arc<AtomicBool>,
    ) -> Result<thread::JoinHandle<()>, Box<dyn Error>> {
        let file = MemberFile::parse(&format!("[[member]]\naddress = \"{node}\"\n"))?;
        let start = Instant::now();
        let mut neighbours = Vec::new();
        for (at, groups) in lan.grouping.iter().enumerate().skip(1) {
            let socket = self.there.run(|| UdpSocket::bind(Self::address(at)))?;
            socket.set_nonblocking(true)?;
            let me = Me { id: ids[at], address: Self::address(at), life: 1 };
            let mut membership =
                Membership::Static(Static::new(StaticConfig::default(), me, &file, at as u64)?);
            let mut groups = groups.clone();
            groups.sort_unstable();
            membership.set_groups(0, &groups, &mut Post(&socket));
            neighbours.push((socket, membership));
        }
        let stop = Arc::clone(stop);
        Ok(thread::spawn(move || {
            let mut datagram = [0; 2_048];
            while !stop.load(Ordering::Relaxed) {
                let now_us = start.elapsed().as_micros() as u64;
                for (socket, membership) in &mut neighbours {
                    while let Ok((length, from)) = socket.recv_from(&mut datagram) {
                        if datagram[0] == 0x96 {
                            membership.handle_datagram(now_us, from, &datagram[..length], &mut Post(socket));
                        }
                    }
                    if membership.poll_timeout().is_some_and(|due_us| due_us <= now_us) {
                        membership.handle_timeout(now_us, &mut Post(socket));
                    }
                }
                thread::sleep(Duration::from_millis(2));
            }
        }))
    }
}

struct Post<'a>(&'a UdpSocket);

impl membership::Output for Post<'_> {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        // A letter that is lost is written again.
        let _ = self.0.send_to(datagram, to);
    }
}

/// Sends what was made beforehand.
struct Sending<'a> {
    socket: UdpSocket,
    trace: &'a Trace,
    node: SocketAddr,
    per_second: u64,
    /// The next datagram, and the data packets before it.
    at: usize,
    data: usize,
}

impl Sending<'_> {
    /// Until so many data packets have left, at their rate.
    fn send_until(&mut self, data: usize) -> std::io::Result<()> {
        let (start, first) = (Instant::now(), self.data);
        while self.data < data && self.at < self.trace.datagrams.len() {
            let due = start.elapsed().as_micros() as u64 * self.per_second / 1_000_000;
            while self.data < data
                && ((self.data - first) as u64) < due
                && self.at < self.trace.datagrams.len()
            {
                let datagram = &self.trace.bytes[self.trace.datagrams[self.at].1.clone()];
                self.at += 1;
                let is_data = datagram[0] == 0x91;
                self.data += usize::from(is_data);
                let to = if is_data { address_of(datagram) } else { self.node };
                self.socket.send_to(datagram, to)?;
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Where a data packet's group is (`docs/wire.md`).
fn address_of(datagram: &[u8]) -> SocketAddr {
    let high = datagram[6..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    let ip = GROUPS_BASE.to_bits() + (u64::from(high) % IP_GROUPS) as u32;
    (Ipv4Addr::from_bits(ip), GROUP_PORT).into()
}

/// The application: takes what has come, now and then.
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

/// Processor time that the node's thread has used.
fn processor_us() -> Result<f64, Box<dyn Error>> {
    /// Microseconds in the unit of `/proc`, which is a hundredth of a second on all Linux that we run on.
    const TICK_US: f64 = 10_000.0;
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.trim_end() != "ricochet" {
            continue;
        }
        let stat = fs::read_to_string(task.join("stat"))?;
        // The name stands in brackets; after it the fields from the third on.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let mut times = fields.split_whitespace().skip(11).map(str::parse::<f64>);
        let (Some(Ok(user)), Some(Ok(system))) = (times.next(), times.next()) else { break };
        return Ok((user + system) * TICK_US);
    }
    Err("the node's thread is not to be found".into())
}
