//! Nodes that join late get the messages of the past from any member, in order, and then all that follow.

use ricochet_core::message::Origin;
use ricochet_core::wire::{Ask, History, HistoryBody, HistoryRequest, Kind};
use ricochet_core::{GroupId, HistoryConfig, HistoryNews, NodeConfig, NodeId, Wish};

use crate::common::net::Net;
use crate::common::written;

const GROUP: GroupId = GroupId(7);
const SECOND_US: u64 = 1_000_000;
const KEPT: HistoryConfig = HistoryConfig { group_bytes: 4 << 20, bytes: 16 << 20, age_us: 600_000_000 };

/// A net whose first nodes are in the group; the others may join.
fn net(members: usize, others: usize, loss: f64, seed: u64, history: HistoryConfig) -> Net {
    Net::joinable(GROUP, [members, others], loss, seed, |config| NodeConfig {
        history,
        ..NodeConfig::prompt(config.id)
    })
}

/// Node `from` sends messages, one in each interval.
fn send(net: &mut Net, from: usize, count: u32, interval_us: u64) {
    for _ in 0..count {
        let number = net.sent.keys().filter(|packet| packet.0 == NodeId(from as u32)).count();
        net.multicast(from, GROUP, format!("message {number} of node {from}").as_bytes());
        net.advance(interval_us);
    }
}

/// Returns the numbers of a sender's messages in the order in which a node got them.
fn numbers(net: &Net, at: usize, from: u32) -> Vec<u64> {
    let came = net.applications[at].came.iter();
    came.filter(|(sender, ..)| *sender == NodeId(from)).map(|&(.., seq)| seq).collect()
}

/// Returns the number of messages of a node in which each is the successor of the one before.
fn in_order(numbers: &[u64]) -> usize {
    numbers.windows(2).take_while(|pair| pair[1] == pair[0] + 1).count() + 1
}

fn begins(net: &Net, at: usize) -> (u64, bool) {
    match net.applications[at].history[..] {
        [HistoryNews::Begins { messages, is_complete }, ..] => (messages, is_complete),
        ref other => panic!("{other:?}"),
    }
}

/// Checks that a joiner has every message of a sender from its first one on, once, and those of the past in
/// order.
fn check_joined(net: &Net, at: usize, from: u32, past: usize, seed: u64) -> Vec<u64> {
    let numbers = numbers(net, at, from);
    let total = net.sent.keys().filter(|packet| packet.0 == NodeId(from)).count() as u64;
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    let first = *sorted.first().expect("something came");
    assert_eq!(sorted, (first..total).collect::<Vec<_>>(), "seed {seed}: no gap and nothing twice");
    assert!(in_order(&numbers) >= past, "seed {seed}: {} of {past} in order", in_order(&numbers));
    assert!(net.applications[at].lost.is_empty(), "seed {seed}");
    numbers
}

#[test]
fn a_late_joiner_gets_the_past_in_order_and_then_all_that_follows() {
    for seed in 0..12 {
        let loss = [0.0, 0.01, 0.1][seed as usize % 3];
        let mut net = net(3, 1, loss, seed, KEPT);
        send(&mut net, 0, 1_000, 200);
        net.join_late(3, GROUP, Wish::Last(400));
        send(&mut net, 0, 1_000, 200);
        net.end_losses();
        net.advance(2_000_000);
        let numbers = check_joined(&net, 3, 0, 400, seed);
        // The server may have more than the sender had sent when the node joined, never less.
        assert!((600..640).contains(&numbers[0]), "seed {seed}: begins with {}", numbers[0]);
        let (messages, is_complete) = begins(&net, 3);
        assert!((400..600).contains(&messages) && is_complete, "seed {seed}: {messages}");
        assert_eq!(net.applications[3].history.last(), Some(&HistoryNews::Ends));
        assert!(!net.nodes[3].is_catching_up(GROUP));
    }
}

#[test]
fn a_joiner_that_wants_nothing_of_the_past_gets_nothing_of_it() {
    let mut net = net(3, 1, 0.0, 1, KEPT);
    send(&mut net, 0, 100, 1_000);
    net.join_late(3, GROUP, Wish::Last(0));
    net.advance(1_000_000);
    send(&mut net, 0, 10, 1_000);
    net.advance(100_000);
    assert_eq!(numbers(&net, 3, 0), (100..110).collect::<Vec<_>>());
}

#[test]
fn the_messages_of_a_time_are_found() {
    for seed in 0..6 {
        let mut net = net(3, 1, 0.02, seed, KEPT);
        send(&mut net, 0, 1_000, 1_000);
        net.join_late(3, GROUP, Wish::Since(300_000));
        net.advance(1_000_000);
        send(&mut net, 0, 50, 1_000);
        net.end_losses();
        net.advance(2_000_000);
        let numbers = check_joined(&net, 3, 0, 300, seed);
        assert!((690..=701).contains(&numbers[0]), "seed {seed}: begins with {}", numbers[0]);
    }
}

