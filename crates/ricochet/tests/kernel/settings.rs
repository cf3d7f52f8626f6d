//! Members whose settings differ, or whose multicast is filtered: found, told and repaired where possible.

use std::process::{Command, Stdio};

use crate::common::{LONG, Lan, numbers};
use std::time::Duration;

use ricochet::{Builder, Follow, JoinOptions, Node, Policy, Subscription};

/// Messages that each test sends at once.
const MESSAGES: u32 = 20;

type Configure = fn(Builder) -> Builder;

/// Starts two nodes with different settings. Lets the first send, and the second receive everything.
fn exchanged(lan: &Lan, here: Configure, there: Configure) -> ([Node; 2], Subscription) {
    let nodes = lan.start(|at, builder| if at == 0 { here(builder) } else { there(builder) });
    let subscription = nodes[1].join("g").unwrap();
    assert!(nodes[0].wait_for_members("g", 1, LONG));
    (0..MESSAGES).for_each(|number| assert!(nodes[0].send("g", &number.to_be_bytes()).is_ok()));
    all_arrive(&nodes[1], &subscription);
    (nodes.try_into().unwrap(), subscription)
}

fn all_arrive(node: &Node, subscription: &Subscription) {
    let mut got = numbers(node, subscription, MESSAGES as usize);
    got.sort_unstable();
    assert!(got.into_iter().eq(0..MESSAGES));
}

/// Waits until a node's status of its peer fulfils a condition.
fn wait_for_finding(node: &Node, is_there: impl Fn(&ricochet::status::PeerStatus) -> bool) {
    testkit::wait_until("the finding is in the status", || node.status().peers.iter().any(&is_there));
}

#[test]
fn a_receiver_whose_multicast_is_filtered_gets_copies() {
    let found = Command::new("nft").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        println!("SKIPPED: filtered multicast: no program `nft` (apt-get install nftables)");
        return;
    }
    let Some(lan) = Lan::build("filtered multicast", 2) else { return };
    let rules = "add table inet f; add chain inet f in { type filter hook input priority 0; }; \
                 add rule inet f in ip daddr 224.0.0.0/4 udp dport 7911 drop";
    let nft = || Command::new("nft").arg(rules).status().unwrap();
    assert!(lan.hosts[1].run(nft).success());
    let (nodes, _subscription) = exchanged(&lan, |builder| builder, |builder| builder);
    wait_for_finding(&nodes[0], |peer| peer.hears_no_multicast);
    wait_for_finding(&nodes[1], |peer| peer.multicast_unheard);
    assert!(nodes[0].status().peers[0].settings_differ.is_empty());
    let delete = || Command::new("nft").args(["flush", "ruleset"]).status().unwrap();
    assert!(lan.hosts[1].run(delete).success());
    wait_for_finding(&nodes[0], |peer| !peer.hears_no_multicast);
    wait_for_finding(&nodes[1], |peer| !peer.multicast_unheard);
}

#[test]
fn settings_that_differ_are_named_and_messages_arrive_nevertheless() {
    let Some(lan) = Lan::build("settings that differ", 2) else { return };
    let cases: [(&str, Configure); 4] = [
        ("node.group_port is 7911 here and 7912 there", |builder| builder.group_port(7_912)),
        ("node.group_addresses is 64 here and 3 there", |builder| builder.group_addresses(3)),
        ("node.unicast is false here and true there", |builder| builder.unicast(true)),
        ("buffers.datagram_max is 1452 here and 1400 there", |builder| builder.datagram_max(1_400)),
    ];
    for (expected, there) in cases {
        let (nodes, _subscription) = exchanged(&lan, |builder| builder, there);
        let names = |peer: &ricochet::status::PeerStatus| peer.settings_differ == [expected];
        wait_for_finding(&nodes[0], names);
        wait_for_finding(&nodes[1], |peer| peer.settings_differ.len() == 1);
    }
    let (nodes, _subscription) = exchanged(&lan, |builder| builder.unicast(true), |builder| builder);
    wait_for_finding(&nodes[1], |peer| peer.settings_differ == ["node.unicast is false here and true there"]);
}

#[test]
fn a_sender_that_ends_at_once_waits_for_a_receiver_that_is_deaf() {
    let Some(lan) = Lan::build("a deaf receiver of a sender that ends", 2) else { return };
    let nodes = lan.start(|at, builder| builder.group_port(7_911 + at as u16));
    let subscription = nodes[1].join("g").unwrap();
    assert!(nodes[0].wait_for_members("g", 1, LONG));
    (0..MESSAGES).for_each(|number| assert!(nodes[0].send("g", &number.to_be_bytes()).is_ok()));
    nodes[0].close();
    all_arrive(&nodes[1], &subscription);
}

#[test]
fn members_that_hear_each_other_are_not_taken_for_deaf() {
    let Some(lan) = Lan::build("members that hear each other", 2) else { return };
    let (nodes, _subscription) = exchanged(&lan, |builder| builder, |builder| builder);
    // A sender that ends waits until the test of its members is over.
    nodes[0].close();
    let status = nodes[0].status();
    assert!(status.peers.iter().all(|peer| !peer.hears_no_multicast), "{status:#?}");
    assert!(nodes[1].status().peers.iter().all(|peer| !peer.multicast_unheard));
}

#[test]
fn a_member_whose_reader_stands_still_is_not_taken_for_deaf() {
    /// Groups that share no multicast address.
    const GROUPS: [&str; 2] = ["g", "h"];
    const STILL: Duration = Duration::from_secs(4);
    let Some(lan) = Lan::build("a reader that stands still", 2) else { return };
    let nodes = lan.start(|_, builder| builder.follow(Follow::Off));
    let options = JoinOptions { queue: Some(4), policy: Some(Policy::Block), ..JoinOptions::default() };
    let still = GROUPS.map(|group| nodes[1].join_with(group, &options).unwrap());
    GROUPS.iter().for_each(|group| assert!(nodes[0].wait_for_members(group, 1, LONG)));
    // Fills the queue and the ring, so that the rest waits in the kernel.
    (0..30_000_u32).for_each(|_| assert!(nodes[0].send("g", &[7; 400]).is_ok()));
    std::thread::sleep(STILL);
    // A test of one more address begins.
    assert!(nodes[0].send("h", b"more").is_ok());
    std::thread::sleep(STILL);
    let status = nodes[0].status();
    assert!(status.peers.iter().all(|peer| !peer.hears_no_multicast), "{status:#?}");
    drop(still);
}
