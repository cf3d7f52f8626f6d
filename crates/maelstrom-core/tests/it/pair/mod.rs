//! Two gateways, a link whose losses the test decides, and a virtual clock: no sockets, no threads.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses a part of it")]

use std::collections::{HashSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

pub use testkit::coin;

use maelstrom_core::controller::Targets;
use maelstrom_core::counters::Uninjected;
use maelstrom_core::outbox::Envelope;
use maelstrom_core::packet::{MutableFields, Packet, restore};
use maelstrom_core::share::Share;
use maelstrom_core::{
    Config, Ecn, Gateway, Inbound, Outbox, PathConfig, PathUse, PeerConfig, PeerKey, PeerStatus, Schedule,
    Source, Whereabouts,
};

pub mod keys;
mod queue;
mod tap;

use keys::{Drawn, watched};
pub use queue::LinkQueue;
use tap::SlowTap;

pub const A: usize = 0;
pub const B: usize = 1;
/// Maximum number of paths between the two.
const PATHS: usize = 2;

pub fn address(side: usize) -> SocketAddr {
    SocketAddr::from(([10, 81, 9, side as u8 + 1], 4700))
}

pub fn config(side: usize) -> Config {
    Config {
        listen: address(side),
        wan_mtu: 1500,
        schedule: Schedule::layered(),
        targets: Targets::default(),
        delayed: false,
        max_delay_us: 20_000,
        requests: maelstrom_core::Requests::Off,
        repair_dscp: maelstrom_core::RepairDscp::default(),
        on_congestion: maelstrom_core::congestion::OnCongestion::Leave,
        name_bits: 32,
        classes: Vec::new(),
        local_networks: Vec::new(),
        multicast: Vec::new(),
        peers: vec![PeerConfig {
            address: address(1 - side),
            whereabouts: Default::default(),
            networks: vec![format!("10.81.{}.0/24", 2 - side).parse().unwrap()],
            key: PeerKey::new([5; 32]),
            next_key: None,
            is_of_rack: false,
            trusts_path: false,
            is_tunnel: false,
            paths: Vec::new(),
            path_use: Default::default(),
            tunnel: Default::default(),
        }],
    }
}

/// A gateway that takes every missing packet for lost, for tests that are not about the proof of losses and
/// lose packets as no link does: packets but no repairs, or the first ones of all flows.
pub fn trusting(side: usize) -> Config {
    let config = config(side);
    let peer = PeerConfig { trusts_path: true, ..config.peers[0].clone() };
    Config { peers: vec![peer], ..config }
}

/// A gateway whose packets travel in datagrams.
pub fn tunnel(side: usize) -> Config {
    let config = Config { schedule: Schedule::Auto, ..config(side) };
    let peer = PeerConfig { is_tunnel: true, ..config.peers[0].clone() };
    Config { peers: vec![peer], ..config }
}

/// Address of a side on one of several paths.
pub fn address_on(path: usize, side: usize) -> SocketAddr {
    SocketAddr::from(([10, 81, 9 - path as u8, side as u8 + 1], 4700))
}

/// A gateway whose packets travel in datagrams, with a second path.
pub fn two_paths(side: usize, path_use: PathUse) -> Config {
    let config = tunnel(side);
    let (address, whereabouts) = (address_on(1, 1 - side), Whereabouts::Stated);
    let paths = vec![PathConfig { door: 1, address, whereabouts }];
    let peer = PeerConfig { paths, path_use, ..config.peers[0].clone() };
    Config { peers: vec![peer], ..config }
}

/// An IPv4 UDP packet from site `from`'s host 10 to the other's.
pub fn udp(from: usize, id: u16, payload: &[u8]) -> Vec<u8> {
    let host = |site: usize| Ipv4Addr::new(10, 81, site as u8, 10);
    testkit::packet::udp4(host(from + 1), host(2 - from), 0, id, payload)
}

/// Undoes what the link's routers change, so that a recovered packet can be compared with those sent. Before
/// the gateway knows the path, it injects packets as they were sent. `lifetime.rs` tests the time to live
/// itself.
fn as_sent(packet: &[u8], sent: &HashSet<Vec<u8>>) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if !sent.is_empty() && !sent.contains(&packet) {
        let fields = Packet::new_checked(&packet).unwrap().mutable_fields();
        restore(&mut packet, MutableFields { ttl: fields.ttl + 1, ..fields });
    }
    packet
}