/// Returns the node that sends history.
fn server(net: &Net) -> Option<usize> {
    (0..net.nodes.len()).max_by_key(|&at| net.nodes[at].feedback(net.now_us).sent.history.bytes)
}

#[test]
fn another_member_goes_on_when_the_one_that_is_read_dies() {
    for seed in 0..12 {
        let loss = if seed % 2 == 0 { 0.0 } else { 0.02 };
        let mut net = net(4, 1, loss, seed, KEPT);
        send(&mut net, 0, 5_000, 100);
        // Each member gets what it has lost.
        net.advance(100_000);
        net.join_late(4, GROUP, Wish::Last(4_000));
        while net.applications[4].came.len() < 500 {
            net.advance(50);
        }
        let died = server(&net).unwrap();
        assert!(net.applications[4].came.len() < 4_000, "seed {seed}: in the middle");
        // Half of the time the others learn of it, else the joiner finds out.
        if seed % 4 < 2 {
            net.fail(died);
        } else {
            net.down.insert(died);
        }
        net.advance(3_000_000);
        let sender = if died == 0 { 1 } else { 0 };
        send(&mut net, sender, 100, 1_000);
        net.end_losses();
        net.advance(3_000_000);
        let numbers = check_joined(&net, 4, 0, 3_900, seed);
        assert_eq!(numbers[0], 1_000, "seed {seed}");
    }
}

#[test]
fn two_join_at_once_and_a_third_reads_from_them() {
    for seed in 0..6 {
        let mut net = net(2, 3, 0.02, seed, KEPT);
        send(&mut net, 0, 2_000, 200);
        net.join_late(2, GROUP, Wish::Last(1_000));
        net.join_late(3, GROUP, Wish::Last(2_000));
        send(&mut net, 0, 500, 200);
        net.advance(2_000_000);
        let first = check_joined(&net, 2, 0, 1_000, seed)[0];
        assert!((980..1_003).contains(&first), "seed {seed}: {first}");
        let first = check_joined(&net, 3, 0, 1_990, seed)[0];
        assert!(first < 10, "seed {seed}: {first}");
        net.fail(1);
        net.fail(0);
        net.join_late(4, GROUP, Wish::Last(2_400));
        net.advance(2_000_000);
        assert_eq!(
            check_joined(&net, 4, 0, 2_400, seed)[0],
            100,
            "seed {seed}: the one that holds them was found"
        );
    }
}

#[test]
fn the_lives_of_a_sender_come_one_after_the_other() {
    let mut net = net(4, 1, 0.01, 5, KEPT);
    send(&mut net, 0, 300, 500);
    // The sender starts again: a node has another identifier in each life.
    net.fail(0);
    send(&mut net, 1, 300, 500);
    net.advance(500_000);
    net.join_late(4, GROUP, Wish::Last(500));
    net.advance(2_000_000);
    let came = &net.applications[4].came;
    let expected: Vec<_> = (100..300).map(|seq| (NodeId(0), GROUP, seq)).collect();
    assert_eq!(came[..200], expected[..]);
    assert_eq!(came[200..].iter().map(|packet| packet.2).collect::<Vec<_>>(), (0..300).collect::<Vec<_>>());
}

#[test]
fn bounds_hold_and_what_is_forgotten_is_told() {
    let small = HistoryConfig { group_bytes: 64 << 10, bytes: 64 << 10, age_us: 600_000_000 };
    let mut net = net(3, 1, 0.0, 3, small);
    let memory: Vec<usize> = net.nodes.iter().map(ricochet_core::Node::memory_bytes).collect();
    send(&mut net, 0, 5_000, 200);
    for (node, before) in net.nodes.iter().zip(memory) {
        assert!(node.memory_bytes() <= before + (64 << 10), "{} of {before}", node.memory_bytes());
    }
    net.join_late(3, GROUP, Wish::Last(5_000));
    net.advance(2_000_000);
    let (messages, is_complete) = begins(&net, 3);
    assert!(!is_complete && (1_000..2_000).contains(&messages), "{messages}");
    let numbers = numbers(&net, 3, 0);
    assert_eq!(numbers, (5_000 - messages..5_000).collect::<Vec<_>>());
}

#[test]
fn old_messages_are_forgotten_by_age() {
    let brief = HistoryConfig { age_us: 1_000_000, ..KEPT };
    let mut net = net(3, 1, 0.0, 3, brief);
    send(&mut net, 0, 3_000, 1_000);
    net.join_late(3, GROUP, Wish::Since(2_000_000));
    net.advance(2_000_000);
    assert!(!begins(&net, 3).1);
    let first = numbers(&net, 3, 0)[0];
    assert!((1_995..=2_200).contains(&first), "{first}");
}

