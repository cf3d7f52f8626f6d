//! Flow control with several groups, with readers that stand still or hear nothing, and with other traffic.

use std::collections::{BTreeSet, VecDeque};

use ricochet_core::bins::Content;
use ricochet_core::flow::ReaderNews;
use ricochet_core::message::{Message, Origin, Output, SendOptions, To};
use ricochet_core::outgoing::{NotTaken, OutgoingMessage};
use ricochet_core::tracker::Lost;
use ricochet_core::wire::{Datagram, Envelope, Kind};
use ricochet_core::{FlowConfig, Follow, GroupId, Node, NodeConfig, NodeId, Outgoing};

use crate::common::flights::Flights;

const A: GroupId = GroupId(1);
const B: GroupId = GroupId(2);
const FLOW: FlowConfig =
    FlowConfig { follow: Follow::All, window: 2_048, patience_us: None, silence_us: 1_000_000 };
/// Time from one host to another.
const DELAY_US: u64 = 50;

#[derive(Default)]
struct Out {
    datagrams: Vec<(To, Vec<u8>)>,
    got: Vec<Position>,
    lost: Vec<Position>,
    news: Vec<(GroupId, NodeId, ReaderNews)>,
}

/// Sender, group and number of a message.
type Position = (NodeId, GroupId, u32);

impl Output for Out {
    fn send(&mut self, to: To, datagram: &[u8]) {
        self.datagrams.push((to, datagram.to_vec()));
    }

    fn deliver(&mut self, message: &Message<'_>) {
        let first = message.seq.to_wire();
        let numbers = first..first + message.packets;
        self.got.extend(numbers.map(|number| (message.sender, message.group, number)));
    }

    fn on_lost(&mut self, lost: &Lost) {
        let numbers = lost.first.to_wire()..=lost.last.to_wire();
        self.lost.extend(numbers.map(|number| (lost.key.sender, lost.key.group, number)));
    }

    fn on_reader(&mut self, group: GroupId, reader: NodeId, news: ReaderNews) {
        self.news.push((group, reader, news));
    }
}

struct Host {
    node: Node,
    outgoing: Outgoing,
    groups: Vec<GroupId>,
    /// Whether nothing arrives.
    is_deaf: bool,
    /// Datagrams that it does not process while its application reads nothing: all but requests and reports.
    blocked: Option<VecDeque<Vec<u8>>>,
    got: BTreeSet<Position>,
    lost: BTreeSet<Position>,
    news: Vec<(GroupId, NodeId, ReaderNews)>,
}

struct Net {
    hosts: Vec<Host>,
    flights: Flights,
    now_us: u64,
    /// A receiver and the number of the packet of group A that it loses.
    loss: Option<(usize, u32)>,
}

impl Net {
    fn new(grouping: &[Vec<GroupId>], flow: impl Fn(usize) -> FlowConfig) -> Self {
        let view = crate::common::view(grouping);
        let hosts = grouping.iter().enumerate().map(|(at, groups)| {
            let id = NodeId(at as u32);
            // Requests alone recover what is lost.
            let config = NodeConfig { content: Content::Names, ..NodeConfig::prompt(id) };
            let mut node = Node::new(config, crate::common::groups(groups, 1), &view, at as u64).unwrap();
            node.set_flow(flow(at), &view).unwrap();
            Host {
                outgoing: Outgoing::new(node.outgoing_config()),
                node,
                groups: groups.clone(),
                is_deaf: false,
                blocked: None,
                got: BTreeSet::new(),
                lost: BTreeSet::new(),
                news: Vec::new(),
            }
        });
        Self { hosts: hosts.collect(), flights: Flights::default(), now_us: 1_000_000, loss: None }
    }

    /// Offers a message; returns whether it was taken.
    fn offer(&mut self, from: usize, group: GroupId, payload: &[u8]) -> bool {
        let (envelope, options) = (Envelope::default(), SendOptions::default());
        let message = OutgoingMessage { group, envelope, payload, options, fragments: true };
        let taken = self.hosts[from].outgoing.push(self.now_us, &message);
        assert!(matches!(taken, Ok(_) | Err(NotTaken::Full)), "{taken:?}");
        self.pump(from);
        taken.is_ok()
    }

