//! Many gateways, a network that loses a share of everything, and a virtual clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};

use maelstrom_core::{Config, Gateway, Outbox, PeerConfig, PeerKey, PeerStatus, Schedule};
use testkit::coin;

use crate::pair::{self, A};

/// One-way delay between any two sites.
const DELAY_US: u64 = 5_000;

/// How packets travel between two sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Passive,
    Tunnel,
}

/// A datagram of a gateway, or a packet of a host.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    due_us: u64,
    number: u64,
    from: usize,
    to: usize,
    is_datagram: bool,
    bytes: Vec<u8>,
}

pub(crate) struct Net {
    pub(crate) now_us: u64,
    pub(crate) gateways: Vec<Gateway>,
    outs: Vec<Outbox>,
    wire: BinaryHeap<Reverse<Flight>>,
    /// Datagrams and packets that were sent.
    pub(crate) flights: u64,
    pub(crate) lose: Box<dyn FnMut() -> bool>,
    /// Packets that each site got, and how often.
    pub(crate) got: Vec<HashMap<Vec<u8>, usize>>,
    sites: BTreeMap<SocketAddr, usize>,
    /// Site whose datagrams and packets are all lost.
    silent: Option<usize>,
}

pub(crate) fn address(site: usize) -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, site as u8 + 1), 4700).into()
}

/// A packet from host `10.100.FROM.9` to `10.100.TO.9`.
pub(crate) fn packet(from: usize, to: usize, number: u16) -> Vec<u8> {
    let host = |site: usize| Ipv4Addr::new(10, 100, site as u8, 9);
    let payload: Vec<u8> = (0..40 + number % 90).map(|at| (at * 3 + number) as u8).collect();
    testkit::packet::udp4(host(from), host(to), 7, number, &payload)
}

/// The configuration of a site: its peers are those with which `mode` gives it a connection.
pub(crate) fn config(site: usize, sites: usize, mode: impl Fn(usize, usize) -> Option<Mode>) -> Config {
    let peer = |other: usize| {
        let mode = mode(site.min(other), site.max(other)).filter(|_| other != site)?;
        let mut key = [7; 32];
        (key[0], key[1]) = (site.min(other) as u8, site.max(other) as u8);
        Some(PeerConfig {
            address: address(other),
            networks: vec![format!("10.100.{other}.0/24").parse().unwrap()],
            key: PeerKey::new(key),
            trusts_path: true,
            is_tunnel: mode == Mode::Tunnel,
            ..pair::config(A).peers.remove(0)
        })
    };
    let schedule = Schedule::Sliding { rate: "1/4".parse().unwrap(), window: 48, density: 15 };
    let peers = (0..sites).filter_map(peer).collect();
    Config { listen: address(site), wan_mtu: 600, schedule, peers, ..pair::config(A) }
}

impl Net {
    pub(crate) fn new(configs: Vec<Config>) -> Self {
        let sites = configs.iter().enumerate().map(|(site, config)| (config.listen, site)).collect();
        let gateways: Vec<_> = (configs.into_iter().enumerate())
            .map(|(site, config)| Gateway::new(config, [site as u8 + 1; 32]).unwrap())
            .collect();
        Self {
            now_us: 1_000_000,
            outs: gateways.iter().map(Gateway::outbox).collect(),
            got: gateways.iter().map(|_| HashMap::new()).collect(),
            gateways,
            wire: BinaryHeap::new(),
            flights: 0,
            lose: Box::new(|| false),
            sites,
            silent: None,
        }
    }

    /// Loses everything from and to a site from here on.
    pub(crate) fn cut_off(&mut self, site: usize) {
        self.silent = Some(site);
    }

    /// Creates gateways and waits until all have found their peers.
    pub(crate) fn up(configs: Vec<Config>) -> Self {
        let mut net = Self::new(configs);
        for _ in 0..100 {
            net.advance(20_000);
            if net.gateways.iter().all(|gateway| gateway.peers().all(|peer| peer.is_up)) {
                return net;
            }
        }
        panic!("some gateways do not find each other");
    }

    pub(crate) fn lose(&mut self, seed: u64, share: f64) {
        self.lose = Box::new(coin(seed, share));
    }

