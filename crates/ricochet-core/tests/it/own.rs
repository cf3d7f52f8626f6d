//! A node's own messages, as its own subscriptions get them.
#![allow(missing_docs)]

use ricochet_core::counters::GivenUp;
use ricochet_core::delivery::{FragmentsConfig, Released};
use ricochet_core::message::{Message, Origin, Output, SendOptions, To};
use ricochet_core::outgoing::{OutgoingMessage, Packet};
use ricochet_core::tracker::Lost;
use ricochet_core::wire::{Data, Envelope};
use ricochet_core::{
    Fifo, FifoConfig, GroupId, HistoryConfig, KeyedConfig, Node, NodeConfig, NodeId, Outgoing, View, Wish,
};

use crate::common::{packet, written};

const GROUP: GroupId = GroupId(9);
const ME: NodeId = NodeId(4);

/// An ordered subscription: sequence number and payload of each message.
struct Seen {
    fifo: Fifo,
    messages: Vec<(u32, Vec<u8>)>,
}

impl Output for Seen {
    fn send(&mut self, _: To, _: &[u8]) {}

    fn deliver(&mut self, message: &Message<'_>) {
        assert_eq!((message.sender, message.group), (ME, GROUP));
        let Self { fifo, messages } = self;
        fifo.handle_message(0, message, &mut |released| match released {
            Released::Message(message) => messages.push((message.seq.to_wire(), message.payload.to_vec())),
            Released::Lost(lost) => panic!("{lost:?}"),
        });
    }

    fn on_lost(&mut self, lost: &Lost) {
        panic!("{lost:?}");
    }
}

#[test]
fn own_messages_of_any_length_come_back_once_in_order_where_they_are_wanted() {
    let groups = crate::common::groups(&[GROUP], 1);
    let mut node = Node::new(NodeConfig::new(ME), groups, &View::new([]), 1).expect("in range");
    let fifo = Fifo::new(FifoConfig::default()).expect("in range");
    let mut seen = Seen { fifo, messages: Vec::new() };
    let mut outgoing = Outgoing::new(node.outgoing_config());
    let long = vec![7; 10_000];
    let mut send = |node: &mut Node, seen: &mut Seen, payloads: &[&[u8]]| {
        for &payload in payloads {
            let (envelope, options) = (Envelope::default(), SendOptions::default());
            let message = OutgoingMessage { group: GROUP, envelope, payload, options, fragments: true };
            outgoing.push(0, &message).expect("there is room");
        }
        node.send_waiting(0, &mut outgoing, seen);
    };
    send(&mut node, &mut seen, &[b"unwanted"]);
    assert_eq!(seen.messages, []);
    node.set_loopback(GROUP, true);
    send(&mut node, &mut seen, &[b"one"]);
    // Messages that wait together would share a packet.
    send(&mut node, &mut seen, &[&long, b"two"]);
    send(&mut node, &mut seen, &[b"three"]);
    let [one, whole, two, three] = &seen.messages[..] else { panic!("{:?}", seen.messages.len()) };
    assert_eq!((one, &whole.1), (&(1, b"one".to_vec()), &long));
    assert_eq!(whole.0, 2);
    assert!(two.0 > 3 && three.0 == two.0 + 1, "a long message takes the numbers of its packets");
    assert_eq!((&two.1[..], &three.1[..]), (&b"two"[..], &b"three"[..]));
    node.set_loopback(GROUP, false);
    send(&mut node, &mut seen, &[b"unwanted"]);
    assert_eq!(seen.messages.len(), 4);
    let sent = |node: &Node| {
        let feedback = node.feedback(0);
        (feedback.groups[0].sent.packets, feedback.groups[0].messages_sent)
    };
    let (packets, messages) = sent(&node);
    send(&mut node, &mut seen, &[b"a", b"b", b"c"]);
    assert_eq!(sent(&node), (packets + 1, messages + 3), "messages that share a packet count one by one");
}

/// Messages and losses of a node that sends long messages to itself.
#[derive(Default)]
struct Kept {
    lengths: Vec<usize>,
    lost: Vec<(NodeId, GivenUp)>,
}