    /// Sends short messages as fast as they are taken.
    fn send(&mut self, from: usize, group: GroupId, count: u32) {
        self.send_each(from, group, count, &[7; 100]);
    }

    fn send_each(&mut self, from: usize, group: GroupId, count: u32, payload: &[u8]) {
        let end_us = self.now_us + 20_000_000;
        for _ in 0..count {
            while !self.offer(from, group, payload) {
                assert!(self.now_us < end_us, "the sender is stuck");
                self.step();
            }
        }
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
                To::Group(group) => {
                    let is_member = |at: &usize| self.hosts[*at].groups.contains(&group);
                    (0..self.hosts.len()).filter(|&at| at != from).filter(is_member).collect()
                }
            };
            for receiver in receivers {
                let is_lost = self
                    .loss
                    .is_some_and(|(deaf, number)| deaf == receiver && is_first_copy(&datagram, number));
                if !is_lost {
                    self.flights.launch(self.now_us + DELAY_US, receiver, datagram.clone());
                }
            }
        }
        let host = &mut self.hosts[from];
        for position in out.got {
            assert!(host.got.insert(position), "{position:?} came twice");
            assert!(!host.lost.contains(&position), "{position:?} came after it was reported lost");
        }
        for position in out.lost {
            assert!(!host.got.contains(&position), "{position:?} was reported lost after it came");
            host.lost.insert(position);
        }
        host.news.extend(out.news);
    }

    /// Advances by one event, or by at most a millisecond.
    fn step(&mut self) {
        let arrival = self.flights.next_us();
        let timers = self.hosts.iter().filter_map(|host| host.node.poll_timeout());
        let next_us = timers.chain(arrival).min().unwrap_or(u64::MAX);
        self.now_us = self.now_us.max(next_us.min(self.now_us + 1_000));
        while let Some((to, datagram)) = self.flights.arrived(self.now_us) {
            self.arrive(to, datagram);
        }
        for at in 0..self.hosts.len() {
            let (node, mut out) = (&mut self.hosts[at].node, Out::default());
            if node.poll_timeout().is_some_and(|due_us| due_us <= self.now_us) {
                node.handle_timeout(self.now_us, &mut out);
            }
            self.carry_out(at, out);
            self.pump(at);
        }
    }

    fn arrive(&mut self, to: usize, datagram: Vec<u8>) {
        let host = &mut self.hosts[to];
        if host.is_deaf {
            return;
        }
        let is_request = matches!(Kind::read(&datagram), Ok(Kind::Nak | Kind::Probe | Kind::Room));
        if let Some(held) = host.blocked.as_mut().filter(|_| !is_request) {
            return held.push_back(datagram);
        }
        let mut out = Out::default();
        host.node.handle_datagram(self.now_us, Origin::Member, &datagram, &mut out);
        self.carry_out(to, out);
    }

    fn run(&mut self, us: u64) {
        let end_us = self.now_us + us;
        while self.now_us < end_us {
            self.step();
        }
    }

    /// Lets the application of a host read nothing.
    fn block(&mut self, at: usize) {
        self.hosts[at].blocked = Some(VecDeque::new());
        self.hosts[at].node.hold_losses(true);
    }

    /// Lets it read again.
    fn unblock(&mut self, at: usize) {
        for datagram in self.hosts[at].blocked.take().unwrap_or_default() {
            self.arrive(at, datagram);
        }
        self.hosts[at].node.hold_losses(false);
    }

    /// Returns how many messages of a sender to a group a host got, and how many it reported as lost.
    fn counts(&self, at: usize, from: u32, group: GroupId) -> (usize, usize) {
        let is_of = |&&(sender, of, _): &&Position| (sender, of) == (NodeId(from), group);
        let Host { got, lost, .. } = &self.hosts[at];
        (got.iter().filter(is_of).count(), lost.iter().filter(is_of).count())
    }
}

