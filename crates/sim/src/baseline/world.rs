//! Members of many groups on the virtual network.

use std::collections::{BTreeSet, HashMap};

use loss::LossModel;
use loss::chance::Dice;
use simnet::virtual_net::{Conditions, Event, VirtualNet};

/// First byte of a data packet; all other datagrams have another one.
pub const DATA: u8 = 0;

/// Length of a datagram's header: kind, source, sequence number.
pub const HEAD: usize = 9;

/// Length of the group number that precedes a datagram.
pub const GROUP: usize = 4;

/// Identifier of a packet in a group: its sender's number in the group, and its sequence number.
pub type Name = (u32, u32);

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All other members.
    Group,
    /// One member, by its number in the group.
    Member(u32),
}

/// Output of a member.
#[derive(Clone, Debug, Default)]
pub struct Out {
    /// Datagrams to send.
    pub sent: Vec<(Target, Vec<u8>)>,
    /// Packets found missing.
    pub found: Vec<Name>,
    /// Packets recovered.
    pub back: Vec<Name>,
}

/// One member of one group.
pub trait Protocol {
    /// Sends its next packet.
    fn send(&mut self, now_us: u64, out: &mut Out);
    /// Handles a datagram from a member.
    fn handle(&mut self, now_us: u64, from: u32, datagram: &[u8], out: &mut Out);
    /// Handles the expiry of its timer.
    fn handle_timeout(&mut self, now_us: u64, out: &mut Out);
    /// Returns the time at which it must be woken.
    fn poll_timeout(&self) -> Option<u64>;
}

/// Builds a datagram of this kind about a packet.
pub fn datagram(kind: u8, (source, seq): Name) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(source.to_be_bytes());
    bytes.extend(seq.to_be_bytes());
    bytes
}

/// Parses kind and packet of a datagram and the bytes that follow; `None` if it is too short.
pub fn read(datagram: &[u8]) -> Option<(u8, Name, &[u8])> {
    let (head, rest) = datagram.split_at_checked(HEAD)?;
    let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    Some((head[0], (number(1), number(5)), rest))
}

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Groups of each node, by number.
    pub grouping: Vec<Vec<usize>>,
    /// Packets per second of all senders together, each to a random group.
    pub packets_per_second: f64,
    /// Whether the members of a group send in turn at even intervals; otherwise in random order.
    pub in_turn: bool,
    /// Loss at each receiver, of data and independently of all other datagrams.
    pub loss: LossModel,
    /// Delay from socket to socket in microseconds.
    pub delay_us: u64,
    /// Time in which losses are counted, in microseconds.
    pub measured_us: u64,
    /// Time for which the run continues, so that the last losses can be recovered.
    pub after_us: u64,
    /// Random seed.
    pub seed: u64,
}

/// A lost packet at one receiver. All times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Time at which it would have arrived.
    pub missed_us: u64,
    /// Time at which it was found missing.
    pub found_us: Option<u64>,
    /// Time at which it was recovered.
    pub back_us: Option<u64>,
}

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// All losses of the measured time, in order.
    pub fates: Vec<Fate>,
    /// Number of arrived data packets, and of all other arrived datagrams.
    pub arrived: [u64; 2],
}

/// Place of a member: its number, the size of its group, and a random seed.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// Its number in the group, from 0.
    pub number: u32,
    /// Number of members of the group.
    pub members: u32,
    /// Its random seed.
    pub seed: u64,
}

struct Node<P> {
    /// Members by group.
    members: HashMap<usize, (u32, P)>,
    /// Wake-up times by group.
    due: BTreeSet<(u64, usize)>,
}

struct World<P> {
    net: VirtualNet,
    nodes: Vec<Node<P>>,
    /// Nodes of each group; a member's number is its index.
    groups: Vec<Vec<usize>>,
    lost: HashMap<(usize, usize, Name), usize>,
    run: Run,
    measured_us: u64,
    out: Out,
}