#[test]
fn without_history_a_joiner_is_told_and_loses_nothing_that_was_sent_meanwhile() {
    for members in [1, 3] {
        let none = HistoryConfig::default();
        let mut net = net(members, 1, 0.0, 3, none);
        send(&mut net, 0, 100, 1_000);
        if members == 1 {
            net.fail(0);
        }
        net.join_late(members, GROUP, Wish::Last(10));
        if members == 1 {
            net.advance(3_000_000);
            assert_eq!(net.applications[1].history, [HistoryNews::Nothing { asked: 0 }]);
            continue;
        }
        send(&mut net, 0, 50, 5_000);
        net.advance(3_000_000);
        assert_eq!(begins(&net, 3), (0, false));
        let mut numbers = numbers(&net, 3, 0);
        numbers.sort_unstable();
        assert_eq!(numbers, (100..150).collect::<Vec<_>>());
    }
}

#[test]
fn an_application_that_reads_slowly_delays_its_history_and_loses_none_of_it() {
    let mut net = net(3, 1, 0.0, 3, KEPT);
    send(&mut net, 0, 3_000, 200);
    net.applications[3].room = Some(0);
    net.join_late(3, GROUP, Wish::Last(3_000));
    net.advance(3_000_000);
    assert_eq!(net.applications[3].came.len(), 0);
    net.applications[3].room = Some(10);
    net.advance(2_000_000);
    assert_eq!(numbers(&net, 3, 0), (0..3_000).collect::<Vec<_>>());
}

#[test]
fn a_node_that_holds_back_packets_reads_its_history_when_it_goes_on() {
    // Before an offer of a member is read, and in the middle of the reading.
    for head_start_us in [0, 500] {
        let mut net = net(3, 1, 0.0, 3, KEPT);
        send(&mut net, 0, 3_000, 200);
        if head_start_us == 0 {
            net.block(3);
        }
        net.join_late(3, GROUP, Wish::Last(3_000));
        net.advance(head_start_us);
        assert!(net.nodes[3].is_catching_up(GROUP) && net.applications[3].came.len() < 2_000);
        net.block(3);
        net.advance(10 * SECOND_US);
        net.unblock(3);
        net.advance(2 * SECOND_US);
        assert_eq!(begins(&net, 3), (3_000, true));
        assert_eq!(numbers(&net, 3, 0), (0..3_000).collect::<Vec<_>>());
    }
}

#[test]
fn long_messages_are_part_of_the_past() {
    for seed in 0..4 {
        let mut net = net(3, 1, 0.02, seed, KEPT);
        let large = |number: u8| vec![number; 20_000];
        (0..20).for_each(|number| {
            net.multicast(0, GROUP, &large(number));
            net.multicast(1, GROUP, &[number]);
            net.advance(20_000);
        });
        net.join_late(3, GROUP, Wish::Last(20));
        net.advance(20_000);
        (20..30).for_each(|number| {
            net.multicast(0, GROUP, &large(number));
            net.advance(20_000);
        });
        net.end_losses();
        net.advance(3_000_000);
        let from_first = numbers(&net, 3, 0);
        assert_eq!(from_first.len(), 20, "seed {seed}: ten of the past and ten that followed");
        assert_eq!(numbers(&net, 3, 1), (10..20).collect::<Vec<_>>(), "seed {seed}");
        assert!(net.applications[3].lost.is_empty(), "seed {seed}: {:?}", net.applications[3].lost);
    }
}

#[test]
fn a_stream_without_a_past_begins_where_the_member_told() {
    // Of what node 0 sends while node 2 reads, the first message is lost. With `last`, the others come.
    for last in [110, 101] {
        let mut net = net(2, 1, 0.0, 1, KEPT);
        send(&mut net, 0, 100, 200);
        send(&mut net, 1, 300, 200);
        net.applications[2].room = Some(0);
        net.join_late(2, GROUP, Wish::Last(50));
        net.advance(1_000_000);
        net.deaf = Some((2, 1.0));
        send(&mut net, 0, 1, 200);
        net.deaf = None;
        send(&mut net, 0, last - 101, 200);
        // A heartbeat announces the newest message.
        net.advance(100_000);
        assert!(net.nodes[2].is_catching_up(GROUP));
        net.applications[2].room = None;
        net.advance(2_000_000);
        let mut numbers = numbers(&net, 2, 0);
        numbers.sort_unstable();
        assert_eq!(numbers, (100..u64::from(last)).collect::<Vec<_>>());
    }
}

fn offer(sender: u32, token: u64) -> Vec<u8> {
    let body = HistoryBody::Offer { skip: 0, messages: 9, is_complete: true, clock_us: u64::MAX };
    let offer = History { sender: NodeId(sender), token, group: GROUP, offset: 0, end: u64::MAX, body };
    written(|to| offer.write(to))
}