/// Returns whether a message of group A is sent for the first time with this packet.
fn is_first_copy(datagram: &[u8], number: u32) -> bool {
    let Ok(Datagram::Data(data)) = Datagram::read(datagram) else { return false };
    data.group == A && (data.seq..data.seq + data.count()).contains(&number)
}

#[test]
fn what_idle_groups_have_not_reported_holds_up_no_other_group() {
    let groups: Vec<GroupId> = (1..=60).map(GroupId).collect();
    let mut net = Net::new(&[groups.clone(), groups.clone()], |_| FLOW);
    for &group in &groups {
        // A burst ends between two reports.
        net.send(0, group, 3_000);
        net.run(300_000);
    }
    let begin_us = net.now_us;
    net.send(0, A, 3_000);
    net.run(300_000);
    assert!(net.now_us - begin_us < 1_000_000, "{} us", net.now_us - begin_us);
    let got = groups.iter().map(|&group| net.counts(1, 0, group).0).sum::<usize>();
    assert_eq!((got, net.hosts[1].lost.len()), (61 * 3_000, 0));
    assert_eq!(net.hosts[0].news, [], "all readers keep up");
}

#[test]
fn a_reader_that_stands_still_stops_its_group_and_no_other() {
    let mut net = Net::new(&[vec![A, B], vec![A], vec![B]], |_| FLOW);
    net.send(0, A, 20_000);
    net.send(0, B, 100);
    net.run(100_000);
    net.block(1);
    while net.offer(0, A, &[7; 100]) {}
    net.run(200_000);
    let begin_us = net.now_us;
    net.send(0, B, 20_000);
    net.run(100_000);
    assert!(net.now_us - begin_us < 4_000_000, "{} us", net.now_us - begin_us);
    assert_eq!(net.counts(2, 0, B), (20_100, 0));
    assert!(!net.offer(0, A, &[7; 100]), "the reader still stands still");
    net.unblock(1);
    net.run(1_000_000);
    assert!(net.offer(0, A, &[7; 100]));
    assert_eq!(net.hosts[1].lost.len(), 0);
    assert_eq!(net.hosts[0].news.iter().filter(|(group, ..)| *group == B).count(), 0);
}

#[test]
fn a_dead_reader_of_idle_groups_is_left_behind_while_it_holds_up_others() {
    let idle: Vec<GroupId> = (10..15).map(GroupId).collect();
    let mut net = Net::new(&[[&idle[..], &[B]].concat(), idle.clone(), vec![B]], |_| FLOW);
    idle.iter().for_each(|&group| net.send(0, group, 3_000));
    net.send(0, B, 3_000);
    net.run(100_000);
    net.hosts[1].is_deaf = true;
    // Each group alone has room for them, and all together have not.
    idle.iter().for_each(|&group| net.send(0, group, 500));
    let begin_us = net.now_us;
    net.send(0, B, 20_000);
    assert!(net.now_us - begin_us < 2_000_000, "{} us", net.now_us - begin_us);
    net.run(2_000_000);
    let silent =
        net.hosts[0].news.iter().filter(|(_, reader, news)| (reader.0, *news) == (1, ReaderNews::Silent));
    assert_eq!(silent.map(|&(group, ..)| group).collect::<BTreeSet<_>>().len(), 5);
    assert_eq!(net.counts(2, 0, B), (23_000, 0));
}

/// One reader loses a packet and stands still for three seconds, while its sender receives 5,000 packets a
/// second from elsewhere and sends as many to another group.
#[test]
fn packets_that_a_reader_waits_for_outlast_all_other_traffic() {
    for is_sent in [false, true] {
        let mut net = Net::new(&[vec![A, B], vec![A], vec![B], vec![B]], |_| FLOW);
        net.send(0, A, 1_000);
        net.run(100_000);
        net.loss = Some((1, 1_005));
        net.block(1);
        net.send(0, A, 20);
        for _ in 0..15_000 {
            net.send(if is_sent { 0 } else { 2 }, B, 1);
            net.run(200);
        }
        net.unblock(1);
        net.run(3_000_000);
        assert_eq!(net.counts(1, 0, A), (1_020, 0), "sent: {is_sent}");
        assert_eq!(net.hosts[0].news, [], "the reader reported all the time");
    }
}

