//! A node with an ordered subscription: the order of messages and losses when the two meet.
#![allow(missing_docs)]

use crate::common::net::{Net, NetworkConditions};
use crate::common::{packet, written};
use ricochet_core::delivery::Released;
use ricochet_core::message::{Message, Origin, Output, To};
use ricochet_core::tracker::{Front, Lost};
use ricochet_core::wire::{Data, Fragment};
use ricochet_core::{Fifo, FifoConfig, GroupId, Node, NodeConfig, NodeId, StreamKey, TrackerConfig, View};

const GROUP: GroupId = GroupId(9);

/// An ordered subscription, and its releases: first and last packet, and whether they came.
#[derive(Debug)]
struct Ordered {
    fifo: Fifo,
    all: Vec<(u32, u32, bool)>,
    /// Datagrams sent.
    sent: Vec<Vec<u8>>,
}

impl Ordered {
    fn note(released: &Released<'_>, all: &mut Vec<(u32, u32, bool)>) {
        all.push(match released {
            Released::Message(message) => {
                let first = message.seq.to_wire();
                (first, first + message.packets - 1, true)
            }
            Released::Lost(lost) => (lost.first.to_wire(), lost.last.to_wire(), false),
        });
    }
}

impl Output for Ordered {
    fn send(&mut self, _: To, datagram: &[u8]) {
        self.sent.push(datagram.to_vec());
    }

    fn deliver(&mut self, message: &Message<'_>) {
        let Self { fifo, all, .. } = self;
        fifo.handle_message(0, message, &mut |released| Self::note(&released, all));
    }

    fn on_lost(&mut self, lost: &Lost) {
        let Self { fifo, all, .. } = self;
        fifo.on_lost(0, lost, &mut |released| Self::note(&released, all));
    }

    fn on_settled(&mut self, key: StreamKey, front: Front) {
        let Self { fifo, all, .. } = self;
        fifo.on_settled(key, front, &mut |released| Self::note(&released, all));
    }
}

/// A node that keeps one gap of a stream, so that a second gap gives up the first.
struct Listener {
    node: Node,
    ordered: Ordered,
}

impl Listener {
    fn new() -> Self {
        let tracker = TrackerConfig { stream_intervals_max: 1, ..TrackerConfig::default() };
        let config = NodeConfig { tracker, ..NodeConfig::new(NodeId(0)) };
        let node =
            Node::new(config, crate::common::groups(&[GROUP], 1), &View::new([]), 1).expect("in range");
        Self {
            node,
            ordered: Ordered {
                fifo: Fifo::new(FifoConfig::default()).expect("in range"),
                all: Vec::new(),
                sent: Vec::new(),
            },
        }
    }

    fn hear(&mut self, seq: u32, payload: &[u8], fragment: bool) {
        let data = Data { fragment, ..packet(NodeId(1), GROUP, seq, payload) };
        let datagram = written(|to| data.write(to));
        self.node.handle_datagram(0, Origin::Member, &datagram, &mut self.ordered);
        // A gap makes room for another only once the sender has confirmed it. Then the packet is sent again.
        for sent in std::mem::take(&mut self.ordered.sent) {
            if let Some(answer) = crate::common::answer(NodeId(1), &sent, Some(seq)) {
                self.node.handle_datagram(0, Origin::Member, &answer, &mut self.ordered);
                self.node.handle_datagram(0, Origin::Member, &datagram, &mut self.ordered);
            }
        }
    }

    /// Hears a part of ten bytes of a message whose first packet is `first`.
    fn hear_part(&mut self, first: u32, message: &[u8], index: u16) {
        let mut payload = [0; 50];
        let length = Fragment::of(message, index, 10).expect("it has such a part").write(&mut payload);
        self.hear(first + u32::from(index), &payload[..length], true);
    }
}

#[test]
fn a_loss_is_reported_before_the_messages_after_it() {
    let mut listener = Listener::new();
    for seq in [0, 2, 4] {
        listener.hear(seq, b"", false);
    }
    assert_eq!(
        listener.ordered.all,
        [(0, 0, true), (1, 1, false), (2, 2, true)],
        "the gap at 3 gave up that at 1"
    );
    listener.hear(3, b"", false);
    assert_eq!(listener.ordered.all[3..], [(3, 3, true), (4, 4, true)]);
}

#[test]
fn a_packet_whose_arrival_gives_up_others_is_not_late() {
    let mut listener = Listener::new();
    for seq in [0, 6, 3] {
        listener.hear(seq, b"", false);
    }
    assert_eq!(listener.ordered.all, [(0, 0, true), (1, 2, false), (3, 3, true)]);
    assert_eq!(listener.ordered.fifo.counts().late, 0);
}

#[test]
fn messages_after_a_lost_one_do_not_wait_for_the_rest_of_it() {
    let mut listener = Listener::new();
    let message = [7; 40];
    listener.hear(0, b"", false);
    listener.hear_part(1, &message, 0);
    listener.hear(5, b"", false);
    listener.hear_part(1, &message, 2);
    // The part at 2 was given up; the one at 4 is still missing.
    assert_eq!(listener.ordered.all, [(0, 0, true), (1, 4, false), (5, 5, true)]);
}

#[test]
fn late_parts_of_a_message_without_its_beginning_release_the_messages_after_it() {
    let mut listener = Listener::new();
    let message = [7; 40];
    listener.hear(0, b"", false);
    listener.hear(5, b"", false);
    listener.hear_part(1, &message, 1);
    assert_eq!(listener.ordered.all, [(0, 0, true), (1, 1, false)], "its first part was given up");
    listener.hear_part(1, &message, 2);
    assert_eq!(listener.ordered.all.len(), 2);
    listener.hear_part(1, &message, 3);
    assert_eq!(listener.ordered.all[2..], [(5, 5, true)]);
    assert_eq!(listener.node.fragments().vain, 3);
}

#[test]
fn a_message_of_many_parts_stands_at_the_position_of_its_first() {
    let mut listener = Listener::new();
    let message = [7; 25];
    listener.hear(0, b"", false);
    listener.hear_part(1, &message, 2);
    listener.hear_part(1, &message, 0);
    listener.hear(4, b"", false);
    assert_eq!(listener.ordered.all, [(0, 0, true)]);
    listener.hear_part(1, &message, 1);
    assert_eq!(listener.ordered.all, [(0, 0, true), (1, 3, true), (4, 4, true)]);
}

#[test]
fn a_node_that_joins_in_the_middle_of_streams_gets_the_rest_in_order() {
    for seed in 0..20 {
        let grouping = vec![vec![GROUP]; 4];
        let conditions = NetworkConditions {
            data_loss: 0.05,
            other_loss: 0.05,
            repeat: 0.01,
            delay_us: 100,
            jitter_us: 1_500,
        };
        let mut net = Net::new(&grouping, 2, conditions, seed, |config| config);
        net.down.insert(3);
        for n in 0..600u32 {
            if n == 300 {
                net.down.remove(&3);
            }
            net.multicast(n as usize % 3, GROUP, &n.to_be_bytes());
            net.advance(300);
        }
        net.advance(15_000_000);
        net.check_order();
        let got = net.applications[3].got.len();
        assert!((280..400).contains(&got), "seed {seed}: {got}");
    }
}
