//! Messages of several packets that take long to come.

use ricochet_core::counters::GivenUp;
use ricochet_core::message::{Message, Origin, Output, SendError, To};
use ricochet_core::node::NakConfig;
use ricochet_core::tracker::Lost;
use ricochet_core::wire::Data;
use ricochet_core::{GroupId, Member, Node, NodeConfig, NodeId, View};

use crate::common::{groups, packet, written};

const GROUP: GroupId = GroupId(9);
const SENDER: NodeId = NodeId(1);
const SECOND_US: u64 = 1_000_000;
/// Number of fragments of the message, and bytes in each.
const FRAGMENTS: u16 = 3;
const SIZE: u16 = 100;

/// A node that gets fragments of one message.
struct Receiver {
    node: Node,
    now_us: u64,
    news: News,
}

#[derive(Default)]
struct News {
    delivered: usize,
    lost: Vec<GivenUp>,
}

impl Output for News {
    fn send(&mut self, _: To, _: &[u8]) {}

    fn deliver(&mut self, message: &Message<'_>) {
        assert_eq!(message.payload.len(), usize::from(FRAGMENTS * SIZE));
        self.delivered += 1;
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.lost.push(lost.reason);
    }
}

fn view(members: &[NodeId]) -> View {
    View::new(members.iter().map(|&id| Member::new(id, vec![GROUP])))
}

impl Receiver {
    fn new(members: &[NodeId], give_up_us: u64) -> Self {
        let config = NodeConfig::new(NodeId(0));
        let config = NodeConfig { nak: NakConfig { give_up_us, ..config.nak }, ..config };
        let node = Node::new(config, groups(&[GROUP], 1), &view(members), 1).expect("in range");
        Self { node, now_us: 0, news: News::default() }
    }

    fn take(&mut self, index: u16) {
        let mut payload = u32::from(FRAGMENTS * SIZE).to_be_bytes().to_vec();
        payload.extend([index, SIZE].map(u16::to_be_bytes).as_flattened());
        payload.extend([7; SIZE as usize]);
        let data = Data { fragment: true, ..packet(SENDER, GROUP, index.into(), &payload) };
        let datagram = written(|to| data.write(to));
        self.node.handle_datagram(self.now_us, Origin::Member, &datagram, &mut self.news);
    }

    fn wait(&mut self, by_us: u64) {
        let (end_us, mut turns) = (self.now_us + by_us, 0);
        while let Some(due_us) = self.node.poll_timeout().filter(|&due_us| due_us <= end_us) {
            self.now_us = due_us.max(self.now_us);
            self.node.handle_timeout(self.now_us, &mut self.news);
            turns += 1;
            assert!(turns < 100_000, "a time-out stays due");
        }
        self.now_us = end_us;
    }

    fn outcome(&self) -> (usize, &[GivenUp]) {
        (self.news.delivered, &self.news.lost)
    }
}

#[test]
fn a_message_whose_sender_waits_in_its_middle_is_not_given_up() {
    let mut receiver = Receiver::new(&[SENDER], 10 * SECOND_US);
    for index in 0..FRAGMENTS {
        receiver.take(index);
        receiver.wait(60 * SECOND_US);
    }
    assert_eq!(receiver.outcome(), (1, &[][..]));
}

#[test]
fn a_message_whose_sender_goes_in_its_middle_is_given_up() {
    let mut receiver = Receiver::new(&[SENDER], 10 * SECOND_US);
    receiver.take(0);
    receiver.wait(60 * SECOND_US);
    receiver.node.change_view(&view(&[]), &mut receiver.news);
    receiver.wait(31 * SECOND_US);
    assert_eq!(receiver.outcome(), (0, &[GivenUp::Aged][..]));
}

#[test]
fn a_message_is_awaited_as_long_as_its_missing_packets() {
    let mut receiver = Receiver::new(&[], 60 * SECOND_US);
    receiver.take(0);
    receiver.take(2);
    receiver.wait(50 * SECOND_US);
    receiver.take(1);
    assert_eq!(receiver.outcome(), (1, &[][..]));
}

#[test]
fn a_message_is_not_given_up_while_its_packets_may_be_held_back() {
    let mut receiver = Receiver::new(&[], 10 * SECOND_US);
    receiver.take(0);
    receiver.node.hold_losses(true);
    receiver.wait(60 * SECOND_US);
    receiver.take(1);
    receiver.node.hold_losses(false);
    receiver.wait(14 * SECOND_US);
    receiver.take(2);
    assert_eq!(receiver.outcome(), (1, &[][..]));
}

/// Keeps the datagrams of a sender.
#[derive(Default)]
struct Sent(Vec<Vec<u8>>);

impl Output for Sent {
    fn send(&mut self, _: To, datagram: &[u8]) {
        self.0.push(datagram.to_vec());
    }

    fn deliver(&mut self, _: &Message<'_>) {}

    fn on_lost(&mut self, _: &Lost) {}
}

/// Notes the lengths of messages.
#[derive(Default)]
struct Lengths(Vec<usize>);

impl Output for Lengths {
    fn send(&mut self, _: To, _: &[u8]) {}

    fn deliver(&mut self, message: &Message<'_>) {
        self.0.push(message.payload.len());
    }

    fn on_lost(&mut self, lost: &Lost) {
        panic!("{lost:?}");
    }
}

#[test]
fn a_packet_of_total_order_holds_even_the_longest_message() {
    let node = |id| Node::new(NodeConfig::new(id), groups(&[GROUP], 1), &view(&[]), 1).expect("in range");
    let (mut sender, mut receiver) = (node(SENDER), node(NodeId(0)));
    let longest = sender.message_max() + 39;
    let (mut sent, mut lengths) = (Sent::default(), Lengths::default());
    let refused = sender.multicast_order(0, GROUP, &vec![7; longest + 1], &mut sent);
    assert_eq!(refused, Err(SendError::TooLong { length: longest + 1, payload_max: longest }));
    for length in [100, longest] {
        sender.multicast_order(0, GROUP, &vec![7; length], &mut sent).expect("it fits");
    }
    for datagram in &sent.0 {
        receiver.handle_datagram(0, Origin::Member, datagram, &mut lengths);
    }
    assert_eq!(lengths.0, [100, longest]);
}
