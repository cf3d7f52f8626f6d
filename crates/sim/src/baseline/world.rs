//! Members of many groups on the virtual network.

use std::collections::{BTreeSet, HashMap};

use loss::LossModel;
use loss::chance::Dice;
use simnet::virtual_net::{Event, VirtualNet, Weather};

/// The first byte of a data packet; all other datagrams have another.
pub const DATA: u8 = 0;

/// Bytes of a datagram's head: kind, source, sequence number.
pub const HEAD: usize = 9;

/// What a datagram has before it besides: the number of its group.
pub const GROUP: usize = 4;

/// A packet of a group: who sent it, counted within the group, and its number in that stream.
pub type Name = (u32, u32);

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To all other members.
    Group,
    /// To one, counted within the group.
    Member(u32),
}

/// What a member wants done, and what it has learnt.
#[derive(Clone, Debug, Default)]
pub struct Out {
    /// Datagrams to send.
    pub sent: Vec<(Target, Vec<u8>)>,
    /// Packets that were found missing.
    pub found: Vec<Name>,
    /// Packets that came back.
    pub back: Vec<Name>,
}

/// One member of one group.
pub trait Protocol {
    /// Sends the next packet of its own.
    fn send(&mut self, now_us: u64, out: &mut Out);
    /// A datagram has come from a member.
    fn handle(&mut self, now_us: u64, from: u32, datagram: &[u8], out: &mut Out);
    /// The time has come that it asked for.
    fn handle_timeout(&mut self, now_us: u64, out: &mut Out);
    /// When it wants to be woken.
    fn poll_timeout(&self) -> Option<u64>;
}

/// A datagram of this kind about a packet.
#[must_use]
pub fn datagram(kind: u8, (source, seq): Name) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(source.to_be_bytes());
    bytes.extend(seq.to_be_bytes());
    bytes
}

/// Kind and packet of a datagram, and what follows; `None` if it is too short.
#[must_use]
pub fn read(datagram: &[u8]) -> Option<(u8, Name, &[u8])> {
    let (head, rest) = datagram.split_at_checked(HEAD)?;
    let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    Some((head[0], (number(1), number(5)), rest))
}

/// What is run.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Of each node, its groups by number.
    pub grouping: Vec<Vec<usize>>,
    /// Packets in a second, of all senders together, each to a random group.
    pub packets_per_second: f64,
    /// Whether the members of a group send in turn, each at even distances; else at random.
    pub in_turn: bool,
    /// What each receiver loses of data, and in the same way of all else.
    pub loss: LossModel,
    /// From socket to socket, in microseconds.
    pub delay_us: u64,
    /// Losses of so long are counted, in microseconds.
    pub measured_us: u64,
    /// So long goes all on, that what was lost last can come back.
    pub after_us: u64,
    /// Decides all chance.
    pub seed: u64,
}

/// One lost packet at one receiver. All times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// When it would have come.
    pub missed_us: u64,
    /// When it was found missing.
    pub found_us: Option<u64>,
    /// When it came back.
    pub back_us: Option<u64>,
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// All losses of the measured time, in their order.
    pub fates: Vec<Fate>,
    /// Data packets that arrived, and all other datagrams that did.
    pub arrived: [u64; 2],
}

/// A member's place: its own number, how many the group has, and a seed of its own.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// Its number in the group, from 0.
    pub number: u32,
    /// Members of the group.
    pub members: u32,
    /// For its chance.
    pub seed: u64,
}

struct Node<P> {
    /// By group.
    members: HashMap<usize, (u32, P)>,
    /// When which group's member is to be woken.
    due: BTreeSet<(u64, usize)>,
}

struct World<P> {
    net: VirtualNet,
    nodes: Vec<Node<P>>,
    /// Of each group, its nodes; a member's number is its place.
    groups: Vec<Vec<usize>>,
    lost: HashMap<(usize, usize, Name), usize>,
    run: Run,
    measured_us: u64,
    out: Out,
}

/// Runs members made by `make`. Groups of one are silent.
pub fn run<P: Protocol>(config: &WorldConfig, mut make: impl FnMut(Seat) -> P) -> Run {
    let weather = Weather {
        loss: vec![config.loss.clone(), config.loss.clone()],
        delay_us: config.delay_us,
        ..Weather::default()
    };
    let count = config.grouping.iter().flatten().max().map_or(0, |group| group + 1);
    let mut groups = vec![Vec::new(); count];
    for (node, of_node) in config.grouping.iter().enumerate() {
        of_node.iter().for_each(|&group| groups[group].push(node));
    }
    let mut net = VirtualNet::new(weather, config.seed);
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
                // What brings it back may be the first that tells of it.
                fate.found_us.get_or_insert(now_us);
            }
        }
        self.out = out;
    }

    /// A member's timer has moved from where it was.
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
