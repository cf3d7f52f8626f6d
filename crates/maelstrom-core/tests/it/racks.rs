//! A far gateway and two gateways of one site that pass parts of their traffic to each other, in virtual
//! time. Both stand in the way of all packets, so that each could protect any of them.

use std::collections::{HashSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use maelstrom_core::counters::Unprotected;
use maelstrom_core::{Config, Gateway, Outbox, PeerConfig, PeerKey, PeerStatus, Schedule};

use crate::handover::finish_streams;
use crate::pair::{A, payload, trusting};

const FAR: usize = 0;
const ONE: usize = 1;
const TWO: usize = 2;
const DELAY_US: u64 = 20_000;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// The parts of the far site's network.
fn parts() -> [IpNet; 2] {
    [net("10.81.2.0/25"), net("10.81.2.128/25")]
}

fn at(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 81, 9, node as u8 + 1], 4700))
}

fn key(member: usize) -> PeerKey {
    PeerKey::new([member as u8; 32])
}

/// The gateway at the far end, with both gateways of the rack as peers.
fn far(schedule: &Schedule) -> Config {
    let peer = |member: usize| PeerConfig {
        address: at(member),
        networks: vec![net("10.81.1.0/24")],
        key: key(member),
        is_of_rack: true,
        ..trusting(A).peers[0].clone()
    };
    let schedule = schedule.clone();
    Config { listen: at(FAR), schedule, peers: vec![peer(ONE), peer(TWO)], ..trusting(A) }
}

fn member(number: usize, schedule: &Schedule) -> Config {
    let networks = vec![net("10.81.2.0/24")];
    let peer = PeerConfig { address: at(FAR), networks, key: key(number), ..trusting(A).peers[0].clone() };
    Config { listen: at(number), schedule: schedule.clone(), peers: vec![peer], ..trusting(A) }
}

struct Flight {
    due_us: u64,
    to: usize,
    from: Option<SocketAddr>,
    bytes: Vec<u8>,
}

struct Net {
    now_us: u64,
    nodes: Vec<Option<(Gateway, Outbox)>>,
    /// A process that takes the place of the first member soon, and watches what arrives.
    next: Option<Gateway>,
    wire: VecDeque<Flight>,
    /// Packets that reached the hosts of each site: the far one and that of the rack.
    delivered: [Vec<Vec<u8>>; 2],
    sent: u32,
    /// Packets that the link lost.
    lost: [HashSet<Vec<u8>>; 2],
    starts: u8,
    schedule: Schedule,
    /// Time by which the packets of hosts are late.
    late_us: u64,
}

impl Net {
    /// Three gateways of which the members hold a part each.
    fn up() -> Self {
        Self::with(Schedule::Auto)
    }

    fn with(schedule: Schedule) -> Self {
        let mut net = Self {
            now_us: 1_000_000,
            nodes: vec![None, None, None],
            next: None,
            wire: VecDeque::new(),
            delivered: Default::default(),
            sent: 0,
            lost: Default::default(),
            starts: 0,
            schedule,
            late_us: 0,
        };
        (0..3).for_each(|node| net.start(node));
        net.advance(2_000_000);
        net.hold(ONE, &parts()[..1]);
        net.hold(TWO, &parts()[1..]);
        net.advance(1_000_000);
        net
    }

    fn start(&mut self, node: usize) {
        self.starts += 1;
        let config = if node == FAR { far(&self.schedule) } else { member(node, &self.schedule) };
        let mut gateway = Gateway::new(config, [self.starts; 32]).unwrap();
        if node != FAR {
            gateway.hold(self.now_us, Some(Vec::new()));
        }
        let out = gateway.outbox();
        self.nodes[node] = Some((gateway, out));
    }

    fn gateway(&mut self, node: usize) -> &mut Gateway {
        &mut self.nodes[node].as_mut().unwrap().0
    }

