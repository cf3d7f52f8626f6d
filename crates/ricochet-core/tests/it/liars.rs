//! Directed lies, one test each: what a few forged datagrams do to a node.
#![allow(missing_docs)]

use crate::common::net::{Net, NetworkConditions};
use crate::common::{packet, written};
use ricochet_core::message::{Message, Origin, Output, SendOptions, To};
use ricochet_core::tracker::Lost;
use ricochet_core::wire::{
    Answer, Data, Datagram, Fragment, Heartbeat, Kind, Latest, NAK_RANGES_MAX, Nak, Name, Question, Range,
    Repair, Room, Rooms,
};
use ricochet_core::{GroupConfig, GroupId, Groups, Member, Node, NodeConfig, NodeId, StreamKey, View};

const SENDER: NodeId = NodeId(0);
const SECOND_US: u64 = 1_000_000;

fn calm(groups: usize) -> Net {
    let groups: Vec<GroupId> = (0..groups as u64).map(|id| GroupId(id << 32 | id)).collect();
    let grouping = vec![groups; 3];
    let conditions = NetworkConditions { data_loss: 0.0, other_loss: 0.0, ..NetworkConditions::default() };
    Net::new(&grouping, 1, conditions, 7, |config| NodeConfig { ..NodeConfig::prompt(config.id) })
}

fn group(id: u64) -> GroupId {
    GroupId(id << 32 | id)
}

fn heartbeat(group: GroupId, seq: u32) -> Vec<u8> {
    let latest = [Latest { group, seq }];
    written(|to| Heartbeat { sender: SENDER, sender_seq: 0, latest: &latest }.write(to))
}

fn data(group: GroupId, seq: u32, payload: &[u8]) -> Vec<u8> {
    written(|to| packet(SENDER, group, seq, payload).write(to))
}

/// Sends ten messages, lets `lie` arrive, waits longer than a packet is awaited, and sends 500 more. Returns
/// the number of the latter that node 1 did not get.
fn silenced(net: &mut Net, groups: u64, lie: impl Fn(&mut Net, GroupId)) -> usize {
    for _ in 0..10 {
        (0..groups).for_each(|id| net.multicast(0, group(id), b"before"));
        net.advance(1_000);
    }
    (0..groups).for_each(|id| lie(net, group(id)));
    net.advance(12 * SECOND_US);
    let before = net.applications[1].got.len();
    let count = 500 / groups as usize;
    for _ in 0..count {
        (0..groups).for_each(|id| net.multicast(0, group(id), b"after"));
        net.advance(1_000);
    }
    net.advance(SECOND_US);
    assert_eq!(net.reported_lost(), 0, "no message that was never sent is reported lost");
    count * groups as usize - (net.applications[1].got.len() - before)
}

#[test]
fn two_datagrams_that_announce_numbers_far_ahead_silence_nothing() {
    let mut net = calm(1);
    let missed = silenced(&mut net, 1, |net, group| {
        for seq in [1_000_000, 1_000_001] {
            let datagram = data(group, seq, b"forged");
            assert_eq!(datagram.len(), 28);
            net.forge(1, Origin::Member, &datagram);
        }
    });
    assert_eq!(missed, 0, "{:?}", net.nodes[1].counts());
    assert_eq!(net.nodes[1].counts().doubtful, 2);
}

#[test]
fn numbers_within_reach_that_were_never_sent_silence_nothing() {
    for ahead in [1, 20, 63, 64, 1_000, 60_000] {
        let mut net = calm(1);
        let missed = silenced(&mut net, 1, |net, group| {
            net.forge(1, Origin::Member, &heartbeat(group, 9 + ahead));
        });
        assert_eq!(missed, 0, "{ahead} ahead: {:?}", net.nodes[1].counts());
        assert_eq!((net.nodes[1].counts().retracted, net.nodes[1].missing()), (1, 0));
    }
}

