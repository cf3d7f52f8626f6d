//! Nodes on a network in virtual time that loses, delays and duplicates datagrams by a random seed.

use std::collections::{HashMap, HashSet};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::delivery::Released;
use ricochet_core::message::{How, Message, Origin, Output, SendOptions, To};
use ricochet_core::outgoing::{OutgoingConfig, OutgoingMessage};
use ricochet_core::tracker::{Front, Lost};
use ricochet_core::wire::{Datagram, Envelope, FRAGMENT_HEAD, Kind};
use ricochet_core::{
    Fifo, FifoConfig, GroupId, HistoryNews, Member, Node, NodeConfig, NodeId, Outgoing, Seq, StreamKey, View,
    Wish,
};

use super::flights::Flights;

/// Conditions of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkConditions {
    /// Share of data packets lost, independently at each receiver.
    pub(crate) data_loss: f64,
    /// Share of all other datagrams lost.
    pub(crate) other_loss: f64,
    /// Share of datagrams that arrive twice.
    pub(crate) repeat: f64,
    pub(crate) delay_us: u64,
    /// Maximum additional delay of a datagram, which lets others overtake it.
    pub(crate) jitter_us: u64,
}

impl Default for NetworkConditions {
    fn default() -> Self {
        Self { data_loss: 0.01, other_loss: 0.01, repeat: 0.0, delay_us: 50, jitter_us: 0 }
    }
}

type Packet = (NodeId, GroupId, u64);

/// Messages and reports of one application.
#[derive(Debug, Default)]
pub(crate) struct Application {
    pub(crate) got: HashMap<Packet, How>,
    pub(crate) lost: HashSet<Packet>,
    /// Time from sending to delivery of each recovered packet.
    pub(crate) recovered_us: Vec<u64>,
    /// Releases of a second, ordered subscription by stream: first and last packet, and whether they came.
    pub(crate) ordered: HashMap<StreamKey, Vec<(Seq, Seq, bool)>>,
    fifo: Option<Fifo>,
    /// Packets in the order in which they came.
    pub(crate) came: Vec<Packet>,
    /// News about the history.
    pub(crate) history: Vec<HistoryNews>,
    /// Maximum number of messages that it takes until it is emptied, if bounded.
    pub(crate) room: Option<u32>,
    /// Whether a lying member may have made up messages, which are not checked then.
    pub(crate) is_deceived: bool,
}

impl Application {
    fn in_order(&mut self, now_us: u64, event: Option<Event>) {
        let fifo = self.fifo.get_or_insert_with(|| Fifo::new(FifoConfig::default()).expect("in range"));
        let ordered = &mut self.ordered;
        let mut note = |released: Released<'_>| {
            let (key, first, last, came) = match released {
                Released::Message(message) => {
                    let key = StreamKey { sender: message.sender, group: message.group };
                    (key, message.seq, message.seq.plus(u64::from(message.packets) - 1), true)
                }
                Released::Lost(lost) => (lost.key, lost.first, lost.last, false),
            };
            ordered.entry(key).or_default().push((first, last, came));
        };
        match event {
            Some(Event::Message(message, payload)) => {
                fifo.handle_message(now_us, &Message { payload: &payload, ..message }, &mut note);
            }
            Some(Event::Lost(lost)) => fifo.on_lost(now_us, &lost, &mut note),
            Some(Event::Settled(key, front)) => fifo.on_settled(key, front, &mut note),
            None => fifo.handle_timeout(now_us, &mut note),
        }
    }
}

enum Event {
    Message(Message<'static>, Vec<u8>),
    Lost(Lost),
    Settled(StreamKey, Front),
}

#[derive(Default)]
struct Wants {
    datagrams: Vec<(To, Vec<u8>)>,
    messages: Vec<(Packet, Vec<u8>, How)>,
    lost: Vec<Packet>,
    events: Vec<Event>,
    history: Vec<HistoryNews>,
    caught_up: Vec<GroupId>,
    room: Option<u32>,
}

impl Output for Wants {
    fn send(&mut self, to: To, datagram: &[u8]) {
        self.datagrams.push((to, datagram.to_vec()));
    }

