//! Liars on the same network: forged source addresses, made-up nodes and recordings.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use netlab::Namespace;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, setsockopt, socket,
    sockopt,
};
use ricochet::{ClusterKey, Follow, How, Node, Subscription};
use ricochet_core::wire::{Heartbeat, Latest, Nak, Range};
use ricochet_core::{GroupId, NodeId, StreamKey};
use testkit::wait_until;

use crate::common::{LONG, Lan, join_all, meet, next};

/// Sends datagrams with forged source addresses.
struct Forger(OwnedFd);

impl Forger {
    fn new(host: &Namespace) -> Self {
        let flags = SockFlag::SOCK_CLOEXEC;
        let open = || socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw);
        let forger = Self(host.run(open).unwrap());
        // There is no route for multicast.
        setsockopt(&forger.0, sockopt::BindToDevice, &"eth0".into()).unwrap();
        forger
    }

    fn send(&self, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else { panic!("these tests use IPv4") };
        let mut packet = vec![0x45, 0];
        packet.extend((28 + datagram.len() as u16).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
        packet.extend(from.ip().octets());
        packet.extend(to.ip().octets());
        packet.extend(from.port().to_be_bytes());
        packet.extend(to.port().to_be_bytes());
        packet.extend((8 + datagram.len() as u16).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(datagram);
        let address = SockaddrIn::from(SocketAddrV4::new(*to.ip(), 0));
        sendto(self.0.as_raw_fd(), &packet, &address, MsgFlags::empty()).unwrap();
    }
}

fn written(write: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut bytes = vec![0; 1_500];
    let length = write(&mut bytes);
    bytes.truncate(length);
    bytes
}

fn heartbeat(sender: NodeId, group: &str, seq: u32) -> Vec<u8> {
    let latest = [Latest { group: GroupId::of_name(group), seq }];
    written(|to| Heartbeat { sender, sender_seq: 0, latest: &latest }.write(to))
}

/// Sends messages, and waits until a subscription has delivered all of them.
fn all_arrive(from: &Node, to: &Node, subscription: &Subscription, count: u32) {
    (0..count).for_each(|number| assert!(from.send("g", &number.to_be_bytes()).is_ok()));
    let mut got: Vec<u32> = (0..count).map(|_| crate::common::number(&next(to, subscription))).collect();
    got.sort_unstable();
    assert!(got.into_iter().eq(0..count));
}

#[test]
fn forged_numbers_silence_no_stream() {
    let Some(mut lan) = Lan::build("forged sequence numbers", 3) else { return };
    let forger = Forger::new(&lan.hosts.pop().unwrap());
    let nodes = lan.start(|_, builder| builder.give_up_after(Duration::from_secs(1)));
    let subscriptions = join_all(&nodes, "g");
    all_arrive(&nodes[0], &nodes[1], &subscriptions[1], 10);
    let counts = || nodes[1].status().counts;
    // As if from the sender: numbers within reach, and twice the same number far ahead.
    for (seq, counter) in [(40_000, "retracted"), (5_000_000, "doubtful"), (5_000_001, "doubtful")] {
        let before = counts()[counter];
        forger.send(nodes[0].address(), nodes[1].address(), &heartbeat(nodes[0].id(), "g", seq));
        wait_until("the lie is judged", || counts()[counter] > before);
    }
    // Longer than a missing packet is awaited.
    std::thread::sleep(Duration::from_millis(1_500));
    all_arrive(&nodes[0], &nodes[1], &subscriptions[1], 500);
    assert_eq!(nodes[1].status().groups[0].reception.lost, 0, "{:#?}", nodes[1].status());
}

#[test]
fn what_comes_from_another_address_than_its_senders_is_dropped() {
    let Some(mut lan) = Lan::build("wrong source addresses", 3) else { return };
    let attacker = lan.hosts.pop().unwrap();
    let nodes = lan.start(|_, builder| builder);
    let subscriptions = join_all(&nodes, "g");
    let socket = attacker.run(|| UdpSocket::bind((Ipv4Addr::new(10, 9, 0, 3), 0))).unwrap();
    for seq in 0..20 {
        socket.send_to(&heartbeat(nodes[0].id(), "g", 100 * seq), nodes[1].address()).unwrap();
    }
    wait_until("all are dropped", || nodes[1].status().counts["impostors"] == 20);
    all_arrive(&nodes[0], &nodes[1], &subscriptions[1], 100);
    assert_eq!(nodes[1].status().counts["discovered"], 0);
}

#[test]
fn a_made_up_node_draws_at_most_three_times_what_it_sent() {
    let Some(mut lan) = Lan::build("made-up nodes", 3) else { return };
    let attacker = lan.hosts.pop().unwrap();
    let nodes = lan.start(|_, builder| builder);
    let subscriptions = join_all(&nodes, "g");
    let payload = vec![7; nodes[0].payload_max()];
    (0..1_024).for_each(|_| assert!(nodes[0].send("g", &payload).is_ok()));
    wait_until("all messages arrive", || {
        subscriptions[1].try_recv().is_ok() && nodes[1].status().counts["delivered"] > 900
    });
    let socket = attacker.run(|| UdpSocket::bind((Ipv4Addr::new(10, 9, 0, 3), 0))).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let key = StreamKey { sender: nodes[0].id(), group: GroupId::of_name("g") };
    let mut sent = 0;
    for id in 0..20 {
        let ranges = [Range { key, first: 0, count: 1_024 }];
        let request = written(|to| Nak { from: NodeId(id), ranges: &ranges }.write(to));
        assert_eq!(request.len(), 24);
        sent += socket.send_to(&request, nodes[0].address()).unwrap();
    }
    wait_until("all are refused", || nodes[0].status().counts["refused"] >= 20 * 1_000);
    let (mut drawn, mut buffer) = (0, [0; 2_048]);
    loop {
        match socket.recv(&mut buffer) {
            Ok(length) => drawn += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(drawn <= 3 * sent, "{sent} bytes drew {drawn}");
}

#[test]
fn forged_gossip_shuts_no_member_out() {
    let Some(mut lan) = Lan::build("forged gossip", 4) else { return };
    let forger = Forger::new(&lan.hosts.pop().unwrap());
    let nodes = lan.start(|_, builder| builder);
    let _subscriptions = join_all(&nodes, "g");
    let life = 1u64 << 53;
    let identity = |address: SocketAddr, id: NodeId, life: u64| {
        let SocketAddr::V4(at) = address else { panic!("these tests use IPv4") };
        let mut bytes = vec![4];
        bytes.extend(at.ip().octets());
        bytes.extend(at.port().to_be_bytes());
        bytes.extend(id.0.to_be_bytes());
        bytes.extend(life.to_be_bytes());
        bytes
    };
    for round in 0..20 {
        for to in &nodes[..2] {
            let mut gossip = vec![0xb6, 1];
            gossip.extend(identity(nodes[2].address(), NodeId(round), life));
            gossip.extend([0, 0]);
            gossip.extend(identity(to.address(), to.id(), 0));
            gossip.extend([9, 0, 0]);
            forger.send(nodes[2].address(), to.address(), &gossip);
        }
        std::thread::sleep(Duration::from_millis(100));
        for node in &nodes[..2] {
            let status = node.status();
            let is_known = status.peers.iter().any(|peer| peer.id == nodes[2].id().to_string());
            assert!(is_known, "round {round}: {status:#?}");
        }
    }
    meet(&nodes, "g");
}

/// A datagram with its source and its destination.
type Recorded = (SocketAddr, SocketAddr, Vec<u8>);

/// Opens a socket that captures all frames that pass the switch.
fn tap(lan: &Lan) -> File {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let open = || socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll);
    File::from(lan.switch.run(open).unwrap())
}

/// Returns the UDP datagrams captured, each once.
fn recorded(tap: &mut File) -> Vec<Recorded> {
    let (mut all, mut frame) = (Vec::new(), [0; 2_048]);
    while let Ok(length) = tap.read(&mut frame) {
        let frame = &frame[..length];
        if frame.get(12..15) != Some(&[8, 0, 0x45]) || frame[23] != 17 {
            continue;
        }
        let at = |ip: usize, port: usize| {
            let ip: [u8; 4] = *frame[ip..].first_chunk().unwrap();
            SocketAddr::from((ip, u16::from_be_bytes(*frame[port..].first_chunk().unwrap())))
        };
        let end = 34 + usize::from(u16::from_be_bytes(*frame[38..].first_chunk().unwrap()));
        let found = (at(26, 34), at(30, 36), frame[42..end].to_vec());
        if !all.contains(&found) {
            all.push(found);
        }
    }
    all
}

#[test]
fn with_a_key_recorded_datagrams_reach_no_application() {
    let Some(mut lan) = Lan::build("replays with a key", 4) else { return };
    let forger = Forger::new(&lan.hosts.pop().unwrap());
    let late_host = lan.hosts.pop().unwrap();
    let mut tap = tap(&lan);
    let key = || ClusterKey::new([5; 32]);
    // A sender that waits for nobody puts each message into a packet of its own.
    let mut nodes = lan.start(|_, builder| builder.key(key()).follow(Follow::Off));
    let mut subscriptions = join_all(&nodes, "g");
    let mut recording = recorded(&mut tap);
    let sender = nodes[0].address();
    let is_data = |(from, _, datagram): &&Recorded| *from == sender && datagram[0] == 0xb1;
    // The tap's buffer is short, and may overflow.
    while recording.iter().filter(is_data).count() < 100 {
        all_arrive(&nodes[0], &nodes[1], &subscriptions[1], 4);
        recording.extend(recorded(&mut tap));
    }
    let replay = || recording.iter().for_each(|(from, to, datagram)| forger.send(*from, *to, datagram));

    let dropped = |node: &Node, reason: &str| node.status().dropped[reason];
    // A socket's buffer may overflow too, so recordings are sent until enough of them have been dropped.
    wait_until("replays are dropped", || {
        replay();
        dropped(&nodes[1], "replayed") >= 100
    });
    assert!(subscriptions[1].is_empty());
    // A node that starts later does not know which counters are old, except from the senders themselves.
    let seed = nodes[0].address().to_string();
    let late = late_host.run(|| nodes_builder(key()).seed(seed).start()).unwrap();
    let late_subscription = late.join("g").unwrap();
    replay();
    assert!(late.wait_for_members("g", 2, LONG));
    wait_until("replays are dropped", || {
        replay();
        dropped(&late, "replayed") + dropped(&late, "unproven") >= 100
    });
    // When the sender is gone, its recordings are worth nothing either.
    drop(subscriptions.remove(0));
    nodes.remove(0).close();
    wait_until("it has left", || late.status().peers.len() == 1);
    let before = dropped(&late, "replayed") + dropped(&late, "unproven");
    wait_until("replays are dropped", || {
        replay();
        dropped(&late, "replayed") + dropped(&late, "unproven") >= before + 100
    });
    assert_eq!(late.status().peers.len(), 1, "no recording revives it");
    assert!(subscriptions[0].is_empty());
    let fresh = nodes[0].send("g", b"fresh");
    assert!(fresh.is_ok());
    // The sender itself had announced its newest message again, and members name what they have. A new member
    // may request such messages.
    loop {
        let came = next(&late, &late_subscription);
        if came.payload() == b"fresh" {
            break;
        }
        assert_eq!(came.how(), How::Requested, "{came:?}");
    }
}

fn nodes_builder(key: ClusterKey) -> ricochet::Builder {
    Node::builder("eth0").key(key)
}

#[test]
fn a_cluster_changes_its_key_while_messages_flow() {
    let Some(lan) = Lan::build("a change of the key", 2) else { return };
    let [old, new] = [ClusterKey::new([1; 32]), ClusterKey::new([2; 32])];
    let nodes = lan.start(|_, builder| builder.key(old.clone()));
    let subscriptions = join_all(&nodes, "g");
    let both = [old.clone(), new.clone()];
    let turned = [new.clone(), old.clone()];
    let steps: [(usize, &[ClusterKey]); 6] =
        [(0, &both), (1, &both), (1, &turned), (0, &turned), (0, &turned[..1]), (1, &turned[..1])];
    for (at, keys) in steps {
        nodes[at].set_keys(keys).unwrap();
        all_arrive(&nodes[0], &nodes[1], &subscriptions[1], 50);
        all_arrive(&nodes[1], &nodes[0], &subscriptions[0], 50);
        assert_eq!(nodes[at].status().keys[0].name, keys[0].name().to_string());
    }
    assert!(nodes.iter().all(|node| node.status().dropped["unauthentic"] == 0));
    assert!(nodes[0].set_keys(&[]).is_err(), "a node with a key keeps one");
    assert!(nodes[0].reload_keys().unwrap_err().to_string().contains("key.file"));
}