/// Returns the payload of packet `n`; lengths differ.
pub fn payload(n: u32) -> Vec<u8> {
    (0..60 + n % 1100).map(|k| (k * 7 + n) as u8).collect()
}

/// Sends `count` distinct packets from A to B, losing packets and repairs with this probability; returns the
/// lost packets.
pub fn run(pair: &mut Pair, count: u32, seed: u64, probability: f64) -> Vec<Vec<u8>> {
    let mut lose = coin(seed, probability);
    pair.lose_datagram = Box::new(coin(seed + 1, probability));
    let mut lost = Vec::new();
    for n in 0..count {
        let packet = udp(A, n as u16, &payload(n));
        let is_lost = lose();
        pair.send(A, &packet, is_lost);
        if is_lost {
            lost.push(packet);
        }
        pair.advance(1000);
    }
    pair.lose_datagram = Box::new(|| false);
    pair.advance(3_000_000);
    lost
}

/// Delay of a packet or, if it is told so, of a datagram.
pub type Delay = Box<dyn FnMut(&[u8], bool) -> u64>;

/// Change of a datagram that a side sends.
pub type Alter = Box<dyn FnMut(usize, &mut Vec<u8>)>;

/// Change of the mark of a datagram that a side sends.
pub type Mark = Box<dyn FnMut(usize, Ecn) -> Ecn>;

/// A datagram or packet on the link.
struct Flight {
    due_us: u64,
    /// Time of its arrival, if the gateway reads it later.
    arrived_us: u64,
    to: usize,
    bytes: Vec<u8>,
    /// Path and mark of a datagram of the repair channel; `None` for a packet of a host.
    path: Option<(usize, Ecn)>,
}

pub struct Pair {
    pub now_us: u64,
    pub gateways: [Gateway; 2],
    pub out: [Outbox; 2],
    /// The next process of each side, which watches the packets that arrive.
    pub next: [Option<(Gateway, Outbox)>; 2],
    /// Traffic on the link, in order of arrival.
    wire: VecDeque<Flight>,
    /// One-way delay of the link.
    pub delay_us: u64,
    /// Time at which the link delivers what was sent last to each side.
    last_us: [[u64; PATHS]; 2],
    /// One-way delay of each path beyond that of the link.
    pub path_us: [u64; PATHS],
    /// Address of each side on each path, as the other side sees it.
    pub places: [[SocketAddr; PATHS]; 2],
    /// Number of the socket of each side on each path.
    pub doors: [[usize; PATHS]; 2],
    /// Whether a datagram is lost, by its path and the side that sends it.
    pub lose_on: Box<dyn FnMut(usize, usize) -> bool>,
    /// Longest datagram that each path carries.
    pub path_max: [usize; PATHS],
    /// Queue in front of the link to B.
    pub queue: Option<LinkQueue>,
    /// Queues in front of each path to B.
    pub path_queues: [Option<LinkQueue>; PATHS],
    /// Delay beside that of the link.
    pub extra_us: Delay,
    /// Packets sent by [`Pair::send`], which pass one router.
    sent: HashSet<Vec<u8>>,
    /// Packets recovered at each side, as they were sent.
    pub recovered: [Vec<Vec<u8>>; 2],
    /// All datagrams sent so far, if they are kept.
    pub sent_datagrams: Option<Vec<Vec<u8>>>,
    /// Longest datagram that the link carries, without its IP and UDP headers.
    pub datagram_max: usize,
    /// Interval at which gateways read their datagrams.
    pub reads_every_us: u64,
    /// Path that returns each datagram to its sender.
    pub reflecting: Option<usize>,
    /// Whether the next datagram is lost.
    pub lose_datagram: Box<dyn FnMut() -> bool>,
    /// Change of each datagram, with the side that sends it.
    pub alter: Alter,
    /// Change of the mark of each datagram.
    pub mark: Mark,
    /// Sides whose gateway stands still: no timer fires there, and what arrives is discarded.
    pub frozen: [bool; 2],
    /// Taps that their gateways read late.
    pub taps: [Option<SlowTap>; 2],
    /// Sides whose datagrams are all lost.
    pub mute: [bool; 2],
    /// DSCPs of the datagrams that each side has sent.
    pub dscps: [Vec<u8>; 2],
    /// Flows of which the tap of each side shows the packets that arrive.
    pub captures: [Share; 2],
    /// Reason for which the driver of each side injects no packet.
    pub refuse: [Option<Uninjected>; 2],
    /// Ephemeral keys of the gateways as they were created.
    pub drawn: Drawn,
}