    fn hold(&mut self, node: usize, networks: &[IpNet]) {
        let now_us = self.now_us;
        self.gateway(node).hold(now_us, Some(networks.to_vec()));
    }

    fn status<T>(&mut self, node: usize, peer: usize, read: impl FnOnce(&PeerStatus<'_>) -> T) -> T {
        read(&self.gateway(node).peers().nth(peer).unwrap())
    }

    fn advance(&mut self, by_us: u64) {
        let end_us = self.now_us + by_us;
        loop {
            self.exchange();
            let timeouts = self.nodes.iter().flatten().filter_map(|(gateway, _)| gateway.poll_timeout());
            let next_us = timeouts.chain(self.wire.front().map(|flight| flight.due_us)).min().unwrap();
            if next_us > end_us {
                break;
            }
            self.now_us = self.now_us.max(next_us);
            for (gateway, out) in self.nodes.iter_mut().flatten() {
                gateway.handle_timeout(self.now_us, out);
            }
        }
        self.now_us = end_us;
    }

    fn exchange(&mut self) {
        for _ in 0..10_000 {
            (0..3).for_each(|node| self.send_out(node));
            let Some(flight) = self.wire.pop_front_if(|flight| flight.due_us <= self.now_us) else { return };
            match flight.from {
                Some(from) => {
                    let Some((gateway, out)) = &mut self.nodes[flight.to] else { continue };
                    gateway.handle_datagram(self.now_us, from, &mut flight.bytes.clone(), out);
                }
                None => self.arrive(flight.to, &flight.bytes),
            }
        }
        panic!("the gateways exchange datagrams without end");
    }

    /// A packet of a host arrives at a site: at the far one, or at that of the rack.
    fn arrive(&mut self, site: usize, packet: &[u8]) {
        let gates = if site == FAR { vec![FAR] } else { vec![ONE, TWO] };
        for node in gates {
            if let Some((gateway, out)) = &mut self.nodes[node] {
                gateway.handle_incoming(self.now_us, packet, out);
            }
        }
        if let Some(next) = self.next.as_mut().filter(|_| site != FAR) {
            let mut out = next.outbox();
            next.handle_incoming(self.now_us, packet, &mut out);
        }
        self.delivered[site].push(packet.to_vec());
    }

    fn send_out(&mut self, node: usize) {
        let Some((gateway, out)) = &mut self.nodes[node] else { return };
        let site = usize::from(node != FAR);
        self.delivered[site].extend(out.recovered.iter().map(|(_, packet)| packet.to_vec()));
        out.recovered.clear();
        let peers = &gateway.config().peers;
        for (envelope, datagram) in out.datagrams.iter() {
            let address = peers[envelope.peer].address;
            let to = (0..3).find(|&node| at(node) == address).unwrap();
            let (due_us, bytes) = (self.now_us + DELAY_US, datagram.to_vec());
            let place = self.wire.partition_point(|flight| flight.due_us <= due_us);
            self.wire.insert(place, Flight { due_us, to, from: Some(at(node)), bytes });
        }
        out.datagrams.clear();
    }

    /// Sends a packet each way between hosts of the rack's site and of a part of the far site.
    fn send(&mut self, part: usize, is_lost: bool) {
        self.sent += 1;
        let n = self.sent;
        let (near, far) = (Ipv4Addr::new(10, 81, 1, 10), Ipv4Addr::new(10, 81, 2, 10 + 128 * part as u8));
        let mut bytes = payload(n % 100);
        bytes.extend_from_slice(&n.to_be_bytes());
        for (site, (from, to)) in [(near, far), (far, near)].into_iter().enumerate() {
            let packet = testkit::packet::udp4(from, to, 0, n as u16, &bytes);
            let gates = if site == FAR { vec![ONE, TWO] } else { vec![FAR] };
            for node in gates {
                if let Some((gateway, out)) = &mut self.nodes[node] {
                    gateway.handle_outgoing(self.now_us, &packet, out);
                }
            }
            if is_lost {
                self.lost[site].insert(packet);
            } else {
                let due_us = self.now_us + DELAY_US + self.late_us;
                let at = self.wire.partition_point(|flight| flight.due_us <= due_us);
                self.wire.insert(at, Flight { due_us, to: site, from: None, bytes: packet });
            }
        }
        self.advance(1_000);
    }

    /// Sends packets of both parts for a while, of which the link loses one in twenty.
    fn run(&mut self, packets: usize) {
        for n in 0..packets {
            (0..2).for_each(|part| self.send(part, n % 20 == 7 + part));
        }
    }

    /// Packets of a site's hosts that did not arrive, and number of those that arrived twice. Begins again.
    fn settle(&mut self) -> [(usize, usize); 2] {
        self.advance(3_000_000);
        [0, 1].map(|site| {
            let delivered = std::mem::take(&mut self.delivered[site]);
            let distinct: HashSet<_> = delivered.iter().cloned().collect();
            let missing = self.lost[site].drain().filter(|packet| !distinct.contains(packet)).count();
            (missing, delivered.len() - distinct.len())
        })
    }

    fn protected(&mut self, node: usize) -> u64 {
        self.status(node, 0, |peer| peer.egress.source_packets)
    }
}

const ALL: [(usize, usize); 2] = [(0, 0); 2];

#[test]
fn each_gateway_of_a_rack_protects_its_part_alone() {
    let mut net = Net::up();
    net.run(300);
    assert_eq!(net.settle(), ALL);
    assert_eq!([net.protected(ONE), net.protected(TWO)], [300, 300]);
    for member in [ONE, TWO] {
        let other =
            net.gateway(member).unprotected().iter().find(|(reason, _)| *reason == Unprotected::OtherPart);
        assert!(other.is_some_and(|(_, count)| count >= 300));
        let (recovered, foreign) =
            net.status(member, 0, |peer| (peer.ingress.recovered_packets, peer.ingress.foreign_packets));
        assert_eq!(recovered, 15, "the far gateway repairs a part toward the gateway that holds it");
        assert!(foreign >= 285, "and packets of the other part are not kept");
    }
    for peer in 0..2 {
        assert_eq!(
            net.status(FAR, peer, |peer| (peer.ingress.recovered_packets, peer.egress.source_packets)),
            (15, 300)
        );
    }
}

#[test]
fn a_part_moves_while_traffic_flows_and_is_protected_all_the_time() {
    let (mut net, both) = (Net::up(), parts());
    net.run(100);
    // The second takes the first part too, and later the first lets it go; then back again.
    for (taker, taken, giver, kept) in [(TWO, &both[..], ONE, &both[2..]), (ONE, &both[..1], TWO, &both[1..])]
    {
        net.hold(taker, taken);
        for _ in 0..100 {
            net.run(1);
        }
        assert!(net.gateway(taker).protects(both[0]) && net.gateway(giver).protects(both[0]));
        net.run(60);
        net.hold(giver, kept);
        assert!(!net.gateway(giver).protects(both[0]));
        net.run(160);
    }
    assert_eq!(net.settle(), ALL);
    let sessions = [ONE, TWO].map(|member| net.status(member, 0, |peer| peer.sessions));
    assert_eq!(sessions, [1, 1], "the sessions go on");
}

#[test]
fn packets_that_two_gateways_protect_arrive_once() {
    let mut net = Net::up();
    net.hold(ONE, &parts());
    net.hold(TWO, &parts());
    net.advance(1_000_000);
    net.run(400);
    assert_eq!(net.settle(), ALL);
    assert_eq!([net.protected(ONE), net.protected(TWO)], [800, 800]);
}

/// A repair of each gateway misses the same two packets, of which one was lost, and the other one is late.
/// Whichever the far gateway learns first solves the other one in both sessions.
#[test]
fn a_packet_that_is_late_for_two_gateways_arrives_once() {
    let mut net = Net::with(Schedule::Layered { r: 8, interleaves: vec![1] });
    net.hold(ONE, &parts());
    net.hold(TWO, &parts());
    net.advance(1_000_000);
    for n in 0..400 {
        net.late_us = if n % 8 == 5 { 6_000 } else { 0 };
        net.send(0, n % 8 == 3);
    }
    net.late_us = 0;
    let [to_far, _] = net.settle();
    assert_eq!(to_far, (0, 0));
    let recovered = [0, 1].map(|peer| net.status(FAR, peer, |peer| peer.ingress.recovered_packets));
    assert!(recovered.iter().sum::<u64>() >= 50, "{recovered:?}");
}

/// Two gateways name packets at different places, so that one session often misses what the other recovers.
#[test]
fn what_one_gateway_recovers_is_no_late_arrival_for_another() {
    let mut net = Net::with(Schedule::Layered { r: 8, interleaves: vec![1, 10] });
    net.hold(ONE, &parts());
    net.advance(1_000_000);
    net.hold(TWO, &parts());
    for n in 0..3_000_u32 {
        net.send(0, n > 200 && n.wrapping_mul(0x9E37_79B9) >> 16 & 31 == 0);
    }
    let (lost, [to_far, _]) = (net.lost[FAR].len() as u64, net.settle());
    assert_eq!(to_far.1, 0, "nothing arrives twice");
    assert!(lost > 50 && to_far.0 < 5, "{lost} lost, {} of them stayed so", to_far.0);
    for peer in 0..2 {
        let (ingress, wait_us) = net.status(FAR, peer, |peer| (*peer.ingress, peer.wait_us));
        assert!(ingress.recovered_packets > 5, "both recover some: {ingress:?}");
        assert_eq!((ingress.late, ingress.after_recovery), (0, 0), "{ingress:?}");
        assert!(wait_us < 1_000, "repairs wait {wait_us} us although no packet is late");
        assert!(ingress.source_packets <= 3_000 - lost, "a packet that is recovered has not arrived");
    }
}

#[test]
fn a_part_of_a_dead_gateway_is_protected_once_another_one_says_so() {
    let mut net = Net::up();
    net.run(100);
    assert_eq!(net.settle(), ALL);
    net.nodes[ONE] = None;
    net.hold(TWO, &parts());
    // Within a round trip the far gateway knows, although it takes the first for alive.
    net.advance(3 * DELAY_US);
    assert!(net.status(FAR, 0, |peer| peer.is_up) && net.gateway(TWO).protects(parts()[0]));
    net.run(300);
    assert_eq!(net.settle(), ALL);
    // It returns, takes its part, and then the other one lets it go.
    net.start(ONE);
    net.advance(1_000_000);
    net.run(100);
    net.hold(ONE, &parts()[..1]);
    net.run(100);
    net.hold(TWO, &parts()[1..]);
    net.run(200);
    assert_eq!(net.settle(), ALL);
    assert!(net.protected(ONE) >= 200);
}

#[test]
fn without_a_holder_nothing_is_protected_and_nothing_comes_twice() {
    let mut net = Net::up();
    net.hold(ONE, &[]);
    net.advance(1_000_000);
    net.run(100);
    let [(to_far, twice), (to_rack, again)] = net.settle();
    assert_eq!((to_far, twice, to_rack, again), (5, 0, 5, 0));
    let unheld = net.gateway(FAR).unprotected().iter().find(|(reason, _)| *reason == Unprotected::Unheld);
    assert!(unheld.is_some_and(|(_, count)| count == 100), "{unheld:?}");
}

#[test]
fn a_gateway_that_leaves_its_rack_protects_what_its_peer_knows() {
    let mut net = Net::up();
    net.hold(TWO, &[]);
    net.advance(1_000_000);
    let now_us = net.now_us;
    net.gateway(ONE).hold(now_us, None);
    let [one, other] = parts();
    assert!(net.gateway(ONE).protects(one) && !net.gateway(ONE).protects(other));
    // Its peer does not watch for packets of the other part yet.
    let before = net.protected(ONE);
    net.send(1, false);
    assert_eq!(net.protected(ONE), before);
    net.send(0, false);
    assert_eq!(net.protected(ONE), before + 1);
    net.advance(1_000_000);
    assert!(net.gateway(ONE).protects(other));
    net.run(60);
    assert_eq!(net.settle(), ALL);
}

#[test]
fn a_change_before_the_session_is_known_at_both_ends() {
    let mut net = Net::up();
    for step in 0..12 {
        net.start(ONE);
        // At each moment of the handshake.
        net.advance(step * DELAY_US / 2);
        net.hold(ONE, &parts()[..1]);
        net.advance(2_000_000);
        let listed = net.status(FAR, 0, |peer| peer.watched.to_vec());
        assert_eq!(listed, &parts()[..1], "after {step} steps");
        assert!(net.gateway(ONE).protects(parts()[0]));
        net.run(60);
        assert_eq!(net.settle(), ALL, "after {step} steps");
    }
}

#[test]
fn a_member_hands_over_to_another_process_and_its_part_is_protected_all_the_time() {
    let mut net = Net::up();
    net.run(100);
    assert_eq!(net.settle(), ALL);
    for round in 0..3 {
        let now_us = net.now_us;
        let mut next = Gateway::new(member(ONE, &net.schedule), [100 + round; 32]).unwrap();
        next.hold(now_us, Some(parts()[..1].to_vec()));
        next.watch_for(now_us, &net.gateway(ONE).describe_sessions());
        net.next = Some(next);
        net.run(20);
        let now_us = net.now_us;
        net.gateway(ONE).begin_handover(now_us);
        while !net.gateway(ONE).may_hand_over() {
            net.run(1);
        }
        let (now_us, (mut old, mut out)) = (net.now_us, net.nodes[ONE].take().unwrap());
        finish_streams(&mut old, now_us, &mut out);
        let left = old.hand_over();
        assert_eq!(left[0].listed, &parts()[..1]);
        net.nodes[ONE] = Some((old, out));
        net.exchange();
        let mut next = net.next.take().unwrap();
        assert_eq!(next.resume(now_us, &left), 1);
        assert!(next.protects(parts()[0]) && !next.protects(parts()[1]));
        let out = next.outbox();
        net.nodes[ONE] = Some((next, out));
        net.run(200);
        let renewals = net.status(ONE, 0, |peer| (peer.sessions, peer.renewals));
        net.run(100);
        assert_eq!(net.status(ONE, 0, |peer| (peer.sessions, peer.renewals)), renewals);
        assert_eq!(
            (renewals.0, net.status(FAR, 0, |peer| peer.watched.to_vec())),
            (1, parts()[..1].to_vec())
        );
        // The last packets of a stream are in fewer repairs.
        for (missing, twice) in net.settle() {
            assert!(missing <= 3 && twice == 0, "round {round}: {missing} are missing, {twice} came twice");
        }
    }
}

#[test]
fn a_member_whose_list_is_another_one_after_a_hand_over_tells_it() {
    let mut net = Net::up();
    let now_us = net.now_us;
    net.gateway(ONE).begin_handover(now_us);
    while !net.gateway(ONE).may_hand_over() {
        net.advance(1_000);
    }
    let left = net.gateway(ONE).hand_over();
    let mut next = Gateway::new(member(ONE, &net.schedule), [100; 32]).unwrap();
    next.hold(now_us, Some(parts().to_vec()));
    next.watch_for(now_us, &left);
    assert_eq!(next.resume(net.now_us, &left), 1);
    assert!(!next.protects(parts()[1]), "the far gateway does not know of it");
    let out = next.outbox();
    net.nodes[ONE] = Some((next, out));
    net.advance(1_000_000);
    assert!(net.gateway(ONE).protects(parts()[1]));
    assert_eq!(net.status(FAR, 0, |peer| peer.watched.to_vec()), parts());
}
