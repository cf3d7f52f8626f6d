//! A network in virtual time: nodes, and datagrams that are lost, late, doubled or cut off. The same random
//! seed gives the same trace.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses a part of it")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;

use membership::{Gossip, GossipConfig, Me, MemberFile, Membership, Output, Static, StaticConfig};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::{GroupId, NodeId};

pub const SECOND_US: u64 = 1_000_000;

/// The address of the node at a place.
pub fn address(place: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (place >> 8) as u8, place as u8], 7901))
}

#[derive(Default)]
pub struct Sent(pub Vec<(SocketAddr, Vec<u8>)>);

impl Output for Sent {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        assert!(datagram.len() <= membership::wire::DATAGRAM_MAX, "{} bytes", datagram.len());
        assert!(!to.ip().is_unspecified() && to.port() != 0);
        self.0.push((to, datagram.to_vec()));
    }
}

struct Host {
    node: Membership,
    due_us: Option<u64>,
    id: NodeId,
    life: u64,
    groups: Vec<GroupId>,
}

type InFlight = Reverse<(u64, u64, SocketAddr, SocketAddr, Vec<u8>)>;

pub struct Net {
    pub now_us: u64,
    rng: ChaCha8Rng,
    hosts: BTreeMap<SocketAddr, Host>,
    /// Times at which hosts have timers due.
    due: BTreeSet<(u64, SocketAddr)>,
    in_flight: BinaryHeap<InFlight>,
    serial: u64,
    /// Share of datagrams lost.
    pub loss: f64,
    pub delay_us: std::ops::Range<u64>,
    /// Partitions: nodes of different sides cannot reach each other.
    pub sides: BTreeMap<SocketAddr, u8>,
    /// Nodes that do nothing, with the time at which they wake.
    asleep: BTreeMap<SocketAddr, u64>,
    pub sent: u64,
    pub sent_bytes: u64,
    /// Bytes sent to each address.
    pub bytes_to: BTreeMap<SocketAddr, u64>,
    /// The first datagrams sent, for replays.
    pub recorded: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    pub record_max: usize,
}

impl Net {
    pub fn new(seed: u64) -> Self {
        Self {
            now_us: 1_000,
            rng: ChaCha8Rng::seed_from_u64(seed),
            hosts: BTreeMap::new(),
            due: BTreeSet::new(),
            in_flight: BinaryHeap::new(),
            serial: 0,
            loss: 0.0,
            delay_us: 50..400,
            sides: BTreeMap::new(),
            asleep: BTreeMap::new(),
            sent: 0,
            sent_bytes: 0,
            bytes_to: BTreeMap::new(),
            recorded: Vec::new(),
            record_max: 0,
        }
    }

    pub fn draw(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }

