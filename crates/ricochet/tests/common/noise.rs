//! A LAN on which an attacker sends random, replayed and forged datagrams.
//!
//! `UNDROP_NOISE_SECONDS` sets the duration; 3 seconds by default.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs::File;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use netlab::Namespace;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use ricochet::{Builder, GROUP_PORT, Node, RecvTimeoutError, Subscription};

use crate::common::{self, Lan, join_all, number};

/// Interval between messages of a node.
const PACE: Duration = Duration::from_millis(4);
/// Number of datagrams between two pauses of a millisecond: at most 16,000 per second.
const BURST: u32 = 16;
/// Maximum number of datagrams kept for replays.
const RECORDED_MAX: usize = 4_096;
/// Number of times that memory is measured.
const QUARTERS: usize = 4;
/// Maximum growth of the process, which is all nodes and the attacker, under noise.
const GROWTH_MAX_KIB: u64 = 96 * 1024;

/// Builds a LAN of three nodes' hosts, and the attacker's host.
pub(crate) fn lan_with_attacker(what: &str) -> Option<(Lan, Namespace)> {
    let mut lan = Lan::build(what, 4)?;
    let attacker = lan.hosts.pop()?;
    Some((lan, attacker))
}

pub(crate) struct Outcome {
    pub(crate) nodes: Vec<Node>,
    pub(crate) sent: Vec<u32>,
    /// By receiver.
    pub(crate) received: Vec<Received>,
}

/// Messages that one node's subscription delivered.
pub(crate) struct Received {
    /// Numbers of the genuine messages, by sender.
    pub(crate) genuine: Vec<Vec<u32>>,
    /// Number of messages that no node has sent.
    pub(crate) forged: usize,
}

/// Lets all nodes send to one group and receive during the attack.
pub(crate) fn attacked(lan: &Lan, attacker: &Namespace, configure: fn(Builder) -> Builder) -> Outcome {
    // Real losses, so that repairs and requests are on the wire to be recorded.
    let nodes =
        lan.start(|at, builder| configure(builder).lose(common::loss(3, at as u64 + 1)).queue(65_536));
    let subscriptions = join_all(&nodes, "g");
    let addresses: Vec<SocketAddr> = nodes.iter().map(Node::address).collect();
    let stop = AtomicBool::new(false);
    let before = resident_kib();
    let mut grown = [0; QUARTERS];
    let (sent, received, noise) = thread::scope(|scope| {
        let noise = scope.spawn(|| {
            let tap = lan.switch.run(tap);
            attacker.run(|| attack(tap, &addresses, &stop))
        });
        let senders: Vec<_> = nodes.iter().map(|node| scope.spawn(|| send(node, &stop))).collect();
        let readers: Vec<_> = (0..nodes.len())
            .map(|at| (at, &nodes, &subscriptions[at], &stop))
            .map(|(at, nodes, subscription, stop)| {
                scope.spawn(move || receive(at, nodes, subscription, stop))
            })
            .collect();
        for grown in &mut grown {
            thread::sleep(duration() / QUARTERS as u32);
            *grown = resident_kib().saturating_sub(before);
        }
        stop.store(true, Ordering::SeqCst);
        let sent: Vec<u32> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
        let received: Vec<Received> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        (sent, received, noise.join().unwrap())
    });
    let forged: Vec<usize> = received.iter().map(|received| received.forged).collect();
    println!("noise: {noise} datagrams, messages sent {sent:?}, forged {forged:?}, growth {grown:?} KiB");
    assert!(noise > 1_000, "the attacker sent {noise} datagrams");
    assert!(grown.iter().all(|&kib| kib < GROWTH_MAX_KIB), "growth {grown:?} KiB");
    assert!(nodes.iter().all(|node| node.status().failed.is_none()));
    Outcome { nodes, sent, received }
}

fn duration() -> Duration {
    let seconds = std::env::var("UNDROP_NOISE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

/// Returns the payload of a message: its number, repeated.
fn payload(number: u32) -> Vec<u8> {
    number.to_be_bytes().iter().copied().cycle().take(64).collect()
}

fn send(node: &Node, stop: &AtomicBool) -> u32 {
    let mut count = 0;
    while !stop.load(Ordering::SeqCst) {
        node.send("g", &payload(count)).unwrap();
        count += 1;
        thread::sleep(PACE);
    }
    count
}

/// Receives messages until none has come for a while after the end.
fn receive(at: usize, nodes: &[Node], subscription: &Subscription, stop: &AtomicBool) -> Received {
    let mut received = Received { genuine: vec![Vec::new(); nodes.len()], forged: 0 };
    let patience = Duration::from_secs(3);
    loop {
        let message = match subscription.recv_timeout(patience) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::SeqCst) => continue,
            Err(_) => return received,
        };
        let from = nodes.iter().position(|node| node.id() == message.sender());
        let known = from.filter(|&from| from != at && message.payload().len() == 64);
        match known.map(|from| (from, number(&message))) {
            Some((from, seq)) if message.payload() == payload(seq) => received.genuine[from].push(seq),
            _ => received.forged += 1,
        }
    }
}

