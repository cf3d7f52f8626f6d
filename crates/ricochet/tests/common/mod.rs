//! Hosts at one switch.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::time::Duration;

use netlab::Namespace;
use ricochet::{Builder, Message, Node, Subscription};

/// Timeout that only a failure exceeds.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Namespaces at one bridge, with the addresses 10.9.0.1 and fd09::1, 10.9.0.2 and fd09::2, and so on.
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

    /// Connects a host, counted from 1, to the switch.
    pub(crate) fn plug(&self, number: usize) {
        let (host, port) = (&self.hosts[number - 1], format!("port{number}"));
        host.add_veth("eth0", &self.switch, &port, 1500).unwrap();
        self.switch.set_bridge(&port, "br0").unwrap();
        host.add_address("eth0", format!("10.9.0.{number}/24").parse().unwrap()).unwrap();
        host.add_address("eth0", format!("fd09::{number}/64").parse().unwrap()).unwrap();
    }

    /// Starts a node on each host. The first one's address is the others' seed address.
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

/// Lets all nodes join a group, and waits until each knows that the others are in it.
pub(crate) fn join_all(nodes: &[Node], group: &str) -> Vec<Subscription> {
    let subscriptions = nodes.iter().map(|node| node.join(group).unwrap()).collect();
    meet(nodes, group);
    subscriptions
}

/// Waits until all nodes know that all the others are in a group.
pub(crate) fn meet(nodes: &[Node], group: &str) {
    for node in nodes {
        assert!(node.wait_for_members(group, nodes.len() - 1, LONG), "{:#?}", node.status());
    }
}

/// Returns the next message. Panics with the node's status if none comes.
pub(crate) fn next(node: &Node, subscription: &Subscription) -> Message {
    subscription.recv_timeout(LONG).unwrap_or_else(|error| panic!("{error}: {:#?}", node.status()))
}

/// Returns the numbers of the next `count` messages.
pub(crate) fn numbers(node: &Node, subscription: &Subscription, count: usize) -> Vec<u32> {
    (0..count).map(|_| number(&next(node, subscription))).collect()
}

/// Returns a message with a number that leaves no room for another message in its packet.
pub(crate) fn alone(number: u32) -> Vec<u8> {
    [&number.to_be_bytes()[..], &[0; 1_000]].concat()
}

pub(crate) fn number(message: &Message) -> u32 {
    let bytes = message.payload().first_chunk().expect("a payload begins with its number");
    u32::from_be_bytes(*bytes)
}

/// Drops a share of the data packets at random, the same ones in each run.
pub(crate) fn loss(percent: u64, seed: u64) -> impl FnMut(&[u8]) -> bool + Send + 'static {
    let mut random = testkit::Random(seed);
    move |datagram| {
        let is_lost = random.below(100) < percent;
        datagram[0] == 0xb1 && is_lost
    }
}
