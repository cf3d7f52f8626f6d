//! A node as its application uses it: slow readers, descriptors, status, shutdown.

use std::time::Duration;

use testkit::wait_until;

use crate::common::{LONG, Lan, alone, join_all, meet, next, numbers};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ricochet::{
    Event, Follow, GivenUp, JoinError, JoinOptions, Node, Order, Policy, RecvError, RecvTimeoutError,
    SendError, Status, TryRecvError,
};

fn options(queue: usize, policy: Policy) -> JoinOptions {
    JoinOptions { queue: Some(queue), policy: Some(policy), ..JoinOptions::default() }
}

#[test]
fn a_slow_reader_loses_messages_by_its_policy_and_other_readers_lose_none() {
    let Some(lan) = Lan::build("slow readers", 2) else { return };
    let nodes = lan.start(|_, builder| builder);
    let oldest = nodes[1].join_with("g", &options(10, Policy::DropOldest)).unwrap();
    let newest = nodes[1].join_with("g", &options(10, Policy::DropNewest)).unwrap();
    let roomy = nodes[1].join_with("g", &options(1_000, Policy::DropNewest)).unwrap();
    assert!(nodes[0].wait_for_members("g", 1, LONG));
    (0..100u32).for_each(|number| assert_eq!(nodes[0].send("g", &number.to_be_bytes()).unwrap(), number));
    assert_eq!(numbers(&nodes[1], &roomy, 100), (0..100).collect::<Vec<_>>());
    // The first event tells what was dropped before the messages that are left.
    let Event::Lost(lost) = oldest.recv_event_timeout(LONG).unwrap() else { panic!("expected a loss") };
    assert_eq!((lost.range(), lost.reason()), (0..=89, GivenUp::Unread));
    assert_eq!(numbers(&nodes[1], &oldest, 10), (90..100).collect::<Vec<_>>());
    assert_eq!(numbers(&nodes[1], &newest, 10), (0..10).collect::<Vec<_>>());
    let Event::Lost(lost) = newest.recv_event_timeout(LONG).unwrap() else { panic!("expected a loss") };
    assert_eq!((lost.range(), lost.reason()), (10..=99, GivenUp::Unread));
    assert_eq!([&oldest, &newest, &roomy].map(|reader| reader.counts().dropped), [90, 90, 0]);
    // A program without a control socket asks the node itself.
    let reason = || nodes[1].status().verdict.reason_id;
    wait_until("a verdict about the slow readers", || reason().as_deref() == Some("slow_reader"));
}

#[test]
fn a_blocking_reader_loses_no_message_while_the_ring_has_room() {
    let Some(lan) = Lan::build("readers that block", 2) else { return };
    let nodes = lan.start(|_, builder| builder.ring(4_096));
    let slow = nodes[1].join_with("g", &options(4, Policy::Block)).unwrap();
    assert!(nodes[0].wait_for_members("g", 1, LONG));
    (0..1_000u32).for_each(|number| assert_eq!(nodes[0].send("g", &number.to_be_bytes()).unwrap(), number));
    // Wait until the node waits for the reader.
    while nodes[1].status().ring.waiting == 0 && nodes[1].status().kernel.received < 1_000 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(slow.len() < 40, "a queue of four has {}", slow.len());
    assert_eq!(numbers(&nodes[1], &slow, 1_000), (0..1_000).collect::<Vec<_>>());
    assert_eq!((slow.counts().dropped, nodes[1].status().ring.dropped), (0, 0));
    assert!(slow.counts().blocked > 0);
    // Backpressure did not delay the membership.
    assert_eq!(nodes[0].members("g"), 1);
}

#[test]
fn packets_wait_in_the_kernel_while_the_node_waits_for_its_reader() {
    let Some(lan) = Lan::build("packets that wait in the kernel", 2) else { return };
    for drain_thread in [false, true] {
        let nodes = lan.start(|_, builder| builder.ring(64).drain_thread(drain_thread).follow(Follow::Off));
        let slow = nodes[1].join_with("g", &options(4, Policy::Block)).unwrap();
        assert!(nodes[0].wait_for_members("g", 1, LONG));
        // Many more than fit the ring and its reserve.
        (0..6_000u32)
            .for_each(|number| assert_eq!(nodes[0].send("g", &number.to_be_bytes()).unwrap(), number));
        while nodes[1].status().ring.waiting < 64 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(numbers(&nodes[1], &slow, 6_000), (0..6_000).collect::<Vec<_>>());
        let status = nodes[1].status();
        assert_eq!((status.ring.dropped, status.kernel.overflowed), (0, 0));
        assert_eq!(status.counts["requested"] + status.counts["repaired"], 0, "none was missed: {status:#?}");
    }
}

