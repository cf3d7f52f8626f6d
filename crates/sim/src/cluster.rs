//! Nodes on a network in virtual time: they join, crash, are partitioned, learn of each other, and send.
//!
//! A node is numbered in the order of joining, and a number is never reused. A node that returns is another
//! node, as in reality, where each start draws a new id.

use std::collections::HashMap;
use std::rc::Rc;

use membership::GossipConfig;
use ricochet_core::message::{Origin, SendOptions, To};
use ricochet_core::node::NodeConfigError;
use ricochet_core::wire::Datagram;
use ricochet_core::{GroupConfig, GroupId, Groups, Member, Node, NodeConfig, NodeId, StreamKey, View};
use simnet::virtual_net::{Conditions, Event, Intake, VirtualNet};

use crate::gossip::Gossiping;
use crate::ledger::{Ledger, Outgoing};
use crate::ordered::Ordered;
use crate::outbox::{Outbox, Report};
use crate::record::{Record, Recorded};

/// Length of the Ethernet, IPv4 and UDP headers of a datagram.
pub const HEADERS: usize = 14 + 20 + 8;

/// Classes of datagrams with separate loss models.
const DATA: u8 = 0;
const OTHER: u8 = 1;

/// One in this many calls of nodes is timed.
const TIMED_EVERY: u64 = 17;

/// Settings of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Network conditions. The first loss model is for data packets, the second for all other datagrams.
    pub conditions: Conditions,
    /// Whether the first loss model applies to all datagrams in the order of arrival.
    pub one_loss: bool,
    /// Configuration of each node; the id is overwritten.
    pub node: NodeConfig,
    /// Rate of fire of all groups.
    pub c: u8,
    /// Random seed of everything.
    pub seed: u64,
    /// Reads the processor time of this thread in nanoseconds, if the nodes' share of it is measured.
    pub clock: Option<fn() -> u64>,
    /// Gossip, if nodes learn of each other by it. Otherwise they know the view that they were
    /// [given](Cluster::set_view).
    pub gossip: Option<GossipConfig>,
}

impl ClusterConfig {
    /// Returns the papers' setting of a node, with 50 µs from socket to socket (Ricochet §5) and no loss.
    pub fn new(seed: u64) -> Self {
        Self {
            conditions: Conditions { delay_us: 50, ..Conditions::default() },
            one_loss: false,
            node: NodeConfig::new(NodeId(0)),
            c: 5,
            seed,
            clock: None,
            gossip: None,
        }
    }
}

/// A node, from its start to its end.
pub struct Life {
    /// The node itself.
    pub node: Node,
    /// Its groups, in order.
    pub groups: Vec<GroupId>,
    /// Whether it is running.
    pub up: bool,
    ordered: Option<Ordered>,
    gossip: Option<Gossiping>,
}

/// Counters of one kind of datagrams on the wires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// Datagrams that left a node; a multicast one counts once.
    pub sent: u64,
    /// Datagrams on their way to a node; a multicast one counts once per receiver.
    pub copies: u64,
    /// Datagrams that reached a node.
    pub arrived: u64,
    /// Bytes of frames on the wires of all nodes. A frame counts once at its sender and once at each
    /// receiver.
    pub bytes: u64,
}

/// Sampled processor time of the nodes.
#[derive(Clone, Copy, Debug, Default)]
struct Timing {
    calls: u64,
    samples: u64,
    sampled_ns: u64,
    /// Cost of reading the clock twice.
    bias_ns: u64,
}

/// The nodes, the network between them, and the ledger of their packets.
pub struct Cluster {
    config: ClusterConfig,
    net: VirtualNet,
    lives: Vec<Life>,
    by_id: HashMap<NodeId, usize>,
    members: HashMap<GroupId, Rc<[usize]>>,
    view: View,
    ledger: Ledger,
    outbox: Outbox,
    payload: Vec<u8>,
    receivers: Vec<usize>,
    wires: [Wire; 16],
    timing: Timing,
    record: Record,
}

impl Cluster {
    /// Makes a cluster without nodes.
    pub fn new(config: ClusterConfig) -> Self {
        let timing = Timing { bias_ns: config.clock.map_or(0, bias_ns), ..Timing::default() };
        Self {
            net: VirtualNet::new(config.conditions.clone(), config.seed),
            config,
            lives: Vec::new(),
            by_id: HashMap::new(),
            members: HashMap::new(),
            view: View::default(),
            ledger: Ledger::new(),
            outbox: Outbox::default(),
            payload: Vec::new(),
            receivers: Vec::new(),
            wires: [Wire::default(); 16],
            timing,
            record: Record::default(),
        }
    }

