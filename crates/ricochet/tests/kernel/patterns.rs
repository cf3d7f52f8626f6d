//! Subscriptions to patterns, between real nodes.

use crate::common::{LONG, Lan, next};
use ricochet::{Event, GroupChange, JoinError, JoinOptions, Node, Start, Subscription};

/// Returns the name of the next group that a pattern has found.
fn found(subscription: &Subscription) -> String {
    match subscription.recv_event_timeout(LONG).unwrap() {
        Event::Group(news) => {
            assert_eq!(*news.change(), GroupChange::Found);
            news.group().to_owned()
        }
        other => panic!("{other:?}"),
    }
}

fn pattern(node: &Node, text: &str) -> Subscription {
    node.join(text).unwrap()
}

#[test]
fn a_pattern_joins_the_groups_that_others_are_in_or_send_to_as_they_appear() {
    let Some(lan) = Lan::build("subscriptions to patterns", 3) else { return };
    let nodes = lan.start(|_, builder| builder);
    let _joined_before = nodes[1].join_many(["prices/AAPL", "orders/AAPL"]).unwrap();
    let prices = pattern(&nodes[0], "prices/*");
    assert_eq!(found(&prices), "prices/AAPL");
    // One that is only sent to.
    let ibm = nodes[2].sender("prices/IBM").unwrap();
    assert_eq!(found(&prices), "prices/IBM");
    assert!(nodes[2].wait_for_members("prices/IBM", 1, LONG));
    ibm.send(b"187.21").unwrap();
    let message = next(&nodes[0], &prices);
    assert_eq!((message.group(), message.payload()), ("prices/IBM", &b"187.21"[..]));
    // One that this node itself sends to, or that does not match.
    nodes[0].sender("other/prices").unwrap();
    nodes[0].sender("prices/own").unwrap();
    assert_eq!(found(&prices), "prices/own");
    prices.leave();
    assert!(nodes[0].status().groups.is_empty(), "the groups that were found are left");
    let long = nodes[0].join(&"*".repeat(257)).unwrap_err();
    assert!(matches!(long, JoinError::Pattern { length: 257 }), "{long}");
    let many: Vec<String> = (0..65).map(|number| format!("{number}/*")).collect();
    assert!(matches!(nodes[0].join_many(&many).unwrap_err(), JoinError::TooManyPatterns { max: 64 }));
    assert!(nodes[0].join_many(&many[..64]).is_ok(), "the refused ones are gone");
}

#[test]
fn groups_that_a_pattern_finds_begin_with_their_past_and_their_number_is_bounded() {
    const GROUPS: usize = 1_030;
    let Some(lan) = Lan::build("patterns and history", 3) else { return };
    let nodes = lan.start(|_, builder| builder);
    let names: Vec<String> = (0..GROUPS).map(|number| format!("g/{number}")).collect();
    let member = nodes[1].join_many(&names).unwrap();
    assert!(nodes[2].wait_for_members("g/7", 1, LONG));
    nodes[2].send("g/7", b"early").unwrap();
    // A member serves the past of others, not what it sent itself.
    assert_eq!(next(&nodes[1], &member).payload(), b"early");
    let options = JoinOptions { from: Start::Last(1), queue: Some(8), ..JoinOptions::default() };
    let past = nodes[0].join_with("g/7*", &options).unwrap();
    let (mut groups, mut is_early_seen) = (Vec::new(), false);
    while groups.len() < 111 || !is_early_seen {
        match past.recv_event_timeout(LONG).unwrap() {
            Event::Group(news) => groups.push(news.group().to_owned()),
            Event::Message(message) => {
                assert_eq!((message.group(), message.payload()), ("g/7", &b"early"[..]));
                is_early_seen = true;
            }
            Event::History(_) => {}
            other => panic!("{other:?}"),
        }
    }
    groups.sort();
    groups.dedup();
    assert_eq!(groups.len(), 111, "7, 70 to 79 and 700 to 799");
    let all = pattern(&nodes[0], "g/*");
    let (mut joined, mut refused) = (0, 0);
    while refused == 0 {
        match all.recv_event_timeout(LONG).unwrap() {
            Event::Group(news) if *news.change() == GroupChange::Found => joined += 1,
            Event::Group(_) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(joined, 1_000);
}
