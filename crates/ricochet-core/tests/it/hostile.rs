//! Nodes among nodes that lie, are dead or are overloaded.
#![allow(missing_docs)]

use crate::common::net::{Net, NetworkConditions};
use crate::common::{packet, written};
use ricochet_core::bins::Content;
use ricochet_core::message::{How, Message, Origin, Output, To};
use ricochet_core::node::NakConfig;
use ricochet_core::tracker::Lost;
use ricochet_core::wire::{
    Data, Datagram, Heartbeat, Kind, Latest, NAK_RANGES_MAX, Nak, Name, Range, Repair,
};
use ricochet_core::{GroupConfig, GroupId, Groups, Member, Node, NodeConfig, NodeId, StreamKey, View};

const GROUP: GroupId = GroupId(0);

/// Keeps the output of a node.
#[derive(Default)]
struct Kept {
    sent: Vec<(To, Vec<u8>)>,
    delivered: usize,
}

impl Output for Kept {
    fn send(&mut self, to: To, datagram: &[u8]) {
        self.sent.push((to, datagram.to_vec()));
    }

    fn deliver(&mut self, _: &Message<'_>) {
        self.delivered += 1;
    }

    fn on_lost(&mut self, _: &Lost) {}
}

impl Kept {
    /// Returns the requested ranges and the nodes that the requests went to.
    fn requested(&self) -> Vec<(NodeId, Range)> {
        let mut requested = Vec::new();
        for (to, datagram) in &self.sent {
            if let (&To::Node(node), Ok(Datagram::Nak(nak))) = (to, Datagram::read(datagram)) {
                requested.extend(nak.ranges().map(|range| (node, range)));
            }
        }
        requested
    }
}

/// Makes node 1 in a group with nodes 2 to 5.
fn node(configure: impl Fn(NodeConfig) -> NodeConfig) -> Node {
    let groups = Groups::new([GroupConfig { id: GROUP, c: 2 }]).unwrap();
    let view = View::new((2..6).map(|id| Member::new(NodeId(id), [GROUP])));
    Node::new(configure(NodeConfig::new(NodeId(1))), groups, &view, 1).unwrap()
}

fn data(sender: u32, seq: u32, expires: bool) -> Vec<u8> {
    let data = Data { expires, ..packet(NodeId(sender), GROUP, seq, b"payload") };
    written(|to| data.write(to))
}

fn digest(from: u32, names: &[Name]) -> Vec<u8> {
    written(|to| Repair { from: NodeId(from), names, symbol: None }.write(to))
}

#[test]
fn the_cost_of_a_request_is_bounded_whatever_it_claims() {
    let mut node = node(|config| config);
    let mut kept = Kept::default();
    (0..2_000).for_each(|seq| node.handle_datagram(0, Origin::Member, &data(2, seq, false), &mut kept));
    let key = StreamKey { sender: NodeId(2), group: GROUP };
    let ranges = [Range { key, first: 0, count: u16::MAX }; NAK_RANGES_MAX];
    kept.sent.clear();
    node.handle_datagram(
        1,
        Origin::Member,
        &written(|to| Nak { from: NodeId(3), ranges: &ranges }.write(to)),
        &mut kept,
    );
    let counts = node.counts();
    assert!(counts.not_held + counts.answered <= 1_024, "{counts:?}");
    assert_eq!(counts.not_held + counts.answered + counts.refused, 64 * 65_535);
    assert!(counts.answered > 0);
}

#[test]
fn a_digest_that_names_an_unknown_group_leads_to_no_request() {
    let mut node = node(|config| config);
    let mut kept = Kept::default();
    node.handle_datagram(0, Origin::Member, &data(2, 0, false), &mut kept);
    kept.sent.clear();
    let name = |tag| Name { sender: NodeId(2), group: ricochet_core::GroupTag(tag), seq: 1 };
    node.handle_datagram(5, Origin::Member, &digest(3, &[name(77), name(0)]), &mut kept);
    let key = StreamKey { sender: NodeId(2), group: GROUP };
    assert_eq!(kept.requested(), [(NodeId(3), Range { key, first: 1, count: 1 })]);
}

#[test]
fn a_long_gap_is_requested_to_its_end() {
    let grouping = vec![vec![GROUP]; 3];
    let conditions = NetworkConditions { data_loss: 0.0, other_loss: 0.0, ..NetworkConditions::default() };
    let mut net = Net::new(&grouping, 1, conditions, 1, |config| config);
    net.multicast(0, GROUP, b"first");
    net.advance(10_000);
    net.side[2] = 1;
    for _ in 0..3_500 {
        net.multicast(0, GROUP, b"to the other");
        net.advance(100);
    }
    net.side[2] = 0;
    net.multicast(0, GROUP, b"last");
    net.advance(9_000_000);
    assert_eq!((net.unaccounted().len(), net.reported_lost()), (0, 0));
    assert!(net.count(How::Requested) + net.count(How::Repaired) >= 3_500);
}

#[test]
fn data_that_expires_does_not_silence_other_senders() {
    let mut node = node(|config| config);
    let mut kept = Kept::default();
    for seq in [0, 2] {
        node.handle_datagram(0, Origin::Member, &data(2, seq, false), &mut kept);
        node.handle_datagram(0, Origin::Member, &data(3, seq, true), &mut kept);
    }
    kept.sent.clear();
    node.handle_timeout(200_000, &mut kept);
    let senders: Vec<NodeId> = kept.requested().into_iter().map(|(_, range)| range.key.sender).collect();
    assert_eq!(senders, [NodeId(2)]);
}