#[test]
fn a_hundred_streams_are_not_silenced_with_eight_kilobytes() {
    let mut net = calm(100);
    let missed = silenced(&mut net, 100, |net, group| {
        for seq in [40_000, 1_000_000, 1_000_001] {
            net.forge(1, Origin::Member, &heartbeat(group, seq));
        }
    });
    assert_eq!(missed, 0, "{:?}", net.nodes[1].counts());
}

#[test]
fn streams_of_messages_that_expire_are_not_silenced_either() {
    let mut net = calm(1);
    net.expires = true;
    let missed = silenced(&mut net, 1, |net, group| net.forge(1, Origin::Member, &heartbeat(group, 60_000)));
    assert_eq!(missed, 0, "{:?}", net.nodes[1].counts());
}

#[test]
fn digests_that_name_packets_that_were_never_sent_silence_nothing() {
    let mut net = calm(1);
    let missed = silenced(&mut net, 1, |net, group| {
        for round in 0..8u32 {
            let name = |step: u32| Name { sender: SENDER, group: group.tag(), seq: 100 + round + step * 900 };
            let names: Vec<Name> = (0..64).map(name).collect();
            let repair = Repair { from: NodeId(2), names: &names, symbol: None };
            net.forge(1, Origin::Member, &written(|to| repair.write(to)));
            net.advance(100);
        }
    });
    assert_eq!(missed, 0, "{:?}", net.nodes[1].counts());
}

#[test]
fn lies_again_and_again_cost_no_message_and_few_datagrams() {
    let mut net = calm(1);
    let missed = silenced(&mut net, 1, |net, group| {
        for round in 0..1_000u32 {
            net.forge(1, Origin::Member, &heartbeat(group, 100 + 37 * round));
            net.advance(3_000);
        }
    });
    assert_eq!(missed, 0, "{:?}", net.nodes[1].counts());
    let counts = net.nodes[1].counts();
    assert!(counts.questions_sent <= 1_000 && counts.requests_sent < 3_000, "{counts:?}");
}

/// Keeps the output of a node that is not part of a network.
#[derive(Default)]
struct Kept {
    sent: Vec<(To, Vec<u8>)>,
    delivered: Vec<(NodeId, u32)>,
    restarted: usize,
}

impl Output for Kept {
    fn send(&mut self, to: To, datagram: &[u8]) {
        self.sent.push((to, datagram.to_vec()));
    }

    fn deliver(&mut self, message: &Message<'_>) {
        self.delivered.push((message.sender, message.seq.to_wire()));
    }

    fn on_lost(&mut self, _: &Lost) {}

    fn on_restart(&mut self, _: StreamKey) {
        self.restarted += 1;
    }
}

impl Kept {
    fn questions(&mut self) -> Vec<Question> {
        let read = |(_, datagram): (To, Vec<u8>)| match Datagram::read(&datagram) {
            Ok(Datagram::Question(question)) => Some(question),
            _ => None,
        };
        std::mem::take(&mut self.sent).into_iter().filter_map(read).collect()
    }

    fn bytes(&self) -> usize {
        self.sent.iter().map(|(_, datagram)| datagram.len()).sum()
    }
}

/// Returns node 1 in a group with nodes 0 and 2 to 5.
fn node() -> Node {
    let groups = Groups::new([GroupConfig { id: group(0), c: 1 }]).unwrap();
    let view = View::new([0, 2, 3, 4, 5].map(|id| Member::new(NodeId(id), [group(0)])));
    Node::new(NodeConfig::prompt(NodeId(1)), groups, &view, 1).unwrap()
}

#[test]
fn a_false_first_number_does_not_silence_the_stream_that_follows() {
    for far in [5_000, 3_000_000_000] {
        let (mut node, mut kept) = (node(), Kept::default());
        node.handle_datagram(0, Origin::Member, &data(group(0), far, b"forged"), &mut kept);
        let [question] = kept.questions()[..] else { panic!("expected one question") };
        // The sender's first packets are out of reach until it has answered.
        node.handle_datagram(10, Origin::Member, &data(group(0), 0, b"true"), &mut kept);
        let answer = Answer { sender: SENDER, token: question.token, group: group(0), newest: Some(0) };
        node.handle_datagram(20, Origin::Member, &written(|to| answer.write(to)), &mut kept);
        assert_eq!((kept.restarted, node.counts().retracted), (1, 1));
        for seq in 1..10 {
            node.handle_datagram(30, Origin::Member, &data(group(0), seq, b"true"), &mut kept);
        }
        assert_eq!(kept.delivered[1..], (1..10).map(|seq| (SENDER, seq)).collect::<Vec<_>>());
        assert_eq!(node.missing(), 1, "the packet that the lie kept out is requested");
    }
}

