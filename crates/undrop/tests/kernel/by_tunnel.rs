//! Peers in tunnel mode: packets travel inside datagrams of the two gateways.

use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use loss::LossModel;
use maelstrom::status::PeerStatus;
use netlab::Namespace;
use netlab::emulator::EmulatorConfig;
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{
    Between, MessageStream, Pace, TcpTransfer, UdpReport, UdpStream, message_stream, tcp_transfer,
    udp_stream, unwatched,
};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting, between};
use testkit::wait_until;

use crate::disturbance::undisturbed;
use crate::firewall::lab::possible;
use crate::pair::{PROGRAM, peer, reload, wait_for_log, wait_until_up};
use crate::upgrade::{Successors, upgrade_by};

/// The device of the tunnel.
const DEVICE: &str = "undrop1";

/// Builds sites whose gateways know no other way to each other's hosts.
pub(crate) fn apart(loss: f64) -> TwoSites {
    apart_with(loss, &TwoSitesConfig::default())
}

/// The same with other sites.
pub(crate) fn apart_with(loss: f64, config: &TwoSitesConfig) -> TwoSites {
    let loss = LossModel::Uniform(loss);
    let link =
        LinkConfig { rate_bps: Some(200_000_000), delay_us: 5_000, loss, seed: 5, ..LinkConfig::default() };
    let sites = TwoSites::build(config, &EmulatorConfig::symmetric(link)).unwrap();
    for (near, far) in [(&sites.a, &sites.b), (&sites.b, &sites.a)] {
        for network in far.networks() {
            let family = if network.addr().is_ipv4() { "-4" } else { "-6" };
            ip(&near.gateway, &[family, "route", "del", &network.to_string()]);
        }
    }
    sites
}

