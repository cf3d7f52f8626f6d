//! Members of one group on a network in virtual time. Each has a clock of its own.

use std::collections::BTreeMap;
use std::rc::Rc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::message::{Message, Origin, Output, SendOptions, To};
use ricochet_core::order::{OrderNews, OrderOutput, Ordered, Total, TotalConfig, order_group};
use ricochet_core::tracker::{Front, Lost};
use ricochet_core::{GroupConfig, GroupId, Groups, Member, Node, NodeConfig, NodeId, StreamKey, View};
use simnet::virtual_net::{Conditions, Event, VirtualNet};

use super::{Fault, below};

const GROUP: GroupId = GroupId(0x5e_0000_0007);

/// A delivery of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A message: its number, its sender, its sequence number, and a check of its payload.
    Message(u64, NodeId, u32, u64),
    /// Lost packets: the number of the first, their sender, its sequence number, and their count.
    Lost(u64, NodeId, u32, u64),
    /// News.
    News(OrderNews),
}

/// A clock that runs at another rate, and jumps.
#[derive(Clone, Copy, Debug)]
struct Clock {
    offset_us: u64,
    per_mille: u64,
}

impl Clock {
    fn read(self, true_us: u64) -> u64 {
        self.offset_us + true_us * self.per_mille / 1_000
    }

    /// Returns the true time at which the clock shows a time.
    fn when(self, local_us: u64) -> u64 {
        local_us.saturating_sub(self.offset_us).saturating_mul(1_000).div_ceil(self.per_mille)
    }
}

/// A node with its stage.
struct Life {
    node: Node,
    total: Option<Total>,
    clock: Clock,
    up: bool,
    side: u8,
    /// Time until which it is stopped or holds back packets, and what has come since.
    stopped_us: u64,
    /// Whether it only holds back packets.
    is_blocked: bool,
    backlog: Vec<Rc<[u8]>>,
    trace: Vec<Item>,
    sent: u32,
}

impl Life {
    fn is_stopped(&self) -> bool {
        self.stopped_us > 0 && !self.is_blocked
    }
}

/// Output of a node, kept until it has returned.
#[derive(Default)]
struct Outbox {
    datagrams: Vec<(To, Vec<u8>)>,
    reports: Vec<Report>,
}

enum Report {
    Message(Message<'static>, Vec<u8>),
    Lost(Lost),
    Settled(StreamKey, Front),
    Restart(StreamKey),
}

impl Output for Outbox {
    fn send(&mut self, to: To, datagram: &[u8]) {
        self.datagrams.push((to, datagram.to_vec()));
    }

    fn deliver(&mut self, message: &Message<'_>) {
        self.reports.push(Report::Message(Message { payload: &[], ..*message }, message.payload.to_vec()));
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.reports.push(Report::Lost(*lost));
    }

    fn on_settled(&mut self, key: StreamKey, front: Front) {
        self.reports.push(Report::Settled(key, front));
    }

    fn on_restart(&mut self, key: StreamKey) {
        self.reports.push(Report::Restart(key));
    }
}

/// Output of a stage.
struct Stage<'a> {
    packets: Vec<Vec<u8>>,
    trace: &'a mut Vec<Item>,
}

impl OrderOutput for Stage<'_> {
    fn send(&mut self, packet: &[u8]) {
        self.packets.push(packet.to_vec());
    }

    fn release(&mut self, ordered: Ordered<'_>) {
        self.trace.push(match ordered {
            Ordered::Message { number, message } => {
                Item::Message(number, message.sender, message.seq.to_wire(), check_of(message.payload))
            }
            Ordered::Lost { number, lost } => {
                Item::Lost(number, lost.key.sender, lost.first.to_wire(), lost.last.0 - lost.first.0 + 1)
            }
            Ordered::News(news) => Item::News(news),
        });
    }
}

fn check_of(payload: &[u8]) -> u64 {
    payload.iter().fold(payload.len() as u64, |sum, &byte| {
        sum.wrapping_mul(0x100_0000_01b3).wrapping_add(u64::from(byte) + 1)
    })
}

