//! Errors at the start of a node name the cause and the remedy.
#![allow(missing_docs)]

use netlab::Namespace;
use ricochet::{JoinOptions, Node, Policy};

use crate::common::{LONG, Lan, number};

#[test]
fn a_mistyped_interface_is_reported_as_missing() {
    let error = Node::builder("nothing-like-it").start().unwrap_err().to_string();
    assert!(error.contains("nothing-like-it") && error.contains("ip link"), "{error}");
}

#[test]
fn datagrams_longer_than_the_mtu_are_refused() {
    if !netlab::privilege::namespaces_or_skip("an interface with a small MTU") {
        return;
    }
    let [host, other] = ["small", "other"].map(|name| Namespace::create(name).unwrap());
    host.add_veth("eth0", &other, "eth0", 1_300).unwrap();
    host.add_address("eth0", "10.9.0.1/24".parse().unwrap()).unwrap();
    let error = host.run(|| Node::builder("eth0").start().unwrap_err().to_string());
    assert!(error.contains("saw 1300") && error.contains("1272 or less"), "{error}");
    host.run(|| Node::builder("eth0").datagram_max(1_272).start()).unwrap();
}

#[test]
fn a_queue_that_fills_within_a_batch_gets_the_rest_once_there_is_room() {
    let Some(lan) = Lan::build("a queue of one", 2) else { return };
    let nodes = lan.start(|_, builder| builder);
    let options = JoinOptions { queue: Some(1), policy: Some(Policy::Block), ..JoinOptions::default() };
    let slow = nodes[1].join_with("g", &options).unwrap();
    assert!(nodes[0].wait_for_members("g", 1, LONG));
    for round in 0..5u32 {
        for at in 0..200 {
            nodes[0].send("g", &(round * 200 + at).to_be_bytes()).unwrap();
        }
        let mut got: Vec<u32> = (0..200).map(|_| number(&crate::common::next(&nodes[1], &slow))).collect();
        got.sort_unstable();
        assert_eq!(got, (round * 200..(round + 1) * 200).collect::<Vec<_>>());
    }
    assert_eq!(slow.counts().dropped, 0);
}
