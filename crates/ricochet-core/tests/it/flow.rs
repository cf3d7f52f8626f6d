//! Flow control in virtual time: receivers with a bounded buffer and a time of their own for each datagram.

use std::collections::{HashSet, VecDeque};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use ricochet_core::bins::Content;
use ricochet_core::flow::ReaderNews;
use ricochet_core::message::{Message, Origin, Output, SendOptions, To};
use ricochet_core::outgoing::{NotTaken, OutgoingMessage};
use ricochet_core::tracker::Lost;
use ricochet_core::wire::Envelope;
use ricochet_core::wire::{Kind, messages_of};
use ricochet_core::{FlowConfig, Follow, GroupId, Node, NodeConfig, NodeId, Outgoing};

use crate::common::flights::Flights;

const GROUP: GroupId = GroupId(7);
const WINDOW: u32 = 1_024;
/// Datagrams for which the kernel of a receiver has room.
const BUFFER: usize = 2_048;

#[derive(Default)]
struct Out {
    datagrams: Vec<(To, Vec<u8>)>,
    messages: Vec<(NodeId, Vec<u8>)>,
    lost: u64,
    news: Vec<(NodeId, ReaderNews)>,
}

impl Output for Out {
    fn send(&mut self, to: To, datagram: &[u8]) {
        self.datagrams.push((to, datagram.to_vec()));
    }

    fn deliver(&mut self, message: &Message<'_>) {
        if message.joint {
            self.messages.extend(messages_of(message.payload).map(|one| (message.sender, one.to_vec())));
        } else {
            self.messages.push((message.sender, message.payload.to_vec()));
        }
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.lost += lost.last.0 - lost.first.0 + 1;
    }

    fn on_reader(&mut self, _: GroupId, reader: NodeId, news: ReaderNews) {
        self.news.push((reader, news));
    }
}

struct Host {
    node: Node,
    outgoing: Outgoing,
    /// Datagrams that its kernel holds.
    buffer: VecDeque<Vec<u8>>,
    overflowed: u64,
    /// Time that it takes for a datagram; `None` while it stands still.
    service_us: Option<u64>,
    busy_until_us: u64,
    got: HashSet<(NodeId, Vec<u8>)>,
    lost: u64,
    news: Vec<(NodeId, ReaderNews)>,
}

struct Net {
    hosts: Vec<Host>,
    flights: Flights,
    now_us: u64,
    loss: f64,
    dice: ChaCha8Rng,
    data_packets: u64,
}

impl Net {
    fn new(services_us: &[u64], follow: Follow, loss: f64, seed: u64) -> Self {
        Self::with_repairs(services_us, follow, loss, seed, (Content::Names, 3))
    }

    /// Makes nodes with repairs of a content and a number for each packet.
    fn with_repairs(
        services_us: &[u64],
        follow: Follow,
        loss: f64,
        seed: u64,
        (content, c): (Content, u8),
    ) -> Self {
        let grouping = vec![vec![GROUP]; services_us.len()];
        let view = crate::common::view(&grouping);
        let hosts = services_us.iter().enumerate().map(|(at, &service_us)| {
            let id = NodeId(at as u32);
            let config = NodeConfig { content, ..NodeConfig::prompt(id) };
            let mut node =
                Node::new(config, crate::common::groups(&[GROUP], c), &view, seed * 100 + at as u64).unwrap();
            let flow = FlowConfig { follow, window: WINDOW, ..FlowConfig::default() };
            node.set_flow(flow, &view).unwrap();
            Host {
                outgoing: Outgoing::new(node.outgoing_config()),
                node,
                buffer: VecDeque::new(),
                overflowed: 0,
                service_us: Some(service_us),
                busy_until_us: 0,
                got: HashSet::new(),
                lost: 0,
                news: Vec::new(),
            }
        });
        Self {
            hosts: hosts.collect(),
            flights: Flights::default(),
            now_us: 1_000_000,
            loss,
            dice: ChaCha8Rng::seed_from_u64(seed),
            data_packets: 0,
        }
    }

