//! A LAN on which somebody sends rubbish, replays what was said, and forges: nodes keep serving.
//!
//! `UNDROP_NOISE_SECONDS` says for how long; 3 seconds by default.

mod common;

use std::fs::File;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{Lan, join_all, number, numbers};
use netlab::Namespace;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use ricochet::{Builder, ClusterKey, GROUP_PORT, Node, Subscription};

/// Between two messages of a node.
const PACE: Duration = Duration::from_millis(4);
/// Datagrams between two pauses of a millisecond: at most 16,000 a second.
const BURST: u32 = 16;
/// Datagrams that are kept to be replayed.
const RECORDED_MAX: usize = 4_096;
/// By how much the process, which is all nodes and the attacker, may grow under noise.
const GROWTH_MAX_KIB: u64 = 256 * 1024;

#[test]
fn with_a_key_noise_changes_no_message() {
    let Some((lan, attacker)) = stage("noise with a key") else { return };
    let outcome = attacked(&lan, &attacker, |builder| builder.key(ClusterKey::new([9; 32])));
    for (at, received) in outcome.received.iter().enumerate() {
        for (from, sent) in outcome.sent.iter().enumerate().filter(|&(from, _)| from != at) {
            let mut got = received[from].clone();
            got.sort_unstable();
            let (wanted, distinct) = (*sent as usize, got.iter().filter(|&&seq| seq < *sent).count());
            assert!(got.iter().copied().eq(0..*sent), "node {at} of {from}: {distinct} of {wanted}");
        }
        assert_eq!(outcome.strange[at], 0, "altered or forged messages at node {at}");
    }
    for node in &outcome.nodes {
        assert!(node.status().dropped["not authentic"] > 100, "{:#?}", node.status());
    }
}

#[test]
fn without_a_key_a_node_keeps_serving_and_says_what_it_dropped() {
    let Some((lan, attacker)) = stage("noise without a key") else { return };
    let outcome = attacked(&lan, &attacker, |builder| builder);
    for node in &outcome.nodes {
        let status = node.status();
        let dropped = &status.dropped;
        assert!(dropped["unknown first byte"] > 100 && dropped["of other groups"] > 10, "{status:#?}");
        assert!(status.malformed.values().sum::<u64>() > 10, "{status:#?}");
    }
    // Who forges may spoil a stream whose names he knows. What he did not know of is served.
    let subscriptions = join_all(&outcome.nodes, "afterwards");
    let sender = &outcome.nodes[0];
    (0..50u32).for_each(|number| assert!(sender.send("afterwards", &number.to_be_bytes()).is_ok()));
    for (node, subscription) in outcome.nodes.iter().zip(&subscriptions).skip(1) {
        let mut got = numbers(node, subscription, 50);
        got.sort_unstable();
        assert!(got.into_iter().eq(0..50));
    }
}

fn stage(what: &str) -> Option<(Lan, Namespace)> {
    let mut lan = Lan::build(what, 4)?;
    let attacker = lan.hosts.pop()?;
    Some((lan, attacker))
}

struct Outcome {
    nodes: Vec<Node>,
    sent: Vec<u32>,
    /// By receiver and sender.
    received: Vec<Vec<Vec<u32>>>,
    /// Messages by receiver that no node has sent.
    strange: Vec<usize>,
}

/// All nodes send to one group while the attacker does his work.
fn attacked(lan: &Lan, attacker: &Namespace, configure: fn(Builder) -> Builder) -> Outcome {
    // Real losses, so that repairs and requests are on the wire to be recorded.
    let nodes =
        lan.start(|at, builder| configure(builder).lose(common::loss(3, at as u64 + 1)).queue(65_536));
    let subscriptions = join_all(&nodes, "g");
    let addresses: Vec<SocketAddr> = nodes.iter().map(Node::address).collect();
    let stop = AtomicBool::new(false);
    let before = resident_kib();
    let (sent, noise) = thread::scope(|scope| {
        let noise = scope.spawn(|| {
            let tap = lan.switch.run(tap);
            attacker.run(|| attack(tap, &addresses, &stop))
        });
        let senders: Vec<_> = nodes.iter().map(|node| scope.spawn(|| talk(node, &stop))).collect();
        thread::sleep(duration());
        stop.store(true, Ordering::SeqCst);
        let sent: Vec<u32> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
        (sent, noise.join().unwrap())
    });
    let (received, strange) = take_all(&nodes, &subscriptions, &sent);
    let grown = resident_kib().saturating_sub(before);
    println!("noise: {noise} datagrams, messages sent {sent:?}, strange {strange:?}, grown by {grown} KiB");
    assert!(noise > 1_000, "the attacker sent {noise} datagrams");
    assert!(grown < GROWTH_MAX_KIB, "grown by {grown} KiB");
    assert!(nodes.iter().all(|node| node.status().failed.is_none()));
    Outcome { nodes, sent, received, strange }
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

/// Takes messages until all that were sent are there, or none has come for a while.
fn take_all(nodes: &[Node], all: &[Subscription], sent: &[u32]) -> (Vec<Vec<Vec<u32>>>, Vec<usize>) {
    let mut received = vec![vec![Vec::new(); nodes.len()]; nodes.len()];
    let mut strange = vec![0; nodes.len()];
    let patience = Duration::from_secs(3);
    for (at, subscription) in all.iter().enumerate() {
        while let Ok(message) = subscription.recv_timeout(patience) {
            let from =
                nodes.iter().position(|node| node.id() == message.sender() && node.id() != nodes[at].id());
            let known = from.filter(|_| message.payload().len() == 64);
            match known.map(|from| (from, number(&message))) {
                Some((from, seq)) if seq < sent[from] && message.payload() == payload(seq) => {
                    received[at][from].push(seq);
                }
                _ => strange[at] += 1,
            }
        }
    }
    (received, strange)
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