impl Output for Kept {
    fn send(&mut self, _: To, _: &[u8]) {}

    fn deliver(&mut self, message: &Message<'_>) {
        self.lengths.push(message.payload.len());
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.lost.push((lost.key.sender, lost.reason));
    }
}

/// Returns the packets of a long message.
fn packets_of(node: &Node, payload: &[u8]) -> Vec<Packet> {
    let mut outgoing = Outgoing::new(node.outgoing_config());
    let (envelope, options) = (Envelope::default(), SendOptions::default());
    let message = OutgoingMessage { group: GROUP, envelope, payload, options, fragments: true };
    outgoing.push(0, &message).expect("there is room");
    let mut packets = Vec::new();
    outgoing.take(0, usize::MAX, |_| u32::MAX, &mut packets);
    packets
}

#[test]
fn an_own_message_that_takes_the_room_of_another_reports_its_loss() {
    let keyed = KeyedConfig { group_bytes: 1 << 20, bytes: 1 << 20, group_keys: 100 };
    let history = HistoryConfig { group_bytes: 1 << 20, bytes: 1 << 20, age_us: 1_000_000 };
    let config = NodeConfig::new(ME);
    let fragments = FragmentsConfig { messages_max: 1, ..config.fragments };
    let config = NodeConfig { fragments, keyed, history, ..config };
    let groups = crate::common::groups(&[GROUP], 1);
    let mut node = Node::new(config, groups, &View::new([]), 1).expect("in range");
    let mut kept = Kept::default();
    node.catch_up(0, GROUP, Wish::LastPerKey);
    let mut now_us = 0;
    while node.is_catching_up(GROUP) {
        now_us += 10_000;
        node.handle_timeout(now_us, &mut kept);
    }
    let is_complete = |node: &mut Node| {
        let mut is_complete = false;
        node.replay(
            now_us,
            GROUP,
            Wish::LastPerKey,
            &mut |found| is_complete = found.is_complete,
            &mut |_| {},
        );
        is_complete
    };
    assert!(is_complete(&mut node));
    node.set_loopback(GROUP, true);
    let mut payload = 300_u32.to_be_bytes().to_vec();
    payload.extend([0, 100].map(u16::to_be_bytes).as_flattened());
    payload.extend([7; 100]);
    let data = Data { fragment: true, ..packet(NodeId(1), GROUP, 0, &payload) };
    node.handle_datagram(now_us, Origin::Member, &written(|to| data.write(to)), &mut kept);
    for packet in packets_of(&node, &[7; 10_000]) {
        node.send_packet_of(now_us, &packet, &mut kept);
    }
    assert_eq!((&kept.lengths[..], &kept.lost[..]), (&[10_000][..], &[(NodeId(1), GivenUp::Crowded)][..]));
    assert!(!is_complete(&mut node), "it may have been the last value of a key");
}

#[test]
fn an_own_message_is_kept_while_the_rest_of_it_waits_for_readers() {
    let groups = crate::common::groups(&[GROUP], 1);
    let mut node = Node::new(NodeConfig::new(ME), groups, &View::new([]), 1).expect("in range");
    let mut kept = Kept::default();
    node.set_loopback(GROUP, true);
    let mut now_us = 0;
    for packet in packets_of(&node, &[7; 5_000]) {
        node.send_packet_of(now_us, &packet, &mut kept);
        now_us += 60_000_000;
        node.handle_timeout(now_us, &mut kept);
    }
    assert_eq!((&kept.lengths[..], &kept.lost[..]), (&[5_000][..], &[][..]));
    // The node does not get the rest of a message for itself. Once the rest was sent, it awaits nothing.
    let packets = packets_of(&node, &[7; 5_000]);
    for (at, packet) in packets.iter().enumerate() {
        node.set_loopback(GROUP, at == 0);
        node.send_packet_of(now_us, packet, &mut kept);
    }
    node.handle_timeout(now_us + 60_000_000, &mut kept);
    assert_eq!(kept.lost, [(ME, GivenUp::Aged)]);
}
