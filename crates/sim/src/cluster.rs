//! Nodes on a network in virtual time: they join, crash, are cut off, learn of each other, and send.
//!
//! A node is numbered by when it joined, and the number is never used again: one that comes back is another node, as in
//! the real world, where each start draws a new id.

use std::collections::HashMap;
use std::rc::Rc;

use membership::GossipConfig;
use ricochet_core::message::{SendOptions, To};
use ricochet_core::node::NodeConfigError;
use ricochet_core::wire::Datagram;
use ricochet_core::{GroupConfig, GroupId, Groups, Member, Node, NodeConfig, NodeId, StreamKey, View};
use simnet::virtual_net::{Event, Intake, VirtualNet, Weather};

use crate::gossip::Gossiping;
use crate::ledger::{Ledger, Outgoing};
use crate::ordered::Ordered;
use crate::outbox::{Outbox, Told};

/// Ethernet, IPv4 and UDP headers of a datagram, in bytes.
pub const HEADERS: usize = 14 + 20 + 8;

/// The classes of datagrams that may be lost differently.
const DATA: u8 = 0;
const OTHER: u8 = 1;

/// Every so many calls of nodes one is timed.
const TIMED_EVERY: u64 = 17;

/// How a cluster is set up.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// What the network does; its first loss model is for data packets, its second for all other datagrams.
    pub weather: Weather,
    /// Whether its first loss model is for all datagrams, in the order in which they come.
    pub one_loss: bool,
    /// Of each node; the id is overwritten.
    pub node: NodeConfig,
    /// Rate of fire of all groups.
    pub c: u8,
    /// Decides all that is left to chance.
    pub seed: u64,
    /// Processor time of this thread in nanoseconds, if the nodes' share of it is to be measured.
    pub clock: Option<fn() -> u64>,
    /// If nodes learn of each other by gossip. Else they know what they are [told](Cluster::tell).
    pub gossip: Option<GossipConfig>,
}

impl ClusterConfig {
    /// The papers' setting of a node, 50 µs from socket to socket (Ricochet §5), no loss.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            weather: Weather { delay_us: 50, ..Weather::default() },
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
    /// Whether it runs.
    pub up: bool,
    ordered: Option<Ordered>,
    gossip: Option<Gossiping>,
}

/// Datagrams of one kind on the wires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// Datagrams that left a node, a multicast one once.
    pub sent: u64,
    /// Datagrams on their way to a node, a multicast one once for each receiver.
    pub copies: u64,
    /// Datagrams that reached a node.
    pub arrived: u64,
    /// Bytes of the frames on the wires of all nodes: each frame once where it leaves and once at each receiver.
    pub bytes: u64,
}

/// Time that nodes took, by samples.
#[derive(Clone, Copy, Debug, Default)]
struct Timing {
    calls: u64,
    samples: u64,
    sampled_ns: u64,
    /// What reading the clock twice takes.
    bias_ns: u64,
}

/// The nodes, the network between them, and the book of what they do.
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
}

impl Cluster {
    /// A cluster without nodes.
    #[must_use]
    pub fn new(config: ClusterConfig) -> Self {
        let timing = Timing { bias_ns: config.clock.map_or(0, bias_ns), ..Timing::default() };
        Self {
            net: VirtualNet::new(config.weather.clone(), config.seed),
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
        }
    }

    /// A cluster of these nodes, who know each other from the start.
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

    /// A new node, which knows all others; they do not know it until they are [told](Cluster::tell_all).
    ///
    /// # Errors
    /// If the configuration of nodes is out of range.
    pub fn join(&mut self, groups: &[GroupId]) -> Result<usize, NodeConfigError> {
        self.join_with(groups, self.config.node)
    }

    /// The same with a configuration of its own, but for the id.
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
        let own = Groups::new(own).expect("the lab's groups are distinct");
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

    /// From now on this node has a subscription in order, too. The run stops if it is not.
    pub fn order(&mut self, at: usize) {
        self.lives[at].ordered = Some(Ordered::new());
    }

    /// Messages that ordered subscriptions of nodes that run swallowed, and those that they still hold.
    #[must_use]
    pub fn out_of_order(&self) -> (u64, usize) {
        let ordered = self.lives.iter().filter(|life| life.up).filter_map(|life| life.ordered.as_ref());
        ordered.fold((0, 0), |(swallowed, held), ordered| {
            (swallowed + ordered.unaccounted(), held + ordered.held())
        })
    }

    /// A node stops from one moment to the next. The others are not told.
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

    /// Puts a node on a side of a partition; all are on side 0 at first.
    pub fn set_side(&mut self, at: usize, side: u8) {
        self.net.set_side(at, side);
    }

    /// From now on the weather is different.
    pub fn change_weather(&mut self, weather: Weather) {
        self.net.change_weather(weather);
    }

    /// From now on each node takes its time for what arrives.
    pub fn set_intake(&mut self, intake: Option<Intake>) {
        self.net.set_intake(intake);
    }

