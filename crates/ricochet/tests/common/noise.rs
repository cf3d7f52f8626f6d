//! A LAN on which somebody sends rubbish, replays what was said, and forges.
//!
//! `UNDROP_NOISE_SECONDS` says for how long; 3 seconds by default.
#![allow(dead_code, reason = "not every test needs all of it")]

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

/// Between two messages of a node.
const PACE: Duration = Duration::from_millis(4);
/// Datagrams between two pauses of a millisecond: at most 16,000 a second.
const BURST: u32 = 16;
/// Datagrams that are kept to be replayed.
const RECORDED_MAX: usize = 4_096;
/// So often memory is looked at.
const QUARTERS: usize = 4;
/// By how much the process, which is all nodes and the attacker, may grow under noise.
const GROWTH_MAX_KIB: u64 = 96 * 1024;

pub(crate) fn stage(what: &str) -> Option<(Lan, Namespace)> {
    let mut lan = Lan::build(what, 4)?;
    let attacker = lan.hosts.pop()?;
    Some((lan, attacker))
}

pub(crate) struct Outcome {
    pub(crate) nodes: Vec<Node>,
    pub(crate) sent: Vec<u32>,
    /// By receiver.
    pub(crate) taken: Vec<Taken>,
}

/// What one node's subscription gave out.
pub(crate) struct Taken {
    /// By sender.
    pub(crate) received: Vec<Vec<u32>>,
    /// Messages that no node has sent.
    pub(crate) strange: usize,
}

/// All nodes send to one group, and read, while the attacker does his work.
pub(crate) fn attacked(lan: &Lan, attacker: &Namespace, configure: fn(Builder) -> Builder) -> Outcome {
    // Real losses, so that repairs and requests are on the wire to be recorded.
    let nodes =
        lan.start(|at, builder| configure(builder).lose(common::loss(3, at as u64 + 1)).queue(65_536));
    let subscriptions = join_all(&nodes, "g");
    let addresses: Vec<SocketAddr> = nodes.iter().map(Node::address).collect();
    let stop = AtomicBool::new(false);
    let before = resident_kib();
    let mut grown = [0; QUARTERS];
    let (sent, taken, noise) = thread::scope(|scope| {
        let noise = scope.spawn(|| {
            let tap = lan.switch.run(tap);
            attacker.run(|| attack(tap, &addresses, &stop))
        });
        let senders: Vec<_> = nodes.iter().map(|node| scope.spawn(|| talk(node, &stop))).collect();
        let readers: Vec<_> = (0..nodes.len())
            .map(|at| (at, &nodes, &subscriptions[at], &stop))
            .map(|(at, nodes, subscription, stop)| scope.spawn(move || take(at, nodes, subscription, stop)))
            .collect();
        for grown in &mut grown {
            thread::sleep(duration() / QUARTERS as u32);
            *grown = resident_kib().saturating_sub(before);
        }
        stop.store(true, Ordering::SeqCst);
        let sent: Vec<u32> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
        let taken: Vec<Taken> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        (sent, taken, noise.join().unwrap())
    });
    let strange: Vec<usize> = taken.iter().map(|taken| taken.strange).collect();
    println!("noise: {noise} datagrams, messages sent {sent:?}, strange {strange:?}, grown by {grown:?} KiB");
    assert!(noise > 1_000, "the attacker sent {noise} datagrams");
    assert!(grown.iter().all(|&kib| kib < GROWTH_MAX_KIB), "grown by {grown:?} KiB");
    assert!(nodes.iter().all(|node| node.status().failed.is_none()));
    Outcome { nodes, sent, taken }
}

