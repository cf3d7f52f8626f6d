//! Paths between two gateways that are not as their files say, with real packets: boxes that rewrite packets,
//! detours, a repair channel that works in one direction or with another key.
#![allow(missing_docs, reason = "tests are named by what they show")]

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

use maelstrom::config::Schedule;
use maelstrom::status::PeerStatus;
use netlab::emulator::{Direction, EmulatorConfig};
use netlab::middlebox::{End as Address, MiddleBox, SideDoor, flow_hash, translate, udp_port};
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{
    Between, Pace, TcpTransfer, UdpReport, UdpStream, tcp_transfer, udp_stream, unwatched,
};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};

use crate::disturbance::undisturbed;
use crate::health::{health_of, reason};
use crate::pair::{PROGRAM, peer, wait_for_logs, wait_for_peer};

mod lengths;

const REWRITTEN: &str = "packets are rewritten on the way";
/// Number of flows of which some take another link.
const FLOWS: usize = 8;

/// Builds two sites on a link that loses packets by `loss`.
fn sites(loss: &str) -> TwoSites {
    let link = LinkConfig { delay_us: 5_000, loss: loss.parse().unwrap(), seed: 31, ..LinkConfig::default() };
    TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap()
}

fn start(sites: &TwoSites, setting: &Setting) -> GatewayPair {
    GatewayPair::start(Path::new(PROGRAM), &End::of(sites), setting).unwrap()
}

fn between(sites: &TwoSites) -> Between<'_> {
    Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) }
}

fn stream(sites: &TwoSites, rate: f64, seconds: u64) -> UdpReport {
    stream_of(sites, 400, rate, seconds)
}

fn stream_of(sites: &TwoSites, payload_bytes: usize, rate: f64, seconds: u64) -> UdpReport {
    let plan = UdpStream {
        pace: Pace::Packets(rate),
        payload_bytes,
        duration: Duration::from_secs(seconds),
        patience: Duration::from_secs(2),
        ..UdpStream::default()
    };
    udp_stream(between(sites), &plan, &mut unwatched).unwrap()
}

/// Streams of several flows at once.
fn streams(sites: &TwoSites, flows: usize, rate: f64, seconds: u64) -> Vec<UdpReport> {
    thread::scope(|scope| {
        let streams: Vec<_> = (0..flows).map(|_| scope.spawn(|| stream(sites, rate, seconds))).collect();
        streams.into_iter().map(|stream| stream.join().unwrap()).collect()
    })
}

fn has_finding(peer: &PeerStatus, cause: &str) -> bool {
    peer.ingress.path.findings.iter().any(|finding| finding.cause == cause && !finding.remedy.is_empty())
}

/// A NAT between the gateways that gives host A another address, and takes it back on the way back.
fn insert_nat(sites: &TwoSites, outside: Ipv4Addr) {
    let inside: Ipv4Addr = sites.a.host_v4(0).to_string().parse().unwrap();
    let nat = move |end, from, to| -> MiddleBox {
        Box::new(move |packet, exits| {
            let mut packet = packet.to_vec();
            translate(&mut packet, end, from, to);
            exits.forward(&packet);
        })
    };
    sites.link.set_middle_box(Direction::AToB, Some(nat(Address::Source, inside, outside)));
    sites.link.set_middle_box(Direction::BToA, Some(nat(Address::Destination, outside, inside)));
}

