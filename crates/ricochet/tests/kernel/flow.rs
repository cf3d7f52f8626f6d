//! Flow control between real nodes: senders without pace, readers that stand still.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use crate::common::{LONG, Lan, join_all, meet, next, number, numbers};
use ricochet::{Follow, JoinOptions, Node, Order, Policy, SendError, SendOptions, Subscription};

/// Joins a group with a queue of four messages that blocks.
fn join_slowly(node: &Node) -> Subscription {
    let options = JoinOptions { queue: Some(4), policy: Some(Policy::Block), ..JoinOptions::default() };
    node.join_with("g", &options).unwrap()
}

/// Waits until packets of a node wait for its readers.
fn wait_until_held_up(node: &Node) {
    while node.status().flow.waiting < 60 {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_reader_that_blocks_holds_up_its_sender_and_nothing_is_lost() {
    const MESSAGES: u32 = 100_000;
    let Some(lan) = Lan::build("a sender that is held up", 3) else { return };
    let nodes = lan.start(|_, builder| builder);
    let slow = join_slowly(&nodes[1]);
    let quick =
        nodes[2].join_with("g", &JoinOptions { queue: Some(1 << 20), ..JoinOptions::default() }).unwrap();
    assert!(nodes[0].wait_for_members("g", 2, LONG));
    let sender = nodes[0].sender("g").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..MESSAGES).for_each(|number| assert!(sender.send(&number.to_be_bytes()).is_ok()));
            done.store(true, Ordering::SeqCst);
        });
        wait_until_held_up(&nodes[0]);
        assert!(!done.load(Ordering::SeqCst), "the sender waits");
        // The sending thread fills the last packet sooner or later.
        while nodes[0].sender("g").unwrap().try_send(&[0xff; 1_000]) != Err(SendError::WouldBlock) {}
        let mut next_number = 0;
        while next_number < MESSAGES {
            let message = next(&nodes[1], &slow);
            if message.payload().len() == 4 {
                assert_eq!(number(&message), next_number);
                next_number += 1;
            }
        }
    });
    assert!(nodes[0].flush(LONG));
    let mut got = Vec::new();
    while got.len() < MESSAGES as usize {
        let message = next(&nodes[2], &quick);
        if message.payload().len() == 4 {
            got.push(number(&message));
        }
    }
    got.sort_unstable();
    assert!(got.into_iter().eq(0..MESSAGES));
    for node in &nodes[1..] {
        let status = node.status();
        let lost = (status.ring.dropped, status.kernel.overflowed, status.subscriptions[0].counts.lost);
        assert_eq!(lost, (0, 0, 0), "{status:#?}");
    }
    assert_eq!(nodes[0].status().flow.left_behind, 0);
    assert!(nodes[0].status().counts["sent"] < u64::from(MESSAGES) / 2, "messages that wait share packets");
}

/// Joins a group in total order with a queue of as many messages that blocks.
fn join_in_order(node: &Node, queue: usize) -> Subscription {
    let (queue, policy) = (Some(queue), Some(Policy::Block));
    node.join_with("g", &JoinOptions { order: Order::Total, queue, policy, ..JoinOptions::default() })
        .unwrap()
}

#[test]
fn own_messages_in_total_order_wait_for_a_reader_that_blocks() {
    let Some(lan) = Lan::build("own messages in total order", 1) else { return };
    let nodes = lan.start(|_, builder| builder);
    let own = join_in_order(&nodes[0], 4);
    let sender = nodes[0].sender("g").unwrap();
    (0..10u32).for_each(|number| assert!(sender.try_send(&number.to_be_bytes()).is_ok()));
    assert_eq!(numbers(&nodes[0], &own, 10), (0..10).collect::<Vec<_>>());
    let mut sent = 10u32;
    let refused = loop {
        match sender.try_send(&sent.to_be_bytes()) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 1_000_000, "the queue has no bound: {}", own.len());
    };
    assert_eq!(refused, SendError::WouldBlock);
    // Short messages share packets, and a batch of packets is passed on at once.
    assert!(own.len() < sent as usize - 10, "some wait to be sent: {} of {}", own.len(), sent - 10);
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(sender.send(&sent.to_be_bytes()).is_ok()));
        let expected: Vec<u32> = (10..=sent).collect();
        assert_eq!(numbers(&nodes[0], &own, expected.len()), expected);
    });
    assert_eq!((own.counts().dropped, own.counts().lost), (0, 0));
}

