//! IP groups of other programs that cross a tunnel between two sites, with real multicast on their bridges.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use maelstrom::status::MulticastStatus;
use netio::multicast::{PlainListener, PlainTalker};
use netlab::Namespace;
use netlab::privilege;
use netlab::topology::{HOST, TwoSites, TwoSitesConfig};
use stage::gateways::{End, GatewayPair, Setting};
use testkit::{wait_for, wait_until};

use crate::by_tunnel::{apart_with, in_tunnel_mode, ip};
use crate::node::NodeProcess;
use crate::pair::{PROGRAM, reload};

/// Receive buffer of the hosts: more than all packets of a test.
const BUFFER: usize = 8 << 20;
/// Number of streams of which one must arrive whole. A busy machine protects a part of the flows for a while.
const TRIES: usize = 5;
/// Time to live with which hosts send; the tunnel takes one of it.
pub(crate) const TTL: u8 = 9;

pub(crate) const FILE: &str = "[[multicast]]\ninterface = \"lan0\"\ngroups = [\"239.1.0.0/16\", \"ff15::/16\", \"239.255.79.0/26\"]\nwanted = \"all\"\n";

/// Two sites of two hosts each, on bridges, whose gateways let groups cross.
fn sites(loss: f64) -> TwoSites {
    apart_with(loss, &TwoSitesConfig { hosts: 2, ..TwoSitesConfig::default() })
}

fn start(sites: &TwoSites) -> GatewayPair {
    let pair = start_with(sites, FILE);
    for side in 0..2 {
        let knows = || pair.status(side).unwrap().wanted_groups[0].count == 3;
        wait_until("each gateway knows what the other site wants", knows);
    }
    pair
}

fn start_with(sites: &TwoSites, sections: &str) -> GatewayPair {
    let ends = End::of(sites);
    let mut pair = GatewayPair::prepare(PROGRAM.as_ref(), &ends, &Setting::default()).unwrap();
    for (side, end) in ends.iter().enumerate() {
        in_tunnel_mode(&pair, side);
        let text = fs::read_to_string(pair.config(side)).unwrap();
        fs::write(pair.config(side), format!("{text}{sections}")).unwrap();
        pair.launch(side, end.namespace).unwrap();
    }
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    let is_open = |side| pair.status(side).unwrap().multicast.iter().all(|section| section.open);
    wait_until("the LANs are open", || (0..2).all(is_open));
    pair
}

fn section(pair: &GatewayPair, side: usize) -> MulticastStatus {
    pair.status(side).unwrap().multicast.remove(0)
}

pub(crate) fn listener(host: &Namespace, group: SocketAddr) -> PlainListener {
    host.run(|| PlainListener::bind(group, HOST, BUFFER)).unwrap()
}

/// A packet as a host has got it: its number, its source and its time to live.
pub(crate) type Got = BTreeMap<u32, Vec<(IpAddr, u8)>>;

pub(crate) fn take(listener: &mut PlainListener, got: &mut Got) {
    let take = |heard: netio::multicast::Heard<'_>| {
        let number = u32::from_be_bytes(*heard.payload.first_chunk().unwrap());
        assert!(heard.payload[4..].iter().all(|&byte| byte == number as u8), "a packet came altered");
        got.entry(number).or_default().push((heard.from.ip(), heard.ttl.unwrap()));
    };
    let mut take = take;
    while listener.recv(&mut take).unwrap() {}
}

/// Sends packets with these numbers to a group.
pub(crate) fn send(from: &Namespace, group: SocketAddr, ttl: u8, numbers: std::ops::Range<u32>) {
    let mut talker = from.run(|| PlainTalker::bind(group, HOST, 0)).unwrap();
    for number in numbers {
        let payload = [&number.to_be_bytes()[..], &vec![number as u8; 100 + number as usize % 900]].concat();
        talker.send(ttl, &payload).unwrap();
        sleep(Duration::from_micros(1_500));
    }
}