    /// Offers a message; returns whether it was taken.
    fn offer(&mut self, from: usize, message: &[u8]) -> bool {
        let (envelope, options) = (Envelope::default(), SendOptions::default());
        let message = OutgoingMessage { group: GROUP, envelope, payload: message, options, fragments: true };
        let taken = self.hosts[from].outgoing.push(self.now_us, &message);
        assert!(matches!(taken, Ok(_) | Err(NotTaken::Full)), "{taken:?}");
        self.pump(from);
        taken.is_ok()
    }

    fn pump(&mut self, at: usize) {
        let mut out = Out::default();
        let Host { node, outgoing, .. } = &mut self.hosts[at];
        node.send_waiting(self.now_us, outgoing, &mut out);
        self.carry_out(at, out);
    }

    fn carry_out(&mut self, from: usize, out: Out) {
        for (to, datagram) in out.datagrams {
            let receivers: Vec<usize> = match to {
                To::Node(node) => vec![node.0 as usize],
                To::Group(_) => (0..self.hosts.len()).filter(|&at| at != from).collect(),
            };
            self.data_packets += u64::from(Kind::read(&datagram) == Ok(Kind::Data));
            for receiver in receivers {
                let is_lost = (self.dice.next_u64() as f64) < self.loss * u64::MAX as f64;
                if !is_lost {
                    self.flights.launch(self.now_us + 50, receiver, datagram.clone());
                }
            }
        }
        let host = &mut self.hosts[from];
        for message in out.messages {
            assert!(host.got.insert(message), "a message came twice");
        }
        host.lost += out.lost;
        host.news.extend(out.news);
    }

    /// Advances by one event, or by at most a millisecond.
    fn step(&mut self) {
        let arrival = self.flights.next_us();
        let ready = self.hosts.iter().map(|host| match host.service_us {
            Some(_) if !host.buffer.is_empty() => host.busy_until_us,
            _ => u64::MAX,
        });
        let timers = self.hosts.iter().map(|host| match host.service_us {
            Some(_) => host.node.poll_timeout().unwrap_or(u64::MAX),
            None => u64::MAX,
        });
        let next_us = ready.chain(timers).chain(arrival).min().unwrap_or(u64::MAX);
        self.now_us = self.now_us.max(next_us.min(self.now_us + 1_000));
        while let Some((to, datagram)) = self.flights.arrived(self.now_us) {
            let host = &mut self.hosts[to];
            if host.buffer.len() < BUFFER { host.buffer.push_back(datagram) } else { host.overflowed += 1 }
        }
        for at in 0..self.hosts.len() {
            let Host { node, buffer, busy_until_us, service_us, .. } = &mut self.hosts[at];
            let Some(service_us) = *service_us else { continue };
            let mut out = Out::default();
            if *busy_until_us <= self.now_us
                && let Some(datagram) = buffer.pop_front()
            {
                *busy_until_us = self.now_us + service_us;
                node.set_overloaded(buffer.len() > 256);
                node.handle_datagram(self.now_us, Origin::Member, &datagram, &mut out);
            }
            if node.poll_timeout().is_some_and(|due_us| due_us <= self.now_us) {
                node.handle_timeout(self.now_us, &mut out);
            }
            self.carry_out(at, out);
            self.pump(at);
        }
    }

    fn run(&mut self, us: u64) {
        let end_us = self.now_us + us;
        while self.now_us < end_us {
            self.step();
        }
    }

    /// Sends messages as fast as they are taken.
    fn send_all(&mut self, from: usize, messages: impl Iterator<Item = Vec<u8>>) {
        let end_us = self.now_us + 600_000_000;
        for message in messages {
            while !self.offer(from, &message) {
                assert!(self.now_us < end_us, "the sender is stuck");
                self.step();
            }
        }
    }