/// The queue of another subscription holds up the numbers at one node, which may be the one that gives them.
#[test]
fn a_reader_that_blocks_stops_no_total_order() {
    let Some(lan) = Lan::build("total order beside a reader that blocks", 3) else { return };
    let nodes = lan.start(|_, builder| builder);
    let subscriptions: Vec<_> = nodes.iter().map(|node| join_in_order(node, 1_000)).collect();
    meet(&nodes, "g");
    let order = |node: &Node| {
        let groups = node.status().groups;
        groups.into_iter().find_map(|group| group.order).expect("it is in one")
    };
    while !nodes.iter().all(|node| order(node).members == 3) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let slow = JoinOptions { queue: Some(4), policy: Some(Policy::Block), ..JoinOptions::default() };
    let slow = nodes[2].join_with("slow", &slow).unwrap();
    assert!(nodes[0].wait_for_members("slow", 1, LONG));
    (0..10u32).for_each(|number| assert!(nodes[0].send("slow", &number.to_be_bytes()).is_ok()));
    while slow.counts().blocked == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    for number in 0..20u32 {
        nodes[0].send("g", &number.to_be_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    for at in 0..2 {
        assert_eq!(numbers(&nodes[at], &subscriptions[at], 20), (0..20).collect::<Vec<_>>());
    }
    assert_eq!(numbers(&nodes[2], &slow, 10), (0..10).collect::<Vec<_>>());
    assert_eq!(numbers(&nodes[2], &subscriptions[2], 20), (0..20).collect::<Vec<_>>());
    let harm = nodes.iter().map(order).map(|order| order.lost + order.broken);
    assert_eq!(harm.collect::<Vec<_>>(), [0; 3]);
}

#[test]
fn long_messages_of_a_sender_without_pace_all_arrive() {
    const LENGTH: usize = 1_000_000;
    let Some(lan) = Lan::build("long messages without pace", 3) else { return };
    let nodes = lan.start(|_, builder| builder);
    let options = JoinOptions { fragments: true, order: Order::Fifo, ..JoinOptions::default() };
    let subscriptions: Vec<_> = nodes.iter().map(|node| node.join_with("g", &options).unwrap()).collect();
    meet(&nodes, "g");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..20u32 {
                let mut message = vec![number as u8; LENGTH];
                message[..4].copy_from_slice(&number.to_be_bytes());
                nodes[0].send("g", &message).unwrap();
            }
        });
        for (node, subscription) in nodes.iter().zip(&subscriptions).skip(1) {
            for expected in 0..20 {
                let message = next(node, subscription);
                assert_eq!((number(&message), message.payload().len()), (expected, LENGTH));
                assert!(message.payload()[4..].iter().all(|&byte| byte == expected as u8));
            }
        }
    });
    assert!(subscriptions.iter().all(|subscription| subscription.counts().lost == 0));
}

#[test]
fn a_reader_without_progress_is_left_behind_and_reported() {
    let Some(lan) = Lan::build("a reader left behind", 3) else { return };
    let nodes = lan.start(|_, builder| builder.patience(Some(Duration::from_secs(3))));
    let slow = join_slowly(&nodes[1]);
    let quick =
        nodes[2].join_with("g", &JoinOptions { queue: Some(1 << 20), ..JoinOptions::default() }).unwrap();
    assert!(nodes[0].wait_for_members("g", 2, LONG));
    let sender = nodes[0].sender("g").unwrap();
    (0..50_000u32).for_each(|number| assert!(sender.send(&number.to_be_bytes()).is_ok()));
    assert_eq!(numbers(&nodes[2], &quick, 50_000).len(), 50_000);
    let flow = nodes[0].status().flow;
    assert_eq!((flow.follow.as_str(), flow.left_behind), ("all", 1));
    let left: Vec<_> = flow.readers.iter().filter(|reader| !reader.followed).collect();
    assert_eq!(left.len(), 1, "{flow:?}");
    assert_eq!(left[0].reader, nodes[1].id().to_string());
    drop(slow);
}

#[test]
fn a_sender_that_follows_nobody_does_not_wait_for_a_reader_that_stands_still() {
    let Some(lan) = Lan::build("a sender without flow control", 2) else { return };
    let nodes = lan.start(|_, builder| builder.follow(Follow::Off));
    let _slow = join_slowly(&nodes[1]);
    assert!(nodes[0].wait_for_members("g", 1, LONG));
    let sender = nodes[0].sender("g").unwrap();
    (0..20_000u32).for_each(|number| assert!(sender.send(&number.to_be_bytes()).is_ok()));
    assert!(nodes[0].flush(LONG));
}