/// Sends a stream to a group from the first host of a site. All of it must reach each host of the other site
/// once, a hop further, and each host of the own site as it was sent.
fn cross(sites: &TwoSites, pair: &GatewayPair, group: &str, is_back: bool) {
    let group: SocketAddr = group.parse().unwrap();
    let (near, far) = if is_back { (&sites.b, &sites.a) } else { (&sites.a, &sites.b) };
    let source = if group.is_ipv4() { near.host_v4(0) } else { near.host_v6(0) };
    let mut listeners: Vec<_> =
        far.hosts.iter().chain(&near.hosts[1..]).map(|host| listener(host, group)).collect();
    for round in 0..TRIES {
        let numbers = (round as u32 * 1_000)..(round as u32 * 1_000 + 1_000);
        send(&near.hosts[0], group, TTL, numbers.clone());
        let mut all: Vec<Got> = listeners.iter().map(|_| Got::new()).collect();
        let came = wait_for(|| {
            listeners.iter_mut().zip(&mut all).for_each(|(listener, got)| take(listener, got));
            all.iter().all(|got| numbers.clone().all(|number| got.contains_key(&number))).then_some(())
        });
        for (at, got) in all.iter().enumerate() {
            let ttl = if at < far.hosts.len() { TTL - 1 } else { TTL };
            let wrong: Vec<_> = got.iter().filter(|(_, came)| came[..] != [(source, ttl)]).collect();
            assert!(wrong.is_empty(), "host {at}: {wrong:?}\n{}", pair.logs());
        }
        if came.is_some() {
            return;
        }
    }
    panic!("packets of {group} stay lost\n{:?}\n{}", section(pair, 0), pair.logs());
}

#[test]
fn groups_cross_a_lossy_tunnel_once_and_reach_each_host_of_the_other_site() {
    let name = "groups_cross_a_lossy_tunnel_once_and_reach_each_host_of_the_other_site";
    if !privilege::available_or_skip(name) {
        return;
    }
    let sites = sites(0.02);
    let pair = start(&sites);
    cross(&sites, &pair, "239.1.7.7:5007", false);
    cross(&sites, &pair, "[ff15::7:7]:5007", true);
    for (side, other) in [(0, 1), (1, 0)] {
        let (sent, got) = (section(&pair, side), section(&pair, other));
        assert!(sent.forwarded >= 1_000 && sent.forwarded == sent.sent, "{sent:?}");
        assert!(got.received >= 1_000 && got.received <= sent.sent && got.unsent == 0, "{got:?}");
        let ingress = &pair.status(other).unwrap().peers[0].ingress;
        assert!(ingress.injected_packets > 5, "the link loses packets: {ingress:?}");
        // Neither gateway hears what it has multicast, and nothing comes back.
        assert!(sent.dropped.values().all(|&count| count == 0), "{sent:?}");
    }
    pair.stop().unwrap();
}

#[test]
fn packets_of_a_short_time_to_live_and_of_other_groups_stay_in_their_site() {
    let name = "packets_of_a_short_time_to_live_and_of_other_groups_stay_in_their_site";
    if !privilege::available_or_skip(name) {
        return;
    }
    let sites = sites(0.0);
    let pair = start(&sites);
    let [inside, outside, last] =
        ["239.1.7.7:5007", "239.2.7.7:5007", "239.1.7.8:5007"].map(|group| group.parse().unwrap());
    let far = &sites.b.hosts[0];
    let mut listeners = [inside, outside, last].map(|group| listener(far, group));
    let from = &sites.a.hosts[0];
    send(from, inside, 1, 0..20);
    send(from, outside, TTL, 0..20);
    send(from, last, TTL, 0..20);
    // These were sent last, so that the others would have come before them.
    let mut got = [Got::new(), Got::new(), Got::new()];
    let came = wait_for(|| {
        listeners.iter_mut().zip(&mut got).for_each(|(listener, got)| take(listener, got));
        (got[2].len() == 20).then_some(())
    });
    assert!(came.is_some(), "{:?}\n{}", section(&pair, 0), pair.logs());
    assert!(got[0].is_empty() && got[1].is_empty(), "{got:?}");
    assert_eq!(section(&pair, 0).dropped["expiring"], 20);
    pair.stop().unwrap();
}

/// Number of messages that a node sends.
const MESSAGES: usize = 400;