#[test]
fn made_up_offers_are_not_believed_and_strangers_get_nothing() {
    let mut net = net(3, 2, 0.0, 3, KEPT);
    send(&mut net, 0, 500, 200);
    net.join_late(3, GROUP, Wish::Last(300));
    for token in [0, 1, u64::MAX] {
        net.forge(3, Origin::Member, &offer(1, token));
        net.forge(3, Origin::Stranger, &offer(1, token));
    }
    net.advance(1_000_000);
    assert_eq!(numbers(&net, 3, 0), (200..500).collect::<Vec<_>>());
    assert!(net.nodes[3].counts().unasked >= 3);
    // A node that is no member may have a forged address.
    let before = net.datagrams;
    for ask in [Ask::Offer(Wish::Last(9)), Ask::Read { offset: 0, length: u32::MAX }] {
        let request = HistoryRequest { from: NodeId(4), token: 1, group: GROUP, ask };
        net.forge(0, Origin::Stranger, &written(|to| request.write(to)));
        net.forge(0, Origin::Impostor, &written(|to| request.write(to)));
    }
    assert_eq!(net.datagrams, before);
}

#[test]
fn a_request_costs_a_bounded_number_of_datagrams() {
    let mut net = net(3, 1, 0.0, 3, KEPT);
    send(&mut net, 0, 20_000, 50);
    let before = net.datagrams;
    for (offset, length) in [(0, u32::MAX), (u64::MAX, u32::MAX), (u64::MAX - 1, 9), (1 << 40, 0)] {
        let request =
            HistoryRequest { from: NodeId(1), token: 1, group: GROUP, ask: Ask::Read { offset, length } };
        net.forge(0, Origin::Member, &written(|to| request.write(to)));
    }
    assert!((1..=128).contains(&(net.datagrams - before)), "{}", net.datagrams - before);
}

#[test]
fn a_member_whose_log_is_no_log_is_replaced() {
    for seed in 0..4 {
        let mut net = net(3, 1, 0.0, seed, KEPT);
        send(&mut net, 0, 500, 200);
        net.join_late(3, GROUP, Wish::Last(300));
        // Node 1 answers with bytes that are no packets; the token is that of the request.
        let mut lied = 0;
        net.tamper = Some(Box::new(move |from, datagram| {
            if from == 1 && Kind::read(datagram) == Ok(Kind::History) && datagram[1] == 0 {
                datagram[38..].fill(0xff);
                lied += 1;
            }
            let _ = lied;
        }));
        net.advance(2_000_000);
        assert_eq!(numbers(&net, 3, 0), (200..500).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn times_that_a_member_makes_up_change_nothing_but_the_times() {
    for clock_us in [0, u64::MAX] {
        let mut net = net(2, 1, 0.0, 1, KEPT);
        send(&mut net, 0, 500, 200);
        net.join_late(2, GROUP, Wish::Last(300));
        net.tamper = Some(Box::new(move |_, datagram| {
            if Kind::read(datagram) == Ok(Kind::History) && datagram[1] & 1 == 1 {
                datagram[48..56].copy_from_slice(&clock_us.to_be_bytes());
            }
        }));
        net.advance(2_000_000);
        send(&mut net, 0, 50, 200);
        net.advance(500_000);
        assert_eq!(numbers(&net, 2, 0), (200..550).collect::<Vec<_>>());
    }
}

#[test]
fn a_member_that_holds_back_packets_does_not_say_that_its_history_is_complete() {
    let mut net = net(2, 1, 0.0, 1, KEPT);
    send(&mut net, 0, 10, 200);
    net.advance(SECOND_US);
    // Later packets wait at node 1, as if its application read nothing.
    net.side[1] = 1;
    net.nodes[1].hold_losses(true);
    send(&mut net, 0, 10, 200);
    net.side[2] = 1;
    net.join_late(2, GROUP, Wish::Last(5));
    net.advance(SECOND_US);
    assert_eq!(begins(&net, 2), (5, false));
}

#[test]
fn a_joiner_learns_of_the_newest_packets_that_the_member_it_reads_from_has_missed() {
    for seed in 0..8 {
        let mut net = net(2, 1, 0.0, seed, KEPT);
        send(&mut net, 0, 10, 200);
        net.advance(SECOND_US);
        // Node 1 hears nothing of these, nor of their announcements.
        net.side[1] = 1;
        send(&mut net, 0, 10, 200);
        net.advance(120 * SECOND_US);
        net.side[1] = 0;
        net.join_late(2, GROUP, Wish::Last(5));
        net.advance(2 * SECOND_US);
        check_joined(&net, 2, 0, 5, seed);
    }
}