/// The members and the network between them.
pub struct World {
    net: VirtualNet,
    lives: Vec<Life>,
    dice: ChaCha8Rng,
    safe: bool,
    seed: u64,
    /// Views that nodes get later, by time.
    views: BTreeMap<(u64, usize), ()>,
    /// Messages sent: sender, sequence number, and number of packets.
    sent: Vec<(usize, u32, u32)>,
}

impl World {
    /// Makes a world without members.
    pub fn new(conditions: Conditions, seed: u64, safe: bool) -> Self {
        Self {
            net: VirtualNet::new(conditions, seed),
            lives: Vec::new(),
            dice: ChaCha8Rng::seed_from_u64(seed ^ 0x0077_6f72_6c64),
            safe,
            seed,
            views: BTreeMap::new(),
            sent: Vec::new(),
        }
    }

    /// Adds a member, which begins an order only with enough others. These learn of it with their next view.
    ///
    /// # Panics
    /// If the settings of a node are out of range.
    pub fn join(&mut self, founders: usize) {
        let at = self.lives.len();
        assert_eq!(self.net.add_node(), at);
        let id = NodeId(at as u32);
        let config = NodeConfig { packets: 1_024, ..NodeConfig::prompt(id) };
        let groups = [GROUP, order_group(GROUP)].map(|id| GroupConfig { id, c: 3 });
        let groups = Groups::new(groups).expect("the groups are distinct");
        let per_mille = [500, 900, 1_000, 1_000, 1_100, 2_000][below(&mut self.dice, 6)];
        let clock = Clock { offset_us: self.dice.next_u64() >> 30, per_mille };
        let now_us = clock.read(self.net.now_us());
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(at as u64);
        let mut node = Node::new(config, groups, &View::default(), seed).expect("the settings are in range");
        node.set_loopback(GROUP, true);
        // Members keep differing numbers of messages, as they do who have differing room.
        let keep = [1_024, 0, 16][at % 3];
        let config = TotalConfig { safe: self.safe, founders, keep, ..TotalConfig::new(id) };
        let total = Some(Total::new(now_us, GROUP, config, self.dice.next_u64()));
        self.lives.push(Life {
            node,
            total,
            clock,
            up: true,
            side: 0,
            stopped_us: 0,
            is_blocked: false,
            backlog: Vec::new(),
            trace: Vec::new(),
            sent: 0,
        });
        self.set_view(at);
    }

    /// Returns the nodes that run.
    pub fn running(&self) -> Vec<usize> {
        (0..self.lives.len()).filter(|&at| self.lives[at].up).collect()
    }

    /// Returns the members that run.
    pub fn members(&self) -> Vec<usize> {
        (0..self.lives.len()).filter(|&at| self.lives[at].up && self.lives[at].total.is_some()).collect()
    }

    /// Returns what a node has delivered.
    pub fn trace(&self, at: usize) -> &[Item] {
        &self.lives[at].trace
    }

    /// Returns the number of nodes, past and present.
    pub fn len(&self) -> usize {
        self.lives.len()
    }