#[test]
fn an_answer_without_the_token_of_a_question_changes_nothing() {
    let (mut node, mut kept) = (node(), Kept::default());
    for seq in 0..100 {
        node.handle_datagram(0, Origin::Member, &data(group(0), seq, b"true"), &mut kept);
    }
    node.handle_datagram(1, Origin::Member, &heartbeat(group(0), 5_000), &mut kept);
    let [question] = kept.questions()[..] else { panic!("expected one question") };
    for (token, newest) in [(question.token ^ 1, Some(0)), (0, None), (1, Some(4_000_000_000))] {
        let answer = Answer { sender: SENDER, token, group: group(0), newest };
        node.handle_datagram(2, Origin::Member, &written(|to| answer.write(to)), &mut kept);
    }
    assert_eq!((node.counts().unasked, node.counts().retracted), (3, 0));
    node.handle_datagram(3, Origin::Member, &data(group(0), 100, b"true"), &mut kept);
    assert_eq!(kept.delivered.len(), 101);
}

#[test]
fn two_members_confirm_a_number_of_a_sender_that_has_left_and_one_does_not() {
    let (mut node, mut kept) = (node(), Kept::default());
    let gone = NodeId(77);
    let of_gone = |seq| written(|to| packet(gone, group(0), seq, b"true").write(to));
    (0..10).for_each(|seq| node.handle_datagram(0, Origin::Stranger, &of_gone(seq), &mut kept));
    for round in 0..10 {
        node.handle_datagram(round, Origin::Member, &digest(2, gone, 500_000), &mut kept);
    }
    assert_eq!((node.missing(), node.counts().doubtful), (0, 10), "one node, however often it tells");
    node.handle_datagram(20, Origin::Member, &digest(3, gone, 500_001), &mut kept);
    node.handle_datagram(21, Origin::Member, &digest(3, gone, 500_001), &mut kept);
    assert!(node.missing() > 0);
}

/// Returns a digest of one name.
fn digest(from: u32, sender: NodeId, seq: u32) -> Vec<u8> {
    let names = [Name { sender, group: group(0).tag(), seq }];
    written(|to| Repair { from: NodeId(from), names: &names, symbol: None }.write(to))
}

#[test]
fn no_number_of_members_confirms_a_number_of_a_sender_that_is_present() {
    let (mut node, mut kept) = (node(), Kept::default());
    (0..10).for_each(|seq| node.handle_datagram(0, Origin::Member, &data(group(0), seq, b"true"), &mut kept));
    for from in [2, 3, 4, 5, 2, 3] {
        node.handle_datagram(1, Origin::Member, &digest(from, SENDER, 500_000 + from), &mut kept);
    }
    assert_eq!((node.missing(), node.counts().doubtful), (0, 6));
    let [question] = kept.questions()[..] else { panic!("expected one question") };
    let answer = Answer { sender: SENDER, token: question.token, group: group(0), newest: Some(9) };
    node.handle_datagram(2, Origin::Member, &written(|to| answer.write(to)), &mut kept);
    assert_eq!(node.missing(), 0);
}

