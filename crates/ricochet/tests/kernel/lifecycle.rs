//! Lifecycle: nodes closed and started again, groups left and joined again,
//! interfaces deleted and created again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{LONG, Lan, alone, join_all, meet, next, number, numbers};
use ricochet::{Event, JoinError, JoinOptions, Node, Policy, RecvError};
use testkit::wait_until;

#[test]
fn a_closed_node_releases_its_port_and_groups_while_handles_remain() {
    let Some(lan) = Lan::build("a node's port", 1) else { return };
    let start = || lan.hosts[0].run(|| Node::builder("eth0").port(7_900).start());
    let memberships = || lan.hosts[0].run(|| std::fs::read_to_string("/proc/thread-self/net/igmp")).unwrap();
    let (node, none) = (start().unwrap(), memberships().lines().count());
    let subscription = node.join("g").unwrap();
    let sender = node.sender("g").unwrap();
    sender.send(b"x").unwrap();
    assert_eq!(memberships().lines().count(), none + 1);
    drop(node);
    assert_eq!(memberships().lines().count(), none);
    let again = start().unwrap();
    assert!(again.join("g").is_ok());
    assert!(sender.send(b"x").is_err());
    assert_eq!(subscription.recv().unwrap_err(), RecvError::Closed);
}

#[test]
fn a_wait_for_members_ends_with_the_node() {
    let Some(lan) = Lan::build("waiting for members", 1) else { return };
    let node = lan.hosts[0].run(|| Node::builder("eth0").start()).unwrap();
    let waiting = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            waiting.store(true, Ordering::SeqCst);
            node.wait_for_members("g", 1, Duration::from_secs(3_600))
        });
        wait_until("the other thread waits", || waiting.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(20));
        node.close();
        assert!(!waiter.join().unwrap());
    });
    assert!(matches!(node.join("g"), Err(JoinError::Closed)));
    assert!(node.status().failed.is_none());
    node.close();
}

#[test]
fn a_group_joined_again_at_once_owes_no_earlier_messages() {
    let Some(lan) = Lan::build("joining again at once", 2) else { return };
    let nodes = lan.start(|_, builder| {
        // Drops the packet with the sequence number 98 and its retransmissions.
        let never = |datagram: &[u8]| {
            matches!(datagram[0], 0xb1 | 0xb2) && datagram.get(14..18) == Some(&[0, 0, 0, 98])
        };
        builder.lose(never).give_up_after(Duration::from_secs(3_600))
    });
    let mut subscription = nodes[1].join("g").unwrap();
    assert!(nodes[0].wait_for_members("g", 1, LONG));
    // The beginning of a young stream is requested, so this stream is longer.
    for number in 0..100u32 {
        assert_eq!(nodes[0].send("g", &alone(number)).unwrap(), number);
    }
    assert_eq!(numbers(&nodes[1], &subscription, 99).last(), Some(&99));
    assert_eq!(nodes[1].status().missing_runs, 1);
    drop(subscription);
    subscription = nodes[1].join("g").unwrap();
    wait_until("the core knows of it", || nodes[1].status().missing_runs == 0);
    nodes[0].send("g", &100u32.to_be_bytes()).unwrap();
    // An announcement of the last message may have come in between.
    while number(&next(&nodes[1], &subscription)) != 100 {}
    assert!(subscription.take_lost().is_empty());
}

#[test]
fn packets_in_the_ring_behind_a_blocking_reader_are_not_given_up() {
    let Some(lan) = Lan::build("a reader that blocks for long", 2) else { return };
    let give_up = Duration::from_secs(2);
    let nodes = lan.start(|_, builder| {
        let mut first = true;
        let once = move |datagram: &[u8]| {
            let lost = first && datagram[0] == 0xb1 && datagram.get(14..18) == Some(&[0, 0, 0, 2]);
            first &= !lost;
            lost
        };
        builder.lose(once).give_up_after(give_up)
    });
    let options = JoinOptions { queue: Some(3), policy: Some(Policy::Block), ..JoinOptions::default() };
    let slow = nodes[1].join_with("g", &options).unwrap();
    assert!(nodes[0].wait_for_members("g", 1, LONG));
    (0..4u32).for_each(|number| assert_eq!(nodes[0].send("g", &alone(number)).unwrap(), number));
    wait_until("it was retransmitted", || {
        nodes[0].status().counts["answered"] > 0 && nodes[1].status().ring.waiting > 0
    });
    std::thread::sleep(give_up * 2);
    let mut got = Vec::new();
    while got.len() < 4 {
        match slow.recv_event_timeout(LONG).unwrap() {
            Event::Message(message) => got.push(number(&message)),
            Event::Lost(lost) => panic!("{lost:?} waits in the ring, after {got:?}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(got, [0, 1, 3, 2]);
}

#[test]
fn an_interface_that_is_created_again_is_used_again() {
    let Some(lan) = Lan::build("an interface that is created again", 3) else { return };
    for drain_thread in [false, true] {
        let nodes = lan.start(|_, builder| builder.drain_thread(drain_thread));
        let subscriptions = join_all(&nodes, "g");
        nodes[0].send("g", b"before").unwrap();
        (1..3).for_each(|at| assert_eq!(next(&nodes[at], &subscriptions[at]).payload(), b"before"));

        lan.hosts[1].delete_interface("eth0").unwrap();
        wait_until("the node notices that it is gone", || !nodes[1].status().interface.present);
        lan.plug(2);
        wait_until("the node notices that it is back", || nodes[1].status().interface.present);
        assert_eq!(nodes[1].status().interface.made_again, 1);
        meet(&nodes, "g");
        // The bridge may still be learning addresses.
        wait_until("it receives from the group", || {
            nodes[0].send("g", b"to it").unwrap();
            subscriptions[1].try_recv().is_ok_and(|message| message.payload() == b"to it")
        });
        wait_until("others receive from it", || {
            nodes[1].send("g", b"from it").unwrap();
            let received = |at: usize| {
                std::iter::from_fn(|| subscriptions[at].try_recv().ok())
                    .any(|message| message.sender() == nodes[1].id())
            };
            received(0) && received(2)
        });
    }
}