pub(crate) fn ip(namespace: &Namespace, arguments: &[&str]) -> String {
    let output = namespace.run(|| Command::new("ip").args(arguments).output()).unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn start(sites: &TwoSites) -> GatewayPair {
    let ends = End::of(sites);
    let mut pair = GatewayPair::prepare(PROGRAM.as_ref(), &ends, &Setting::default()).unwrap();
    for side in 0..2 {
        in_tunnel_mode(&pair, side);
    }
    for (side, end) in ends.iter().enumerate() {
        pair.launch(side, end.namespace).unwrap();
    }
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    pair
}

pub(crate) fn in_tunnel_mode(pair: &GatewayPair, side: usize) {
    let text = fs::read_to_string(pair.config(side)).unwrap();
    fs::write(pair.config(side), text.replace("mode = \"passive\"", "mode = \"tunnel\"")).unwrap();
}

fn stream(sites: &TwoSites, per_second: f64, payload_bytes: usize) -> UdpReport {
    stream_to(sites, sites.b.host_v4(0), per_second, payload_bytes)
}

fn stream_to(sites: &TwoSites, address: IpAddr, per_second: f64, payload_bytes: usize) -> UdpReport {
    let plan = UdpStream {
        pace: Pace::Packets(per_second),
        payload_bytes,
        duration: Duration::from_secs(3),
        patience: Duration::from_secs(1),
        ..UdpStream::default()
    };
    udp_stream(Between { address, ..between(sites) }, &plan, &mut unwatched).unwrap()
}

#[test]
fn packets_of_both_families_and_of_tcp_cross_a_lossy_path_in_a_tunnel() {
    let name = "packets_of_both_families_and_of_tcp_cross_a_lossy_path_in_a_tunnel";
    if !privilege::available_or_skip(name) {
        return;
    }
    let sites = apart(0.02);
    let pair = start(&sites);
    let report = undisturbed(&pair, || stream(&sites, 1_000.0, 1_000));
    assert_eq!((report.missing(), report.duplicates, report.altered), (0, 0, 0), "{}", pair.logs());
    let status = peer(&pair, 1);
    assert!(status.ingress.source_packets >= 2_900 && status.ingress.loss.lost > 20, "{status:?}");
    let (congestion, duration) = (Some("cubic".to_owned()), Duration::from_secs(2));
    let transfer = TcpTransfer { congestion, duration, least_bytes: 100_001, ..TcpTransfer::default() };
    let report = tcp_transfer(between(&sites), &transfer, &mut unwatched).unwrap();
    assert!(report.mismatch.is_none() && report.forward.received_bytes() > 100_000, "{report:?}");
    // After TCP at full speed, a slow machine protects only a part of the flows for a while.
    let all_came = (0..5).any(|_| {
        let report = stream_to(&sites, sites.b.host_v6(0), 500.0, 1_300);
        assert_eq!((report.duplicates, report.altered), (0, 0), "{}", pair.logs());
        report.missing() == 0
    });
    assert!(all_came, "{}", pair.logs());
    let datagrams = |peer: &PeerStatus| peer.egress.tunnel.as_ref().expect("it is a tunnel").datagrams;
    assert!(datagrams(&peer(&pair, 0)) > 0);
    pair.stop().unwrap();
}

/// Whether packets arrived in the order in which they were sent.
fn is_in_order(report: &UdpReport) -> bool {
    let arrived =
        report.sent_us.iter().zip(&report.latencies_us).filter_map(|(us, late)| Some(us + (*late)?));
    arrived.is_sorted()
}

#[test]
fn packets_come_in_order_where_the_file_asks_for_it() {
    if !privilege::available_or_skip("packets_come_in_order_where_the_file_asks_for_it") {
        return;
    }
    let sites = apart(0.03);
    let mut pair = start(&sites);
    // An emulator that is late now and then looks like a queue.
    reload(&mut pair, 1, |text| text.replace("[code]\n", "[code]\ncongestion = \"mask\"\n"));
    let report = stream(&sites, 1_000.0, 1_000);
    assert!(!is_in_order(&report), "recovered packets come late");
    assert_eq!(peer(&pair, 1).ingress.resequence, None);
    reload(&mut pair, 1, |text| text.replace("key_file =", "resequence_ms = 500\nkey_file ="));
    let report = undisturbed(&pair, || stream(&sites, 1_000.0, 1_000));
    let order = peer(&pair, 1).ingress.resequence.expect("the file asks for it");
    assert_eq!((report.missing(), report.duplicates, report.altered), (0, 0, 0), "{}", pair.logs());
    assert!(is_in_order(&report) && order.held > 20, "{order:?}");
    // TCP takes what was held, and segments that were recovered in front of it.
    let transfer =
        TcpTransfer { duration: Duration::from_secs(2), least_bytes: 100_001, ..TcpTransfer::default() };
    let report = tcp_transfer(between(&sites), &transfer, &mut unwatched).unwrap();
    assert!(report.mismatch.is_none() && report.forward.received_bytes() > 100_000, "{report:?}");
    pair.stop().unwrap();
}

/// Marks some of the datagrams that arrive: of those that may be marked, and of those that must not.
const MARKS: &str = "add table ip marks; \
    add chain ip marks pre { type filter hook prerouting priority mangle; policy accept; }; \
    add rule ip marks pre udp dport 4700 ip ecn ect0 limit rate 200/second ip ecn set ce; \
    add rule ip marks pre udp dport 4700 ip ecn not-ect udp length 900-1200 limit rate 20/second ip ecn set ce";

/// Packets that have arrived at a host with a mark of congestion.
fn marked(host: &Namespace) -> u64 {
    let text = host.run(|| fs::read_to_string("/proc/thread-self/net/netstat")).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let of_ip: Vec<_> = lines.iter().filter(|line| line[0] == "IpExt:").collect();
    let at = of_ip[0].iter().position(|&name| name == "InCEPkts").expect("the kernel counts marks");
    of_ip[1][at].parse().unwrap()
}

#[test]
fn marks_of_the_path_reach_the_hosts_and_those_that_must_not_be_are_dropped() {
    if !possible("marks_of_the_path_reach_the_hosts_and_those_that_must_not_be_are_dropped") {
        return;
    }
    let sites = apart(0.0);
    let pair = start(&sites);
    let host = &sites.b.hosts[0];
    for host in [&sites.a.hosts[0], host] {
        host.sysctl("net.ipv4.tcp_ecn", "1").unwrap();
    }
    assert!(sites.b.gateway.run(|| Command::new("nft").arg(MARKS).status()).unwrap().success());
    let (congestion, duration) = (Some("cubic".to_owned()), Duration::from_secs(2));
    let transfer = TcpTransfer { congestion, duration, least_bytes: 100_001, ..TcpTransfer::default() };
    let report = tcp_transfer(between(&sites), &transfer, &mut unwatched).unwrap();
    assert!(report.mismatch.is_none() && report.forward.received_bytes() > 100_000, "{report:?}");
    // The host first, which may get more meanwhile.
    let at_host = marked(host);
    let seen = peer(&pair, 1).ingress.congestion;
    assert!(at_host > 20 && seen.path_marked >= at_host, "{at_host} {seen:?}");
    // Datagrams of UDP, which does not understand marks.
    let mut before = peer(&pair, 1).ingress;
    let report = undisturbed(&pair, || {
        before = peer(&pair, 1).ingress;
        stream(&sites, 200.0, 1_000)
    });
    let status = peer(&pair, 1);
    let seen = status.ingress.congestion.path_dropped - before.congestion.path_dropped;
    assert_eq!((report.missing() as u64, report.duplicates, report.altered), (seen, 0, 0), "{status:?}");
    assert!(seen > 20 && status.ingress.injected_packets == before.injected_packets, "{status:?}");
    wait_for_log(&pair, "datagrams for congestion that must not be marked");
    pair.stop().unwrap();
}

#[test]
fn the_routes_disappear_with_the_process_however_it_ends() {
    if !privilege::available_or_skip("the_routes_disappear_with_the_process_however_it_ends") {
        return;
    }
    let sites = apart(0.0);
    let mut pair = start(&sites);
    let routes = || ip(&sites.a.gateway, &["route"]) + &ip(&sites.a.gateway, &["-6", "route"]);
    for network in sites.b.networks() {
        assert!(routes().contains(&format!("{network} dev {DEVICE}")), "{}", routes());
    }
    pair.kill(0).unwrap();
    wait_until("the device is gone", || !routes().contains(DEVICE));
    pair.launch(0, &sites.a.gateway).unwrap();
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    assert_eq!(undisturbed(&pair, || stream(&sites, 200.0, 500)).missing(), 0, "{}", pair.logs());
    // A peer without routes by the gateway: those that are there go.
    reload(&mut pair, 0, |text| text.replace("key_file =", "route = false\nkey_file ="));
    wait_until("the routes are gone", || !routes().contains(&format!("10.81.2.0/24 dev {DEVICE}")));
    ip(&sites.a.gateway, &["route", "add", "10.81.2.0/24", "dev", DEVICE]);
    assert_eq!(undisturbed(&pair, || stream(&sites, 200.0, 500)).missing(), 0, "{}", pair.logs());
    pair.stop().unwrap();
}

#[test]
fn a_route_that_is_in_the_way_is_named_with_its_remedy() {
    if !privilege::available_or_skip("a_route_that_is_in_the_way_is_named_with_its_remedy") {
        return;
    }
    let sites = apart(0.0);
    let ends = End::of(&sites);
    ip(&sites.a.gateway, &["route", "add", "blackhole", "10.81.2.0/24"]);
    let mut pair = GatewayPair::prepare(PROGRAM.as_ref(), &ends, &Setting::default()).unwrap();
    in_tunnel_mode(&pair, 0);
    pair.launch(0, ends[0].namespace).unwrap();
    wait_for_log(&pair, "ip route delete 10.81.2.0/24 metric 0");
    wait_for_log(&pair, "set `route = false`");
}

#[test]
fn both_ends_say_that_their_files_state_different_modes() {
    if !privilege::available_or_skip("both_ends_say_that_their_files_state_different_modes") {
        return;
    }
    let sites = apart(0.0);
    let ends = End::of(&sites);
    let mut pair = GatewayPair::prepare(PROGRAM.as_ref(), &ends, &Setting::default()).unwrap();
    in_tunnel_mode(&pair, 0);
    for (side, end) in ends.iter().enumerate() {
        pair.launch(side, end.namespace).unwrap();
    }
    for side in 0..2 {
        wait_until("the trouble is told", || {
            let status = pair.status(side).ok().map(|mut status| status.peers.remove(0));
            status.and_then(|peer| peer.trouble).is_some_and(|trouble| trouble.cause.contains("another mode"))
        });
    }
    reload(&mut pair, 1, |text| text.replace("mode = \"passive\"", "mode = \"tunnel\""));
    wait_until_up(&pair);
    assert_eq!(undisturbed(&pair, || stream(&sites, 200.0, 500)).missing(), 0, "{}", pair.logs());
    pair.stop().unwrap();
}

#[test]
fn packets_of_both_families_cross_in_datagrams_of_ipv6() {
    if !privilege::available_or_skip("packets_of_both_families_cross_in_datagrams_of_ipv6") {
        return;
    }
    let sites = apart(0.01);
    let mut ends = End::of(&sites);
    for (end, address) in ends.iter_mut().zip([sites.a.wan_v6(), sites.b.wan_v6()]) {
        end.listen.set_ip(address);
    }
    let mut pair = GatewayPair::prepare(PROGRAM.as_ref(), &ends, &Setting::default()).unwrap();
    for (side, end) in ends.iter().enumerate() {
        in_tunnel_mode(&pair, side);
        pair.launch(side, end.namespace).unwrap();
    }
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    // Datagrams over IPv6 have 20 bytes less for packets.
    let mtu = ip(&sites.a.gateway, &["link", "show", DEVICE]);
    assert!(mtu.contains(" mtu 1389 "), "{mtu}");
    for address in [sites.b.host_v4(0), sites.b.host_v6(0)] {
        let all_came = (0..5).any(|_| {
            let report = stream_to(&sites, address, 500.0, 1_200);
            assert_eq!((report.duplicates, report.altered), (0, 0), "{}", pair.logs());
            report.missing() == 0
        });
        assert!(all_came, "{address}: {}", pair.logs());
    }
    assert!(peer(&pair, 1).ingress.injected_packets > 5);
    pair.stop().unwrap();
}

/// Drops the messages by which routers tell hosts of a narrow path.
const UNTOLD: &str = "add table inet untold; \
    add chain inet untold input { type filter hook input priority 0; policy accept; }; \
    add rule inet untold input icmp type destination-unreachable drop; \
    add rule inet untold input icmpv6 type packet-too-big drop";

#[test]
fn tcp_of_hosts_with_longer_packets_crosses_although_nobody_tells_them_of_the_mtu() {
    if !possible("tcp_of_hosts_with_longer_packets_crosses_although_nobody_tells_them_of_the_mtu") {
        return;
    }
    let sites = apart_with(0.005, &TwoSitesConfig { lan_mtu: 1_500, ..TwoSitesConfig::default() });
    for host in [&sites.a.hosts[0], &sites.b.hosts[0]] {
        assert!(host.run(|| Command::new("nft").arg(UNTOLD).status()).unwrap().success());
    }
    let pair = start(&sites);
    wait_until("segments are limited", || {
        (0..2).all(|side| pair.status(side).unwrap().gateway.mtu == "managed")
    });
    let duration = Duration::from_secs(2);
    let transfer = TcpTransfer {
        congestion: Some("cubic".to_owned()),
        duration,
        least_bytes: 100_001,
        ..TcpTransfer::default()
    };
    for address in [sites.b.host_v4(0), sites.b.host_v6(0)] {
        let report = tcp_transfer(Between { address, ..between(&sites) }, &transfer, &mut unwatched).unwrap();
        assert!(report.mismatch.is_none() && report.forward.received_bytes() > 100_000, "{report:?}");
    }
    pair.stop().unwrap();
}

#[test]
fn a_tunnel_is_handed_over_under_traffic_and_hosts_notice_nothing() {
    let name = "a_tunnel_is_handed_over_under_traffic_and_hosts_notice_nothing";
    if !privilege::available_or_skip(name) {
        return;
    }
    // A busy machine needs seconds for each process.
    let is_done = [10, 20, 40].map(Duration::from_secs).into_iter().any(hand_over_under_traffic);
    assert!(is_done, "the gateways were not handed over while packets came, in 40 seconds");
}

/// Returns false if the streams of this length ended before all gateways had handed over.
fn hand_over_under_traffic(duration: Duration) -> bool {
    let sites = apart(0.02);
    let pair = start(&sites);
    let before = [0, 1].map(|side| peer(&pair, side).sessions);
    let routes = ip(&sites.a.gateway, &["route", "show", "dev", DEVICE]);
    let mut successors = Successors::default();
    let messages = MessageStream { duration, ..MessageStream::default() };
    let plan = UdpStream {
        pace: Pace::Packets(500.0),
        payload_bytes: 700,
        duration,
        patience: Duration::from_secs(1),
        ..UdpStream::default()
    };
    let (report, delivered, is_slow) = thread::scope(|scope| {
        let datagrams = scope.spawn(|| udp_stream(between(&sites), &plan, &mut unwatched).unwrap());
        let stream = scope.spawn(|| message_stream(between(&sites), &messages, &mut unwatched).unwrap());
        for side in [0, 1, 0] {
            let count = |pair: &GatewayPair| peer(pair, side).ingress.source_packets;
            let seen = count(&pair);
            wait_until("packets come by the tunnel", || datagrams.is_finished() || count(&pair) > seen + 20);
            successors
                .add(upgrade_by(&pair.config(side)).unwrap_or_else(|said| panic!("{said}\n{}", pair.logs())));
        }
        let is_slow = datagrams.is_finished();
        (datagrams.join().unwrap(), stream.join().unwrap(), is_slow)
    });
    assert_eq!((report.duplicates, report.altered), (0, 0), "{}", pair.logs());
    // The link loses one of 50 packets, and some of these stay lost.
    let lost_max = 3 * duration.as_secs() as usize;
    assert!(report.missing() < lost_max, "{} are missing\n{}", report.missing(), pair.logs());
    assert_eq!(delivered.missing(), 0, "a connection lives");
    assert_eq!([0, 1].map(|side| peer(&pair, side).sessions), before, "{}", pair.logs());
    assert_eq!(ip(&sites.a.gateway, &["route", "show", "dev", DEVICE]), routes);
    successors.stop();
    // The device ends with the last process.
    let links = || ip(&sites.a.gateway, &["-oneline", "link"]);
    wait_until("the device is gone", || !links().contains(DEVICE));
    pair.stop().unwrap();
    !is_slow
}