/// Returns how many members hold a message of the first host, once as many do or a second has passed.
fn holders(net: &mut Net, seq: u32, members: usize) -> usize {
    let wait = net.hosts[0].node.wait_for_holders(net.now_us, A, seq, members).unwrap();
    let end_us = net.now_us + 1_000_000;
    while net.hosts[0].node.holders_of(A, seq) < members && net.now_us < end_us {
        net.step();
    }
    net.hosts[0].node.end_wait(wait);
    net.hosts[0].node.holders_of(A, seq)
}

#[test]
fn a_member_that_heard_nothing_of_the_first_messages_reports_them_as_lost_and_does_not_hold_them() {
    for follow in [Follow::All, Follow::Quorum(1), Follow::Max] {
        let mut net = Net::new(&[vec![A], vec![A], vec![A]], |_| FlowConfig { follow, ..FLOW });
        net.hosts[1].is_deaf = true;
        let begin_us = net.now_us;
        net.send(0, A, 3_000);
        let waited_us = net.now_us - begin_us;
        assert_eq!(waited_us > 1_000_000, follow == Follow::All, "{follow:?}: {waited_us} us");
        net.run(100_000);
        net.hosts[1].is_deaf = false;
        net.send(0, A, 1);
        assert_eq!(holders(&mut net, 3_000, 2), 2, "{follow:?}");
        let (got, lost) = net.counts(1, 0, A);
        assert!(got < 100 && got + lost == 3_001, "{follow:?}: {got} came, {lost} were lost");
        assert_eq!(holders(&mut net, 5, 2), 1, "{follow:?}: one never got it");
        // The news comes once.
        net.send(0, A, 3_000);
        net.run(100_000);
        assert_eq!(net.counts(1, 0, A), (got + 3_000, lost), "{follow:?}");
    }
}

#[test]
fn a_member_that_heard_a_stream_before_its_sender_knew_of_it_holds_all_from_then_on() {
    let mut net = Net::new(&[vec![A], vec![A], vec![A]], |_| FLOW);
    let [before, after] = [vec![], vec![A]].map(|of_late| crate::common::view(&[vec![A], of_late, vec![A]]));
    net.hosts[0].node.change_view(&before, &mut Out::default());
    net.hosts[1].is_deaf = true;
    net.send(0, A, 200);
    net.run(100_000);
    net.hosts[1].is_deaf = false;
    net.send(0, A, 1);
    net.run(1_000);
    net.hosts[0].node.change_view(&after, &mut Out::default());
    net.send(0, A, 1);
    assert_eq!(holders(&mut net, 201, 2), 2);
    assert_eq!(holders(&mut net, 200, 2), 1, "its sender did not know of it");
    assert_eq!(net.counts(1, 0, A), (2, 0));
}

#[test]
fn a_reader_with_a_small_window_does_not_make_the_reports_of_others_too_rare() {
    let window = |at| if at == 2 { 184 } else { 2_048 };
    let mut net = Net::new(&[vec![A], vec![A], vec![A]], |at| FlowConfig { window: window(at), ..FLOW });
    // Each message fills a packet.
    net.send_each(0, A, 1_000, &[7; 1_200]);
    let begin_us = net.now_us;
    net.send_each(0, A, 20_000, &[7; 1_200]);
    assert!(net.now_us - begin_us < 200_000, "{} us", net.now_us - begin_us);
    net.run(100_000);
    assert_eq!([net.counts(1, 0, A), net.counts(2, 0, A)], [(21_000, 0); 2]);
    let reports: u64 = net.hosts[1..].iter().map(|host| host.node.counts().rooms_sent).sum();
    assert!(reports < 2_000, "{reports}");
}