/// Wakes a thread.
struct Thread(std::thread::Thread);

impl Wake for Thread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn a_task_awaits_room() {
    let Some(lan) = Lan::build("a task that sends", 2) else { return };
    let nodes = lan.start(|_, builder| builder);
    let slow = join_slowly(&nodes[1]);
    assert!(nodes[0].wait_for_members("g", 1, LONG));
    let sender = nodes[0].sender("g").unwrap();
    let waker = Arc::new(Thread(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut waited = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until_held_up(&nodes[0]);
            assert_eq!(numbers(&nodes[1], &slow, 80_000), (0..80_000).collect::<Vec<_>>());
        });
        for number in 0..80_000u32 {
            let message = number.to_be_bytes();
            let mut sending = pin!(sender.send_async(&message));
            loop {
                match sending.as_mut().poll(&mut context) {
                    Poll::Ready(sent) => break assert!(sent.is_ok()),
                    Poll::Pending => waited += 1,
                }
                std::thread::park();
            }
        }
    });
    assert!(waited > 0);
}

#[test]
fn a_flush_ends_when_the_node_is_closed_before_its_readers_have_room() {
    let Some(lan) = Lan::build("a flush of a node that is closed", 2) else { return };
    let nodes = lan.start(|_, builder| builder);
    let _slow = join_slowly(&nodes[1]);
    assert!(nodes[0].wait_for_members("g", 1, LONG));
    let sender = nodes[0].sender("g").unwrap();
    while sender.send_timeout(&[0; 1_000], Duration::from_millis(500)).is_ok() {}
    assert_eq!(nodes[0].ended(), None);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| nodes[0].flush(Duration::from_secs(3_600)));
        nodes[0].close();
        assert!(!waiting.join().unwrap());
    });
    assert_eq!(nodes[0].ended(), Some(SendError::Closed));
}

#[test]
fn messages_linger_for_others_if_that_is_set() {
    let Some(lan) = Lan::build("messages that linger", 2) else { return };
    let nodes = lan.start(|_, builder| builder.linger_us(100_000));
    let subscriptions = join_all(&nodes, "g");
    (0..10u32).for_each(|number| assert!(nodes[0].send("g", &number.to_be_bytes()).is_ok()));
    assert_eq!(numbers(&nodes[1], &subscriptions[1], 10), (0..10).collect::<Vec<_>>());
    assert!(nodes[0].status().counts["sent"] < 10, "{:#?}", nodes[0].status());
}

#[test]
fn a_sender_waits_until_members_hold_its_message() {
    let Some(lan) = Lan::build("messages that members hold", 4) else { return };
    let nodes = lan.start(|at, builder| builder.lose(crate::common::loss(20, at as u64)));
    let subscriptions = join_all(&nodes[..3], "g");
    let sender = nodes[3].sender("g").unwrap().fragments(true);
    assert!(nodes[3].wait_for_members("g", 3, LONG));
    for number in 0..20u32 {
        sender.send_held(&number.to_be_bytes(), 3, LONG).unwrap();
        for subscription in &subscriptions {
            assert_eq!(subscription.try_recv().map(|message| self::number(&message)), Ok(number));
        }
    }
    sender.send_held(&[7; 20_000], 3, LONG).unwrap();
    assert!(
        subscriptions.iter().all(|subscription| subscription.try_recv().unwrap().payload().len() == 20_000)
    );
    let waker = Arc::new(Thread(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut sending = pin!(sender.send_held_async(b"awaited", 3));
    while sending.as_mut().poll(&mut context).is_pending() {
        std::thread::park();
    }
    let seen = sender.send_held(b"too many", 4, Duration::from_millis(50)).unwrap_err();
    assert!(matches!(seen, SendError::NotHeld { expected: 4, seen: 0..=3, .. }), "{seen}");
    let mut asked = 0;
    let seen =
        sender.send_held_while(b"given up", &SendOptions::default(), 4, Duration::from_secs(3_600), || {
            asked += 1;
            asked < 3
        });
    assert!(matches!(seen, Err(SendError::NotHeld { expected: 4, .. })), "{seen:?}");
    assert!(matches!(nodes[3].send("prices/*", b"x"), Err(SendError::Pattern { .. })));
}