fn duration() -> Duration {
    let seconds = std::env::var("UNDROP_NOISE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

/// A message is its number and a pattern that follows from it.
fn payload(number: u32) -> Vec<u8> {
    number.to_be_bytes().iter().copied().cycle().take(64).collect()
}

fn talk(node: &Node, stop: &AtomicBool) -> u32 {
    let mut count = 0;
    while !stop.load(Ordering::SeqCst) {
        node.send("g", &payload(count)).unwrap();
        count += 1;
        thread::sleep(PACE);
    }
    count
}

/// Takes messages until none has come for a while after the end.
fn take(at: usize, nodes: &[Node], subscription: &Subscription, stop: &AtomicBool) -> Taken {
    let mut taken = Taken { received: vec![Vec::new(); nodes.len()], strange: 0 };
    let patience = Duration::from_secs(3);
    loop {
        let message = match subscription.recv_timeout(patience) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::SeqCst) => continue,
            Err(_) => return taken,
        };
        let from = nodes.iter().position(|node| node.id() == message.sender());
        let known = from.filter(|&from| from != at && message.payload().len() == 64);
        match known.map(|from| (from, number(&message))) {
            Some((from, seq)) if message.payload() == payload(seq) => taken.received[from].push(seq),
            _ => taken.strange += 1,
        }
    }
}

fn resident_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Hears all that passes the switch.
fn tap() -> File {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    File::from(socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).unwrap())
}

/// A datagram and where it went.
type Heard = (SocketAddr, Vec<u8>);

/// The UDP datagram in an Ethernet frame, if it is one over IPv4 without options.
fn datagram(frame: &[u8], attacker: Ipv4Addr) -> Option<Heard> {
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

/// Numbers at random, the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.roll() % bound as u64) as usize
    }
}

/// Sends noise until told to stop; how many datagrams.
fn attack(mut tap: File, nodes: &[SocketAddr], stop: &AtomicBool) -> u64 {
    let own = Ipv4Addr::new(10, 9, 0, 4);
    let socket = UdpSocket::bind((own, 0)).unwrap();
    let mut places = nodes.to_vec();
    places.extend(nodes.iter().map(|node| SocketAddr::new(node.ip(), GROUP_PORT)));
    let mut heard: Vec<Heard> = Vec::new();
    let (mut dice, mut sent, mut frame) = (Dice(77), 0, [0; 2_048]);
    while !stop.load(Ordering::SeqCst) {
        for _ in 0..BURST * 4 {
            let Ok(length) = tap.read(&mut frame) else { break };
            let Some(found) = datagram(&frame[..length], own) else { continue };
            if !places.contains(&found.0) && found.0.ip().is_multicast() && found.0.port() == GROUP_PORT {
                places.push(found.0);
            }
            match heard.len() {
                RECORDED_MAX => heard[dice.below(RECORDED_MAX)] = found,
                _ => heard.push(found),
            }
        }
        for _ in 0..BURST {
            let (to, bytes) = noise(&mut dice, &heard, &places);
            sent += u64::from(socket.send_to(&bytes, to).is_ok());
        }
        thread::sleep(Duration::from_millis(1));
    }
    sent
}

/// A datagram at random, replayed, sent elsewhere, or forged.
fn noise(dice: &mut Dice, heard: &[Heard], places: &[SocketAddr]) -> Heard {
    let place = places[dice.below(places.len())];
    let way = dice.below(8);
    if heard.is_empty() || way == 0 {
        let length = 1 + dice.below(1_400);
        return (place, (0..length).map(|_| dice.roll() as u8).collect());
    }
    let (to, mut bytes) = heard[dice.below(heard.len())].clone();
    match way {
        1 => return (to, bytes),
        2 => return (place, bytes),
        // Far sequence numbers, made-up senders and groups of data.
        3 => overwrite(dice, &mut bytes, 14, 4),
        4 => overwrite(dice, &mut bytes, 2, 4),
        5 => overwrite(dice, &mut bytes, 6, 8),
        // The end: ranges of requests, sums of repairs.
        6 => {
            let at = bytes.len().saturating_sub(8);
            overwrite(dice, &mut bytes, at, 8);
        }
        _ => {
            let (at, keep) = (dice.below(bytes.len()), 1 + dice.below(bytes.len()));
            bytes[at] ^= 1 << dice.below(8);
            bytes.truncate(keep);
        }
    }
    (to, bytes)
}

fn overwrite(dice: &mut Dice, bytes: &mut [u8], at: usize, length: usize) {
    for byte in bytes.iter_mut().skip(at).take(length) {
        *byte = dice.roll() as u8;
    }
}