#[test]
fn a_descriptor_is_readable_when_a_message_waits() {
    let Some(lan) = Lan::build("descriptors", 2) else { return };
    let nodes = lan.start(|_, builder| builder);
    let subscriptions = join_all(&nodes, "g");
    let fd = subscriptions[1].ready_fd().unwrap();
    for number in 0..20u32 {
        nodes[0].send("g", &number.to_be_bytes()).unwrap();
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(60_000u16)).unwrap(), 1);
        assert_eq!(subscriptions[1].try_recv().unwrap().seq(), number);
        assert_eq!(subscriptions[1].try_recv().unwrap_err(), TryRecvError::Empty);
    }
}

#[test]
fn nodes_on_one_host_receive_from_each_other_and_share_the_port() {
    let Some(lan) = Lan::build("nodes on one host", 1) else { return };
    let host = &lan.hosts[0];
    let first = host.run(|| Node::builder("eth0").start()).unwrap();
    assert_eq!(first.address().port(), ricochet::PORT, "the first node of a host has the default port");
    let more = (0..2).map(|_| {
        let builder = Node::builder("eth0").seed(first.address().to_string());
        host.run(|| builder.start()).unwrap()
    });
    let more: Vec<Node> = more.collect();
    let nodes: Vec<Node> = [first].into_iter().chain(more).collect();
    let subscriptions = join_all(&nodes, "g");
    for (at, sender) in nodes.iter().enumerate() {
        sender.send("g", &(at as u32).to_be_bytes()).unwrap();
        for (other, node) in nodes.iter().enumerate().filter(|&(other, _)| other != at) {
            assert_eq!(numbers(node, &subscriptions[other], 1), [at as u32]);
        }
    }
    assert!(subscriptions.iter().all(ricochet::Subscription::is_empty));
}

#[test]
fn members_can_be_listed_in_a_file() {
    let Some(lan) = Lan::build("a file of members", 2) else { return };
    let path = std::env::temp_dir().join(format!("ricochet-members-{}.toml", std::process::id()));
    let list = "[[member]]\naddress = \"10.9.0.1:7900\"\n[[member]]\naddress = \"10.9.0.2:7900\"\n";
    std::fs::write(&path, list).unwrap();
    let start =
        |host: &netlab::Namespace| host.run(|| Node::builder("eth0").member_file(&path).start()).unwrap();
    let nodes: Vec<Node> = lan.hosts.iter().map(start).collect();
    std::fs::remove_file(&path).unwrap();
    let subscriptions = join_all(&nodes, "g");
    nodes[0].send("g", &7u32.to_be_bytes()).unwrap();
    assert_eq!(numbers(&nodes[1], &subscriptions[1], 1), [7]);
}