#[test]
fn a_nat_between_the_gateways_is_found_out_and_no_packet_is_delivered_twice() {
    if !privilege::available_or_skip(
        "a_nat_between_the_gateways_is_found_out_and_no_packet_is_delivered_twice",
    ) {
        return;
    }
    let sites = sites("none");
    let pair = start(&sites, &Setting::layered());
    insert_nat(&sites, Ipv4Addr::new(10, 81, 1, 200));
    let report = stream(&sites, 20.0, 6);
    assert_eq!(
        (report.duplicates, report.altered, report.missing()),
        (0, 0, 0),
        "of {}",
        report.sent_us.len()
    );
    let report = stream(&sites, 400.0, 2);
    assert_eq!((report.duplicates, report.missing()), (0, 0), "{:?}", peer(&pair, 1).ingress);
    wait_for_peer(&pair, 1, "the near end knows", |peer| {
        has_finding(peer, REWRITTEN) && !peer.ingress.path.recovering
    });
    wait_for_peer(&pair, 0, "the far end knows", |peer| {
        peer.far_path.findings.iter().any(|finding| finding.cause == REWRITTEN)
    });
    wait_for_logs(&pair, [REWRITTEN, REWRITTEN]);
    for (side, id) in [(1, "path_in"), (0, "path_out")] {
        let (code, document) = health_of(&pair, side);
        assert!(code == Some(1) && reason(&document, id).ends_with(REWRITTEN), "{document}");
    }
    let transfer = TcpTransfer {
        duration: Duration::from_secs(3),
        least_bytes: (1 << 20) + 1,
        ..TcpTransfer::default()
    };
    let transferred = tcp_transfer(between(&sites), &transfer, &mut unwatched).unwrap();
    assert_eq!(transferred.mismatch, None);
    assert!(transferred.forward.received_bytes() > 1 << 20, "the connection lives");
    // The NAT goes away; after a while without doubt, losses are recovered.
    for direction in Direction::BOTH {
        sites.link.set_middle_box(direction, None);
    }
    let mut attempts = 0;
    while !peer(&pair, 1).ingress.path.findings.is_empty() {
        stream(&sites, 400.0, 2);
        attempts += 1;
        assert!(attempts < 20, "{:?}", peer(&pair, 1).ingress);
    }
    sites.link.set_loss(Direction::AToB, &"uniform:0.02".parse().unwrap());
    let before = peer(&pair, 1).ingress.injected_packets;
    stream(&sites, 400.0, 4);
    assert!(peer(&pair, 1).ingress.injected_packets > before, "{:?}", peer(&pair, 1).ingress);
    pair.stop().unwrap();
}

/// The tap captures only packets from the networks of the peer, so that it sees none of these.
#[test]
fn a_nat_to_an_address_outside_of_the_site_is_found_out() {
    if !privilege::available_or_skip("a_nat_to_an_address_outside_of_the_site_is_found_out") {
        return;
    }
    let sites = sites("none");
    let pair = start(&sites, &Setting::layered());
    stream(&sites, 200.0, 1);
    insert_nat(&sites, Ipv4Addr::new(10, 81, 9, 77));
    let (mut sent, mut duplicates, mut attempts) = (0, 0, 0);
    while !has_finding(&peer(&pair, 1), REWRITTEN) {
        let report = stream(&sites, 100.0, 2);
        assert_eq!((report.altered, report.missing()), (0, 0));
        (sent, duplicates, attempts) =
            (sent + report.sent_us.len(), duplicates + report.duplicates, attempts + 1);
        assert!(attempts < 20, "{:?}\n{}", peer(&pair, 1).ingress, pair.logs());
    }
    assert!(duplicates <= 1, "{duplicates} of {sent} twice");
    wait_for_logs(&pair, [REWRITTEN, REWRITTEN]);
    pair.stop().unwrap();
}

/// Diverts the packets of host A that `is_diverted` selects: they reach gateway B by another device.
fn insert_detour(sites: &TwoSites, mut is_diverted: impl FnMut(&[u8]) -> bool + Send + 'static) {
    let door = SideDoor::open(&sites.b.gateway, "wan1", 1500).unwrap();
    let site: Vec<u8> = vec![10, 81, 1];
    sites.link.set_middle_box(
        Direction::AToB,
        Some(Box::new(move |packet, exits| {
            let is_of_a_host = packet.len() > 20 && packet[12..15] == site[..];
            if is_of_a_host && is_diverted(packet) {
                door.send(packet);
            } else {
                exits.forward(packet);
            }
        })),
    );
}

/// Asserts that no more packets arrive twice than `price`, which a new detour costs, and one in 1,000.
fn assert_few_doubles(pair: &GatewayPair, reports: &[UdpReport], price: u64, case: &str) {
    let sent: usize = reports.iter().map(|report| report.sent_us.len()).sum();
    let doubles: u64 = reports.iter().map(|report| report.duplicates).sum();
    let missing: usize = reports.iter().map(UdpReport::missing).sum();
    let ingress = peer(pair, 1).ingress;
    assert!(missing <= sent / 200, "{case}: {missing} of {sent} missing");
    // On a busy machine a packet may arrive later than its repair waits; the gateway sees and counts it.
    let doubles = doubles.saturating_sub(ingress.after_recovery);
    assert!(doubles <= price + sent as u64 / 1_000, "{case}: {doubles} of {sent} twice\n{ingress:?}");
}