    fn deliver(&mut self, message: &Message<'_>) {
        let packet = (message.sender, message.group, position(message.seq));
        self.messages.push((packet, message.payload.to_vec(), message.how));
        self.events.push(Event::Message(Message { payload: &[], ..*message }, message.payload.to_vec()));
    }

    fn on_lost(&mut self, lost: &Lost) {
        let positions = position(lost.first)..=position(lost.last);
        self.lost.extend(positions.map(|at| (lost.key.sender, lost.key.group, at)));
        self.events.push(Event::Lost(*lost));
    }

    fn has_room(&mut self, _: GroupId, messages: u32) -> bool {
        self.room.is_none_or(|room| self.messages.len() as u32 + messages <= room)
    }

    fn on_history(&mut self, _: GroupId, news: HistoryNews) {
        self.history.push(news);
    }

    fn on_caught_up(&mut self, group: GroupId) {
        self.caught_up.push(group);
    }

    fn on_settled(&mut self, key: StreamKey, front: Front) {
        self.events.push(Event::Settled(key, front));
    }
}

/// Converts a position, which counts from one lap in, to the sender's number, which counts from 0.
fn position(seq: Seq) -> u64 {
    u64::from(seq.to_wire())
}

pub(crate) struct Net {
    pub(crate) nodes: Vec<Node>,
    pub(crate) applications: Vec<Application>,
    /// Nodes that are down receive and send nothing.
    pub(crate) down: HashSet<usize>,
    /// Side of each node in a partition; nodes receive only from their own side.
    pub(crate) side: Vec<u8>,
    members: HashMap<GroupId, Vec<usize>>,
    /// Packets sent: time and payload.
    pub(crate) sent: HashMap<Packet, (u64, Vec<u8>)>,
    conditions: NetworkConditions,
    flights: Flights,
    pub(crate) now_us: u64,
    dice: ChaCha8Rng,
    /// Bytes and number of the datagrams sent.
    pub(crate) bytes: u64,
    pub(crate) datagrams: u64,
    /// Whether packets are sent as expiring.
    pub(crate) expires: bool,
    /// A node with additional loss of data packets, and its rate.
    pub(crate) deaf: Option<(usize, f64)>,
    /// Changes the datagrams that a node sends.
    pub(crate) tamper: Option<Tamper>,
    /// Time by which the clocks of those are ahead that send values of keys.
    pub(crate) ahead_us: u64,
    /// Datagrams that nodes hold back, because their applications read nothing.
    blocked: HashMap<usize, Vec<Vec<u8>>>,
}

/// Changes a datagram of a node.
pub(crate) type Tamper = Box<dyn FnMut(usize, &mut [u8])>;

impl Net {
    /// A net that loses datagrams of all kinds, and whose first nodes are in the group; the others may join.
    pub(crate) fn joinable(
        group: GroupId,
        [members, others]: [usize; 2],
        loss: f64,
        seed: u64,
        configure: impl Fn(NodeConfig) -> NodeConfig,
    ) -> Self {
        let of_node = |at| if at < members { vec![group] } else { Vec::new() };
        let grouping: Vec<Vec<GroupId>> = (0..members + others).map(of_node).collect();
        let conditions = NetworkConditions {
            data_loss: loss,
            other_loss: loss,
            jitter_us: 100,
            ..NetworkConditions::default()
        };
        Self::new(&grouping, 3, conditions, seed, configure)
    }