    /// Returns whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.lives.is_empty()
    }

    /// Returns the stage of a member.
    pub fn total(&self, at: usize) -> Option<&Total> {
        self.lives[at].total.as_ref()
    }

    /// Returns the messages that were sent: sender, sequence number, and number of packets.
    pub fn sent(&self) -> &[(usize, u32, u32)] {
        &self.sent
    }

    /// Sets other network conditions.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.net.set_conditions(conditions);
    }

    /// Gives the nodes the members that they can reach, each at some time within `within_us`.
    pub fn update_views(&mut self, dice: &mut ChaCha8Rng, within_us: usize) {
        for at in self.running() {
            let due_us = self.net.now_us() + below(dice, within_us) as u64;
            self.views.insert((due_us, at), ());
        }
    }

    /// Lets a fault happen.
    pub fn apply(&mut self, fault: Fault, dice: &mut ChaCha8Rng) {
        /// Longest time after which nodes learn of changes.
        const DETECT_US: usize = 1_500_000;
        let up = self.running();
        match fault {
            Fault::Crash(which) if up.len() > 1 => self.crash(up[which % up.len()]),
            Fault::Leave(which) if up.len() > 1 => self.leave(up[which % up.len()]),
            Fault::Crash(_) | Fault::Leave(_) => {}
            Fault::Join => self.join(usize::MAX),
            Fault::Partition(sides) => {
                (0..self.lives.len()).for_each(|at| self.set_side(at, (sides >> at) as u8 & 1));
            }
            Fault::Heal => (0..self.lives.len()).for_each(|at| self.set_side(at, 0)),
            Fault::Stop(which, time_us) => {
                let at = up[which % up.len()];
                self.lives[at].stopped_us = self.net.now_us() + time_us;
            }
            Fault::Block(which, time_us) => self.block(up[which % up.len()], time_us),
            Fault::Jump(which, by_us) => self.lives[up[which % up.len()]].clock.offset_us += by_us,
        }
        // A failure detector may also overlook something.
        if below(dice, 5) > 0 {
            self.update_views(dice, DETECT_US);
        }
    }

    /// Lets a node hold back what comes for some time, unless it is stopped.
    pub fn block(&mut self, at: usize, time_us: u64) {
        let (now_us, until_us) = (self.local_us(at), self.net.now_us() + time_us);
        let life = &mut self.lives[at];
        if life.stopped_us > 0 {
            return;
        }
        (life.stopped_us, life.is_blocked) = (until_us, true);
        life.node.hold_losses(true);
        if let Some(total) = &mut life.total {
            total.set_blocked(now_us, true);
        }
        self.settle(at, Outbox::default());
    }

    /// Stops a node for good.
    pub fn crash(&mut self, at: usize) {
        self.lives[at].up = false;
        self.net.set_down(at, true);
    }

    /// Lets a member leave the group.
    pub fn leave(&mut self, at: usize) {
        if let Some(total) = &mut self.lives[at].total {
            total.leave();
        }
        self.settle(at, Outbox::default());
        self.lives[at].total = None;
    }

    /// Moves a node to a side of the partition.
    pub fn set_side(&mut self, at: usize, side: u8) {
        self.lives[at].side = side;
        self.net.set_side(at, side);
    }

    /// Sends a message of some length, unless the node is stopped.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn multicast(&mut self, from: usize, length: usize) {
        if self.lives[from].is_stopped() {
            return;
        }
        let now_us = self.local_us(from);
        let life = &mut self.lives[from];
        let payload: Vec<u8> = (0..length).map(|at| (at as u32 ^ life.sent) as u8).collect();
        life.sent += 1;
        let mut out = Outbox::default();
        let seq = life.node.multicast_large(now_us, GROUP, &payload, SendOptions::default(), &mut out);
        let seq = seq.expect("the message fits");
        let size = usize::from(life.node.outgoing_config().fragment_size);
        let packets = if length <= life.node.payload_max() { 1 } else { length.div_ceil(size) as u32 };
        self.sent.push((from, seq, packets));
        self.settle(from, out);
    }

    /// Advances the time.
    pub fn run_for(&mut self, time_us: u64) {
        let end_us = self.net.now_us() + time_us;
        loop {
            let thaw = self.lives.iter().filter(|life| life.up && life.stopped_us > 0);
            let thaw_us = thaw.map(|life| life.stopped_us).min();
            let view_us = self.views.first_key_value().map(|(&(due_us, _), ())| due_us);
            let until_us = [thaw_us, view_us].into_iter().flatten().fold(end_us, u64::min);
            if let Some(event) = self.net.next(until_us.max(self.net.now_us())) {
                self.handle(event);
                continue;
            }
            if let Some((&(due_us, at), ())) = self.views.first_key_value()
                && due_us <= until_us
            {
                self.views.remove(&(due_us, at));
                self.set_view(at);
                continue;
            }
            let thawed = |life: &Life| life.up && life.stopped_us > 0 && life.stopped_us <= until_us;
            if let Some(at) = self.lives.iter().position(thawed) {
                self.thaw(at);
                continue;
            }
            return;
        }
    }

    fn thaw(&mut self, at: usize) {
        self.lives[at].stopped_us = 0;
        for datagram in std::mem::take(&mut self.lives[at].backlog) {
            self.receive(at, &datagram);
        }
        let now_us = self.local_us(at);
        let life = &mut self.lives[at];
        if std::mem::take(&mut life.is_blocked) {
            life.node.hold_losses(false);
            life.total.iter_mut().for_each(|total| total.set_blocked(now_us, false));
        }
        self.wake(at);
        self.set_view(at);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrived { to, datagram, .. } if self.lives[to].stopped_us > 0 => {
                // As much as the kernel keeps.
                if self.lives[to].backlog.len() < 2_000 {
                    self.lives[to].backlog.push(datagram);
                }
            }
            Event::Arrived { to, datagram, .. } => self.receive(to, &datagram),
            Event::Woken { node } if !self.lives[node].is_stopped() => self.wake(node),
            Event::Woken { .. } | Event::Missed { .. } => {}
        }
    }

    fn receive(&mut self, at: usize, datagram: &[u8]) {
        let now_us = self.local_us(at);
        let mut out = Outbox::default();
        self.lives[at].node.handle_datagram(now_us, Origin::Member, datagram, &mut out);
        self.settle(at, out);
    }

    fn wake(&mut self, at: usize) {
        let now_us = self.local_us(at);
        let mut out = Outbox::default();
        let node = &mut self.lives[at].node;
        if node.poll_timeout().is_some_and(|due_us| due_us <= now_us) {
            node.handle_timeout(now_us, &mut out);
        }
        self.settle(at, out);
    }

    fn set_view(&mut self, at: usize) {
        if !self.lives[at].up || self.lives[at].is_stopped() {
            return;
        }
        let now_us = self.local_us(at);
        let groups = [GROUP, order_group(GROUP)];
        let side = self.lives[at].side;
        let others: Vec<NodeId> = (0..self.lives.len())
            .filter(|&other| {
                let life = &self.lives[other];
                other != at && life.up && life.side == side && life.total.is_some()
            })
            .map(|other| NodeId(other as u32))
            .collect();
        let view = View::new(others.iter().map(|&id| Member::new(id, groups)));
        let mut out = Outbox::default();
        let life = &mut self.lives[at];
        life.node.change_view(&view, &mut out);
        if let Some(total) = &mut life.total {
            total.change_view(now_us, others);
        }
        self.settle(at, out);
    }

    fn local_us(&self, at: usize) -> u64 {
        self.lives[at].clock.read(self.net.now_us())
    }

    /// Passes a node's output to its stage and to the network, and sets its timer.
    fn settle(&mut self, at: usize, mut out: Outbox) {
        let now_us = self.local_us(at);
        let life = &mut self.lives[at];
        if let Some(total) = &mut life.total {
            for report in out.reports.drain(..) {
                pass(total, now_us, &report);
            }
            let mut stage = Stage { packets: Vec::new(), trace: &mut life.trace };
            total.flush(now_us, &mut stage);
            for packet in stage.packets {
                let sent = life.node.multicast_large(
                    now_us,
                    order_group(GROUP),
                    &packet,
                    SendOptions::default(),
                    &mut out,
                );
                sent.expect("the packet fits");
            }
        }
        let due = [life.node.poll_timeout(), life.total.as_ref().and_then(Total::poll_timeout)];
        let wake_us = due.into_iter().flatten().min().map(|due_us| life.clock.when(due_us));
        for (to, datagram) in out.datagrams {
            let receivers: Vec<usize> = match to {
                To::Group(_) => (0..self.lives.len()).filter(|&other| other != at).collect(),
                To::Node(node) => vec![node.0 as usize],
            };
            let class = u8::from(datagram[0] & 0xf != 1);
            self.net.send(at, &receivers, class, &datagram);
        }
        self.net.wake(at, wake_us);
    }
}

/// Passes a report of a node to its stage.
fn pass(total: &mut Total, now_us: u64, report: &Report) {
    match report {
        Report::Message(message, payload) if message.group == GROUP => {
            total.handle_message(&Message { payload, ..*message });
        }
        Report::Message(message, payload) => total.handle_packet(now_us, message.sender, payload),
        Report::Lost(lost) if lost.key.group == GROUP => total.on_lost(lost),
        Report::Settled(key, front) if key.group == GROUP => total.on_settled(*key, *front),
        Report::Restart(key) if key.group == GROUP => total.on_restart(*key),
        Report::Lost(_) | Report::Settled(..) | Report::Restart(_) => {}
    }
}