/// Streams [`FLOWS`] flows of which `diverted` reach gateway B by another device.
fn flows_that_take_another_link(test: &str, schedule: Schedule, diverted: usize) {
    if !privilege::available_or_skip(test) {
        return;
    }
    let sites = sites("none");
    let pair = start(&sites, &Setting { schedule, ..Setting::layered() });
    let mut flows = Vec::new();
    insert_detour(&sites, move |packet| {
        let flow = flow_hash(packet);
        let known = flows.iter().position(|&other| other == flow);
        let at = known.unwrap_or_else(|| {
            flows.push(flow);
            flows.len() - 1
        });
        at % FLOWS < diverted
    });
    let reports = streams(&sites, FLOWS, 120.0, 4);
    assert_few_doubles(&pair, &reports, 8, test);
    if diverted == FLOWS {
        wait_for_peer(&pair, 1, "it is told", |peer| has_finding(peer, "packets take another path"));
        let (code, document) = health_of(&pair, 1);
        let text = reason(&document, "path_in");
        assert!(code == Some(1) && text.ends_with("packets take another path"), "{document}");
    }
    pair.stop().unwrap();
}

fn wide_window() -> Schedule {
    Schedule::Sliding { rate: "1".parse().unwrap(), window: 256, density: 15 }
}

testkit::cases! { flows_that_take_another_link:
    one_flow_on_another_link_is_not_delivered_twice(Schedule::layered(), 1);
    half_of_the_flows_on_another_link_is_not_delivered_twice(Schedule::layered(), FLOWS / 2);
    flows_that_all_take_another_link_are_not_delivered_twice(Schedule::layered(), FLOWS);
    one_flow_on_another_link_is_not_delivered_twice_by_a_window(wide_window(), 1);
    half_of_the_flows_on_another_link_is_not_delivered_twice_by_a_window(wide_window(), FLOWS / 2);
    flows_that_all_take_another_link_are_not_delivered_twice_by_a_window(wide_window(), FLOWS);
}

#[test]
fn packets_sprayed_over_two_links_are_rarely_delivered_twice() {
    if !privilege::available_or_skip("packets_sprayed_over_two_links_are_rarely_delivered_twice") {
        return;
    }
    let sites = sites("none");
    let pair = start(&sites, &Setting { schedule: wide_window(), ..Setting::layered() });
    let mut turn = 0;
    insert_detour(&sites, move |_| {
        turn += 1;
        turn % 2 == 0
    });
    let reports = streams(&sites, 2, 500.0, 6);
    // Recovery waits after 9 · (n + ½) packets, with n = 1 packet for each repair. Then one flow may be set
    // aside, and half as many packets of the other one follow.
    assert_few_doubles(&pair, &reports, 14 + 7, "every second packet");
    wait_for_peer(&pair, 1, "it is told", |peer| !peer.ingress.path.findings.is_empty());
    wait_for_logs(&pair, ["another path", "another path"]);
    pair.stop().unwrap();
}

#[test]
fn heavy_losses_are_recovered_though_they_look_like_a_detour() {
    if !privilege::available_or_skip("heavy_losses_are_recovered_though_they_look_like_a_detour") {
        return;
    }
    let sites = sites("uniform:0.2");
    let pair = start(&sites, &Setting { schedule: wide_window(), ..Setting::layered() });
    let report = undisturbed(&pair, || stream(&sites, 500.0, 4));
    assert!(report.missing() <= 60, "{} of 2,000, 400 lost\n{:?}", report.missing(), peer(&pair, 1).ingress);
    assert!(peer(&pair, 1).ingress.path.recovering);
    pair.stop().unwrap();
}

/// A packet filter between the gateways lets one flow of host A pass, and no new ones.
#[test]
fn what_a_filter_between_the_gateways_drops_is_not_recovered() {
    if !privilege::available_or_skip("what_a_filter_between_the_gateways_drops_is_not_recovered") {
        return;
    }
    let sites = sites("uniform:0.08");
    let pair = start(&sites, &Setting { schedule: wide_window(), ..Setting::layered() });
    let mut permitted = None;
    sites.link.set_middle_box(
        Direction::AToB,
        Some(Box::new(move |packet, exits| {
            let is_of_a_host = packet.len() > 20 && packet[12..15] == [10, 81, 1];
            if !is_of_a_host || *permitted.get_or_insert(flow_hash(packet)) == flow_hash(packet) {
                exits.forward(packet);
            }
        })),
    );
    let brief = UdpStream {
        pace: Pace::Packets(200.0),
        payload_bytes: 400,
        duration: Duration::from_millis(20),
        patience: Duration::from_millis(50),
        ..UdpStream::default()
    };
    let (long, new) = thread::scope(|scope| {
        let long = scope.spawn(|| stream(&sites, 400.0, 5));
        wait_for_peer(&pair, 1, "losses are recovered", |peer| peer.ingress.injected_packets > 20);
        let new: Vec<_> =
            (0..40).map(|_| udp_stream(between(&sites), &brief, &mut unwatched).unwrap()).collect();
        (long.join().unwrap(), new)
    });
    let passed: usize = new.iter().map(|report| report.arrived_us.len()).sum();
    assert_eq!(passed, 0, "{:?}", peer(&pair, 1).ingress);
    let held_back = peer(&pair, 1).ingress.withheld["unseen_flow"];
    assert!(held_back > 20, "{held_back}");
    assert!(long.missing() <= 40, "{} of 2,000, 160 lost", long.missing());
    pair.stop().unwrap();
}