#[test]
fn a_file_of_members_that_changes_is_read_again() {
    let directory = std::env::temp_dir().join(format!("ricochet-file-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (path, next) = (directory.join("members.toml"), directory.join("next.toml"));
    let replace = |addresses: &[String]| {
        let entries = addresses.iter().map(|address| format!("[[member]]\naddress = \"{address}\"\n"));
        std::fs::write(&next, entries.collect::<String>()).unwrap();
        std::fs::rename(&next, &path).unwrap();
    };
    replace(&["127.0.0.1:1".to_owned()]);
    let start = || {
        let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
        builder.member_file(&path).start().unwrap()
    };
    let nodes = [start(), start(), start()];
    let _all = nodes.each_ref().map(|node| node.join("g").unwrap());
    assert_eq!(nodes[0].members("g"), 0);
    let addresses = nodes.each_ref().map(|node| node.address().to_string());
    replace(&addresses);
    assert!(nodes.iter().all(|node| node.wait_for_members("g", 2, LONG)));
    // A file with a mistake changes nothing.
    std::fs::write(&path, "[[member]\n").unwrap();
    wait_until("the mistake is told", || nodes[0].status().member_file_error.is_some());
    assert_eq!(nodes[0].members("g"), 2);
    std::fs::write(&path, "").unwrap();
    let is_empty = || nodes[0].status().member_file_error.is_some_and(|why| why.ends_with("saw none"));
    wait_until("the empty file is told", is_empty);
    assert_eq!(nodes[0].members("g"), 2);
    replace(&addresses[..2]);
    wait_until("a node is no member any more", || nodes[0].members("g") == 1);
    assert_eq!(nodes[0].status().member_file_error, None);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_running_node_serves_its_status() {
    let Some(lan) = Lan::build("status", 2) else { return };
    let path = std::env::temp_dir().join(format!("ricochet-status-{}.sock", std::process::id()));
    let nodes = lan.start(|at, builder| if at == 1 { builder.control(&path) } else { builder });
    let subscriptions = join_all(&nodes, "g");
    nodes[0].send("g", b"x").unwrap();
    next(&nodes[1], &subscriptions[1]);
    let status = Status::ask(&path).unwrap();
    assert_eq!(status.id, nodes[1].id().to_string());
    assert_eq!((status.groups[0].name.as_str(), status.groups[0].members), ("g", 1));
    assert_eq!(status.groups[0].reception.data.packets, 1);
    assert_eq!((status.peers.len(), status.peers[0].address), (1, nodes[0].address()));
    assert_eq!(status.counts["delivered"], 1);
    assert_eq!(status.subscriptions[0].counts.queued, 1);
    drop(nodes);
    assert!(!path.exists());
}

#[test]
fn handles_that_outlive_the_node_report_that_it_is_closed() {
    let Some(lan) = Lan::build("the end of a node", 2) else { return };
    let mut nodes = lan.start(|_, builder| builder);
    let mut subscriptions = join_all(&nodes, "g");
    let sender = nodes[1].sender("g").unwrap();
    let held = subscriptions.pop().unwrap();
    nodes[0].send("g", &1u32.to_be_bytes()).unwrap();
    while held.is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(nodes.pop());
    assert!(held.recv().is_ok(), "a queued message is not lost");
    assert_eq!(held.recv().unwrap_err(), RecvError::Closed);
    assert_eq!(held.recv_timeout(LONG).unwrap_err(), RecvTimeoutError::Closed);
    assert_eq!(sender.send(b"x").unwrap_err(), SendError::Closed);
    // The node has announced that it leaves, so the other one does not wait for a sign of life.
    while nodes[0].members("g") > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_panic_in_the_nodes_thread_is_reported() {
    let Some(lan) = Lan::build("a panic", 2) else { return };
    let nodes = lan.start(|at, builder| match at {
        0 => builder,
        _ => builder.lose(|datagram| datagram[0] == 0xb1 && panic!("on purpose")),
    });
    let subscriptions = join_all(&nodes, "g");
    nodes[0].send("g", b"x").unwrap();
    let Err(RecvError::Failed(why)) = subscriptions[1].recv() else { panic!("expected a failure") };
    assert!(why.contains("on purpose"));
    assert!(matches!(nodes[1].send("g", b"x"), Err(SendError::Failed(_))));
    assert!(matches!(nodes[1].join("h"), Err(JoinError::Failed(_))));
    assert!(nodes[1].status().failed.is_some());
}

#[test]
fn wrong_groups_and_options_are_refused_and_nothing_is_joined() {
    let Some(lan) = Lan::build("wrong groups", 1) else { return };
    let node = lan.hosts[0].run(|| Node::builder("eth0").max_groups(3).start()).unwrap();
    let text = |error: JoinError| error.to_string();
    assert!(text(node.join("").unwrap_err()).contains("saw 0"));
    assert!(text(node.join(&"x".repeat(1_025)).unwrap_err()).contains("saw 1025"));
    assert!(text(node.join_many::<&str>([]).unwrap_err()).contains("at least one group"));
    assert!(text(node.join_many(["a", "b", "c", "d"]).unwrap_err()).contains("at most 3 groups, saw 4"));
    assert!(text(node.join_with("a", &options(0, Policy::Block)).unwrap_err()).contains("queue: expected"));
    let held = node.join_many(["a", "b", "a"]).unwrap();
    assert_eq!(held.groups().collect::<Vec<_>>(), ["a", "b"]);
    let other = JoinOptions { c: Some(5), ..JoinOptions::default() };
    assert!(text(node.join_with("a", &other).unwrap_err()).contains("another c"));
    let in_order = JoinOptions { order: Order::Fifo, ..JoinOptions::default() };
    let second = node.join_with("a", &in_order).unwrap();
    assert_eq!(node.status().groups.len(), 2);
    drop((held, second));
    assert_eq!((node.status().groups.len(), node.status().ip_groups), (0, 0));
    assert!(matches!(node.send("", b"x"), Err(SendError::Name { length: 0 })));
}

#[test]
fn no_message_of_many_threads_is_lost() {
    let Some(lan) = Lan::build("many senders", 2) else { return };
    let nodes = lan.start(|_, builder| builder.queue(10_000));
    let subscriptions = join_all(&nodes, "g");
    meet(&nodes, "g");
    let sender = nodes[0].sender("g").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let sender = sender.clone();
            scope.spawn(move || {
                (0..500u32)
                    .for_each(|number| assert!(sender.send(&(thread * 500 + number).to_be_bytes()).is_ok()));
            });
        }
    });
    let mut got = numbers(&nodes[1], &subscriptions[1], 2_000);
    got.sort_unstable();
    assert!(got.into_iter().eq(0..2_000));
}

/// Starts nodes that never receive the packet with the sequence number 1, and wait for it for an hour.
fn start_without_second_packet(lan: &Lan) -> Vec<Node> {
    let hour = Duration::from_secs(3_600);
    lan.start(|_, builder| {
        let never = |datagram: &[u8]| {
            matches!(datagram[0], 0xb1 | 0xb2) && datagram.get(14..18) == Some(&[0, 0, 0, 1])
        };
        builder.lose(never).give_up_after(hour).expires_after(hour)
    })
}

#[test]
fn a_group_has_a_lifetime_of_its_own() {
    let Some(lan) = Lan::build("the lifetime of a group", 2) else { return };
    let nodes = start_without_second_packet(&lan);
    let options = |lifetime| JoinOptions { lifetime: Some(lifetime), ..JoinOptions::default() };
    let short = Duration::from_millis(50);
    let positions = nodes[1].join_with("positions", &options(short)).unwrap();
    let other = nodes[1].join_with("positions", &options(short * 2)).unwrap_err().to_string();
    assert!(other.contains("another lifetime"), "{other}");
    let long = nodes[1].join_with("others", &options(Duration::from_secs(3_601))).unwrap_err().to_string();
    assert!(long.contains("lifetime: expected up to 3600"), "{long}");
    assert!(nodes[0].wait_for_members("positions", 1, LONG));
    let sender = nodes[0].sender("positions").unwrap().expiring(true);
    (0..3u32).for_each(|number| assert_eq!(sender.send(&alone(number)).unwrap(), number));
    assert_eq!(numbers(&nodes[1], &positions, 2), [0, 2]);
    let Event::Lost(lost) = positions.recv_event_timeout(LONG).unwrap() else { panic!("expected a loss") };
    assert_eq!(lost.range(), 1..=1);
}

#[test]
fn a_subscription_holds_back_no_more_than_its_limit() {
    let Some(lan) = Lan::build("messages held back", 2) else { return };
    let nodes = start_without_second_packet(&lan);
    let none = JoinOptions { order: Order::Fifo, held: Some(0), ..JoinOptions::default() };
    assert!(nodes[1].join_with("g", &none).unwrap_err().to_string().contains("held: expected 1 to 1048576"));
    let two = JoinOptions { held: Some(2), ..none };
    let subscription = nodes[1].join_with("g", &two).unwrap();
    assert!(nodes[0].wait_for_members("g", 1, LONG));
    (0..5u32).for_each(|number| assert_eq!(nodes[0].send("g", &alone(number)).unwrap(), number));
    let mut reported = Vec::new();
    for _ in 0..5 {
        match subscription.recv_event_timeout(LONG).unwrap() {
            Event::Message(message) => reported.push(message.seq()),
            Event::Lost(lost) => reported.extend(lost.range()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(reported, [0, 1, 2, 3, 4]);
}