fn resident_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Opens a socket that captures all frames that pass the switch.
fn tap() -> File {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    File::from(socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).unwrap())
}

/// A datagram and its destination.
type Captured = (SocketAddr, Vec<u8>);

/// Returns the UDP datagram in an Ethernet frame, if it is one over IPv4 without options.
fn datagram(frame: &[u8], attacker: Ipv4Addr) -> Option<Captured> {
    if frame.get(12..15)? != [8, 0, 0x45] || *frame.get(23)? != 17 {
        return None;
    }
    let address = |at: usize| frame.get(at..)?.first_chunk::<4>().map(|bytes| Ipv4Addr::from(*bytes));
    if address(26)? == attacker {
        return None;
    }
    let port = u16::from_be_bytes([*frame.get(36)?, *frame.get(37)?]);
    let bytes = frame.get(42..)?;
    (!bytes.is_empty() && bytes.len() <= 1_472)
        .then(|| Some(((address(30)?, port).into(), bytes.to_vec())))?
}

/// Sends noise until `stop` is set. Returns the number of datagrams.
fn attack(mut tap: File, nodes: &[SocketAddr], stop: &AtomicBool) -> u64 {
    let own = Ipv4Addr::new(10, 9, 0, 4);
    let socket = UdpSocket::bind((own, 0)).unwrap();
    let mut places = nodes.to_vec();
    places.extend(nodes.iter().map(|node| SocketAddr::new(node.ip(), GROUP_PORT)));
    let mut captured: Vec<Captured> = Vec::new();
    let (mut dice, mut sent, mut frame) = (testkit::Random(77), 0, [0; 2_048]);
    while !stop.load(Ordering::SeqCst) {
        for _ in 0..BURST * 4 {
            let Ok(length) = tap.read(&mut frame) else { break };
            let Some(found) = datagram(&frame[..length], own) else { continue };
            if !places.contains(&found.0) && found.0.ip().is_multicast() && found.0.port() == GROUP_PORT {
                places.push(found.0);
            }
            match captured.len() {
                RECORDED_MAX => captured[dice.index(RECORDED_MAX)] = found,
                _ => captured.push(found),
            }
        }
        for _ in 0..BURST {
            let (to, bytes) = noise(&mut dice, &captured, &places);
            sent += u64::from(socket.send_to(&bytes, to).is_ok());
        }
        thread::sleep(Duration::from_millis(1));
    }
    sent
}

/// Returns a datagram that is random, replayed, misdirected or forged.
fn noise(dice: &mut testkit::Random, captured: &[Captured], places: &[SocketAddr]) -> Captured {
    let place = places[dice.index(places.len())];
    let way = dice.index(8);
    if captured.is_empty() || way == 0 {
        let length = 1 + dice.index(1_400);
        return (place, (0..length).map(|_| dice.draw() as u8).collect());
    }
    let (to, mut bytes) = captured[dice.index(captured.len())].clone();
    match way {
        1 => return (to, bytes),
        2 => return (place, bytes),
        // Sequence numbers, senders and groups of data packets.
        3 => overwrite(dice, &mut bytes, 14, 4),
        4 => overwrite(dice, &mut bytes, 2, 4),
        5 => overwrite(dice, &mut bytes, 6, 8),
        // The end of the datagram: ranges of requests, symbols of repairs.
        6 => {
            let at = bytes.len().saturating_sub(8);
            overwrite(dice, &mut bytes, at, 8);
        }
        _ => {
            let (at, keep) = (dice.index(bytes.len()), 1 + dice.index(bytes.len()));
            bytes[at] ^= 1 << dice.index(8);
            bytes.truncate(keep);
        }
    }
    (to, bytes)
}

fn overwrite(dice: &mut testkit::Random, bytes: &mut [u8], at: usize, length: usize) {
    for byte in bytes.iter_mut().skip(at).take(length) {
        *byte = dice.draw() as u8;
    }
}
