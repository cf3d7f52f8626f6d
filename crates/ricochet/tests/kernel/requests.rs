//! Requests and replies between real nodes.

use std::time::Duration;

use crate::common::{LONG, Lan, join_all, loss, next};
use ricochet::{JoinOptions, Node, RequestError, SendError};

#[test]
fn requests_get_the_first_reply_or_all_and_replies_of_any_length_are_recovered() {
    const ASKED: u32 = 50;
    let Some(lan) = Lan::build("requests", 3) else { return };
    let nodes = lan.start(|at, builder| builder.lose(loss(10, at as u64)));
    let subscriptions = join_all(&nodes, "sums");
    let long = vec![7; 50_000];
    std::thread::scope(|scope| {
        for (node, subscription) in nodes.iter().zip(&subscriptions).skip(1) {
            let long = &long;
            scope.spawn(move || {
                for _ in 0..=ASKED {
                    let request = next(node, subscription);
                    assert!(request.is_request());
                    let reply = if request.payload() == b"long" { &long[..] } else { request.payload() };
                    node.reply(&request, reply).unwrap();
                }
            });
        }
        // Several threads ask at once, and each gets the replies to its own request.
        std::thread::scope(|scope| {
            for number in 0..ASKED {
                let node = &nodes[0];
                scope.spawn(move || {
                    let payload = number.to_be_bytes();
                    if number % 2 == 0 {
                        assert_eq!(node.request("sums", &payload, LONG).unwrap().payload(), payload);
                        return;
                    }
                    let replies = node.request_all("sums", &payload, 2, LONG).unwrap();
                    assert!(replies.iter().all(|reply| reply.payload() == payload));
                    assert_eq!(replies.len(), 2);
                    assert_ne!(replies[0].sender(), replies[1].sender());
                });
            }
        });
        assert_eq!(nodes[0].request("sums", b"long", LONG).unwrap().payload(), long);
    });
}

#[test]
fn a_node_replies_to_its_own_requests() {
    let node = Node::builder("lo").address([127, 0, 0, 1]).unicast(true).port(0).start().unwrap();
    let options = JoinOptions { loopback: true, ..JoinOptions::default() };
    let subscription = node.join_with("sums", &options).unwrap();
    let long = vec![7; 50_000];
    let replies = [&b"4"[..], &long];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for reply in replies {
                let request = next(&node, &subscription);
                assert!(request.is_request() && request.is_own());
                node.reply(&request, reply).unwrap();
            }
        });
        for reply in replies {
            let seen = node.request("sums", b"2 + 2", LONG).unwrap();
            assert!(seen.is_own() && seen.payload() == reply);
        }
    });
}

#[test]
fn a_request_without_a_reply_says_so_and_a_message_is_no_request() {
    let Some(lan) = Lan::build("requests in vain", 2) else { return };
    let nodes = lan.start(|_, builder| builder);
    let subscriptions = join_all(&nodes, "g");
    let in_vain = nodes[0].request("g", b"who?", Duration::from_millis(100)).unwrap_err();
    assert!(matches!(in_vain, RequestError::NoReply { members: 1, .. }), "{in_vain}");
    assert!(nodes[0].request_all("g", b"who?", 9, Duration::from_millis(100)).unwrap().is_empty());
    let mut asked = 0;
    let keep_waiting = || {
        asked += 1;
        asked < 3
    };
    let replies = nodes[0].request_all_while("g", b"who?", 9, Duration::from_secs(3_600), keep_waiting);
    assert!(replies.unwrap().is_empty(), "the wait has ended");
    nodes[0].send("g", b"no request").unwrap();
    let message = loop {
        // The requests may have come before their deadline or not.
        let message = next(&nodes[1], &subscriptions[1]);
        if !message.is_request() {
            break message;
        }
    };
    assert_eq!(nodes[1].reply(&message, b"x"), Err(SendError::NotARequest));
    assert_eq!(nodes[1].reply_timeout(&message, b"x", LONG), Err(SendError::NotARequest));
    nodes[0].close();
    let closed = nodes[0].request("g", b"who?", LONG).unwrap_err();
    assert!(matches!(closed, RequestError::Send(SendError::Closed)), "{closed}");
}
