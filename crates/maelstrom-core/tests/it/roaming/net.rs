//! A gateway with a fixed address, gateways that call it from anywhere, an attacker, and a virtual clock.

use std::collections::{HashSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use maelstrom_core::wire::VERSION;
use maelstrom_core::{Config, Gateway, Outbox, PeerConfig, PeerKey, PeerStatus, Whereabouts};

use crate::pair::{A, payload, trusting};

/// The gateway with the fixed address.
pub(super) const HUB: usize = 0;
/// The first of those that call it.
pub(super) const SPOKE: usize = 1;

/// First byte of a Hello, and of a sealed datagram.
pub(super) const HELLO: u8 = VERSION << 4 | 1;
const SEALED: u8 = VERSION << 4 | 2;

pub(super) fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The address of the hub.
pub(super) fn hub_at() -> SocketAddr {
    at("198.51.100.1:4700")
}

/// The first address at which a spoke appears.
pub(super) fn spoke_at(number: usize) -> SocketAddr {
    at(&format!("203.0.113.{number}:{}", 20_000 + number))
}

pub(super) fn hub(spokes: usize) -> Config {
    let peer = |number: usize| PeerConfig {
        address: at("0.0.0.0:0"),
        whereabouts: Whereabouts::Unstated,
        networks: vec![format!("10.82.{number}.0/24").parse().unwrap()],
        key: PeerKey::new([number as u8; 32]),
        next_key: None,
        is_of_rack: false,
        trusts_path: true,
        is_tunnel: false,
        paths: Vec::new(),
        path_use: Default::default(),
        tunnel: Default::default(),
    };
    Config { listen: hub_at(), peers: (1..=spokes).map(peer).collect(), ..trusting(A) }
}

pub(super) fn spoke(number: usize) -> Config {
    let peer = PeerConfig {
        address: hub_at(),
        whereabouts: Whereabouts::Stated,
        networks: vec!["10.81.1.0/24".parse().unwrap()],
        ..hub(number).peers.remove(number - 1)
    };
    Config { listen: at("0.0.0.0:4700"), peers: vec![peer], ..trusting(A) }
}

pub(super) struct Node {
    pub(super) gateway: Gateway,
    pub(super) out: Outbox,
    /// Address from which its datagrams come, and at which it can be reached.
    pub(super) place: SocketAddr,
    /// Whether all datagrams from and to it are lost.
    pub(super) is_off: bool,
    recovered: Vec<Vec<u8>>,
    /// Session and number of each datagram that it has sealed.
    sealed: HashSet<[u8; 8]>,
}

impl Node {
    fn new(config: Config, seed: u8, place: SocketAddr) -> Self {
        let gateway = Gateway::new(config, [seed; 32]).unwrap();
        let out = gateway.outbox();
        Self { gateway, out, place, is_off: false, recovered: Vec::new(), sealed: HashSet::new() }
    }
}

#[derive(Clone)]
pub(super) struct Flight {
    due_us: u64,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

pub(super) struct Net {
    pub(super) now_us: u64,
    pub(super) delay_us: u64,
    pub(super) nodes: Vec<Node>,
    wire: VecDeque<Flight>,
    /// All datagrams sent so far.
    pub(super) sent: Vec<Flight>,
    /// Address from which an attacker sends each datagram of the first spoke, ahead of the spoke.
    pub(super) racer: Option<SocketAddr>,
    /// Whether the attacker forwards what comes to that address to the spoke.
    pub(super) relays: bool,
    packets: u32,
}

impl Net {
    pub(super) fn new(spokes: usize) -> Self {
        let mut nodes = vec![Node::new(hub(spokes), 100, hub_at())];
        nodes.extend((1..=spokes).map(|number| Node::new(spoke(number), number as u8, spoke_at(number))));
        Self {
            now_us: 1_000_000,
            delay_us: 20_000,
            nodes,
            wire: VecDeque::new(),
            sent: Vec::new(),
            racer: None,
            relays: false,
            packets: 0,
        }
    }

    /// A hub and a spoke with a session.
    pub(super) fn up() -> Self {
        let mut net = Self::new(1);
        net.run_until_up();
        net
    }

    /// Replaces a gateway by a new process.
    pub(super) fn restart(&mut self, index: usize, seed: u8) {
        let old = &self.nodes[index];
        let (config, place) =
            (if index == HUB { hub(self.nodes.len() - 1) } else { spoke(index) }, old.place);
        self.nodes[index] = Node::new(config, seed, place);
    }

    /// The state of peer number `peer` at a gateway.
    pub(super) fn status<T>(&self, index: usize, peer: usize, read: impl FnOnce(&PeerStatus<'_>) -> T) -> T {
        read(&self.nodes[index].gateway.peers().nth(peer).unwrap())
    }

    pub(super) fn is_up(&self) -> bool {
        (SPOKE..self.nodes.len()).all(|spoke| {
            self.status(HUB, spoke - 1, |peer| peer.is_up) && self.status(spoke, 0, |peer| peer.is_up)
        })
    }

    /// Address of a spoke as the hub knows it.
    pub(super) fn known(&self, spoke: usize) -> SocketAddr {
        self.nodes[HUB].gateway.config().peers[spoke - 1].address
    }

    pub(super) fn run_until_up(&mut self) {
        for _ in 0..300 {
            self.advance(10_000);
            if self.is_up() {
                return;
            }
        }
        panic!("the gateways did not find each other");
    }

    /// Lets time pass, and asserts all the while that all peers are up.
    pub(super) fn advance_up(&mut self, by_us: u64) {
        for _ in 0..by_us / 50_000 {
            self.advance(50_000);
            assert!(self.is_up(), "protection ended");
        }
    }

    /// Lets time pass, timers fire and datagrams arrive.
    pub(super) fn advance(&mut self, by_us: u64) {
        let end_us = self.now_us + by_us;
        loop {
            self.exchange();
            let timeouts = self.nodes.iter().filter_map(|node| node.gateway.poll_timeout());
            let next_us = timeouts.chain(self.wire.front().map(|flight| flight.due_us)).min().unwrap();
            if next_us > end_us {
                break;
            }
            self.now_us = self.now_us.max(next_us);
            for node in &mut self.nodes {
                node.gateway.handle_timeout(self.now_us, &mut node.out);
            }
        }
        self.now_us = end_us;
    }

    fn exchange(&mut self) {
        for _ in 0..10_000 {
            (0..self.nodes.len()).for_each(|index| self.send_out(index));
            let Some(flight) = self.wire.pop_front_if(|flight| flight.due_us <= self.now_us) else { return };
            let to = if self.relays && Some(flight.to) == self.racer {
                self.nodes[SPOKE].place
            } else {
                flight.to
            };
            if let Some(index) = self.nodes.iter().position(|node| node.place == to && !node.is_off) {
                self.inject(index, flight.from, &flight.bytes);
            }
        }
        panic!("the gateways exchange datagrams without end");
    }

    fn send_out(&mut self, index: usize) {
        let Node { gateway, out, place, is_off, recovered, sealed } = &mut self.nodes[index];
        recovered.extend(out.recovered.iter().map(|(_, packet)| packet.to_vec()));
        out.recovered.clear();
        let peers = &gateway.config().peers;
        for (envelope, datagram) in out.datagrams.iter() {
            let to = envelope.elsewhere.map_or(peers[envelope.peer].address, |to| to.address);
            assert!(!to.ip().is_unspecified(), "a datagram has no destination");
            if datagram[0] == SEALED {
                assert!(sealed.insert(datagram[4..12].try_into().unwrap()), "a nonce is used twice");
            }
            let due_us = self.now_us + self.delay_us;
            let flight = Flight { due_us, from: *place, to, bytes: datagram.to_vec() };
            self.sent.push(flight.clone());
            if *is_off {
                continue;
            }
            if let Some(from) = self.racer.filter(|_| index == SPOKE) {
                self.wire.push_back(Flight { from, ..flight.clone() });
            }
            self.wire.push_back(flight);
        }
        out.datagrams.clear();
    }

    /// Delivers a datagram.
    pub(super) fn inject(&mut self, index: usize, from: SocketAddr, datagram: &[u8]) {
        let node = &mut self.nodes[index];
        node.gateway.handle_datagram(self.now_us, from, &mut datagram.to_vec(), &mut node.out);
    }

    /// Sends 160 packets between the sites of the hub and of a spoke, both ways, of which the link loses one
    /// in forty. Asserts that they are recovered at the gateways `at`.
    pub(super) fn assert_recovery(&mut self, spoke: usize, at: &[usize]) {
        let mut lost = [Vec::new(), Vec::new()];
        self.nodes.iter_mut().for_each(|node| node.recovered.clear());
        for n in 0..160 {
            for (side, (from, to)) in [(HUB, spoke), (spoke, HUB)].into_iter().enumerate() {
                let packet = self.packet(from == HUB, spoke);
                let node = &mut self.nodes[from];
                node.gateway.handle_outgoing(self.now_us, &packet, &mut node.out);
                if n % 40 == 7 {
                    lost[side].push(packet);
                } else {
                    let node = &mut self.nodes[to];
                    node.gateway.handle_incoming(self.now_us, &packet, &mut node.out);
                }
            }
            self.advance(1_000);
        }
        self.advance(500_000);
        for (to, lost) in [spoke, HUB].into_iter().zip(lost) {
            let recovered = &self.nodes[to].recovered;
            let missing = lost.iter().filter(|packet| !recovered.contains(packet)).count();
            assert!(missing == 0 || !at.contains(&to), "{missing} of {} stay lost at {to}", lost.len());
        }
    }

    /// A packet of its own from the site of the hub to that of a spoke, or back.
    fn packet(&mut self, leaves_hub: bool, spoke: usize) -> Vec<u8> {
        self.packets += 1;
        let sites = [Ipv4Addr::new(10, 81, 1, 10), Ipv4Addr::new(10, 82, spoke as u8, 10)];
        let [from, to] = if leaves_hub { sites } else { [sites[1], sites[0]] };
        let mut bytes = payload(self.packets % 100);
        bytes.extend_from_slice(&self.packets.to_be_bytes());
        testkit::packet::udp4(from, to, 0, self.packets as u16, &bytes)
    }
}
