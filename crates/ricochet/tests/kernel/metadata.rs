//! Time, address and headers of messages, own messages, and news about members, between real nodes.

use std::time::{Duration, SystemTime};

use crate::common::{LONG, Lan, meet, next};
use ricochet::{
    Event, GivenUp, JoinOptions, Member, MemberChange, Node, Order, Policy, SendError, SendOptions,
    Subscription,
};

fn joined(node: &Node, options: &JoinOptions) -> Subscription {
    node.join_with("g", options).unwrap()
}

/// Returns the next event, which is about a member.
fn member_news(subscription: &Subscription) -> (Member, MemberChange) {
    match subscription.recv_event_timeout(LONG).unwrap() {
        Event::Member(news) => {
            assert_eq!(news.group(), "g");
            (news.member(), news.change())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test compares a time with the wall clock")]
fn a_message_brings_its_time_its_address_and_what_its_sender_gave_it() {
    let Some(lan) = Lan::build("messages with metadata", 2) else { return };
    let nodes = lan.start(|_, builder| builder);
    let own = joined(&nodes[0], &JoinOptions { loopback: true, ..JoinOptions::default() });
    let plain = joined(&nodes[0], &JoinOptions::default());
    let fifo = joined(&nodes[1], &JoinOptions { order: Order::Fifo, ..JoinOptions::default() });
    meet(&nodes, "g");
    let sender = nodes[0].sender("g").unwrap().fragments(true).content_type(Some("text/plain"));
    let headers = SendOptions { headers: b"\0trace", ..SendOptions::default() };
    let typed = SendOptions { content_type: Some("a/b"), deadline: Some(LONG), ..SendOptions::default() };
    let (short, long) = (&b"short"[..], &vec![7; 100_000][..]);
    let sent = SystemTime::now();
    sender.send_with(short, &headers).unwrap();
    sender.send_with(long, &typed).unwrap();
    nodes[0].send("g", b"bare").unwrap();
    for (node, subscription, is_own) in [(&nodes[1], &fifo, false), (&nodes[0], &own, true)] {
        for (payload, content_type, headers) in
            [(short, Some("text/plain"), &b"\0trace"[..]), (long, Some("a/b"), b""), (b"bare", None, b"")]
        {
            let message = next(node, subscription);
            assert_eq!((message.payload(), message.is_own()), (payload, is_own));
            assert_eq!((message.content_type(), message.headers()), (content_type, headers));
            assert_eq!((message.sender(), message.address()), (nodes[0].id(), Some(nodes[0].address())));
            let age = message.sent().unwrap().duration_since(sent - LONG).unwrap();
            assert!(age < 2 * LONG, "{age:?}");
        }
    }
    assert_eq!(plain.len() + own.len(), 0, "who does not ask gets no own messages");
    let long_headers = SendOptions { headers: &[0; 257], ..SendOptions::default() };
    let refused = sender.send_with(b"x", &long_headers).unwrap_err();
    assert_eq!(refused, SendError::Headers { content_type: 10, headers: 257 });
    let eternal = SendOptions { deadline: Some(Duration::from_hours(2)), ..SendOptions::default() };
    assert_eq!(sender.try_send_with(b"x", &eternal), Err(SendError::Deadline { seconds: 7_200 }));
}

#[test]
fn a_message_that_is_read_after_its_deadline_is_reported_instead() {
    const DEADLINE: Duration = Duration::from_millis(50);
    let Some(lan) = Lan::build("deadlines", 2) else { return };
    let nodes = lan.start(|_, builder| builder);
    let reader = joined(&nodes[1], &JoinOptions::default());
    assert!(nodes[0].wait_for_members("g", 1, LONG));
    let sender = nodes[0].sender("g").unwrap();
    sender.send(b"the first").unwrap();
    next(&nodes[1], &reader);
    sender.clone().deadline(Some(DEADLINE)).send(b"late").unwrap();
    sender.clone().deadline(Some(LONG)).send(b"early").unwrap();
    while reader.len() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(2 * DEADLINE);
    let Event::Lost(lost) = reader.recv_event_timeout(LONG).unwrap() else { panic!("expected a report") };
    assert_eq!((lost.range(), lost.reason()), (1..=1, GivenUp::Expired));
    assert_eq!(next(&nodes[1], &reader).payload(), b"early");
    assert_eq!((reader.counts().expired, reader.counts().lost), (1, 0));
}

#[test]
fn own_messages_do_not_wait_for_a_reader_that_blocks() {
    let Some(lan) = Lan::build("own messages and a slow reader", 1) else { return };
    let nodes = lan.start(|_, builder| builder);
    let options =
        JoinOptions { loopback: true, queue: Some(4), policy: Some(Policy::Block), ..JoinOptions::default() };
    let own = joined(&nodes[0], &options);
    (0..10u8).for_each(|number| assert_eq!(nodes[0].send("g", &[number]).unwrap(), u32::from(number)));
    while own.counts().queued + own.counts().dropped < 10 {
        std::thread::sleep(Duration::from_millis(5));
    }
    (0..4u8).for_each(|number| assert_eq!(next(&nodes[0], &own).payload(), [number]));
    let Event::Lost(lost) = own.recv_event_timeout(LONG).unwrap() else { panic!("expected a report") };
    assert_eq!((lost.range(), lost.reason(), own.len()), (4..=9, GivenUp::Unread, 0));
}

#[test]
fn a_subscription_is_told_who_joins_leaves_and_fails() {
    let Some(lan) = Lan::build("news about members", 3) else { return };
    let nodes = lan.start(|_, builder| builder);
    let member = |node: &Node| Member { id: node.id(), address: node.address() };
    let _first = nodes[1].join("g").unwrap();
    assert!(nodes[0].wait_for_members("g", 1, LONG));
    let news = joined(&nodes[0], &JoinOptions { members: true, ..JoinOptions::default() });
    assert_eq!(member_news(&news), (member(&nodes[1]), MemberChange::Joined), "it was there before");
    let second = nodes[2].join("g").unwrap();
    assert_eq!(member_news(&news), (member(&nodes[2]), MemberChange::Joined));
    let mut all = [member(&nodes[1]), member(&nodes[2])];
    all.sort_unstable_by_key(|member| member.id);
    assert_eq!(nodes[0].member_list("g"), all);
    second.leave();
    assert_eq!(member_news(&news), (member(&nodes[2]), MemberChange::Left));
    let _third = nodes[2].join("g").unwrap();
    assert_eq!(member_news(&news), (member(&nodes[2]), MemberChange::Joined));
    nodes[2].close();
    assert_eq!(member_news(&news), (member(&nodes[2]), MemberChange::Left), "a farewell");
    lan.switch.set_down("port2").unwrap();
    assert_eq!(member_news(&news), (member(&nodes[1]), MemberChange::Failed));
    assert_eq!(nodes[0].member_list("g"), []);
}