/// Drops the datagrams of the repair channel in one direction.
fn block_repairs(sites: &TwoSites, is_blocked: bool) {
    sites.link.set_middle_box(
        Direction::AToB,
        is_blocked.then(|| -> MiddleBox {
            Box::new(|packet, exits| {
                if udp_port(packet) != Some(4700) {
                    exits.forward(packet);
                }
            })
        }),
    );
}

#[test]
fn both_ends_know_that_repairs_arrive_in_one_direction_only() {
    if !privilege::available_or_skip("both_ends_know_that_repairs_arrive_in_one_direction_only") {
        return;
    }
    let sites = sites("none");
    let mut pair = start(&sites, &Setting::layered());
    block_repairs(&sites, true);
    let is_told = |peer: &PeerStatus, cause: &str| {
        !peer.up && peer.trouble.as_ref().is_some_and(|trouble| trouble.cause == cause)
    };
    wait_for_peer(&pair, 0, "the sender knows", |peer| {
        is_told(peer, "the peer receives no datagram of ours")
    });
    wait_for_peer(&pair, 1, "the receiver knows", |peer| is_told(peer, "no datagram of the peer arrives"));
    wait_for_logs(&pair, ["the peer receives no datagram of ours", "no datagram of the peer arrives"]);
    let before = peer(&pair, 0).egress.source_packets;
    stream(&sites, 200.0, 1);
    assert_eq!(peer(&pair, 0).egress.source_packets, before, "nothing counts as protected");
    block_repairs(&sites, false);
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    wait_for_peer(&pair, 0, "the trouble is over", |peer| peer.trouble.is_none());
    pair.stop().unwrap();
}

#[test]
fn a_wrong_key_is_told_at_both_ends() {
    if !privilege::available_or_skip("a_wrong_key_is_told_at_both_ends") {
        return;
    }
    let sites = sites("none");
    let ends = End::of(&sites);
    let mut pair = GatewayPair::prepare(Path::new(PROGRAM), &ends, &Setting::layered()).unwrap();
    let config = pair.config(1);
    let other = config.with_file_name("other.key");
    let made = std::process::Command::new(PROGRAM)
        .args(["gateway", "genkey", "--out"])
        .arg(&other)
        .output()
        .unwrap();
    assert!(made.status.success());
    let text = fs::read_to_string(&config).unwrap().replace("peer.key", "other.key");
    fs::write(&config, text).unwrap();
    for (side, end) in ends.iter().enumerate() {
        pair.launch(side, end.namespace).unwrap();
    }
    wait_for_logs(&pair, ["its key differs"; 2]);
    wait_for_logs(
        &pair,
        ["from 10.81.9.2 failed the key of the peer", "from 10.81.9.1 failed the key of the peer"],
    );
    for side in 0..2 {
        wait_for_peer(&pair, side, "the status tells it", |peer| {
            peer.wrong_key > 0
                && peer.trouble.as_ref().is_some_and(|trouble| trouble.remedy.contains("key file"))
        });
        let (code, document) = health_of(&pair, side);
        assert_eq!((code, &document["state"]), (Some(2), &"down".into()), "{document}");
        assert_eq!(document["reasons"][0]["id"], "peer_down");
    }
    pair.stop().unwrap();
}

#[test]
fn a_nat_of_the_repair_channel_is_told() {
    if !privilege::available_or_skip("a_nat_of_the_repair_channel_is_told") {
        return;
    }
    let sites = sites("none");
    let ends = End::of(&sites);
    let inside: Ipv4Addr = sites.a.wan_v4().to_string().parse().unwrap();
    sites.link.set_middle_box(
        Direction::AToB,
        Some(Box::new(move |packet, exits| {
            let mut packet = packet.to_vec();
            if udp_port(&packet) == Some(4700) {
                translate(&mut packet, Address::Source, inside, Ipv4Addr::new(10, 81, 9, 77));
            }
            exits.forward(&packet);
        })),
    );
    let mut pair = GatewayPair::prepare(Path::new(PROGRAM), &ends, &Setting::layered()).unwrap();
    for (side, end) in ends.iter().enumerate() {
        pair.launch(side, end.namespace).unwrap();
    }
    wait_for_logs(&pair, ["the peer receives no datagram of ours", "arrive from 10.81.9.77:4700"]);
    pair.stop().unwrap();
}
