//! Messages from before a subscription, between real nodes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{LONG, Lan, join_all, loss, next, number, numbers};
use ricochet::{Event, HistoryNews, JoinOptions, Node, Order, Policy, Start, Subscription};

fn last(count: u64) -> JoinOptions {
    JoinOptions { from: Start::Last(count), ..JoinOptions::default() }
}

/// Returns the first event, which tells of the history.
fn begin(subscription: &Subscription) -> (u64, bool) {
    match subscription.recv_event_timeout(LONG).unwrap() {
        Event::History(history) => match history.news() {
            HistoryNews::Begins { messages, is_complete } => (messages, is_complete),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// A node joins while messages go on: it gets the past in order, then all that follow, and nothing twice. A
/// second subscription of the same node gets the past from the node itself.
#[test]
fn a_late_joiner_has_the_past_and_misses_nothing_of_the_present() {
    const BEFORE: u32 = 3_000;
    let Some(lan) = Lan::build("a node that joins late", 3) else { return };
    let nodes = lan.start(|at, builder| builder.lose(loss(2, at as u64)));
    let members = join_all(&nodes[..2], "g");
    let sender = nodes[0].sender("g").unwrap();
    for number in 0..BEFORE {
        sender.send(&number.to_be_bytes()).unwrap();
        if number >= 500 {
            // The queue of the reader stays short.
            next(&nodes[1], &members[1]);
        }
    }
    let done = AtomicBool::new(false);
    let late = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut number = BEFORE;
            while !done.load(Ordering::SeqCst) {
                sender.send(&number.to_be_bytes()).unwrap();
                number += 1;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            number
        });
        let late = nodes[2].join_with("g", &last(2_000)).unwrap();
        let (messages, is_complete) = begin(&late);
        assert!(messages >= 2_000 && is_complete, "{messages}");
        let past = numbers(&nodes[2], &late, messages as usize);
        let first = past[0];
        assert_eq!(past, (first..first + past.len() as u32).collect::<Vec<_>>(), "in order");
        let mut all = past;
        all.extend(numbers(&nodes[2], &late, 200));
        done.store(true, Ordering::SeqCst);
        let end = sending.join().unwrap();
        all.extend(numbers(&nodes[2], &late, (end - first) as usize - all.len()));
        all.sort_unstable();
        assert_eq!(all, (first..end).collect::<Vec<_>>(), "nothing is missing and nothing comes twice");
        late
    });
    assert_eq!(late.counts().lost, 0);
    let second = nodes[2].join_with("g", &last(5)).unwrap();
    assert_eq!(begin(&second), (5, true));
    let five: Vec<_> = (0..5).map(|_| next(&nodes[2], &second)).collect();
    assert!(five.iter().all(ricochet::Message::is_past));
    let five: Vec<u32> = five.iter().map(number).collect();
    assert!(five.is_sorted_by(|a, b| a + 1 == *b), "{five:?}");
    sender.send(&u32::MAX.to_be_bytes()).unwrap();
    let message = next(&nodes[2], &second);
    assert_eq!((number(&message), message.is_past()), (u32::MAX, false));
    assert!(nodes[1].wait_for_members("g", 2, LONG), "the others know the new member");
}

#[test]
fn a_reader_that_blocks_keeps_no_other_subscription_from_its_history() {
    let Some(lan) = Lan::build("history beside a reader that blocks", 3) else { return };
    let nodes = lan.start(|_, builder| builder);
    let _members = join_all(&nodes[..2], "g");
    (0..100u32).for_each(|number| assert!(nodes[0].send("g", &number.to_be_bytes()).is_ok()));
    let slow = JoinOptions { queue: Some(4), policy: Some(Policy::Block), ..JoinOptions::default() };
    let slow = nodes[2].join_with("slow", &slow).unwrap();
    assert!(nodes[0].wait_for_members("slow", 1, LONG));
    (0..10u32).for_each(|number| assert!(nodes[0].send("slow", &number.to_be_bytes()).is_ok()));
    while slow.counts().blocked == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let late = nodes[2].join_with("g", &last(100)).unwrap();
    // Members are given up after a shorter time.
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!(numbers(&nodes[2], &slow, 10), (0..10).collect::<Vec<_>>());
    assert_eq!(begin(&late), (100, true));
    assert_eq!(numbers(&nodes[2], &late, 100), (0..100).collect::<Vec<_>>());
}

