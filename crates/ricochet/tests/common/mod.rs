//! Hosts at one switch.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::time::Duration;

use netlab::Namespace;
use ricochet::{Builder, Message, Node, Subscription};

/// Long enough for whatever works at all.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Namespaces at one bridge, 10.9.0.1 and fd09::1 and so on.
pub(crate) struct Lan {
    pub(crate) hosts: Vec<Namespace>,
    pub(crate) switch: Namespace,
}

impl Lan {
    pub(crate) fn build(what: &str, hosts: usize) -> Option<Self> {
        if !netlab::privilege::namespaces_or_skip(what) {
            return None;
        }
        let switch = Namespace::create("switch").unwrap();
        switch.add_bridge("br0", 1500).unwrap();
        let hosts = (1..=hosts).map(|number| Namespace::create(&format!("host{number}")).unwrap()).collect();
        let lan = Self { hosts, switch };
        (1..=lan.hosts.len()).for_each(|number| lan.plug(number));
        Some(lan)
    }

    /// Lays the cable between a host, counted from 1, and the switch.
    pub(crate) fn plug(&self, number: usize) {
        let (host, port) = (&self.hosts[number - 1], format!("port{number}"));
        host.add_veth("eth0", &self.switch, &port, 1500).unwrap();
        self.switch.set_bridge(&port, "br0").unwrap();
        host.add_address("eth0", format!("10.9.0.{number}/24").parse().unwrap()).unwrap();
        host.add_address("eth0", format!("fd09::{number}/64").parse().unwrap()).unwrap();
    }

    /// Starts a node on each host, the first one being the others' seed.
    pub(crate) fn start(&self, configure: impl Fn(usize, Builder) -> Builder) -> Vec<Node> {
        let mut nodes: Vec<Node> = Vec::new();
        for (at, host) in self.hosts.iter().enumerate() {
            let mut builder = configure(at, Node::builder("eth0"));
            if let Some(first) = nodes.first() {
                builder = builder.seed(first.address().to_string());
            }
            nodes.push(host.run(|| builder.start()).unwrap());
        }
        nodes
    }
}

/// All nodes join a group, and know that the others are in it.
pub(crate) fn join_all(nodes: &[Node], group: &str) -> Vec<Subscription> {
    let subscriptions = nodes.iter().map(|node| node.join(group).unwrap()).collect();
    meet(nodes, group);
    subscriptions
}

/// All nodes know that all the others are in a group.
pub(crate) fn meet(nodes: &[Node], group: &str) {
    for node in nodes {
        assert!(node.wait_for_members(group, nodes.len() - 1, LONG), "{:#?}", node.status());
    }
}

/// The next message, or a report of what the node has done instead.
pub(crate) fn next(node: &Node, subscription: &Subscription) -> Message {
    subscription.recv_timeout(LONG).unwrap_or_else(|error| panic!("{error}: {:#?}", node.status()))
}

/// So many messages, as numbers.
pub(crate) fn numbers(node: &Node, subscription: &Subscription, count: usize) -> Vec<u32> {
    (0..count).map(|_| number(&next(node, subscription))).collect()
}

pub(crate) fn number(message: &Message) -> u32 {
    let bytes = message.payload().first_chunk().expect("a payload begins with its number");
    u32::from_be_bytes(*bytes)
}

/// Drops data packets and repairs at random, the same ones each time.
pub(crate) fn loss(percent: u64, seed: u64) -> impl FnMut(&[u8]) -> bool + Send + 'static {
    let mut state = seed | 1;
    move |datagram| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        datagram[0] == 0x91 && (state >> 33) % 100 < percent
    }
}