    fn overflowed(&self) -> u64 {
        self.hosts.iter().map(|host| host.overflowed).sum()
    }
}

fn small(count: u32) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|number| [&number.to_be_bytes()[..], &[b'x'; 60]].concat())
}

fn large(count: u8, length: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(move |number| (0..length).map(|at| number.wrapping_add(at as u8)).collect())
}

#[test]
fn a_sender_without_pace_follows_its_slowest_reader_and_nothing_is_lost() {
    for seed in 0..8 {
        let mut net = Net::new(&[5, 10, 20, 40, 100], Follow::All, 0.0, seed);
        net.send_all(0, small(20_000));
        net.run(2_000_000);
        assert!(net.hosts[1..].iter().all(|host| (host.got.len(), host.lost) == (20_000, 0)));
        assert_eq!(net.overflowed(), 0, "no buffer overflowed");
        assert!(net.data_packets < 4_000, "messages that wait share packets: {}", net.data_packets);
    }
    let mut net = Net::new(&[5, 10, 20, 40, 100], Follow::Off, 0.0, 1);
    net.send_all(0, small(100_000));
    net.run(2_000_000);
    assert!(net.overflowed() > 0, "without flow control it does");
}

#[test]
fn long_messages_of_a_sender_without_pace_all_arrive() {
    for (seed, loss) in [(1, 0.0), (2, 0.0), (3, 0.01), (4, 0.01)] {
        let mut net = Net::new(&[5, 10, 30, 60], Follow::All, loss, seed);
        net.send_all(0, large(8, 1_000_000));
        net.run(3_000_000);
        assert!(net.hosts[1..].iter().all(|host| (host.got.len(), host.lost) == (8, 0)), "seed {seed}");
        assert_eq!(net.overflowed(), 0);
    }
}

#[test]
fn several_senders_share_the_room_of_their_readers() {
    for seed in 0..4 {
        let mut net = Net::new(&[20; 5], Follow::All, 0.005, seed);
        let end_us = net.now_us + 60_000_000;
        let mut left = [0, 1, 2].map(|from| (from, large(6, 300_000).collect::<VecDeque<_>>()));
        while left.iter().any(|(_, messages)| !messages.is_empty()) {
            for (from, messages) in &mut left {
                // Messages of different senders differ.
                let message = messages.front().map(|message| [&[*from as u8][..], message].concat());
                if message.is_some_and(|message| net.offer(*from, &message)) {
                    messages.pop_front();
                }
            }
            net.step();
            assert!(net.now_us < end_us, "the senders are stuck");
        }
        net.run(3_000_000);
        let got: Vec<_> = net.hosts.iter().map(|host| (host.got.len(), host.lost)).collect();
        assert_eq!(got, [(12, 0), (12, 0), (12, 0), (18, 0), (18, 0)], "seed {seed}");
        assert_eq!(net.overflowed(), 0);
    }
}

#[test]
fn losses_of_packets_and_reports_slow_a_sender_and_lose_nothing() {
    for seed in 0..12 {
        let mut net = Net::new(&[5, 10, 20, 40], Follow::All, 0.05, seed);
        net.send_all(0, small(10_000));
        net.run(5_000_000);
        assert!(net.hosts[1..].iter().all(|host| (host.got.len(), host.lost) == (10_000, 0)), "seed {seed}");
    }
}

/// 10,000 messages a second to four receivers that can take some 8,000 datagrams, of which repairs would be
/// a part.
#[test]
fn overload_costs_speed_and_no_message_whatever_the_repairs() {
    for (seed, repairs) in [(1, (Content::Names, 3)), (2, (Content::Xor, 5)), (3, (Content::Xor, 5))] {
        let mut net = Net::with_repairs(&[20, 120, 120, 120, 120], Follow::All, 0.0, seed, repairs);
        for message in small(15_000) {
            while !net.offer(0, &message) {
                net.step();
            }
            net.run(100);
        }
        net.run(5_000_000);
        assert!(net.hosts[1..].iter().all(|host| (host.got.len(), host.lost) == (15_000, 0)), "{repairs:?}");
        let requested: u64 = net.hosts.iter().map(|host| host.node.counts().requested).sum();
        assert_eq!((net.overflowed(), requested), (0, 0), "nothing was lost on the way: {repairs:?}");
    }
}