/// Nodes on one host, without multicast.
fn here(seed: Option<&Node>) -> Node {
    let builder = Node::builder("lo").address([127, 0, 0, 1]).port(0).unicast(true);
    match seed {
        Some(seed) => builder.seed(seed.address().to_string()).start().unwrap(),
        None => builder.start().unwrap(),
    }
}

/// Returns the values that come before the event that ends the past, by key.
fn values(subscription: &Subscription) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut values = BTreeMap::new();
    loop {
        match subscription.recv_event_timeout(LONG).unwrap() {
            Event::Message(message) => {
                assert!(message.is_past());
                values.insert(message.key().unwrap().to_vec(), message.payload().to_vec());
            }
            Event::History(history) if history.news() == HistoryNews::Ends => return values,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_last_value_of_each_key_is_there_for_those_who_join_late() {
    let keyed = JoinOptions { from: Start::LastPerKey, ..JoinOptions::default() };
    let fifo = JoinOptions { order: Order::Fifo, fragments: true, ..keyed };
    let whole = JoinOptions { fragments: true, ..keyed };
    let first = here(None);
    let kept = first.join_with("prices", &whole).unwrap();
    // It has found that nothing was there before.
    assert!(matches!(kept.recv_event_timeout(LONG), Ok(Event::History(_))));
    let node = here(Some(&first));
    assert!(node.wait_for_members("prices", 1, LONG));
    let prices = node.sender("prices").unwrap().fragments(true);
    let long = vec![7; 20_000];
    for round in 0..3_u8 {
        for key in 0..20_u8 {
            let value = if (key, round) == (7, 2) { &long[..] } else { &[key, round] };
            prices.send_keyed(&[key], value).unwrap();
        }
    }
    prices.send_keyed(&[3], b"").unwrap();
    prices.send(b"without a key").unwrap();
    (0..62).for_each(|_| drop(next(&first, &kept)));
    let late = here(Some(&first));
    let mut expected: BTreeMap<Vec<u8>, Vec<u8>> = (0..20_u8).map(|key| (vec![key], vec![key, 2])).collect();
    expected.remove(&[3][..]);
    expected.insert(vec![7], long.clone());
    // The second subscription gets what the node itself keeps, and both get what follows.
    let subscriptions = [fifo, whole].map(|options| {
        let subscription = late.join_with("prices", &options).unwrap();
        assert_eq!(begin(&subscription), (19, true));
        assert_eq!(values(&subscription), expected);
        subscription
    });
    assert!(node.wait_for_members("prices", 2, LONG));
    prices.send_keyed(&[3], b"again").unwrap();
    for subscription in &subscriptions {
        let message = next(&late, subscription);
        assert_eq!((message.key(), message.payload()), (Some(&[3][..]), &b"again"[..]));
        assert!(!message.is_past());
    }
    // Total order cannot build on values without numbers.
    let total = JoinOptions { order: Order::Total, fragments: true, ..JoinOptions::default() };
    let refused = late.join_with("prices", &total).unwrap_err().to_string();
    assert!(refused.starts_with("order: expected no subscription to prices that began with"), "{refused}");
    let refused = late.join_with("other", &JoinOptions { order: Order::Total, ..keyed }).unwrap_err();
    assert!(refused.to_string().contains("which members keep without their numbers"), "{refused}");
    let wrong = |key: &[u8]| prices.send_keyed(key, b"x").unwrap_err().to_string();
    assert_eq!(wrong(b""), "key: expected 1 to 255 bytes, saw 0");
    assert_eq!(wrong(&[0; 256]), "key: expected 1 to 255 bytes, saw 256");
}