impl Pair {
    pub fn new(configs: [Config; 2]) -> Self {
        Self::with_ephemeral(configs, 3)
    }

    /// Creates two gateways whose ephemeral keys follow from this seed.
    pub fn with_ephemeral(configs: [Config; 2], ephemeral: u64) -> Self {
        let drawn = Drawn::default();
        let gateways = configs.map(|config| {
            let side = if config.listen == address(A) { 0 } else { 1 };
            Gateway::new(config, watched(1 + side, ephemeral + (side << 32), &drawn)).unwrap()
        });
        let out = [gateways[0].outbox(), gateways[1].outbox()];
        Self {
            now_us: 1_000_000,
            gateways,
            out,
            next: [None, None],
            wire: VecDeque::new(),
            delay_us: 0,
            last_us: [[0; PATHS]; 2],
            path_us: [0; PATHS],
            places: [A, B].map(|side| std::array::from_fn(|path| address_on(path, side))),
            doors: [std::array::from_fn(|path| path); 2],
            lose_on: Box::new(|_, _| false),
            path_max: [usize::MAX; PATHS],
            queue: None,
            path_queues: [None, None],
            extra_us: Box::new(|_, _| 0),
            sent: HashSet::new(),
            recovered: Default::default(),
            sent_datagrams: None,
            datagram_max: usize::MAX,
            reads_every_us: 1,
            reflecting: None,
            lose_datagram: Box::new(|| false),
            alter: Box::new(|_, _| {}),
            mark: Box::new(|_, ecn| ecn),
            frozen: [false; 2],
            taps: [None, None],
            mute: [false; 2],
            dscps: Default::default(),
            captures: [Share::ALL; 2],
            refuse: [None; 2],
            drawn,
        }
    }

    /// Creates two gateways with a session.
    pub fn up(configs: [Config; 2]) -> Self {
        let mut pair = Self::new(configs);
        pair.run_until_up();
        pair
    }

    pub fn run_until_up(&mut self) {
        let step_us = (self.delay_us / 10).max(10_000);
        for _ in 0..100 {
            self.advance(step_us);
            if (0..2).all(|side| self.status(side, |peer| peer.is_up)) {
                return;
            }
        }
        panic!("the gateways did not find each other");
    }