#[test]
fn a_quorum_or_the_fastest_do_not_wait_for_a_reader_that_stands_still() {
    for follow in [Follow::Quorum(2), Follow::Max] {
        let mut net = Net::new(&[5, 10, 10, 10], follow, 0.0, 1);
        net.hosts[3].service_us = None;
        let begin_us = net.now_us;
        net.send_all(0, small(20_000));
        assert!(net.now_us - begin_us < 1_000_000, "{follow:?}: {} us", net.now_us - begin_us);
        net.run(100_000);
        assert!(net.hosts[1..3].iter().all(|host| host.got.len() == 20_000));
    }
}

#[test]
fn a_reader_that_stands_still_is_reported_and_left_behind_and_returns() {
    let mut net = Net::new(&[5, 10, 10], Follow::All, 0.0, 1);
    net.send_all(0, small(100));
    net.run(10_000);
    net.hosts[2].service_us = None;
    let begin_us = net.now_us;
    net.send_all(0, small(1_600).skip(100));
    assert!(net.now_us - begin_us < 500_000, "the sender runs ahead of it: {} us", net.now_us - begin_us);
    net.send_all(0, small(60_000).skip(1_600));
    let waited_us = net.now_us - begin_us;
    // It reports nothing, so it counts as silent after a second.
    assert!((1_000_000..3_000_000).contains(&waited_us), "{waited_us}");
    assert_eq!(
        net.hosts[0].news,
        [(NodeId(2), ReaderNews::Slow), (NodeId(2), ReaderNews::Silent)],
        "never in silence"
    );
    net.run(100_000);
    assert_eq!(net.hosts[1].got.len(), 60_000);
    net.hosts[2].service_us = Some(10);
    net.run(20_000_000);
    net.send_all(0, small(61_000).skip(60_000));
    net.run(1_000_000);
    assert_eq!(net.hosts[0].news.last(), Some(&(NodeId(2), ReaderNews::CaughtUp)));
}

/// 1,000 packets a second, and one of four readers dies.
#[test]
fn a_reader_that_dies_holds_up_its_sender_for_a_sixth_of_a_second_and_nothing_is_lost() {
    for seed in 0..24 {
        let loss = [0.0, 0.01, 0.05][seed as usize % 3];
        let mut net = Net::new(&[5, 10, 10, 10, 10], Follow::All, loss, seed);
        let message = |number: u32| [&number.to_be_bytes()[..], &[b'x'; 1_300]].concat();
        let (mut pause_us, mut last_us) = (0, net.now_us);
        for number in 0..3_000 {
            if number == 1_000 {
                net.hosts[4].service_us = None;
            }
            let due_us = net.now_us + 1_000;
            while !net.offer(0, &message(number)) {
                net.step();
            }
            while net.now_us < due_us {
                let before = net.hosts[1].got.len();
                net.step();
                if net.hosts[1].got.len() > before {
                    pause_us = pause_us.max(net.now_us - last_us);
                    last_us = net.now_us;
                }
            }
        }
        net.run(3_000_000);
        assert!(pause_us < 250_000, "seed {seed}: {pause_us} us");
        assert!(net.hosts[1..4].iter().all(|host| (host.got.len(), host.lost) == (3_000, 0)), "seed {seed}");
        assert_eq!(net.hosts[0].news.last(), Some(&(NodeId(4), ReaderNews::Silent)), "seed {seed}");
    }
}