    /// Makes a cluster of these nodes, which know each other from the start.
    ///
    /// # Errors
    /// If the configuration of a node is out of range.
    pub fn of(grouping: &[Vec<GroupId>], config: ClusterConfig) -> Result<Self, NodeConfigError> {
        let mut cluster = Self::new(config);
        let member = |(at, groups): (usize, &Vec<GroupId>)| Member::new(NodeId(at as u32), groups.clone());
        cluster.view = View::new(grouping.iter().enumerate().map(member));
        for groups in grouping {
            cluster.join(groups)?;
        }
        Ok(cluster)
    }

    /// Adds a node, which knows all others. They learn of it by [`Cluster::update_views`].
    ///
    /// # Errors
    /// If the configuration of nodes is out of range.
    pub fn join(&mut self, groups: &[GroupId]) -> Result<usize, NodeConfigError> {
        self.join_with(groups, self.config.node)
    }

    /// Adds a node with its own configuration, except for the id.
    ///
    /// # Errors
    /// If it is out of range.
    ///
    /// # Panics
    /// If groups repeat.
    pub fn join_with(&mut self, groups: &[GroupId], node: NodeConfig) -> Result<usize, NodeConfigError> {
        let at = self.lives.len();
        let id = NodeId(at as u32);
        self.view.set(Member::new(id, groups));
        let own: Vec<_> = groups.iter().map(|&id| GroupConfig { id, c: self.config.c }).collect();
        let own = Groups::new(own).expect("the groups are distinct");
        let seed = self.config.seed.wrapping_mul(1_000_003).wrapping_add(at as u64);
        let alone = View::default();
        let known = if self.config.gossip.is_some() { &alone } else { &self.view };
        let node = Node::new(NodeConfig { id, ..node }, own, known, seed)?;
        assert_eq!(self.net.add_node(), at);
        let gossip = self.config.gossip.map(|config| {
            let known = self.lives.iter().position(|life| life.up);
            let mut gossip = Gossiping::new(config, self.net.now_us(), at, known, seed ^ 0x676f_7373);
            gossip.set_groups(self.net.now_us(), groups);
            gossip
        });
        self.lives.push(Life { node, groups: groups.to_vec(), up: true, ordered: None, gossip });
        self.by_id.insert(id, at);
        for &group in groups {
            let members = self.members.entry(group).or_default();
            *members = members.iter().copied().chain([at]).collect();
        }
        self.carry_out(at);
        Ok(at)
    }

    /// Adds an ordered subscription to this node. The run stops if it releases packets out of order.
    pub fn subscribe_in_order(&mut self, at: usize) {
        self.lives[at].ordered = Some(Ordered::new());
    }

    /// Returns the number of messages that ordered subscriptions of running nodes lost, and of those that
    /// they still hold.
    pub fn out_of_order(&self) -> (u64, usize) {
        let ordered = self.lives.iter().filter(|life| life.up).filter_map(|life| life.ordered.as_ref());
        ordered.fold((0, 0), |(swallowed, held), ordered| {
            (swallowed + ordered.unaccounted(), held + ordered.held())
        })
    }

    /// Stops a node at once, without informing the others.
    pub fn crash(&mut self, at: usize) {
        self.lives[at].up = false;
        self.net.set_down(at, true);
        self.view.remove(NodeId(at as u32));
        for group in &self.lives[at].groups {
            if let Some(members) = self.members.get_mut(group) {
                *members = members.iter().copied().filter(|&member| member != at).collect();
            }
        }
        self.ledger.excuse(at);
    }

    /// Moves a node to a side of the partition; all nodes start on side 0.
    pub fn set_side(&mut self, at: usize, side: u8) {
        self.net.set_side(at, side);
    }