    fn chance(&mut self, of: f64) -> bool {
        of > 0.0 && (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= of
    }

    /// Starts a node, which replaces any at the same place. Its life is the time.
    pub fn start(&mut self, place: usize, build: impl FnOnce(Me, u64) -> Membership) -> NodeId {
        let id = NodeId(self.rng.next_u32());
        let me = Me { id, address: address(place), life: 1_700_000_000_000_000 + self.now_us };
        let node = build(me, self.rng.next_u64());
        if self.hosts.contains_key(&address(place)) {
            self.crash(place);
        }
        self.hosts.insert(address(place), Host { node, due_us: None, id, life: me.life, groups: Vec::new() });
        self.note_due(address(place));
        id
    }

    pub fn start_gossip(&mut self, place: usize, seeds: &[usize]) -> NodeId {
        self.start_gossip_with(place, seeds, GossipConfig::lan())
    }

    pub fn start_gossip_with(&mut self, place: usize, seeds: &[usize], config: GossipConfig) -> NodeId {
        let seeds: Vec<_> = seeds.iter().map(|&seed| address(seed)).collect();
        self.start(place, |me, chance| Membership::Gossip(Gossip::new(config, me, &seeds, chance).unwrap()))
    }

    pub fn start_static(&mut self, place: usize, file: &MemberFile) -> NodeId {
        self.start(place, |me, chance| {
            Membership::Static(Static::new(StaticConfig::default(), me, file, chance).unwrap())
        })
    }

    /// Lets a node continue with another file.
    pub fn change_file(&mut self, place: usize, file: &MemberFile) {
        let host = self.hosts.get_mut(&address(place)).expect("it lives");
        let Membership::Static(provider) = &mut host.node else { panic!("it has no file") };
        provider.change_file(self.now_us, file);
        self.note_due(address(place));
    }

    pub fn crash(&mut self, place: usize) {
        self.remove(place);
    }

    /// Stops a node for a while. Datagrams to it wait, and arrive after its timers.
    pub fn put_to_sleep(&mut self, place: usize, span_us: u64) {
        self.asleep.insert(address(place), self.now_us + span_us);
        self.note_due(address(place));
    }

    fn remove(&mut self, place: usize) -> Host {
        let host = self.hosts.remove(&address(place)).expect("it lived");
        self.due.retain(|&(_, at)| at != address(place));
        host
    }

    fn note_due(&mut self, at: SocketAddr) {
        let Some(host) = self.hosts.get_mut(&at) else { return };
        let until_us = self.asleep.get(&at).copied().unwrap_or(0);
        let due_us = host.node.poll_timeout().map(|due_us| due_us.max(until_us));
        if due_us != host.due_us {
            host.due_us.map(|due_us| self.due.remove(&(due_us, at)));
            due_us.map(|due_us| self.due.insert((due_us, at)));
            host.due_us = due_us;
        }
    }

    pub fn leave(&mut self, place: usize) {
        let mut host = self.remove(place);
        let mut sent = Sent::default();
        host.node.leave(self.now_us, &mut sent);
        self.carry(address(place), sent);
    }

    pub fn set_groups(&mut self, place: usize, groups: impl IntoIterator<Item = u64>) {
        // Uses all 64 bits, as hashes do.
        let spread = |group: u64| GroupId(group.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut groups: Vec<GroupId> = groups.into_iter().map(spread).collect();
        groups.sort_unstable();
        groups.dedup();
        self.set_group_ids(place, groups);
    }

    pub fn set_group_ids(&mut self, place: usize, groups: Vec<GroupId>) {
        let host = self.hosts.get_mut(&address(place)).expect("it lives");
        let mut sent = Sent::default();
        host.node.set_groups(self.now_us, &groups, &mut sent);
        host.groups = groups;
        self.carry(address(place), sent);
    }

    pub fn id(&self, place: usize) -> NodeId {
        self.hosts[&address(place)].id
    }

    pub fn group_ids(&self, place: usize) -> Vec<GroupId> {
        self.hosts[&address(place)].groups.clone()
    }

    pub fn life(&self, place: usize) -> u64 {
        self.hosts[&address(place)].life
    }

    pub fn node(&self, place: usize) -> &Membership {
        &self.hosts[&address(place)].node
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Membership> {
        self.hosts.values().map(|host| &host.node)
    }

    /// Puts a forged datagram into the network.
    pub fn inject(&mut self, from: SocketAddr, to: SocketAddr, datagram: Vec<u8>) {
        self.serial += 1;
        self.in_flight.push(Reverse((self.now_us, self.serial, from, to, datagram)));
    }

    fn carry(&mut self, from: SocketAddr, sent: Sent) {
        self.note_due(from);
        for (to, datagram) in sent.0 {
            assert_ne!(from, to, "a node does not send to itself");
            self.sent += 1;
            self.sent_bytes += datagram.len() as u64;
            *self.bytes_to.entry(to).or_default() += datagram.len() as u64;
            if self.recorded.len() < self.record_max {
                self.recorded.push((from, to, datagram.clone()));
            }
            if self.sides.get(&from) != self.sides.get(&to) || self.chance(self.loss) {
                continue;
            }
            let delay_us = self.delay_us.start + self.draw(self.delay_us.end - self.delay_us.start);
            self.serial += 1;
            self.in_flight.push(Reverse((self.now_us + delay_us, self.serial, from, to, datagram)));
        }
    }

    /// Runs for a span of time.
    pub fn run_us(&mut self, span_us: u64) {
        let end_us = self.now_us + span_us;
        loop {
            let arrival = self.in_flight.peek().map(|Reverse((at_us, ..))| *at_us);
            let timer = self.due.first().copied();
            let next = arrival.into_iter().chain(timer.map(|(due_us, _)| due_us)).min();
            let Some(next_us) = next.filter(|&next_us| next_us <= end_us) else { break };
            self.now_us = self.now_us.max(next_us);
            let mut sent = Sent::default();
            if arrival == Some(next_us) {
                let Some(Reverse((_, serial, from, to, datagram))) = self.in_flight.pop() else { break };
                if let Some(&until_us) = self.asleep.get(&to).filter(|&&until_us| until_us >= self.now_us) {
                    self.in_flight.push(Reverse((until_us + 10, serial, from, to, datagram)));
                    continue;
                }
                let Some(host) = self.hosts.get_mut(&to) else { continue };
                host.node.handle_datagram(self.now_us, from, &datagram, &mut sent);
                self.carry(to, sent);
            } else if let Some((_, at)) = timer {
                let host = self.hosts.get_mut(&at).expect("it has a timer");
                host.node.handle_timeout(self.now_us, &mut sent);
                assert!(
                    host.node.poll_timeout().is_none_or(|due_us| due_us > self.now_us),
                    "no timer that is due remains"
                );
                self.carry(at, sent);
            }
        }
        self.now_us = end_us;
    }

    /// Returns the mistakes in the views: every node should know every other, with
    /// all its groups, and no more.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (at, host) in &self.hosts {
            let mut expected: BTreeMap<NodeId, (SocketAddr, &[GroupId])> = (self.hosts.iter())
                .filter(|(other, _)| *other != at)
                .map(|(&other, member)| (member.id, (other, member.groups.as_slice())))
                .collect();
            for member in host.node.members() {
                match expected.remove(&member.id) {
                    None => wrong.push(format!(
                        "{at} knows {} of {}, which does not exist",
                        member.id, member.address
                    )),
                    Some((address, _)) if address != member.address => wrong.push(format!("{at}: {address}")),
                    Some((address, groups)) if *groups != *member.groups => wrong.push(format!(
                        "{at}: {} of {} groups of {address}",
                        member.groups.len(),
                        groups.len()
                    )),
                    Some(_) => {}
                }
            }
            wrong.extend(expected.values().map(|(other, _)| format!("{at} does not know {other}")));
        }
        wrong
    }

    /// Runs until all views are right. Returns the time that it took.
    pub fn run_until_right(&mut self, at_most_us: u64) -> u64 {
        self.run_until(at_most_us, |net| net.wrong().is_empty())
    }

    pub fn run_until(&mut self, at_most_us: u64, done: impl Fn(&Net) -> bool) -> u64 {
        let start_us = self.now_us;
        while !done(self) {
            let passed_us = self.now_us - start_us;
            if passed_us >= at_most_us {
                let wrong = self.wrong();
                let some = &wrong[..wrong.len().min(8)];
                panic!("after {passed_us} us, {} views are wrong: {some:#?}", wrong.len());
            }
            self.run_us(50_000);
        }
        self.now_us - start_us
    }
}