#[test]
fn a_thin_stream_costs_no_reports() {
    let mut net = Net::new(&[5; 8], Follow::All, 0.0, 1);
    for message in small(200) {
        assert!(net.offer(0, &message));
        net.run(20_000);
    }
    let reports: u64 = net.hosts.iter().map(|host| host.node.counts().rooms_sent).sum();
    assert!(reports <= 200 * 7 / 16, "{reports}");
    assert_eq!(net.hosts[0].node.counts().probes_sent, 0);
    assert!(net.hosts[1..].iter().all(|host| host.got.len() == 200));
}

/// Runs until as many members hold a message, at most for a time. Returns their number.
fn run_until_held(net: &mut Net, seq: u32, members: usize, at_most_us: u64) -> usize {
    let wait = net.hosts[0].node.wait_for_holders(net.now_us, GROUP, seq, members).unwrap();
    let end_us = net.now_us + at_most_us;
    while net.hosts[0].node.holders_of(GROUP, seq) < members && net.now_us < end_us {
        net.step();
    }
    net.hosts[0].node.end_wait(wait);
    net.hosts[0].node.holders_of(GROUP, seq)
}

#[test]
fn a_sender_learns_when_members_hold_a_message() {
    for seed in 0..8 {
        let loss = if seed % 2 == 0 { 0.0 } else { 0.3 };
        let mut net = Net::new(&[1; 5], Follow::All, loss, seed);
        assert!(net.offer(0, b"first"));
        assert_eq!(net.hosts[0].node.holders_of(GROUP, 0), 0, "nobody has reported");
        let start_us = net.now_us;
        assert_eq!(run_until_held(&mut net, 0, 4, 5_000_000), 4, "seed {seed}");
        assert!(net.hosts[1..].iter().all(|host| host.got.len() == 1), "seed {seed}: they do hold it");
        if loss == 0.0 {
            assert!(net.now_us - start_us < 2_000, "seed {seed}: {} us", net.now_us - start_us);
        }
        // A member that stands still holds nothing, and nobody says that it does.
        net.hosts[4].service_us = None;
        assert!(net.offer(0, b"second"));
        assert_eq!(run_until_held(&mut net, 1, 4, 2_000_000), 3, "seed {seed}");
        assert_eq!(net.hosts[0].node.holders_of(GROUP, 7), 0, "what was not sent is not held");
    }
}

#[test]
fn a_member_that_joins_later_does_not_hold_what_was_sent_before() {
    let mut net = Net::new(&[1; 4], Follow::All, 0.0, 1);
    let grouping = [vec![GROUP], vec![GROUP], vec![GROUP], Vec::new()];
    let (before, after) = (crate::common::view(&grouping), crate::common::view(&vec![vec![GROUP]; 4]));
    net.hosts[0].node.change_view(&before, &mut Out::default());
    assert!(net.offer(0, b"before"));
    net.flights.lose_to(3);
    net.hosts[0].node.change_view(&after, &mut Out::default());
    assert!(net.offer(0, b"after"));
    assert_eq!(run_until_held(&mut net, 1, 3, 1_000_000), 3);
    assert_eq!(net.hosts[0].node.holders_of(GROUP, 0), 2, "the third one came later");
}

#[test]
fn nobody_asks_for_reports_once_nobody_waits() {
    let mut net = Net::new(&[1; 3], Follow::All, 0.0, 1);
    assert!(net.offer(0, b"x"));
    assert_eq!(run_until_held(&mut net, 0, 9, 500_000), 2);
    let asked = net.hosts[0].node.counts().probes_sent;
    assert!((5..30).contains(&asked), "{asked}: at growing intervals");
    let end_us = net.now_us + 1_000_000;
    while net.now_us < end_us {
        net.step();
    }
    assert_eq!(net.hosts[0].node.counts().probes_sent, asked);
    let node = &mut net.hosts[0].node;
    let waits: Vec<_> = (0..5_000).map_while(|_| node.wait_for_holders(0, GROUP, 0, 1)).collect();
    assert_eq!(waits.len(), 4_096);
}
