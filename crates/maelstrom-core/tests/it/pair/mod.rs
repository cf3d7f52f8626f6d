//! Two gateways, a link that loses what the test says, and a virtual clock: no sockets, no threads.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses a part of it")]

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use maelstrom_core::{Config, Gateway, Outbox, PeerConfig, PeerKey, PeerStatus, Schedule};

pub const A: usize = 0;
pub const B: usize = 1;

pub fn address(side: usize) -> SocketAddr {
    SocketAddr::from(([10, 81, 9, side as u8 + 1], 4700))
}

pub fn config(side: usize) -> Config {
    Config {
        listen: address(side),
        wan_mtu: 1500,
        schedule: Schedule::default(),
        delayed: false,
        max_delay_us: 20_000,
        name_bits: 32,
        peers: vec![PeerConfig {
            address: address(1 - side),
            networks: vec![format!("10.81.{}.0/24", 2 - side).parse().unwrap()],
            key: PeerKey::new([5; 32]),
        }],
    }
}

/// An IPv4 UDP packet from site `from`'s host 10 to the other's.
pub fn udp(from: usize, id: u16, payload: &[u8]) -> Vec<u8> {
    let total = 28 + payload.len();
    let mut packet = vec![0; total];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    packet[9] = 17;
    packet[12..16].copy_from_slice(&Ipv4Addr::new(10, 81, from as u8 + 1, 10).octets());
    packet[16..20].copy_from_slice(&Ipv4Addr::new(10, 81, 2 - from as u8, 10).octets());
    packet[24..26].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    packet[28..].copy_from_slice(payload);
    maelstrom_core::packet::restore(&mut packet, maelstrom_core::packet::MutableFields { ttl: 63, tos: 0 });
    packet
}

/// A repeatable coin.
pub fn coin(seed: u64, probability: f64) -> impl FnMut() -> bool {
    let mut state = seed.wrapping_mul(2) + 1;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as f64) < probability * (1u64 << 31) as f64
    }
}

/// The payload of the `n`th packet, of a length of its own.
pub fn payload(n: u32) -> Vec<u8> {
    (0..60 + n % 1100).map(|k| (k * 7 + n) as u8).collect()
}

/// Sends `count` distinct packets from A to B under a loss of `probability` of packets and repairs; returns what was lost.
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

/// Something on its way over the link.
struct Flight {
    due_us: u64,
    to: usize,
    bytes: Vec<u8>,
    /// Of the repair channel; else a packet of a host.
    is_datagram: bool,
}

pub struct Pair {
    pub now_us: u64,
    pub gateways: [Gateway; 2],
    pub out: [Outbox; 2],
    /// What is on its way, in order of sending.
    wire: VecDeque<Flight>,
    /// How long that takes.
    pub delay_us: u64,
    /// Packets recovered at each side.
    pub recovered: [Vec<Vec<u8>>; 2],
    /// Whether the next datagram is lost.
    pub lose_datagram: Box<dyn FnMut() -> bool>,
}

impl Pair {
    pub fn new(configs: [Config; 2]) -> Self {
        let gateways = configs.map(|config| {
            let seed = if config.listen == address(A) { 1 } else { 2 };
            Gateway::new(config, [seed; 32]).unwrap()
        });
        let out = [gateways[0].outbox(), gateways[1].outbox()];
        Self {
            now_us: 1_000_000,
            gateways,
            out,
            wire: VecDeque::new(),
            delay_us: 0,
            recovered: Default::default(),
            lose_datagram: Box::new(|| false),
        }
    }

    /// Two gateways that know each other.
    pub fn up(configs: [Config; 2]) -> Self {
        let mut pair = Self::new(configs);
        pair.run_until_up();
        pair
    }

    pub fn run_until_up(&mut self) {
        for _ in 0..100 {
            self.advance(10_000);
            if (0..2).all(|side| self.status(side, |peer| peer.is_up)) {
                return;
            }
        }
        panic!("the gateways did not find each other");
    }

    pub fn status<T>(&self, side: usize, read: impl FnOnce(&PeerStatus<'_>) -> T) -> T {
        read(&self.gateways[side].peers().next().unwrap())
    }

    /// Lets time pass, timers fire and datagrams arrive.
    pub fn advance(&mut self, by_us: u64) {
        let end_us = self.now_us + by_us;
        loop {
            self.exchange();
            let timeouts = (0..2).filter_map(|side| self.gateways[side].poll_timeout());
            let next = timeouts.chain(self.wire.front().map(|flight| flight.due_us)).min().unwrap();
            if next > end_us {
                break;
            }
            self.now_us = self.now_us.max(next);
            for side in 0..2 {
                self.gateways[side].handle_timeout(self.now_us, &mut self.out[side]);
            }
        }
        self.now_us = end_us;
    }

    /// One packet leaves `from`; `lost` says whether the link takes it.
    pub fn send(&mut self, from: usize, packet: &[u8], lost: bool) {
        self.gateways[from].handle_outgoing(self.now_us, packet, &mut self.out[from]);
        if !lost {
            let mut routed = packet.to_vec();
            routed[8] -= 1;
            routed[10] = 0;
            self.launch(1 - from, routed, false);
        }
        self.exchange();
    }

    /// Sends 320 packets each way, of which the link takes one in forty; returns those, by side.
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

    /// A packet of the other site's host arrives at `to`.
    pub fn arrive(&mut self, to: usize, packet: &[u8]) {
        self.gateways[to].handle_incoming(self.now_us, packet, &mut self.out[to]);
        self.exchange();
    }

    /// One packet leaves `from`, and arrives `late_us` after the repairs that it completes.
    pub fn send_overtaken(&mut self, from: usize, packet: &[u8], late_us: u64) {
        self.gateways[from].handle_outgoing(self.now_us, packet, &mut self.out[from]);
        self.advance(late_us);
        self.gateways[1 - from].handle_incoming(self.now_us, packet, &mut self.out[1 - from]);
        self.exchange();
    }

    fn launch(&mut self, to: usize, bytes: Vec<u8>, is_datagram: bool) {
        self.wire.push_back(Flight { due_us: self.now_us + self.delay_us, to, bytes, is_datagram });
    }

    /// Hands over what is due until nothing moves.
    pub fn exchange(&mut self) {
        for _ in 0..10_000 {
            for side in 0..2 {
                let sent: Vec<_> =
                    self.out[side].datagrams.iter().map(|(_, datagram)| datagram.to_vec()).collect();
                self.out[side].datagrams.clear();
                for datagram in sent {
                    if !(self.lose_datagram)() {
                        self.launch(1 - side, datagram, true);
                    }
                }
                self.recovered[side]
                    .extend(self.out[side].recovered.iter().map(|((), packet)| packet.to_vec()));
                self.out[side].recovered.clear();
            }
            let Some(flight) = self.wire.pop_front_if(|flight| flight.due_us <= self.now_us) else { return };
            if flight.is_datagram {
                self.inject(flight.to, &flight.bytes);
            } else {
                self.gateways[flight.to].handle_incoming(
                    self.now_us,
                    &flight.bytes,
                    &mut self.out[flight.to],
                );
            }
        }
        panic!("the gateways talk without end");
    }

    /// A datagram reaches `to`, from the other gateway's address.
    pub fn inject(&mut self, to: usize, datagram: &[u8]) {
        let mut datagram = datagram.to_vec();
        self.gateways[to].handle_datagram(self.now_us, address(1 - to), &mut datagram, &mut self.out[to]);
    }
}