    pub(crate) fn new(
        grouping: &[Vec<GroupId>],
        c: u8,
        conditions: NetworkConditions,
        seed: u64,
        configure: impl Fn(NodeConfig) -> NodeConfig,
    ) -> Self {
        let view = super::view(grouping);
        let mut members: HashMap<GroupId, Vec<usize>> = HashMap::new();
        let mut nodes = Vec::new();
        for (at, ids) in grouping.iter().enumerate() {
            ids.iter().for_each(|&id| members.entry(id).or_default().push(at));
            let config = configure(NodeConfig::new(NodeId(at as u32)));
            let groups = super::groups(ids, c);
            nodes.push(Node::new(config, groups, &view, seed * 10_000 + at as u64).expect("in range"));
        }
        Self {
            applications: grouping.iter().map(|_| Application::default()).collect(),
            down: HashSet::new(),
            side: vec![0; nodes.len()],
            members,
            nodes,
            sent: HashMap::new(),
            conditions,
            flights: Flights::default(),
            now_us: 1_000_000,
            dice: ChaCha8Rng::seed_from_u64(seed),
            bytes: 0,
            datagrams: 0,
            expires: false,
            deaf: None,
            tamper: None,
            ahead_us: 0,
            blocked: HashMap::new(),
        }
    }

    /// Lets a node hold back what arrives.
    pub(crate) fn block(&mut self, at: usize) {
        self.nodes[at].hold_losses(true);
        self.blocked.entry(at).or_default();
    }

    /// Lets it process that.
    pub(crate) fn unblock(&mut self, at: usize) {
        for datagram in self.blocked.remove(&at).unwrap_or_default() {
            self.arrive(at, &datagram);
        }
        self.nodes[at].hold_losses(false);
    }

    fn arrive(&mut self, at: usize, datagram: &[u8]) {
        let mut wants = self.wants(at);
        self.nodes[at].handle_datagram(self.now_us, Origin::Member, datagram, &mut wants);
        self.carry_out(at, wants);
    }

