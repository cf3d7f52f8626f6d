//! Nodes on hosts of their own: messages reach all members over each transport.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use crate::common::{LONG, Lan, alone, join_all, loss, meet, next, number, numbers};
use ricochet::{Builder, ClusterKey, Event, JoinOptions, Order, RepairMode};

/// Sequence numbers of the data packets that a node lost.
type Lost = Arc<Mutex<HashSet<u32>>>;

/// Records the losses that `lose` injects.
fn recording(
    mut lose: impl FnMut(&[u8]) -> bool + Send + 'static,
    lost: Lost,
) -> impl FnMut(&[u8]) -> bool + Send {
    move |datagram| {
        let gone = lose(datagram);
        if gone && let Some(seq) = datagram.get(14..18).and_then(|bytes| bytes.first_chunk()) {
            lost.lock().unwrap().insert(u32::from_be_bytes(*seq));
        }
        gone
    }
}

type Transport = (&'static str, fn(Builder) -> Builder);

/// Returns all transports: multicast over IPv4, over IPv6, with a draining thread, with a key, and unicast.
fn transports() -> [Transport; 6] {
    [
        ("IPv4", |builder| builder),
        ("IPv6", |builder| builder.ipv6(true)),
        ("draining thread", |builder| builder.drain_thread(true)),
        ("auto", |builder| builder.repair(RepairMode::Auto)),
        ("key", |builder| builder.key(ClusterKey::new([7; 32]))),
        ("unicast", |builder| builder.unicast(true)),
    ]
}

#[test]
fn messages_reach_all_members_over_every_transport() {
    let Some(lan) = Lan::build("messages on a LAN", 3) else { return };
    for (transport, configure) in transports() {
        let nodes = lan.start(|_, builder| configure(builder));
        let subscriptions = join_all(&nodes, "prices/AAPL");
        assert_eq!(nodes[0].send("prices/AAPL", b"187.21").unwrap(), 0);
        assert_eq!(nodes[0].send("prices/AAPL", b"187.22").unwrap(), 1);
        let mut direct = 0;
        for (node, subscription) in nodes.iter().zip(&subscriptions).skip(1) {
            for (seq, payload) in [(0, b"187.21"), (1, b"187.22")] {
                let message = next(node, subscription);
                let got = (message.group(), message.sender(), message.seq(), message.payload());
                assert_eq!(got, ("prices/AAPL", nodes[0].id(), seq, &payload[..]), "{transport}");
                // On a busy machine the repair of a node that was served first may overtake the message.
                assert!(message.recovered() || message.latency().is_zero(), "{transport}: {message:?}");
                direct += u32::from(!message.recovered());
            }
        }
        // The sender of a repair has received the message itself.
        assert!(direct > 0, "{transport}");
        assert!(subscriptions[0].is_empty(), "{transport}: a node does not receive its own messages");
    }
}

#[test]
fn a_sender_need_not_be_a_member_and_other_groups_are_not_received() {
    let Some(lan) = Lan::build("senders that are not members", 2) else { return };
    let nodes = lan.start(|_, builder| builder);
    let mine = nodes[1].join("mine").unwrap();
    assert!(nodes[0].wait_for_members("mine", 1, LONG));
    for number in 0..50u32 {
        nodes[0].send("not mine", &number.to_be_bytes()).unwrap();
        nodes[0].send("mine", &number.to_be_bytes()).unwrap();
    }
    assert_eq!(numbers(&nodes[1], &mine, 50), (0..50).collect::<Vec<_>>());
    assert!(mine.is_empty());
}

#[test]
fn lost_messages_are_recovered_over_every_transport() {
    let Some(lan) = Lan::build("recovery on a LAN", 4) else { return };
    for (transport, configure) in transports() {
        let lost: [Lost; 4] = Default::default();
        let nodes = lan.start(|at, builder| {
            configure(builder).lose(recording(loss(10, at as u64 * 77 + 5), Arc::clone(&lost[at])))
        });
        let subscriptions = join_all(&nodes, "g");
        let sender = nodes[0].sender("g").unwrap();
        for number in 0..1_000u32 {
            assert_eq!(sender.send(&alone(number)).unwrap(), number);
            if number % 20 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
        for (at, (node, subscription)) in nodes.iter().zip(&subscriptions).enumerate().skip(1) {
            let messages: Vec<_> = (0..1_000).map(|_| next(node, subscription)).collect();
            let mut got: Vec<u32> = messages.iter().map(number).collect();
            got.sort_unstable();
            assert!(got.iter().copied().eq(0..1_000), "{transport}");
            let lost = lost[at].lock().unwrap();
            let recovered: HashSet<u32> =
                messages.iter().filter(|message| message.recovered()).map(ricochet::Message::seq).collect();
            assert!(
                lost.is_subset(&recovered),
                "{transport}: lost and not reported as recovered: {:?}",
                lost.difference(&recovered)
            );
            // With unicast the copies leave one after the other, so another node's repair may overtake some.
            let (others, allowed) =
                (recovered.difference(&lost).count(), if transport == "unicast" { 300 } else { 20 });
            assert!(
                others <= allowed,
                "{transport}: {others} messages are reported as recovered that were not lost"
            );
            let status = node.status();
            assert!(status.dropped["injected"] > 20, "{transport}: {status:#?}");
            assert!(status.counts["repaired"] + status.counts["requested"] > 20, "{transport}");
            assert!(subscription.take_lost().is_empty());
        }
    }
}

#[test]
fn the_last_message_is_recovered_although_none_follows() {
    let Some(lan) = Lan::build("the last message", 2) else { return };
    let lose_the_tenth = || {
        let mut seen = 0;
        move |datagram: &[u8]| {
            seen += u32::from(datagram[0] == 0xb1);
            datagram[0] == 0xb1 && seen == 10
        }
    };
    let nodes = lan.start(|_, builder| builder.lose(lose_the_tenth()));
    let subscriptions = join_all(&nodes, "g");
    (0..10u32).for_each(|number| assert_eq!(nodes[0].send("g", &alone(number)).unwrap(), number));
    let got: Vec<_> = (0..10).map(|_| next(&nodes[1], &subscriptions[1])).collect();
    assert!(got.iter().map(number).eq(0..10));
    assert!(got[9].recovered() && !got[9].latency().is_zero());
    assert!(got[..9].iter().all(|message| !message.recovered() && message.latency().is_zero()));
}

#[test]
fn ordered_subscriptions_deliver_in_order() {
    let Some(lan) = Lan::build("messages in order", 3) else { return };
    let nodes = lan.start(|at, builder| builder.lose(loss(10, at as u64 + 1)).queue(4_096));
    let options = JoinOptions { order: Order::Fifo, ..JoinOptions::default() };
    let subscriptions: Vec<_> = nodes.iter().map(|node| node.join_with("g", &options).unwrap()).collect();
    meet(&nodes, "g");
    for number in 0..1_000u32 {
        nodes[0].send("g", &number.to_be_bytes()).unwrap();
        nodes[1].send("g", &number.to_be_bytes()).unwrap();
        if number % 10 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    let mut got = [Vec::new(), Vec::new()];
    for _ in 0..2_000 {
        let message = next(&nodes[2], &subscriptions[2]);
        let from = usize::from(message.sender() == nodes[1].id());
        got[from].push(number(&message));
    }
    assert!(got.iter().all(|of_sender| of_sender.iter().copied().eq(0..1_000)));
    assert!(nodes[2].status().dropped["injected"] > 20);
}

#[test]
fn datagrams_with_a_wrong_key_are_dropped_and_counted() {
    let Some(lan) = Lan::build("a wrong key", 3) else { return };
    let keys = [Some([1; 32]), Some([2; 32]), None];
    let nodes = lan.start(|at, builder| match keys[at] {
        Some(key) => builder.key(ClusterKey::new(key)),
        None => builder,
    });
    let subscriptions: Vec<_> = nodes.iter().map(|node| node.join("g").unwrap()).collect();
    for _ in 0..20 {
        nodes.iter().for_each(|node| assert!(node.send("g", b"secret").is_ok()));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let dropped = |at: usize| nodes[at].status().dropped["unauthentic"];
    let deadline = 2_000;
    for _ in 0..deadline {
        if dropped(0) >= 20 && dropped(1) >= 20 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(dropped(0) >= 20 && dropped(1) >= 20, "{:#?}", nodes[0].status());
    // A node without a key may take the trailer for payload, but knows no such member.
    // Nodes with a key deliver nothing.
    assert!(subscriptions[0].is_empty() && subscriptions[1].is_empty());
    assert!(nodes.iter().all(|node| node.status().peers.is_empty()));
}

#[test]
fn long_messages_are_refused_unless_fragments_are_allowed() {
    let Some(lan) = Lan::build("long messages", 2) else { return };
    let nodes = lan.start(|at, builder| builder.lose(loss(5, at as u64 + 3)));
    let subscriptions = join_all(&nodes, "g");
    let long: Vec<u8> = (0..100_000u32).flat_map(u32::to_be_bytes).take(150_000).collect();
    let refused = nodes[0].send("g", &long).unwrap_err().to_string();
    assert!(refused.contains(&format!("at most {} bytes, saw 150000", nodes[0].payload_max())), "{refused}");
    let sender = nodes[0].sender("g").unwrap().fragments(true);
    for _ in 0..5 {
        sender.send(&long).unwrap();
        sender.send(b"short").unwrap();
    }
    let mut longs = 0;
    for _ in 0..10 {
        let message = next(&nodes[1], &subscriptions[1]);
        match message.payload().len() {
            5 => assert_eq!(message.payload(), b"short"),
            _ => {
                assert!(message.payload() == long);
                longs += 1;
            }
        }
    }
    assert_eq!(longs, 5);
}

#[test]
fn a_group_is_silent_after_leaving_and_received_after_joining_again() {
    let Some(lan) = Lan::build("leaving and joining", 2) else { return };
    let nodes = lan.start(|_, builder| builder);
    let stays = nodes[1].join("stays").unwrap();
    let leaves = nodes[1].join("leaves").unwrap();
    assert!(nodes[0].wait_for_members("leaves", 1, LONG) && nodes[0].wait_for_members("stays", 1, LONG));
    nodes[0].send("leaves", &1u32.to_be_bytes()).unwrap();
    assert_eq!(numbers(&nodes[1], &leaves, 1), [1]);
    drop(leaves);
    nodes[0].send("leaves", &2u32.to_be_bytes()).unwrap();
    nodes[0].send("stays", &3u32.to_be_bytes()).unwrap();
    assert_eq!(numbers(&nodes[1], &stays, 1), [3]);
    let again = nodes[1].join("leaves").unwrap();
    nodes[0].send("leaves", &4u32.to_be_bytes()).unwrap();
    assert_eq!(numbers(&nodes[1], &again, 1), [4], "messages sent in between are not delivered");
    assert_eq!(nodes[1].status().groups.len(), 2);
}

#[test]
fn thousands_of_groups_are_joined_at_once() {
    let Some(lan) = Lan::build("many groups", 2) else { return };
    let nodes = lan.start(|_, builder| builder);
    let names: Vec<String> = (0..2_000).map(|number| format!("group/{number}")).collect();
    let many = nodes[0].join_many(&names).unwrap();
    let each: Vec<_> = names.iter().map(|name| nodes[1].join(name).unwrap()).collect();
    assert!(nodes[0].wait_for_members("group/1999", 1, LONG));
    assert!(nodes[1].wait_for_members("group/0", 1, LONG));
    for number in [0, 7, 1_999u32] {
        let name = &names[number as usize];
        nodes[1].send(name, &number.to_be_bytes()).unwrap();
        let message = next(&nodes[0], &many);
        assert_eq!((message.group(), self::number(&message)), (name.as_str(), number));
        nodes[0].send(name, &number.to_be_bytes()).unwrap();
        assert_eq!(numbers(&nodes[1], &each[number as usize], 1), [number]);
    }
    assert!(nodes[0].status().ip_groups <= 64);
}

#[test]
fn losses_are_reported() {
    let Some(lan) = Lan::build("reports of losses", 2) else { return };
    let nodes = lan.start(|_, builder| {
        let never = |datagram: &[u8]| {
            // The sequence number is at byte 14.
            matches!(datagram[0], 0xb1 | 0xb2) && datagram.get(14..18) == Some(&[0, 0, 0, 3])
        };
        let soon = std::time::Duration::from_millis(300);
        builder.lose(never).give_up_after(soon)
    });
    let subscriptions = join_all(&nodes, "g");
    for number in 0..6u32 {
        assert_eq!(nodes[0].send("g", &alone(number)).unwrap(), number);
    }
    let mut lost = Vec::new();
    let mut got = Vec::new();
    while got.len() + lost.len() < 6 {
        match subscriptions[1].recv_event_timeout(LONG).unwrap() {
            Event::Message(message) => got.push(number(&message)),
            Event::Lost(report) => lost.push((report.sender(), report.range())),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(got, [0, 1, 2, 4, 5]);
    assert_eq!(lost, [(nodes[0].id(), 3..=3)]);
}