#[test]
fn a_sender_that_has_left_is_not_asked_first() {
    let mut node = node(|config| config);
    let mut kept = Kept::default();
    for seq in [0, 2] {
        node.handle_datagram(0, Origin::Member, &data(2, seq, false), &mut kept);
    }
    node.change_view(&View::new((3..6).map(|id| Member::new(NodeId(id), [GROUP]))), &mut kept);
    kept.sent.clear();
    let mut now_us = 0;
    while kept.requested().len() < 4 {
        now_us = node.poll_timeout().unwrap().max(now_us);
        node.handle_timeout(now_us, &mut kept);
    }
    let to_sender: Vec<bool> = kept.requested().iter().map(|(node, _)| *node == NodeId(2)).collect();
    assert_eq!(to_sender, [false, true, false, true], "it may be a sender that is no member");
}

#[test]
fn requests_withheld_for_want_of_allowance_are_made_later() {
    let slow = |config: NodeConfig| NodeConfig {
        nak: NakConfig { packets_per_second: 100, sender_tries: 1, ..config.nak },
        ..config
    };
    let mut node = node(slow);
    let mut kept = Kept::default();
    for seq in [0, 1_001] {
        node.handle_datagram(0, Origin::Member, &data(2, seq, false), &mut kept);
    }
    while let Some(now_us) = node.poll_timeout().filter(|&due_us| due_us < 9_900_000) {
        node.handle_timeout(now_us, &mut kept);
        // The nodes are alive and do not answer.
        let known = Name { sender: NodeId(2), group: GROUP.tag(), seq: 0 };
        (2..6).for_each(|peer| {
            node.handle_datagram(now_us, Origin::Member, &digest(peer, &[known]), &mut kept);
        });
    }
    let mut requests = vec![0; 1_001];
    for (_, range) in kept.requested() {
        (range.first..range.first + u32::from(range.count)).for_each(|seq| requests[seq as usize] += 1);
    }
    let never = requests[1..].iter().filter(|&&times| times == 0).count();
    // The allowance is a hundred a second of each of five nodes, and the first node takes most requests.
    assert!(never < 200, "{never} were never requested");
}

#[test]
fn times_that_are_too_long_are_refused() {
    let error = |nak: NakConfig| {
        let config = NodeConfig { nak, ..NodeConfig::new(NodeId(1)) };
        Node::new(config, Groups::default(), &View::default(), 1).unwrap_err().to_string()
    };
    let nak = NakConfig::default();
    assert!(error(NakConfig { give_up_us: u64::MAX, ..nak }).starts_with("nak.give_up_us: expected at most"));
    assert!(error(NakConfig { first_us: u64::MAX, ..nak }).starts_with("nak.first_us: expected at most"));
    assert!(error(NakConfig { gap_us: Some(u64::MAX), ..nak }).starts_with("nak.gap_us: expected at most"));
    assert!(error(NakConfig { retry_us: u64::MAX, ..nak }).starts_with("nak.retry_us: expected at most"));
    let config = NodeConfig { trailer: 60, datagram_max: 1_200, ..NodeConfig::new(NodeId(1)) };
    let refused = Node::new(config, Groups::default(), &View::default(), 1).unwrap_err();
    assert!(refused.to_string().starts_with("datagram_max"), "a request would not fit: {refused}");
}

#[test]
fn a_node_that_joins_late_misses_nothing() {
    let mut node = node(|config| config);
    node.handle_datagram(0, Origin::Member, &data(2, 5_000, false), &mut Kept::default());
    assert_eq!(node.missing(), 0);
}

#[test]
fn floods_of_lies_leave_real_streams_whole() {
    let mut node = node(|config| NodeConfig { content: Content::Names, packets: 256, ..config });
    let mut kept = Kept::default();
    for seq in 0..100 {
        node.handle_datagram(0, Origin::Member, &data(2, seq, false), &mut kept);
    }
    for round in 0..2_000u32 {
        // Made-up streams, packets that are far off, and a sum of them.
        let names: Vec<Name> = (0..64)
            .map(|k| Name {
                sender: NodeId(if k == 0 { 2 } else { 1_000 + round * 64 + k }),
                group: GROUP.tag(),
                seq: round.wrapping_mul(0x9e37_79b9) + 200_000,
            })
            .collect();
        let symbol = [7u8; 40];
        let repair =
            Repair { from: NodeId(3), names: &names, symbol: (round % 2 == 0).then_some(&symbol[..]) };
        node.handle_datagram(u64::from(round), Origin::Member, &written(|to| repair.write(to)), &mut kept);
        let latest = [Latest { group: GROUP, seq: round.wrapping_mul(0x85eb_ca6b) | 1 << 20 }];
        let heartbeat = Heartbeat { sender: NodeId(2), sender_seq: 0, latest: &latest };
        node.handle_datagram(u64::from(round), Origin::Member, &written(|to| heartbeat.write(to)), &mut kept);
        node.handle_timeout(u64::from(round), &mut kept);
    }
    assert!(node.counts().doubtful > 1_000, "{:?}", node.counts());
    assert!(node.counts().questions_sent < 100, "{:?}", node.counts());
    let before = kept.delivered;
    for seq in 100..200 {
        node.handle_datagram(3_000, Origin::Member, &data(2, seq, false), &mut kept);
    }
    assert_eq!(kept.delivered - before, 100, "{:?}", node.counts());
    // Packets that came before the flood can still be retransmitted.
    kept.sent.clear();
    let key = StreamKey { sender: NodeId(2), group: GROUP };
    let nak = Nak { from: NodeId(4), ranges: &[Range { key, first: 0, count: 100 }] };
    node.handle_datagram(3_001, Origin::Member, &written(|to| nak.write(to)), &mut kept);
    let again =
        kept.sent.iter().filter(|(_, datagram)| Kind::read(datagram) == Ok(Kind::Retransmission)).count();
    assert_eq!(again, 100, "{:?}", node.counts());
}
