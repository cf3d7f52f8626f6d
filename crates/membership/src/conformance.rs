//! A test that every provider of membership must pass: nodes with the provider on a network in virtual time.
//!
//! The checks are those on which a node relies. Each panics with what was expected and what was seen.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::{GroupId, NodeId};

use crate::me::Me;
use crate::output::Output;
use crate::view::View;
use crate::wire::FIRST_BYTE;

/// Number of places for nodes.
pub const PLACES: usize = 5;
/// Time without changes in which the version of a view must not rise, in microseconds.
const QUIET_US: u64 = 20_000_000;
/// Maximum number of calls of a provider at one time.
const CALLS_MAX: usize = 1_000;
/// Delay of a datagram in microseconds.
const DELAY_US: u64 = 200;
/// Share of datagrams lost, in thousandths.
const LOSS: u64 = 20;

/// A cluster whose nodes have the provider that is examined.
pub trait Cluster {
    /// Returns the provider of the node at a place, 0 to [`PLACES`] - 1, whose address is that of
    /// [`address`]. The node at place 0 lives from the beginning to the end. A place may have several lives,
    /// one after the other.
    fn start(&mut self, now_us: u64, place: usize, me: Me, random_seed: u64) -> Box<dyn View>;

    /// Returns the longest time after a change until all views are right, in microseconds.
    fn settles_us(&self) -> u64;

    /// Lets services that the nodes share go on, such as a registry.
    fn advance(&mut self, now_us: u64) {
        let _ = now_us;
    }
}

/// Returns the address of the node at a place.
pub fn address(place: usize) -> SocketAddr {
    SocketAddr::from(([10, 7, 0, place as u8 + 1], 7901))
}

/// Checks a provider. All random decisions follow from `seed`.
///
/// ```
/// use membership::conformance::{Cluster, address, check};
/// use membership::{Gossip, GossipConfig, Me, View};
///
/// struct OfGossip;
/// impl Cluster for OfGossip {
///     fn start(&mut self, _: u64, place: usize, me: Me, seed: u64) -> Box<dyn View> {
///         let seeds = if place == 0 { vec![] } else { vec![address(0)] };
///         Box::new(Gossip::new(GossipConfig::lan(), me, &seeds, seed).expect("valid settings"))
///     }
///     fn settles_us(&self) -> u64 {
///         15_000_000
///     }
/// }
/// check(&mut OfGossip, 1);
/// ```
///
/// # Panics
/// If the provider breaks a promise of [`View`].
pub fn check(cluster: &mut dyn Cluster, seed: u64) {
    let mut net = Net::new(cluster, seed);
    for place in 0..PLACES {
        net.start(place);
    }
    net.settle("nodes that have started");

    for place in 0..PLACES {
        net.set_groups(place, &[7, place as u64 + 100, 3]);
    }
    net.settle("groups that were joined");
    net.set_groups(1, &[]);
    net.set_groups(2, &[9]);
    net.settle("groups that were left");
    net.check_quiet();

    net.leave(3);
    net.settle("a node that has left");
    net.crash(4);
    net.settle("a node that has crashed");
    net.start(4);
    net.set_groups(4, &[5]);
    net.settle("a new life at the address of a crashed node");
    net.crash(2);
    net.start(2);
    net.settle("a life that follows another one at once");

    net.send_nonsense();
    net.settle("nonsense from strangers and from members");
    net.check_quiet();
}

struct Host {
    id: NodeId,
    view: Box<dyn View>,
    groups: Vec<GroupId>,
    version: u64,
    /// Ids, addresses and groups as of that version.
    seen: Vec<(NodeId, SocketAddr, Vec<GroupId>)>,
}

#[derive(Default)]
struct Sent(Vec<(SocketAddr, Vec<u8>)>);

impl Output for Sent {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        self.0.push((to, datagram.to_vec()));
    }
}

/// Time of arrival, serial number, sender, receiver, and the datagram.
type Flight = (u64, u64, SocketAddr, SocketAddr, Vec<u8>);

struct Net<'a> {
    cluster: &'a mut dyn Cluster,
    now_us: u64,
    rng: ChaCha8Rng,
    hosts: BTreeMap<usize, Host>,
    flights: BinaryHeap<Reverse<Flight>>,
    serial: u64,
}

impl<'a> Net<'a> {
    fn new(cluster: &'a mut dyn Cluster, seed: u64) -> Self {
        let (rng, hosts) = (ChaCha8Rng::seed_from_u64(seed), BTreeMap::new());
        Self { cluster, now_us: 1_000_000, rng, hosts, flights: BinaryHeap::new(), serial: 0 }
    }

    fn start(&mut self, place: usize) {
        let id = NodeId(self.rng.next_u32());
        let me = Me { id, address: address(place), life: 1_700_000_000_000_000 + self.now_us };
        let view = self.cluster.start(self.now_us, place, me, self.rng.next_u64());
        let version = view.version();
        self.hosts.insert(place, Host { id, view, groups: Vec::new(), version, seen: Vec::new() });
        self.examine(place);
    }

    fn crash(&mut self, place: usize) {
        self.hosts.remove(&place);
    }

    fn leave(&mut self, place: usize) {
        let (now_us, mut sent) = (self.now_us, Sent::default());
        let Some(mut host) = self.hosts.remove(&place) else { return };
        host.view.leave(now_us, &mut sent);
        self.carry(place, sent);
        let mut sent = Sent::default();
        host.view.handle_timeout(now_us + 60_000_000, &mut sent);
        host.view.handle_datagram(now_us + 60_000_000, address(0), &[FIRST_BYTE], &mut sent);
        assert!(sent.0.is_empty(), "leave: expected silence, saw {} datagrams", sent.0.len());
    }