    pub(crate) fn status<T>(&self, site: usize, peer: usize, read: impl Fn(&PeerStatus<'_>) -> T) -> T {
        let mut peers = self.gateways[site].peers();
        read(&peers.find(|status| status.config.address == address(peer)).unwrap())
    }

    /// Sends a packet of a host by the way that the files of its gateway state.
    pub(crate) fn send(&mut self, from: usize, to: usize, packet: Vec<u8>) {
        let (gateway, out) = (&mut self.gateways[from], &mut self.outs[from]);
        let mut peers = gateway.config().peers.iter();
        let is_tunnel = peers.find(|peer| peer.address == address(to)).unwrap().is_tunnel;
        if is_tunnel {
            gateway.handle_tunnelled(self.now_us, &packet, out);
            gateway.flush_tunnels(self.now_us, out);
        } else {
            gateway.handle_outgoing(self.now_us, &packet, out);
            self.fly(from, to, packet, false);
        }
        self.empty(from);
    }

    /// Lets the gateway of a site hear a packet on the LAN of a section.
    pub(crate) fn hear(&mut self, site: usize, section: usize, packet: &[u8]) {
        let (gateway, out) = (&mut self.gateways[site], &mut self.outs[site]);
        gateway.handle_group_packet(self.now_us, section, packet, out);
        gateway.flush_tunnels(self.now_us, out);
        self.empty(site);
    }

    fn fly(&mut self, from: usize, to: usize, bytes: Vec<u8>, is_datagram: bool) {
        self.flights += 1;
        if !(self.lose)() && self.silent.is_none_or(|silent| from != silent && to != silent) {
            let (due_us, number) = (self.now_us + DELAY_US, self.flights);
            self.wire.push(Reverse(Flight { due_us, number, from, to, is_datagram, bytes }));
        }
    }

    /// Takes the output of a gateway.
    fn empty(&mut self, site: usize) {
        let out = &mut self.outs[site];
        let datagrams: Vec<_> =
            out.datagrams.iter().map(|(envelope, bytes)| (envelope.peer, bytes.to_vec())).collect();
        for (_, packet) in out.recovered.iter() {
            // A driver multicasts what may be on the LAN of its group.
            let is_to_group = packet[16] >= 224;
            if !is_to_group || self.gateways[site].admit_to_group(self.now_us, packet).is_some() {
                *self.got[site].entry(packet.to_vec()).or_default() += 1;
            }
        }
        out.datagrams.clear();
        out.recovered.clear();
        for (peer, bytes) in datagrams {
            let to = self.sites[&self.gateways[site].config().peers[peer].address];
            self.fly(site, to, bytes, true);
        }
    }

    /// Lets time pass, timers fire and everything on the way arrive.
    pub(crate) fn advance(&mut self, by_us: u64) {
        let end_us = self.now_us + by_us;
        loop {
            let arrival = self.wire.peek().map(|Reverse(flight)| flight.due_us);
            let timers = self.gateways.iter().filter_map(Gateway::poll_timeout).min();
            let Some(next_us) = arrival.into_iter().chain(timers).min().filter(|&at_us| at_us <= end_us)
            else {
                break;
            };
            self.now_us = self.now_us.max(next_us);
            while self.wire.peek().is_some_and(|Reverse(flight)| flight.due_us <= self.now_us) {
                let Reverse(flight) = self.wire.pop().unwrap();
                self.deliver(flight);
            }
            for site in 0..self.gateways.len() {
                if self.gateways[site].poll_timeout().is_some_and(|due_us| due_us <= self.now_us) {
                    self.gateways[site].handle_timeout(self.now_us, &mut self.outs[site]);
                    self.empty(site);
                }
            }
        }
        self.now_us = end_us;
    }

    fn deliver(&mut self, flight: Flight) {
        let Flight { from, to, is_datagram, mut bytes, .. } = flight;
        let (gateway, out) = (&mut self.gateways[to], &mut self.outs[to]);
        if is_datagram {
            gateway.handle_datagram(self.now_us, address(from), &mut bytes, out);
        } else {
            gateway.handle_incoming(self.now_us, &bytes, out);
            *self.got[to].entry(bytes).or_default() += 1;
        }
        self.empty(to);
    }
}