#[test]
fn a_member_that_requests_again_and_again_gets_a_bounded_number_of_packets() {
    let (mut node, range) = holder();
    let mut kept = Kept::default();
    let most = NodeConfig::prompt(NodeId(1)).answers_per_second as usize;
    for step in 0..100 {
        let datagram = request(NodeId(2), &[range]);
        node.handle_datagram(10_000 * step, Origin::Member, &datagram, &mut kept);
    }
    assert!((1_024..=2 * most).contains(&kept.sent.len()), "{} of 102,400 packets", kept.sent.len());
    assert!(node.counts().refused > 0);
    // Another member has an allowance of its own.
    kept.sent.clear();
    node.handle_datagram(SECOND_US, Origin::Member, &request(NodeId(3), &[range]), &mut kept);
    assert_eq!(kept.sent.len(), 1_024);
}

#[test]
fn reports_of_room_and_denials_of_strangers_are_dropped() {
    let (mut node, mut kept) = (node(), Kept::default());
    let room = Room { group: group(0), position: 0, newest: 0, window: 0 };
    let rooms = written(|to| Rooms { from: NodeId(99), rooms: &[room] }.write(to));
    let range = Range { key: StreamKey { sender: SENDER, group: group(0) }, first: 0, count: 1 };
    let denial = written(|to| Nak { from: NodeId(99), ranges: &[range] }.write_denial(to));
    for datagram in [&rooms, &denial] {
        node.handle_datagram(0, Origin::Stranger, datagram, &mut kept);
    }
    assert_eq!((node.counts().strangers, kept.sent.len()), (2, 0));
}

fn request(from: NodeId, ranges: &[Range]) -> Vec<u8> {
    written(|to| Nak { from, ranges }.write(to))
}

/// Returns a node that holds a thousand long packets of its own, and a range that names them.
fn holder() -> (Node, Range) {
    let (mut node, mut kept) = (node(), Kept::default());
    let payload = vec![7; node.payload_max()];
    for _ in 0..1_024 {
        node.multicast(0, group(0), &payload, SendOptions::default(), &mut kept).unwrap();
    }
    let key = StreamKey { sender: NodeId(1), group: group(0) };
    (node, Range { key, first: 0, count: 1_024 })
}

#[test]
fn a_made_up_node_draws_at_most_three_times_what_it_sent() {
    let (mut node, range) = holder();
    let mut kept = Kept::default();
    let mut sent = 0;
    for id in 100..120 {
        let request = request(NodeId(id), &[range]);
        assert_eq!(request.len(), 24);
        sent += request.len();
        node.handle_datagram(1, Origin::Stranger, &request, &mut kept);
    }
    assert!(kept.bytes() <= 3 * sent, "{sent} bytes drew {}", kept.bytes());
    let all = [range; NAK_RANGES_MAX];
    let long = request(NodeId(9), &all);
    kept.sent.clear();
    node.handle_datagram(2, Origin::Stranger, &long, &mut kept);
    assert!(kept.bytes() <= 3 * long.len(), "{} bytes drew {}", long.len(), kept.bytes());
    // A member gets all that it misses.
    kept.sent.clear();
    node.handle_datagram(3, Origin::Member, &request(NodeId(2), &[range]), &mut kept);
    assert_eq!(kept.sent.len(), 1_024);
}

#[test]
fn made_up_nodes_do_not_use_up_the_allowance_of_members() {
    let (mut node, range) = holder();
    let mut kept = Kept::default();
    for id in 1_000..21_000 {
        node.handle_datagram(1, Origin::Stranger, &request(NodeId(id), &[range]), &mut kept);
    }
    kept.sent.clear();
    node.handle_datagram(2, Origin::Member, &request(NodeId(2), &[range]), &mut kept);
    assert_eq!(kept.sent.len(), 1_024);
    assert!(node.feedback(2).peers.iter().all(|peer| peer.peer.0 < 1_000), "strangers are not recorded");
}

#[test]
fn streams_of_strangers_leave_room_for_those_of_members() {
    let (mut node, mut kept) = (node(), Kept::default());
    for made_up in 1_000..40_000 {
        let data = packet(NodeId(made_up), group(0), 0, b"made up");
        node.handle_datagram(0, Origin::Stranger, &written(|to| data.write(to)), &mut kept);
    }
    kept.delivered.clear();
    for seq in 0..10 {
        for member in [0, 2, 3] {
            let data = packet(NodeId(member), group(0), seq, b"true");
            node.handle_datagram(1, Origin::Member, &written(|to| data.write(to)), &mut kept);
        }
    }
    assert_eq!((kept.delivered.len(), node.counts().no_room), (30, 0));
}