    fn set_groups(&mut self, place: usize, groups: &[u64]) {
        let Some(host) = self.hosts.get_mut(&place) else { return };
        let mut groups: Vec<GroupId> = groups.iter().map(|&group| GroupId(group << 33 | group)).collect();
        let mut sent = Sent::default();
        host.view.set_groups(self.now_us, &groups, &mut sent);
        groups.sort_unstable();
        host.groups = groups;
        self.carry(place, sent);
    }

    fn carry(&mut self, from: usize, sent: Sent) {
        for (to, datagram) in sent.0 {
            assert!(
                to.port() != 0 && !to.ip().is_unspecified(),
                "send: expected an address of a node, saw {to}"
            );
            assert_ne!(to, address(from), "send: expected no datagrams to the node itself");
            if self.rng.next_u64() % 1_000 >= LOSS {
                self.launch(address(from), to, datagram);
            }
        }
        self.examine(from);
    }

    fn launch(&mut self, from: SocketAddr, to: SocketAddr, datagram: Vec<u8>) {
        self.serial += 1;
        let at_us = self.now_us + DELAY_US + self.rng.next_u64() % DELAY_US;
        self.flights.push(Reverse((at_us, self.serial, from, to, datagram)));
    }

    /// Checks what must hold after every call.
    fn examine(&mut self, place: usize) {
        let Some(host) = self.hosts.get_mut(&place) else { return };
        let members = host.view.members();
        let members: Vec<_> =
            members.map(|member| (member.id, member.address, member.groups.to_vec())).collect();
        let version = host.view.version();
        assert!(version >= host.version, "version: expected no less than {}, saw {version}", host.version);
        assert!(
            members.is_sorted_by(|one, other| one.0 < other.0),
            "members: expected each id once, in order, saw {members:?}"
        );
        for (id, address, groups) in &members {
            assert_ne!(*id, host.id, "members: expected the other nodes, saw the node itself at {address}");
            assert!(
                groups.is_sorted_by(|one, other| one < other),
                "members: expected each group once, in order, saw {groups:?}"
            );
        }
        let has_changed = members != host.seen;
        assert!(
            !has_changed || version > host.version,
            "version: expected more than {version} after a change of members"
        );
        (host.version, host.seen) = (version, members);
    }

    /// Lets time pass.
    fn run(&mut self, span_us: u64) {
        let end_us = self.now_us + span_us;
        let mut calls = (self.now_us, 0);
        loop {
            let arrival = self.flights.peek().map(|Reverse(flight)| flight.0);
            let timers =
                self.hosts.iter().filter_map(|(&place, host)| Some((host.view.poll_timeout()?, place)));
            let timer = timers.min();
            let next_us = arrival.into_iter().chain(timer.map(|(due_us, _)| due_us)).min();
            let Some(next_us) = next_us.filter(|&next_us| next_us <= end_us) else { break };
            if next_us > self.now_us {
                self.now_us = next_us;
                self.cluster.advance(next_us);
            }
            calls = if calls.0 == self.now_us { (calls.0, calls.1 + 1) } else { (self.now_us, 1) };
            assert!(calls.1 <= CALLS_MAX, "poll_timeout: expected a later time after handle_timeout");
            let mut sent = Sent::default();
            if arrival == Some(next_us) {
                let Some(Reverse((_, _, from, to, datagram))) = self.flights.pop() else { break };
                let Some(place) = (0..PLACES).find(|&place| address(place) == to) else { continue };
                let Some(host) = self.hosts.get_mut(&place) else { continue };
                host.view.handle_datagram(self.now_us, from, &datagram, &mut sent);
                self.carry(place, sent);
            } else if let Some((_, place)) = timer
                && let Some(host) = self.hosts.get_mut(&place)
            {
                host.view.handle_timeout(self.now_us, &mut sent);
                self.carry(place, sent);
            }
        }
        self.now_us = end_us;
        self.cluster.advance(end_us);
    }

    /// Returns the first mistake in the views.
    fn mistake(&self) -> Option<String> {
        for (at, host) in &self.hosts {
            let others = self.hosts.iter().filter(|(other, _)| *other != at);
            let mut expected: Vec<_> =
                others.map(|(&place, other)| (other.id, address(place), other.groups.clone())).collect();
            expected.sort_unstable();
            if host.seen != expected {
                let seen = &host.seen;
                return Some(format!("at {}: expected members {expected:?}, saw {seen:?}", address(*at)));
            }
        }
        None
    }

    /// Waits until all views are right.
    fn settle(&mut self, after: &str) {
        let end_us = self.now_us + self.cluster.settles_us();
        while let Some(mistake) = self.mistake() {
            assert!(self.now_us < end_us, "{after}: {mistake}");
            self.run(20_000);
        }
    }

    /// Checks that nothing changes without a cause.
    fn check_quiet(&mut self) {
        let versions = |net: &Self| net.hosts.values().map(|host| host.version).collect::<Vec<u64>>();
        let before = versions(self);
        self.run(QUIET_US);
        assert_eq!(versions(self), before, "version: expected no change while nothing happens");
    }

    /// Sends datagrams that no provider has sent.
    fn send_nonsense(&mut self) {
        let stranger = SocketAddr::from(([10, 7, 9, 9], 7901));
        for number in 0..400 {
            let length = 1 + self.rng.next_u64() as usize % 300;
            let mut datagram: Vec<u8> = (0..length).map(|_| self.rng.next_u64() as u8).collect();
            datagram[0] = FIRST_BYTE;
            let from = [stranger, address(0), address(1)][number % 3];
            let to = address([1, 2, 4][number / 3 % 3]);
            if from != to {
                self.launch(from, to, datagram);
            }
        }
        self.run(1_000_000);
    }
}