    fn happens(&mut self, probability: f64) -> bool {
        ((self.dice.next_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// Returns what a node's output begins with.
    fn wants(&self, at: usize) -> Wants {
        Wants { room: self.applications[at].room, ..Wants::default() }
    }

    /// Lets a node join a group and read its history. The others learn of it when it has.
    pub(crate) fn join_late(&mut self, at: usize, group: GroupId, wish: Wish) {
        self.join_all_late(at, &[group], wish);
    }

    /// Does the same for several groups at once.
    pub(crate) fn join_all_late(&mut self, at: usize, groups: &[GroupId], wish: Wish) {
        groups.iter().for_each(|&group| self.members.entry(group).or_default().push(at));
        let view = self.view(|node| self.down.contains(&node));
        let mut wants = self.wants(at);
        self.nodes[at].change_groups(super::groups(groups, 3), &view, &mut wants);
        groups.iter().for_each(|&group| self.nodes[at].catch_up(self.now_us, group, wish));
        self.carry_out(at, wants);
    }

    /// Returns the view of all nodes but those that are gone.
    pub(crate) fn view(&self, gone: impl Fn(usize) -> bool) -> View {
        let groups = |at: usize| -> Vec<GroupId> {
            let of = self.members.iter().filter(|(_, members)| members.contains(&at));
            of.map(|(&group, _)| group).filter(|&group| !self.nodes[at].is_catching_up(group)).collect()
        };
        let alive = (0..self.nodes.len()).filter(|&at| !gone(at));
        View::new(alive.map(|at| Member::new(NodeId(at as u32), groups(at))))
    }

    /// Fails a node; the others learn of it.
    pub(crate) fn fail(&mut self, at: usize) {
        self.down.insert(at);
        let view = self.view(|node| self.down.contains(&node));
        (0..self.nodes.len()).filter(|&node| node != at).for_each(|node| self.change_view(node, &view));
    }

    /// Ends all losses.
    pub(crate) fn end_losses(&mut self) {
        self.conditions = NetworkConditions { data_loss: 0.0, other_loss: 0.0, ..self.conditions };
    }

    pub(crate) fn multicast(&mut self, from: usize, group: GroupId, payload: &[u8]) {
        let mut wants = Wants::default();
        let seq = self.nodes[from]
            .multicast_large(self.now_us, group, payload, SendOptions { expires: self.expires }, &mut wants)
            .expect("it fits");
        let packet = (NodeId(from as u32), group, u64::from(seq));
        self.sent.insert(packet, (self.now_us, payload.to_vec()));
        self.carry_out(from, wants);
    }

    /// Sends the value of a key; returns the number of the message.
    pub(crate) fn multicast_keyed(&mut self, from: usize, group: GroupId, key: &[u8], value: &[u8]) -> u64 {
        let node = &self.nodes[from];
        let mut outgoing = Outgoing::new(OutgoingConfig {
            payload_max: node.payload_max(),
            message_max: node.message_max(),
            fragment_size: (node.payload_max() - FRAGMENT_HEAD) as u16,
            packets_max: 1 << 10,
            bytes_max: 1 << 20,
            linger_us: 0,
            bytes_per_second: None,
            epoch_us: Some(self.ahead_us),
        });
        let envelope = Envelope { key: Some(key), ..Envelope::default() };
        let options = SendOptions { expires: false };
        let message = OutgoingMessage { group, envelope, payload: value, options, fragments: true };
        outgoing.push(self.now_us, &message).expect("it fits");
        let (mut packets, mut wants) = (Vec::new(), Wants::default());
        outgoing.take(self.now_us, usize::MAX, |_| u32::MAX, &mut packets);
        for packet in &packets {
            self.nodes[from].send_packet_of(self.now_us, packet, &mut wants);
        }
        let seq = wants.datagrams.iter().find_map(|(_, datagram)| match Datagram::read(datagram) {
            Ok(Datagram::Data(data)) => Some(u64::from(data.seq)),
            _ => None,
        });
        let seq = seq.expect("it was sent");
        let mut whole = Vec::new();
        envelope.write(&mut whole);
        whole.extend_from_slice(value);
        self.sent.insert((NodeId(from as u32), group, seq), (self.now_us, whole));
        self.carry_out(from, wants);
        seq
    }

    /// Advances the time; datagrams arrive and timers fire.
    pub(crate) fn advance(&mut self, by_us: u64) {
        let end_us = self.now_us + by_us;
        loop {
            let arrival = self.flights.next_us();
            let timer = (0..self.nodes.len())
                .filter(|at| !self.down.contains(at))
                .filter_map(|at| self.nodes[at].poll_timeout().map(|due_us| (due_us.max(self.now_us), at)))
                .min();
            let next_us = [arrival, timer.map(|(due_us, _)| due_us)].into_iter().flatten().min();
            let Some(next_us) = next_us.filter(|&next_us| next_us <= end_us) else { break };
            self.now_us = self.now_us.max(next_us);
            match (arrival, timer) {
                (Some(at_us), _) if at_us <= next_us => {
                    let Some((to, datagram)) = self.flights.arrived(at_us) else { break };
                    if let Some(blocked) = self.blocked.get_mut(&to) {
                        blocked.push(datagram);
                    } else if !self.down.contains(&to) {
                        self.arrive(to, &datagram);
                    }
                }
                (_, Some((_, at))) => {
                    let mut wants = self.wants(at);
                    self.nodes[at].handle_timeout(self.now_us, &mut wants);
                    self.carry_out(at, wants);
                }
                _ => break,
            }
        }
        self.now_us = end_us;
    }

    /// Hands a made-up datagram to a node, and drops its output.
    pub(crate) fn inject(&mut self, at: usize, datagram: &[u8]) {
        self.nodes[at].handle_datagram(self.now_us, Origin::Member, datagram, &mut Wants::default());
    }

    /// Lets a forged datagram arrive at a node, and carries out what the node does.
    pub(crate) fn forge(&mut self, at: usize, origin: Origin, datagram: &[u8]) {
        let mut wants = Wants::default();
        self.nodes[at].handle_datagram(self.now_us, origin, datagram, &mut wants);
        self.carry_out(at, wants);
    }

    pub(crate) fn change_view(&mut self, at: usize, view: &View) {
        let mut wants = Wants::default();
        self.nodes[at].change_view(view, &mut wants);
        self.carry_out(at, wants);
    }

    fn carry_out(&mut self, from: usize, wants: Wants) {
        for (to, datagram) in wants.datagrams {
            let receivers = match to {
                To::Node(node) => vec![node.0 as usize],
                To::Group(group) => {
                    let members = self.members.get(&group).cloned().unwrap_or_default();
                    members.into_iter().filter(|&member| member != from).collect()
                }
            };
            for receiver in receivers {
                self.launch(from, receiver, &datagram);
            }
        }
        let application = &mut self.applications[from];
        application.in_order(self.now_us, None);
        wants.events.into_iter().for_each(|event| application.in_order(self.now_us, Some(event)));
        for (packet, payload, how) in wants.messages {
            if application.is_deceived {
                application.came.push(packet);
                application.got.insert(packet, how);
                continue;
            }
            let (sent_us, sent) = self.sent.get(&packet).expect("a delivered packet was sent");
            assert_eq!(*sent, payload, "{packet:?} was altered");
            application.came.push(packet);
            assert!(application.got.insert(packet, how).is_none(), "{packet:?} was delivered twice");
            assert!(!application.lost.contains(&packet), "{packet:?} came after it was reported lost");
            if how != How::Multicast {
                application.recovered_us.push(self.now_us - sent_us);
            }
        }
        application.history.extend(wants.history);
        for packet in wants.lost {
            assert!(!application.got.contains_key(&packet), "{packet:?} was reported lost after it came");
            application.lost.insert(packet);
        }
        if !wants.caught_up.is_empty() {
            let view = self.view(|node| self.down.contains(&node));
            (0..self.nodes.len()).for_each(|node| self.change_view(node, &view));
        }
    }

    fn launch(&mut self, from: usize, to: usize, datagram: &[u8]) {
        let is_data = Kind::read(datagram) == Ok(Kind::Data);
        let mut loss = if is_data { self.conditions.data_loss } else { self.conditions.other_loss };
        loss += self.deaf.filter(|&(deaf, _)| is_data && deaf == to).map_or(0.0, |(_, loss)| loss);
        self.bytes += datagram.len() as u64;
        self.datagrams += 1;
        let repeats = if self.happens(self.conditions.repeat) { 2 } else { 1 };
        for _ in 0..repeats {
            if self.side[from] != self.side[to] || self.happens(loss) {
                continue;
            }
            let jitter_us = match self.conditions.jitter_us {
                0 => 0,
                jitter_us => self.dice.next_u64() % jitter_us,
            };
            let due_us = self.now_us + self.conditions.delay_us + jitter_us;
            let mut datagram = datagram.to_vec();
            if let Some(tamper) = &mut self.tamper {
                tamper(from, &mut datagram);
            }
            self.flights.launch(due_us, to, datagram);
        }
    }

    /// Returns the packets that a member neither received nor had reported lost.
    pub(crate) fn unaccounted(&self) -> Vec<(usize, Packet)> {
        let mut unaccounted = Vec::new();
        for packet in self.sent.keys() {
            for &member in &self.members[&packet.1] {
                let application = &self.applications[member];
                let known = application.got.contains_key(packet) || application.lost.contains(packet);
                if !known && packet.0.0 as usize != member {
                    unaccounted.push((member, *packet));
                }
            }
        }
        unaccounted
    }

    /// Checks the ordered subscriptions at the end of a run: each released all messages and losses of its
    /// application, in the order of their streams.
    pub(crate) fn check_order(&mut self) {
        for application in &mut self.applications {
            application.in_order(self.now_us, None);
            let mut got = 0;
            for items in application.ordered.values() {
                assert!(items.is_sorted_by(|a, b| a.1 < b.0), "in order, and nothing twice: {items:?}");
                got += items.iter().filter(|(.., came)| *came).count();
            }
            assert_eq!(got, application.got.len());
            let fifo = application.fifo.as_ref().expect("it was used");
            assert_eq!((fifo.held(), fifo.counts().late, fifo.counts().skipped), (0, 0, 0));
        }
    }

    /// Returns the number of packets that members got in a given way.
    pub(crate) fn count(&self, how: How) -> usize {
        let got = self.applications.iter().flat_map(|application| application.got.values());
        got.filter(|&&other| other == how).count()
    }

    pub(crate) fn reported_lost(&self) -> usize {
        self.applications.iter().map(|application| application.lost.len()).sum()
    }
}