    /// Sets other network conditions.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.net.set_conditions(conditions);
    }

    /// Sets the cost of receiving a datagram, for all nodes.
    pub fn set_intake(&mut self, intake: Option<Intake>) {
        self.net.set_intake(intake);
    }

    /// Returns the true membership of all groups.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Gives all running nodes the true membership.
    pub fn update_views(&mut self) {
        let view = self.view.clone();
        (0..self.lives.len()).filter(|&at| self.lives[at].up).collect::<Vec<_>>().into_iter().for_each(
            |at| {
                self.set_view(at, &view);
            },
        );
    }

    /// Gives one node a view, which may be true or stale.
    pub fn set_view(&mut self, at: usize, view: &View) {
        self.lives[at].node.change_view(view, &mut self.outbox);
        self.carry_out(at);
    }

    /// Sends a packet of `length` bytes from a node to a group. `counted` marks packets that are measured.
    ///
    /// # Panics
    /// If the packet does not fit, or the node sends to too many groups.
    pub fn multicast(&mut self, from: usize, group: GroupId, length: usize, counted: bool) {
        let now_us = self.net.now_us();
        let mut payload = std::mem::take(&mut self.payload);
        self.ledger.next_payload(length, &mut payload);
        let seq = self.timed(from, |node, outbox| {
            let options = SendOptions::default();
            node.multicast(now_us, group, &payload, options, outbox).expect("the packet fits")
        });
        self.payload = payload;
        let key = StreamKey { sender: NodeId(from as u32), group };
        let members = self.members.entry(group).or_default();
        self.ledger.note_sent(from, Outgoing { now_us, key, seq, length, counted }, members);
        self.carry_out(from);
    }

    /// Advances the time; datagrams arrive and timers expire.
    pub fn run_until(&mut self, end_us: u64) {
        while let Some(event) = self.net.next(end_us) {
            self.handle(event);
        }
    }

    /// Advances the time by `time_us`.
    pub fn run_for(&mut self, time_us: u64) {
        self.run_until(self.net.now_us() + time_us);
    }

    fn handle(&mut self, event: Event) {
        let now_us = self.net.now_us();
        match event {
            Event::Arrived { from, to, datagram } => {
                self.wires[usize::from(datagram[0] & 0xf)].arrived += 1;
                if datagram[0] == membership::wire::FIRST_BYTE {
                    if let Some(gossip) = &mut self.lives[to].gossip {
                        gossip.handle_datagram(now_us, from, &datagram);
                    }
                    return self.carry_out(to);
                }
                self.timed(to, |node, outbox| {
                    node.handle_datagram(now_us, Origin::Member, &datagram, outbox);
                });
                self.carry_out(to);
            }
            Event::Woken { node: at } => {
                self.timed(at, |node, outbox| node.handle_timeout(now_us, outbox));
                if let Some(ordered) = &mut self.lives[at].ordered {
                    ordered.handle_timeout(now_us, at);
                }
                if let Some(gossip) = &mut self.lives[at].gossip {
                    gossip.handle_timeout(now_us);
                }
                self.carry_out(at);
            }
            Event::Missed { to, datagram, .. } => {
                if let Ok(Datagram::Data(data)) = Datagram::read(&datagram) {
                    self.ledger.note_missed(now_us, to, data.key(), data.seq);
                }
            }
        }
    }

    fn timed<T>(&mut self, at: usize, call: impl FnOnce(&mut Node, &mut Outbox) -> T) -> T {
        let node = &mut self.lives[at].node;
        self.timing.calls += 1;
        match self.config.clock {
            Some(clock) if self.timing.calls.is_multiple_of(TIMED_EVERY) => {
                let start_ns = clock();
                let done = call(node, &mut self.outbox);
                let took_ns = clock().saturating_sub(start_ns);
                self.timing.samples += 1;
                self.timing.sampled_ns += took_ns.saturating_sub(self.timing.bias_ns);
                done
            }
            _ => call(node, &mut self.outbox),
        }
    }

    /// Carries out a node's output and sets its timer.
    fn carry_out(&mut self, at: usize) {
        let now_us = self.net.now_us();
        self.exchange_membership(at);
        let mut outbox = std::mem::take(&mut self.outbox);
        for (to, range) in &outbox.datagrams {
            self.send(at, *to, &outbox.bytes[range.clone()]);
        }
        let life = &mut self.lives[at];
        for report in &outbox.reports {
            match report {
                Report::Message(message, range) => {
                    let key = StreamKey { sender: message.sender, group: message.group };
                    let payload = &outbox.bytes[range.clone()];
                    self.ledger.note_delivered(now_us, at, (key, message.seq, message.how), payload);
                }
                Report::Lost(lost) => self.ledger.note_lost(now_us, at, lost),
                Report::Settled(..) => {}
            }
            if let Some(ordered) = &mut life.ordered {
                ordered.take(now_us, at, report, &outbox.bytes);
            }
        }
        let ordered_us = life.ordered.as_ref().and_then(Ordered::poll_timeout);
        let gossip_us = life.gossip.as_ref().and_then(Gossiping::poll_timeout);
        let wake_us = [life.node.poll_timeout(), ordered_us, gossip_us].into_iter().flatten().min();
        outbox.clear();
        self.outbox = outbox;
        self.net.wake(at, wake_us);
    }

    /// Passes membership changes to the node, and membership datagrams to the network.
    fn exchange_membership(&mut self, at: usize) {
        let life = &mut self.lives[at];
        let Some(gossip) = &mut life.gossip else { return };
        if let Some(view) = gossip.changed_view() {
            life.node.change_view(&view, &mut self.outbox);
        }
        for (to, datagram) in gossip.take_sent() {
            self.launch(at, &[to], &datagram);
        }
    }

    /// Returns whether all running nodes know exactly the running nodes and their groups.
    pub fn views_agree(&self) -> bool {
        self.lives.iter().enumerate().filter(|(_, life)| life.up).all(|(at, life)| {
            let mut others = self.view.clone();
            others.remove(NodeId(at as u32));
            life.gossip.as_ref().is_none_or(|gossip| gossip.view() == others)
        })
    }

    fn send(&mut self, from: usize, to: To, datagram: &[u8]) {
        let mut receivers = std::mem::take(&mut self.receivers);
        receivers.clear();
        match to {
            To::Node(id) => {
                // Only membership knows addresses.
                let known = self.lives[from].gossip.as_ref().is_none_or(|gossip| gossip.knows(id));
                receivers.extend(self.by_id.get(&id).filter(|_| known));
            }
            To::Group(group) => {
                let members = self.members.get(&group).map_or(&[][..], |members| members);
                receivers.extend(members.iter().filter(|&&member| member != from));
            }
        }
        self.launch(from, &receivers, datagram);
        self.receivers = receivers;
    }

    fn launch(&mut self, from: usize, receivers: &[usize], datagram: &[u8]) {
        let kind = datagram[0] & 0xf;
        let wire = &mut self.wires[usize::from(kind)];
        let copies = receivers.len() as u64;
        wire.sent += 1;
        wire.copies += copies;
        wire.bytes += (1 + copies) * (HEADERS + datagram.len()) as u64;
        self.record.note(self.net.now_us(), from, datagram);
        let class = if kind == 1 || self.config.one_loss { DATA } else { OTHER };
        self.net.send(from, receivers, class, datagram);
    }

    /// Returns the virtual time in microseconds.
    pub fn now_us(&self) -> u64 {
        self.net.now_us()
    }

    /// Returns all nodes, past and present.
    pub fn lives(&self) -> &[Life] {
        &self.lives
    }

    /// Returns a node for direct manipulation, beyond the calls of a driver.
    pub fn life_mut(&mut self, at: usize) -> &mut Life {
        &mut self.lives[at]
    }

    /// Returns the running members of a group, in order.
    pub fn members(&self, group: GroupId) -> &[usize] {
        self.members.get(&group).map_or(&[], |members| members)
    }

    /// Returns the ledger of all packets and their fates.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the counters of datagrams, indexed by the low half of their first byte (`docs/wire.md`).
    pub fn wires(&self) -> &[Wire; 16] {
        &self.wires
    }

    /// Keeps the next `count` datagrams that nodes send, in place of those kept so far.
    pub fn record(&mut self, count: usize) {
        self.record = Record::new(count);
    }

    /// Returns the datagrams that were kept, in the order of sending.
    pub fn recorded(&self) -> &[Recorded] {
        self.record.kept()
    }

    /// Returns the total processor time of the nodes in nanoseconds, estimated from samples, if a clock was
    /// given.
    pub fn cpu_ns(&self) -> Option<f64> {
        let Timing { calls, samples, sampled_ns, .. } = self.timing;
        self.config.clock.map(|_| sampled_ns as f64 * calls as f64 / samples.max(1) as f64)
    }
}

/// Returns the cost of two readings of a clock: the median of many.
fn bias_ns(clock: fn() -> u64) -> u64 {
    let mut costs: Vec<u64> = (0..101)
        .map(|_| {
            let start_ns = clock();
            clock().saturating_sub(start_ns)
        })
        .collect();
    costs.sort_unstable();
    costs[50]
}
