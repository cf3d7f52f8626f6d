//! A node's own messages, as its own subscriptions get them.
#![allow(missing_docs)]

use ricochet_core::delivery::Released;
use ricochet_core::message::{Message, Output, SendOptions, To};
use ricochet_core::outgoing::OutgoingMessage;
use ricochet_core::tracker::Lost;
use ricochet_core::wire::Envelope;
use ricochet_core::{Fifo, FifoConfig, GroupId, Node, NodeConfig, NodeId, Outgoing, View};

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