    /// Who is in which group in truth.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// All nodes that run learn who is in which group.
    pub fn tell_all(&mut self) {
        let view = self.view.clone();
        (0..self.lives.len()).filter(|&at| self.lives[at].up).collect::<Vec<_>>().into_iter().for_each(
            |at| {
                self.tell(at, &view);
            },
        );
    }

    /// One node learns what may be true or stale.
    pub fn tell(&mut self, at: usize, view: &View) {
        self.lives[at].node.change_view(view, &mut self.outbox);
        self.carry_out(at);
    }

    /// A node sends a packet of so many bytes to a group. `counted`: it belongs to what is measured.
    ///
    /// # Panics
    /// If it does not fit, or the node sends to too many groups.
    pub fn multicast(&mut self, from: usize, group: GroupId, length: usize, counted: bool) {
        let now_us = self.net.now_us();
        let mut payload = std::mem::take(&mut self.payload);
        self.ledger.next_payload(length, &mut payload);
        let seq = self.timed(from, |node, outbox| {
            let options = SendOptions::default();
            node.multicast(now_us, group, &payload, options, outbox).expect("the lab's packets fit")
        });
        self.payload = payload;
        let key = StreamKey { sender: NodeId(from as u32), group };
        let members = self.members.entry(group).or_default();
        self.ledger.note_sent(from, Outgoing { now_us, key, seq, length, counted }, members);
        self.carry_out(from);
    }

    /// Time passes, datagrams arrive and timers fire.
    pub fn run_until(&mut self, end_us: u64) {
        while let Some(event) = self.net.next(end_us) {
            self.handle(event);
        }
    }

    /// The same for so long from now on.
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
                self.timed(to, |node, outbox| node.handle_datagram(now_us, &datagram, outbox));
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

    /// Does what a node wants done, and sets its timer.
    fn carry_out(&mut self, at: usize) {
        let now_us = self.net.now_us();
        self.spread_news(at);
        let mut outbox = std::mem::take(&mut self.outbox);
        for (to, range) in &outbox.datagrams {
            self.send(at, *to, &outbox.bytes[range.clone()]);
        }
        let life = &mut self.lives[at];
        for told in &outbox.told {
            match told {
                Told::Message(message, range) => {
                    let key = StreamKey { sender: message.sender, group: message.group };
                    let payload = &outbox.bytes[range.clone()];
                    self.ledger.note_delivered(now_us, at, (key, message.seq, message.how), payload);
                }
                Told::Lost(lost) => self.ledger.note_lost(now_us, at, lost),
                Told::Settled(..) => {}
            }
            if let Some(ordered) = &mut life.ordered {
                ordered.take(now_us, at, told, &outbox.bytes);
            }
        }
        let ordered_us = life.ordered.as_ref().and_then(Ordered::poll_timeout);
        let gossip_us = life.gossip.as_ref().and_then(Gossiping::poll_timeout);
        let wake_us = [life.node.poll_timeout(), ordered_us, gossip_us].into_iter().flatten().min();
        outbox.clear();
        self.outbox = outbox;
        self.net.wake(at, wake_us);
    }

    /// What membership has learnt goes to the node, and what it has to say to others.
    fn spread_news(&mut self, at: usize) {
        let life = &mut self.lives[at];
        let Some(gossip) = &mut life.gossip else { return };
        if let Some(view) = gossip.news() {
            life.node.change_view(&view, &mut self.outbox);
        }
        for (to, datagram) in gossip.take_sent() {
            self.launch(at, &[to], &datagram);
        }
    }

    /// Whether all nodes that run know of exactly those that do, and of their groups.
    #[must_use]
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
                // Where it is, only membership knows.
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
        let class = if kind == 1 || self.config.one_loss { DATA } else { OTHER };
        self.net.send(from, receivers, class, datagram);
    }

    /// Virtual time in microseconds.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.net.now_us()
    }

    /// All nodes that ever were.
    #[must_use]
    pub fn lives(&self) -> &[Life] {
        &self.lives
    }

    /// One of them, to be done to what a driver would not do.
    pub fn life_mut(&mut self, at: usize) -> &mut Life {
        &mut self.lives[at]
    }

    /// Who is in a group and runs, in order.
    #[must_use]
    pub fn members(&self, group: GroupId) -> &[usize] {
        self.members.get(&group).map_or(&[], |members| members)
    }

    /// What was sent, and what became of it.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Datagrams by the low half of their first byte (`docs/wire.md`).
    #[must_use]
    pub fn wires(&self) -> &[Wire; 16] {
        &self.wires
    }

    /// Processor time that nodes took in all, in nanoseconds, if a clock was given; estimated from samples.
    #[must_use]
    pub fn cpu_ns(&self) -> Option<f64> {
        let Timing { calls, samples, sampled_ns, .. } = self.timing;
        self.config.clock.map(|_| sampled_ns as f64 * calls as f64 / samples.max(1) as f64)
    }
}

/// What two readings of a clock cost: the median of many.
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