/// Runs members made by `make`. Groups of one member send nothing.
pub fn run<P: Protocol>(config: &WorldConfig, mut make: impl FnMut(Seat) -> P) -> Run {
    let conditions = Conditions {
        loss: vec![config.loss.clone(), config.loss.clone()],
        delay_us: config.delay_us,
        ..Conditions::default()
    };
    let count = config.grouping.iter().flatten().max().map_or(0, |group| group + 1);
    let mut groups = vec![Vec::new(); count];
    for (node, of_node) in config.grouping.iter().enumerate() {
        of_node.iter().for_each(|&group| groups[group].push(node));
    }
    let mut net = VirtualNet::new(conditions, config.seed);
    let nodes = config.grouping.iter().map(|_| Node { members: HashMap::new(), due: BTreeSet::new() });
    let mut nodes: Vec<Node<P>> = nodes.collect();
    for _ in &nodes {
        net.add_node();
    }
    for (group, members) in groups.iter().enumerate() {
        for (number, &node) in (0..).zip(members) {
            let seed =
                config.seed ^ ((group as u64) << 32 | u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let seat = Seat { number, members: members.len() as u32, seed };
            nodes[node].members.insert(group, (number, make(seat)));
        }
    }
    let (lost, run, out) = (HashMap::new(), Run::default(), Out::default());
    let mut world = World { net, nodes, groups, lost, run, measured_us: config.measured_us, out };
    for node in 0..world.nodes.len() {
        for &group in &config.grouping[node] {
            world.schedule(node, group, None);
        }
    }
    world.traffic(config);
    world.run
}

impl<P: Protocol> World<P> {
    fn traffic(&mut self, config: &WorldConfig) {
        let busy: Vec<usize> = (0..self.groups.len()).filter(|&group| self.groups[group].len() > 1).collect();
        let mut dice = Dice::new(config.seed ^ 0x7472_6166);
        let end_us = config.measured_us + config.after_us;
        let interval_us = 1e6 / config.packets_per_second;
        let mut turns = vec![0; self.groups.len()];
        let mut sent = 0.0;
        while !busy.is_empty() && sent * interval_us < end_us as f64 {
            self.pass_until((sent * interval_us) as u64);
            let group = busy[dice.below(busy.len() as u64) as usize];
            let members = &self.groups[group];
            let place = if config.in_turn { turns[group] } else { dice.below(members.len() as u64) as usize };
            turns[group] = (place + 1) % members.len();
            let node = members[place];
            self.call(node, group, P::send);
            sent += 1.0;
        }
        self.pass_until(end_us);
    }

    fn pass_until(&mut self, end_us: u64) {
        while let Some(event) = self.net.next(end_us) {
            match event {
                Event::Arrived { from, to, datagram } => self.arrived(from, to, &datagram),
                Event::Missed { to, datagram, .. } => self.missed(to, &datagram),
                Event::Woken { node } => self.woken(node),
            }
        }
    }

    fn arrived(&mut self, from: usize, to: usize, datagram: &[u8]) {
        let Some((group, datagram)) = of_group(datagram) else { return };
        self.run.arrived[usize::from(datagram.first() != Some(&DATA))] += 1;
        let Some((from, _)) = self.nodes[from].members.get(&group) else { return };
        let from = *from;
        self.call(to, group, |member, now_us, out| member.handle(now_us, from, datagram, out));
    }

    fn missed(&mut self, to: usize, datagram: &[u8]) {
        let now_us = self.net.now_us();
        let Some((group, datagram)) = of_group(datagram) else { return };
        if let Some((DATA, name, _)) = read(datagram)
            && now_us < self.measured_us
        {
            self.lost.insert((to, group, name), self.run.fates.len());
            self.run.fates.push(Fate { missed_us: now_us, found_us: None, back_us: None });
        }
    }

    fn woken(&mut self, node: usize) {
        let now_us = self.net.now_us();
        while let Some(&(due_us, group)) = self.nodes[node].due.first()
            && due_us <= now_us
        {
            self.call(node, group, P::handle_timeout);
        }
        self.wake(node);
    }

    fn call(&mut self, node: usize, group: usize, call: impl FnOnce(&mut P, u64, &mut Out)) {
        let now_us = self.net.now_us();
        let Some((_, member)) = self.nodes[node].members.get_mut(&group) else { return };
        let before_us = member.poll_timeout();
        call(member, now_us, &mut self.out);
        self.schedule(node, group, before_us);
        let mut out = std::mem::take(&mut self.out);
        for (target, datagram) in out.sent.drain(..) {
            let mut bytes = (group as u32).to_be_bytes().to_vec();
            bytes.extend(&datagram);
            let members = &self.groups[group];
            let receivers: Vec<usize> = match target {
                Target::Group => members.iter().copied().filter(|&member| member != node).collect(),
                Target::Member(number) => members.get(number as usize).copied().into_iter().collect(),
            };
            self.net.send(node, &receivers, u8::from(datagram.first() != Some(&DATA)), &bytes);
        }
        for name in out.found.drain(..) {
            if let Some(&at) = self.lost.get(&(node, group, name)) {
                self.run.fates[at].found_us.get_or_insert(now_us);
            }
        }
        for name in out.back.drain(..) {
            if let Some(&at) = self.lost.get(&(node, group, name)) {
                let fate = &mut self.run.fates[at];
                fate.back_us.get_or_insert(now_us);
                // The repair may be the first sign of the loss.
                fate.found_us.get_or_insert(now_us);
            }
        }
        self.out = out;
    }

    /// Updates the schedule after a member's timer has moved from `before_us`.
    fn schedule(&mut self, node: usize, group: usize, before_us: Option<u64>) {
        let Node { members, due } = &mut self.nodes[node];
        let after_us = members.get(&group).and_then(|(_, member)| member.poll_timeout());
        if before_us == after_us && before_us.is_some_and(|us| due.contains(&(us, group))) {
            return;
        }
        before_us.map(|us| due.remove(&(us, group)));
        after_us.map(|us| due.insert((us, group)));
        self.wake(node);
    }

    fn wake(&mut self, node: usize) {
        let first_us = self.nodes[node].due.first().map(|&(us, _)| us);
        self.net.wake(node, first_us);
    }
}

fn of_group(datagram: &[u8]) -> Option<(usize, &[u8])> {
    let (group, rest) = datagram.split_first_chunk::<GROUP>()?;
    Some((u32::from_be_bytes(*group) as usize, rest))
}