    pub fn status<T>(&self, side: usize, read: impl FnOnce(&PeerStatus<'_>) -> T) -> T {
        read(&self.gateways[side].peers().next().unwrap())
    }

    /// Notes that a packet leaves `from`, which arrives under another form or not at all.
    pub fn leave(&mut self, from: usize, packet: &[u8]) {
        self.send(from, packet, true);
    }

    /// Lets time pass, timers fire and datagrams arrive.
    pub fn advance(&mut self, by_us: u64) {
        let end_us = self.now_us + by_us;
        loop {
            self.exchange();
            let awake: Vec<usize> = (0..2).filter(|&side| !self.frozen[side]).collect();
            let looks = awake.iter().filter(|&&side| self.taps[side].is_none());
            let timeouts = looks.filter_map(|&side| self.gateways[side].poll_timeout());
            let next =
                timeouts.chain(self.wire.front().map(|flight| flight.due_us)).min().unwrap_or(u64::MAX);
            if next > end_us {
                break;
            }
            self.now_us = self.now_us.max(next);
            for side in awake.into_iter().filter(|&side| self.taps[side].is_none()) {
                self.gateways[side].handle_timeout(self.now_us, &mut self.out[side]);
            }
        }
        self.now_us = end_us;
    }

    /// Sends one packet from `from`, which the link loses if `lost`.
    pub fn send(&mut self, from: usize, packet: &[u8], lost: bool) {
        if !self.frozen[from] {
            self.gateways[from].handle_outgoing(self.now_us, packet, &mut self.out[from]);
        }
        self.sent.insert(packet.to_vec());
        if !lost {
            let mut routed = packet.to_vec();
            let fields = Packet::new_checked(&routed).unwrap().mutable_fields();
            restore(&mut routed, MutableFields { ttl: fields.ttl - 1, ..fields });
            self.launch(1 - from, routed, None);
        }
        self.exchange();
    }

    /// Sends packets from `from` by the tunnel, as a driver does that finds them all waiting.
    pub fn send_by_tunnel(&mut self, from: usize, packets: &[Vec<u8>]) {
        let (gateway, out) = (&mut self.gateways[from], &mut self.out[from]);
        packets.iter().for_each(|packet| gateway.handle_tunnelled(self.now_us, packet, out));
        gateway.flush_tunnels(self.now_us, out);
        self.exchange();
    }

    /// Sends 320 packets each way, of which the link loses one in forty; returns the lost packets by side.
    pub fn lose_one_in_forty(&mut self) -> [Vec<Vec<u8>>; 2] {
        [A, B].map(|from| {
            let packets: Vec<_> = (0..320u16).map(|n| udp(from, n, &payload(u32::from(n)))).collect();
            for (n, packet) in packets.iter().enumerate() {
                self.send(from, packet, n % 40 == 7);
                self.advance(100);
            }
            packets.into_iter().skip(7).step_by(40).collect()
        })
    }

    /// Delivers a packet of the other site's host at `to`.
    pub fn arrive(&mut self, to: usize, packet: &[u8]) {
        self.gateways[to].handle_incoming(self.now_us, packet, &mut self.out[to]);
        self.exchange();
    }

    /// Sends one packet from `from` that arrives `late_us` after the repairs that it completes.
    pub fn send_overtaken(&mut self, from: usize, packet: &[u8], late_us: u64) {
        self.gateways[from].handle_outgoing(self.now_us, packet, &mut self.out[from]);
        self.advance(late_us);
        self.gateways[1 - from].handle_incoming(self.now_us, packet, &mut self.out[1 - from]);
        self.exchange();
    }

    /// Sends bytes over the link to `to` that are no packet of the far gateway.
    pub fn fly(&mut self, to: usize, packet: Vec<u8>) {
        self.launch(to, packet, None);
        self.exchange();
    }

    fn launch(&mut self, to: usize, bytes: Vec<u8>, path: Option<(usize, Ecn)>) {
        let is_datagram = path.is_some();
        let number = path.map_or(0, |(number, _)| number);
        let mut leaves_us = self.now_us;
        let queue = self.path_queues[number].as_mut().or(self.queue.as_mut());
        if let Some(queue) = queue.filter(|_| to == B) {
            let Some(at_us) = queue.offer(self.now_us, &bytes, is_datagram) else { return };
            leaves_us = at_us;
        }
        // The link itself keeps the order, also while its delay falls.
        let last_us = &mut self.last_us[to][number];
        *last_us = (*last_us).max(leaves_us + self.delay_us + self.path_us[number]);
        let arrived_us = *last_us + (self.extra_us)(&bytes, is_datagram);
        let every_us = if is_datagram { self.reads_every_us } else { 1 };
        let due_us = arrived_us.next_multiple_of(every_us);
        let at = self.wire.partition_point(|flight| flight.due_us <= due_us);
        self.wire.insert(at, Flight { due_us, arrived_us, to, bytes, path });
    }

    /// The paths that lead where a datagram of a side goes.
    fn ways(&self, side: usize, envelope: Envelope) -> Vec<usize> {
        let peer = &self.gateways[side].config().peers[envelope.peer];
        let way = |door: usize, to: SocketAddr| {
            (0..PATHS).find(|&path| self.doors[side][path] == door && self.places[1 - side][path] == to)
        };
        if let Some(to) = envelope.elsewhere {
            return way(to.door, to.address).into_iter().collect();
        }
        if peer.paths.is_empty() {
            // Tests of one path state any address.
            return vec![0];
        }
        let ends = envelope.paths.iter().filter_map(|path| peer.path(path));
        ends.filter_map(|(door, to)| way(door, to)).collect()
    }

    /// Delivers all traffic that is due.
    pub fn exchange(&mut self) {
        for _ in 0..10_000 {
            for side in 0..2 {
                let datagrams = &self.out[side].datagrams;
                let copies = datagrams.iter().flat_map(|(envelope, datagram)| {
                    let ways = self.ways(side, envelope).into_iter();
                    ways.map(move |path| (path, envelope.ecn, datagram.to_vec()))
                });
                let sent: Vec<_> = copies.collect();
                self.dscps[side].extend(datagrams.iter().map(|(envelope, _)| envelope.dscp));
                self.out[side].datagrams.clear();
                if let Some(kept) = &mut self.sent_datagrams {
                    kept.extend(sent.iter().map(|(_, _, datagram)| datagram.clone()));
                }
                for (path, ecn, mut datagram) in sent {
                    let ecn = (self.mark)(side, ecn);
                    (self.alter)(side, &mut datagram);
                    let fits = datagram.len() <= self.datagram_max.min(self.path_max[path]);
                    let is_lost = (self.lose_datagram)() | (self.lose_on)(path, side);
                    if self.reflecting == Some(path) {
                        self.launch(side, datagram, Some((path, ecn)));
                    } else if !is_lost && !self.mute[side] && fits {
                        self.launch(1 - side, datagram, Some((path, ecn)));
                    }
                }
                for (origin, packet) in self.out[side].recovered.iter() {
                    match self.refuse[side] {
                        Some(reason) => self.gateways[side].handle_uninjected(origin, reason),
                        None => self.recovered[side].push(as_sent(packet, &self.sent)),
                    }
                }
                self.out[side].recovered.clear();
            }
            let Some(flight) = self.wire.pop_front_if(|flight| flight.due_us <= self.now_us) else { return };
            if self.frozen[flight.to] {
                continue;
            }
            if let Some(tap) = &mut self.taps[flight.to] {
                tap.push(flight);
                continue;
            }
            if let Some((path, ecn)) = flight.path {
                let source = self.source_by(path, flight.to);
                self.inject_marked(
                    Inbound { source, ecn, arrived_us: flight.arrived_us },
                    flight.to,
                    &flight.bytes,
                );
                continue;
            }
            if let Some((next, out)) = &mut self.next[flight.to] {
                next.handle_incoming(self.now_us, &flight.bytes, out);
            }
            if self.captures[flight.to].shows(&Packet::new_checked(&flight.bytes).unwrap()) {
                self.gateways[flight.to].handle_incoming(
                    self.now_us,
                    &flight.bytes,
                    &mut self.out[flight.to],
                );
            }
        }
        panic!("the gateways exchange datagrams without end");
    }

    /// Delivers a datagram at `to`, from the other gateway's address.
    pub fn inject(&mut self, to: usize, datagram: &[u8]) {
        self.inject_by(0, to, datagram);
    }

    /// Delivers a datagram at `to`, from the other gateway's address on a path.
    pub fn inject_by(&mut self, path: usize, to: usize, datagram: &[u8]) {
        self.inject_from(self.source_by(path, to), to, datagram);
    }

    /// The other gateway's address on a path, and the socket to which it leads.
    fn source_by(&self, path: usize, to: usize) -> Source {
        Source { door: self.doors[to][path], address: self.places[1 - to][path] }
    }

    /// Delivers a datagram at `to` from anywhere.
    pub fn inject_from(&mut self, from: Source, to: usize, datagram: &[u8]) {
        let from = Inbound { source: from, ecn: Ecn::NotEct, arrived_us: self.now_us };
        self.inject_marked(from, to, datagram);
    }

    /// Delivers a datagram at `to` with a mark.
    pub fn inject_marked(&mut self, from: Inbound, to: usize, datagram: &[u8]) {
        let mut datagram = datagram.to_vec();
        self.gateways[to].handle_inbound(self.now_us, from, &mut datagram, &mut self.out[to]);
    }
}