#[test]
fn nodes_at_two_sites_share_a_group_by_multicast() {
    if !privilege::available_or_skip("nodes_at_two_sites_share_a_group_by_multicast") {
        return;
    }
    let sites = sites(0.02);
    let pair = start(&sites);
    let file = std::env::temp_dir().join(format!("undrop-sites-{}.toml", std::process::id()));
    fs::write(&file, "[node]\nhops = 4\n[buffers]\ndatagram_max = 1200\n").unwrap();
    let common = ["prices", "--interface", HOST, "--config", file.to_str().unwrap()];
    let count = MESSAGES.to_string();
    let receive = [&["recv"][..], &common, &["--count", &count, "--seconds", "90"]].concat();
    let first = NodeProcess::start(&sites.a.hosts[0], &receive, None);
    let seed = first.address.clone();
    let others = [&sites.a.hosts[1], &sites.b.hosts[0], &sites.b.hosts[1]];
    let others = others.map(|host| NodeProcess::start(host, &receive, Some(&seed)));
    let mut command = Command::new(PROGRAM);
    command.args(["multicast", "send"]).args(common).args([
        "--seed",
        &seed,
        "--members",
        "4",
        "--linger",
        "3",
    ]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let mut sender = sites.b.hosts[0].spawn(command).unwrap();
    let mut lines = sender.stdin.take().unwrap();
    for number in 0..MESSAGES {
        writeln!(lines, "price {number}").unwrap();
        sleep(Duration::from_millis(2));
    }
    drop(lines);
    for (at, node) in [first].into_iter().chain(others).enumerate() {
        let (_, text, said) = node.finish();
        let mut got: Vec<&str> = text.lines().filter_map(|line| line.rsplit(": ").next()).collect();
        got.sort_unstable();
        let mut sent: Vec<String> = (0..MESSAGES).map(|number| format!("price {number}")).collect();
        sent.sort_unstable();
        assert_eq!(got, sent, "node {at}: {said}\n{}", pair.logs());
    }
    assert!(sender.wait().unwrap().success());
    fs::remove_file(&file).unwrap();
    // By multicast, once for both nodes there.
    let (sent, got) = (section(&pair, 1), section(&pair, 0));
    assert!(sent.forwarded > 50 && sent.forwarded == sent.sent, "{sent:?}");
    assert!(got.received > 50 && got.received <= sent.sent, "{got:?}");
    pair.stop().unwrap();
}

#[test]
fn hosts_that_join_a_group_get_it_from_the_other_site_until_they_leave() {
    let name = "hosts_that_join_a_group_get_it_from_the_other_site_until_they_leave";
    if !privilege::available_or_skip(name) {
        return;
    }
    let sites = sites(0.02);
    let pair = start_with(&sites, &FILE.replace("\"all\"", "\"members\""));
    let wanted = || pair.status(0).unwrap().wanted_groups.remove(0).groups;
    assert!(wanted().is_empty());
    // Joined by the kernels of hosts, which report it.
    let (near, far) = (&sites.a.hosts[0], &sites.b.hosts[1]);
    let groups: [SocketAddr; 2] = ["239.1.7.7:5007", "[ff15::7:7]:5007"].map(|group| group.parse().unwrap());
    let mut listeners = groups.map(|group| listener(far, group));
    let names = groups.map(|group| group.ip().into());
    let is_wanted = || names.iter().all(|name| wanted().contains(name));
    assert!(wait_for(|| is_wanted().then_some(())).is_some(), "{:?}\n{}", section(&pair, 1), pair.logs());
    assert_eq!(wanted().len(), 2, "groups of the section alone: {:?}", wanted());
    let before = section(&pair, 0).forwarded;
    send(near, "239.1.7.9:5007".parse().unwrap(), TTL, 0..20);
    let unwanted = || section(&pair, 0).dropped["unwanted"] >= 20;
    wait_until("packets of a group in which nobody is are heard", unwanted);
    assert_eq!(section(&pair, 0).forwarded, before);
    for (listener, group) in listeners.iter_mut().zip(groups) {
        let all_came = (0..TRIES as u32).any(|round| {
            let mut got = Got::new();
            send(near, group, TTL, round * 300..round * 300 + 300);
            let came = wait_for(|| {
                take(listener, &mut got);
                (got.len() == 300).then_some(())
            });
            assert!(got.values().all(|came| came.len() == 1), "{got:?}");
            came.is_some()
        });
        assert!(all_came, "{group}: {:?}\n{}", section(&pair, 0), pair.logs());
    }
    // The bridge of the sender's site sends groups only to members and routers, and the gateway is one.
    drop(listeners);
    let nothing = || wanted().is_empty();
    assert!(wait_for(|| nothing().then_some(())).is_some(), "{:?} {:?}", wanted(), section(&pair, 1));
    pair.stop().unwrap();
}

#[test]
fn a_reload_lets_groups_cross_and_ends_that_at_once() {
    if !privilege::available_or_skip("a_reload_lets_groups_cross_and_ends_that_at_once") {
        return;
    }
    let sites = sites(0.0);
    let mut pair = start_with(&sites, "");
    assert!(pair.status(0).unwrap().multicast.is_empty());
    (0..2).for_each(|side| reload(&mut pair, side, |text| text + FILE));
    let wanted = |pair: &GatewayPair| pair.status(0).unwrap().wanted_groups[0].count;
    wait_until("the far site wants its groups", || wanted(&pair) == 3);
    wait_until("the LAN is open", || (0..2).all(|side| section(&pair, side).open));
    cross(&sites, &pair, "239.1.7.7:5007", false);
    let crossed = section(&pair, 0).forwarded;
    // A section that stays as it was keeps its counts.
    reload(&mut pair, 0, |text| {
        text.replace("[code]\n", "[code]\nmax_delay_ms = 30\n").replace("max_delay_ms = 20\n", "")
    });
    assert_eq!(section(&pair, 0).forwarded, crossed);
    reload(&mut pair, 1, |text| text.replace(FILE, ""));
    wait_until("the far site wants nothing", || wanted(&pair) == 0);
    send(&sites.a.hosts[0], "239.1.7.7:5007".parse().unwrap(), TTL, 0..20);
    wait_until("nothing crosses", || section(&pair, 0).dropped["unwanted"] == 20);
    assert_eq!(section(&pair, 0).forwarded, crossed);
    pair.stop().unwrap();
}

#[test]
fn a_section_that_a_reload_moves_to_another_lan_forgets_the_hosts_of_the_first_one() {
    let name = "a_section_that_a_reload_moves_to_another_lan_forgets_the_hosts_of_the_first_one";
    if !privilege::available_or_skip(name) {
        return;
    }
    let sites = sites(0.0);
    let members = FILE.replace("\"all\"", "\"members\"");
    let mut pair = start_with(&sites, &members);
    let wanted = |pair: &GatewayPair| pair.status(0).unwrap().wanted_groups.remove(0).groups;
    let group: SocketAddr = "239.1.7.7:5007".parse().unwrap();
    let _listener = listener(&sites.b.hosts[0], group);
    wait_until("a host is in the group", || wanted(&pair) == [group.ip().into()]);
    ip(&sites.b.gateway, &["link", "add", "lan1", "type", "veth", "peer", "name", "lan1-far"]);
    ip(&sites.b.gateway, &["link", "set", "lan1", "up"]);
    ip(&sites.b.gateway, &["link", "set", "lan1-far", "up"]);
    reload(&mut pair, 1, |text| text.replace("interface = \"lan0\"", "interface = \"lan1\""));
    wait_until("nobody is in the group there", || wanted(&pair).is_empty());
    reload(&mut pair, 1, |text| text.replace("interface = \"lan1\"", "interface = \"lan0\""));
    wait_until("hosts are asked at once", || wanted(&pair) == [group.ip().into()]);
    pair.stop().unwrap();
}

#[test]
fn groups_cross_again_after_their_interface_was_gone() {
    if !privilege::available_or_skip("groups_cross_again_after_their_interface_was_gone") {
        return;
    }
    let sites = sites(0.0);
    let pair = start(&sites);
    let gateway = &sites.a.gateway;
    let rename = |from: &str, to: &str| {
        ip(gateway, &["link", "set", from, "down"]);
        ip(gateway, &["link", "set", from, "name", to]);
        ip(gateway, &["link", "set", to, "up"]);
    };
    rename("lan0", "away0");
    wait_until("the interface is gone", || !section(&pair, 0).open);
    let status = pair.status(0).unwrap();
    assert!(status.peers[0].up, "the gateway works on without it");
    // Packets for the LAN find none.
    send(&sites.b.hosts[0], "239.1.7.7:5007".parse().unwrap(), TTL, 0..20);
    wait_until("what comes is counted", || section(&pair, 0).unsent == 20);
    rename("away0", "lan0");
    wait_until("the interface is there again", || section(&pair, 0).open);
    cross(&sites, &pair, "239.1.7.7:5007", false);
    pair.stop().unwrap();
}