#[test]
fn fragments_that_claim_long_messages_do_not_crowd_out_those_of_others() {
    let (mut node, mut kept) = (node(), Kept::default());
    let message = vec![7; 100_000];
    let mut send = |sender: u32, seq: u32, message: &[u8], index: u16, kept: &mut Kept| {
        let mut payload = [0; 1_100];
        let length = Fragment::of(message, index, 1_000).unwrap().write(&mut payload);
        let packet = packet(NodeId(sender), group(0), seq, &payload[..length]);
        let data = Data { fragment: true, ..packet };
        node.handle_datagram(0, Origin::Member, &written(|to| data.write(to)), kept);
    };
    (0..50).for_each(|index| send(0, u32::from(index), &message, index, &mut kept));
    let long = vec![0; 1 << 20];
    (0..60).for_each(|lie| send(2, 2_000 * lie, &long, 0, &mut kept));
    (50..100).for_each(|index| send(0, u32::from(index), &message, index, &mut kept));
    assert_eq!(kept.delivered, [(SENDER, 0)]);
}

#[test]
fn questions_of_strangers_are_answered_with_little_more_than_they_cost() {
    let (mut node, mut kept) = (node(), Kept::default());
    let question = Question { from: NodeId(99), token: 1, group: group(0) };
    let question = written(|to| question.write(to));
    node.handle_datagram(0, Origin::Stranger, &question, &mut kept);
    assert!(kept.bytes() <= 2 * question.len() && !kept.sent.is_empty());
}

#[test]
fn nothing_is_taken_from_another_address_than_that_of_its_sender() {
    let (mut node, mut kept) = (node(), Kept::default());
    let name = Name { sender: SENDER, group: group(0).tag(), seq: 5 };
    let digest = written(|to| Repair { from: NodeId(2), names: &[name], symbol: None }.write(to));
    let range = Range { key: StreamKey { sender: SENDER, group: group(0) }, first: 0, count: 1 };
    let impostors =
        [data(group(0), 0, b"forged"), heartbeat(group(0), 9), digest.clone(), request(NodeId(2), &[range])];
    for datagram in &impostors {
        node.handle_datagram(0, Origin::Impostor, datagram, &mut kept);
    }
    let mut again = data(group(0), 0, b"forged");
    again[0] = Kind::Retransmission.to_wire();
    for datagram in [digest, again] {
        node.handle_datagram(0, Origin::Stranger, &datagram, &mut kept);
    }
    assert_eq!((kept.delivered.len(), kept.sent.len(), node.missing()), (0, 0, 0));
    assert_eq!((node.counts().impostors, node.counts().strangers), (4, 2));
    // The packets of a sender that the membership does not know yet are taken.
    let data: Data<'_> = packet(NodeId(50), group(0), 0, b"true");
    node.handle_datagram(0, Origin::Stranger, &written(|to| data.write(to)), &mut kept);
    assert_eq!(kept.delivered.len(), 1);
}

#[test]
fn a_receiver_that_was_cut_off_for_long_believes_the_sender_itself() {
    let mut net = calm(1);
    net.multicast(0, group(0), b"first");
    net.advance(10_000);
    net.side[1] = 1;
    for _ in 0..70_000 {
        net.multicast(0, group(0), b"to the other");
        net.advance(20);
    }
    net.side[1] = 0;
    let before = net.applications[1].got.len();
    for _ in 0..100 {
        net.multicast(0, group(0), b"last");
        net.advance(1_000);
    }
    net.advance(2 * SECOND_US);
    let got = net.applications[1].got.len() - before;
    assert!(got >= 100, "{got} messages: {:?}", net.nodes[1].counts());
    assert!(net.nodes[1].counts().doubtful > 0 && net.nodes[1].counts().discovered > 60_000);
}
