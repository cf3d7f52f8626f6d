//! Two gateways as an operator runs them, with real packets through namespaces and a lossy link.
#![allow(missing_docs, reason = "tests are named by what they show")]

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;
use std::{fs, iter};

use loss::LossModel;
use maelstrom::config::Schedule;
use netlab::emulator::{Direction, EmulatorConfig};
use netlab::privilege;
use netlab::topology::{LAN, TwoSites, TwoSitesConfig};
use netlab::traffic::{
    Between, Pace, TcpTransfer, UdpReport, UdpStream, tcp_transfer, udp_stream, unwatched,
};
use nix::sys::signal::Signal;
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};
use testkit::wait_until;

use crate::by_tunnel::ip;
use crate::disturbance::{assert_duplicates_arrived_late, undisturbed};
use crate::health::{health_of, reason};
use crate::pair::{PROGRAM, peer, refuse_reload, reload, wait_for_peer, wait_until_up};

/// Builds two sites on a fast link of 20 ms, with losses by the model `loss` from the random seed `seed`.
fn sites(loss: &str, seed: u64) -> TwoSites {
    let loss: LossModel = loss.parse().unwrap();
    let link =
        LinkConfig { rate_bps: Some(200_000_000), delay_us: 20_000, loss, seed, ..LinkConfig::default() };
    TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap()
}

fn start(sites: &TwoSites, setting: &Setting) -> GatewayPair {
    GatewayPair::start(Path::new(PROGRAM), &End::of(sites), setting).unwrap()
}

fn between(sites: &TwoSites, v6: bool) -> Between<'_> {
    let address = if v6 { sites.b.host_v6(0) } else { sites.b.host_v4(0) };
    Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address }
}

fn stream(sites: &TwoSites, v6: bool, payload_bytes: usize, seconds: u64) -> UdpReport {
    let plan = UdpStream {
        pace: Pace::Packets(1_000.0),
        payload_bytes,
        duration: Duration::from_secs(seconds),
        patience: Duration::from_secs(1),
        ..UdpStream::default()
    };
    udp_stream(between(sites, v6), &plan, &mut unwatched).unwrap()
}

fn lost_on_the_link(sites: &TwoSites) -> u64 {
    sites.link.counters(Direction::AToB).link.lost
}

/// Asserts that at most four of 2,000 packets, of which the link loses about 40, are missing.
fn assert_recovered(sites: &TwoSites, pair: &GatewayPair, v6: bool) {
    let report = undisturbed(pair, || {
        let before = lost_on_the_link(sites);
        let report = stream(sites, v6, 1_000, 2);
        assert!(lost_on_the_link(sites) > before + 20, "the link must lose packets");
        report
    });
    assert_eq!(report.altered, 0, "every packet that arrives was sent");
    assert!(
        report.missing() <= 4,
        "{} of {} are missing\n{:?}\n{}",
        report.missing(),
        report.sent_us.len(),
        peer(pair, 1).ingress,
        pair.logs()
    );
}

fn losses_are_recovered(test: &str, tap: &'static str, v6: bool) {
    if !privilege::available_or_skip(test) {
        return;
    }
    let sites = sites("uniform:0.02", 11);
    let pair = start(&sites, &Setting { tap, ..Setting::default() });
    assert_recovered(&sites, &pair, v6);
    pair.stop().unwrap();
}

testkit::cases! { losses_are_recovered:
    losses_over_ipv4_are_recovered_with_the_packet_tap("packet", false);
    losses_over_ipv6_are_recovered_with_the_default_tap("auto", true);
}

#[test]
fn fragments_are_recovered_like_any_packet() {
    if !privilege::available_or_skip("fragments_are_recovered_like_any_packet") {
        return;
    }
    let sites = sites("uniform:0.02", 12);
    // By default a host drops a packet whose fragments arrive too many packets apart.
    sites.b.hosts[0].sysctl("net.ipv4.ipfrag_max_dist", "0").unwrap();
    let pair = start(&sites, &Setting::layered());
    // Each datagram has three fragments, so that about 6 % of the datagrams would be lost.
    let report = undisturbed(&pair, || stream(&sites, false, 3_500, 3));
    assert_eq!(report.altered, 0);
    assert!(
        report.missing() <= 15,
        "{} of {} are missing\n{:?}",
        report.missing(),
        report.sent_us.len(),
        peer(&pair, 1).ingress
    );
    pair.stop().unwrap();
}

#[test]
fn tcp_and_a_stream_survive_when_either_gateway_is_killed() {
    if !privilege::available_or_skip("tcp_and_a_stream_survive_when_either_gateway_is_killed") {
        return;
    }
    let sites = sites("uniform:0.002", 13);
    let mut pair = start(&sites, &Setting::layered());
    let transfer = TcpTransfer {
        congestion: Some("cubic".into()),
        duration: Duration::from_secs(9),
        ..TcpTransfer::default()
    };
    let (transferred, streamed) = thread::scope(|scope| {
        let transfer = scope.spawn(|| tcp_transfer(between(&sites, false), &transfer, &mut unwatched));
        let streamed = scope.spawn(|| stream(&sites, false, 100, 9));
        for side in [0, 1] {
            thread::sleep(Duration::from_secs(2));
            pair.kill(side).unwrap();
            thread::sleep(Duration::from_millis(1_500));
            pair.launch(side, End::of(&sites)[side].namespace).unwrap();
        }
        pair.wait_until_up(Duration::from_secs(20)).unwrap();
        (transfer.join().unwrap().unwrap(), streamed.join().unwrap())
    });
    assert_eq!(transferred.mismatch, None, "the connection continues, bit for bit");
    let last = transferred.forward.samples.last().unwrap();
    let before =
        transferred.forward.samples.iter().rfind(|sample| sample.elapsed_us + 1_500_000 < last.elapsed_us);
    assert!(
        before.is_some_and(|before| before.received_bytes < last.received_bytes),
        "bytes flow to the end"
    );
    // No packet of the stream waits for a dead gateway: only packets that the link lost are missing.
    assert_eq!(streamed.altered, 0);
    assert!(streamed.missing() < streamed.sent_us.len() / 50, "{} are missing", streamed.missing());
    // Both gateways protect again.
    sites.link.set_loss(Direction::AToB, &"uniform:0.02".parse().unwrap());
    assert_recovered(&sites, &pair, false);
    pair.stop().unwrap();
}

#[test]
fn noise_on_the_repair_port_is_counted_and_injects_nothing() {
    if !privilege::available_or_skip("noise_on_the_repair_port_is_counted_and_injects_nothing") {
        return;
    }
    let sites = sites("uniform:0.02", 14);
    let pair = start(&sites, &Setting::layered());
    // The noise comes from the address of gateway A, which a gateway must not trust.
    let target = SocketAddr::new(sites.b.wan_v4(), 4700);
    sites.a.gateway.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for round in 0..3_000u32 {
            let kind = [0x61, 0x62, 0x00, 0xff][round as usize % 4];
            let noise = iter::once(kind).chain((0..round % 200).map(|at| (at * 31 + round) as u8));
            socket.send_to(&noise.collect::<Vec<u8>>(), target).unwrap();
            if round % 50 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    assert_recovered(&sites, &pair, false);
    let status = pair.status(1).unwrap();
    let rejected: u64 = status.rejected.values().sum();
    assert!(rejected > 1_000, "{:?}", status.rejected);
    assert_eq!(status.peers[0].ingress.unused_repairs["wrong_recovery"], 0);
    pair.stop().unwrap();
}

#[test]
fn a_reload_accepts_a_good_file_and_refuses_a_bad_one() {
    if !privilege::available_or_skip("a_reload_accepts_a_good_file_and_refuses_a_bad_one") {
        return;
    }
    let sites = sites("uniform:0.02", 15);
    let mut pair = start(&sites, &Setting::layered());
    refuse_reload(&mut pair, 0, |text| text.replace("r = 8", "r = 800"));
    let sessions = peer(&pair, 1).sessions;
    reload(&mut pair, 0, |text| text.replace("interleaves = [1, 11, 19]", "interleaves = [1]"));
    assert_eq!(pair.status(0).unwrap().counters["reloads_refused"], 1);
    // Other interleaves need other sizes, and so a new session.
    wait_for_peer(&pair, 1, "there is a new session", |peer| peer.sessions > sessions);
    wait_until_up(&pair);
    let before = peer(&pair, 0).egress;
    // One layer recovers five of six losses at this rate.
    let mut lost = 0;
    let report = undisturbed(&pair, || {
        let before = lost_on_the_link(&sites);
        let report = stream(&sites, false, 1_000, 3);
        lost = lost_on_the_link(&sites) - before;
        report
    });
    assert!(
        (report.missing() as u64) < lost / 2,
        "{} of {lost} are missing\n{:?}\n{}",
        report.missing(),
        peer(&pair, 1).ingress,
        pair.logs()
    );
    let after = peer(&pair, 0).egress;
    let (packets, repairs) =
        (after.source_packets - before.source_packets, after.repair_packets - before.repair_packets);
    // One layer of r = 8, with a Hello and some part-filled bins.
    assert!((packets / 9..packets / 4).contains(&repairs), "{repairs} repairs for {packets} packets");
    pair.stop().unwrap();
}

/// Number of threads of a process that have this name.
fn threads(process: u32, name: &str) -> usize {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|one| one.trim_end() == name).count()
}

#[test]
fn a_reload_moves_the_metrics_from_an_address_that_the_machine_has_lost_without_a_stall() {
    let name = "a_reload_moves_the_metrics_from_an_address_that_the_machine_has_lost_without_a_stall";
    if !privilege::available_or_skip(name) {
        return;
    }
    let sites = sites("uniform:0.02", 16);
    let mut pair = start(&sites, &Setting::layered());
    let process = pair.child(0).unwrap().id();
    let file = fs::read_to_string(pair.config(0)).unwrap();
    let at = |ip: &str| file.replace("[gateway]", &format!("[gateway]\nmetrics = \"{ip}:9469\""));
    // An address of the LAN that no host has: whoever connects to it waits for an answer.
    let lost = "10.81.1.250";
    let address = |action: &str| {
        ip(&sites.a.gateway, &["address", action, &format!("{lost}/24"), "dev", LAN]);
    };
    for round in 0.. {
        address("add");
        reload(&mut pair, 0, |_| at(lost));
        address("delete");
        let before = pair.status(0).unwrap().counters["stalls"];
        reload(&mut pair, 0, |_| at("127.0.0.1"));
        wait_until("the server at the address has ended", || threads(process, "metrics") == 1);
        // A gateway that stood still says so in its next turn. A busy machine stops it too.
        thread::sleep(Duration::from_millis(100));
        if pair.status(0).unwrap().counters["stalls"] == before {
            break;
        }
        assert!(round < 4, "{}", pair.logs());
    }
    pair.stop().unwrap();
}

#[test]
fn losses_are_recovered_by_reed_solomon_blocks_and_after_a_reload_by_layers() {
    if !privilege::available_or_skip(
        "losses_are_recovered_by_reed_solomon_blocks_and_after_a_reload_by_layers",
    ) {
        return;
    }
    let sites = sites("uniform:0.02", 20);
    let schedule = Schedule::ReedSolomon { r: 8, c: 3, interleave: 1 };
    let mut pair = start(&sites, &Setting { schedule, ..Setting::layered() });
    assert_recovered(&sites, &pair, false);
    let egress = pair.status(0).unwrap().peers[0].egress.clone();
    let (packets, repairs) = (egress.source_packets, egress.repair_packets);
    // Three repairs for eight packets, and more if a busy machine made a block miss its deadline.
    assert!((packets / 3..packets * 3 / 4).contains(&repairs), "{repairs} repairs for {packets} packets");
    // `interleaves` is a setting of layers.
    refuse_reload(&mut pair, 0, |text| text.replace("c = 3", "c = 3\ninterleaves = [1, 11, 19]"));
    reload(&mut pair, 0, |text| {
        text.replace("\"reed-solomon\"", "\"layered\"").replace("c = 3\ninterleave = 1\n", "")
    });
    wait_until_up(&pair);
    assert_recovered(&sites, &pair, false);
    pair.stop().unwrap();
}

#[test]
fn losses_are_recovered_by_a_sliding_window_whose_rate_a_reload_changes() {
    if !privilege::available_or_skip("losses_are_recovered_by_a_sliding_window_whose_rate_a_reload_changes") {
        return;
    }
    let sites = sites("uniform:0.02", 23);
    let schedule = Schedule::Sliding { rate: "1/4".parse().unwrap(), window: 160, density: 15 };
    let mut pair = start(&sites, &Setting { schedule, ..Setting::layered() });
    assert_recovered(&sites, &pair, false);
    let before = pair.status(0).unwrap().peers[0].clone();
    let (packets, repairs) = (before.egress.source_packets, before.egress.repair_packets);
    // One repair for four packets, and more if a busy machine made a packet wait too long for its repair.
    assert!((packets / 5..packets * 2 / 3).contains(&repairs), "{repairs} repairs for {packets} packets");
    reload(&mut pair, 0, |text| text.replace("\"1/4\"", "1.25"));
    assert_recovered(&sites, &pair, true);
    let after = pair.status(0).unwrap().peers[0].clone();
    let (packets, repairs) = (after.egress.source_packets - packets, after.egress.repair_packets - repairs);
    assert!(repairs >= packets * 6 / 5, "{repairs} repairs for {packets} packets");
    assert_eq!(after.sessions, before.sessions, "the session continues");
    pair.stop().unwrap();
}

#[test]
fn a_reload_that_changes_the_tap_delivers_no_packet_twice_and_protection_continues() {
    if !privilege::available_or_skip(
        "a_reload_that_changes_the_tap_delivers_no_packet_twice_and_protection_continues",
    ) {
        return;
    }
    let sites = sites("uniform:0.02", 17);
    let mut pair = start(&sites, &Setting { tap: "packet", ..Setting::layered() });
    let there = between(&sites, false);
    let back = Between { from: &sites.b.hosts[0], to: &sites.a.hosts[0], address: sites.a.host_v4(0) };
    let plan = UdpStream {
        pace: Pace::Packets(4_000.0),
        payload_bytes: 300,
        duration: Duration::from_secs(4),
        patience: Duration::from_secs(2),
        ..UdpStream::default()
    };
    let streamed = thread::scope(|scope| {
        let streams = [there, back].map(|between| {
            let plan = &plan;
            scope.spawn(move || udp_stream(between, plan, &mut unwatched).unwrap())
        });
        for side in [0, 1] {
            reload(&mut pair, side, |text| text.replace("tap = \"packet\"", "tap = \"auto\""));
            reload(&mut pair, side, |text| text.replace("networks = [", "networks = [\"10.99.0.0/24\", "));
            reload(&mut pair, side, |text| text.replace("tap = \"auto\"", "tap = \"packet\""));
        }
        streams.map(|stream| stream.join().unwrap())
    });
    for (report, side) in streamed.iter().zip([1, 0]) {
        assert_eq!(report.altered, 0);
        assert_duplicates_arrived_late(&pair, side, report.duplicates);
        // Packets that are lost during a reload may stay lost, more of them on a busy machine.
        assert!(report.missing() < report.sent_us.len() / 33, "{} are missing", report.missing());
    }
    let report = stream(&sites, false, 1_000, 4);
    assert_duplicates_arrived_late(&pair, 1, streamed[0].duplicates + report.duplicates);
    assert_recovered(&sites, &pair, false);
    pair.stop().unwrap();
}

#[test]
fn a_gateway_that_was_stopped_recovers_no_packet_that_had_arrived() {
    if !privilege::available_or_skip("a_gateway_that_was_stopped_recovers_no_packet_that_had_arrived") {
        return;
    }
    let sites = sites("uniform:0.02", 19);
    let mut pair = start(&sites, &Setting::layered());
    let mut duplicates = 0;
    // The first stream has more bytes than the tap holds, the second more packets than repairs wait for.
    for (rate, payload_bytes) in [(15_000.0, 1_250), (30_000.0, 100)] {
        let plan = UdpStream {
            pace: Pace::Packets(rate),
            payload_bytes,
            duration: Duration::from_secs(4),
            patience: Duration::from_secs(2),
            ..UdpStream::default()
        };
        let report = thread::scope(|scope| {
            let streamed = scope.spawn(|| udp_stream(between(&sites, false), &plan, &mut unwatched).unwrap());
            thread::sleep(Duration::from_secs(1));
            pair.child(1).unwrap().signal(Signal::SIGSTOP).unwrap();
            thread::sleep(Duration::from_millis(1_500));
            pair.child(1).unwrap().signal(Signal::SIGCONT).unwrap();
            streamed.join().unwrap()
        });
        assert_eq!(report.altered, 0);
        duplicates += report.duplicates;
        assert_duplicates_arrived_late(&pair, 1, duplicates);
    }
    assert!(pair.status(1).unwrap().counters["stalls"] > 0);
    let report = stream(&sites, false, 1_000, 4);
    assert_duplicates_arrived_late(&pair, 1, duplicates + report.duplicates);
    assert_recovered(&sites, &pair, false);
    pair.stop().unwrap();
}

#[test]
fn a_gateway_whose_code_recovers_too_little_is_degraded() {
    if !privilege::available_or_skip("a_gateway_whose_code_recovers_too_little_is_degraded") {
        return;
    }
    let sites = sites("uniform:0.4", 29);
    // In a user namespace the other way is impossible, which degrades a gateway that is not told to use this.
    let pair = start(&sites, &Setting { injection: "tun", ..Setting::layered() });
    wait_until("both are protected", || [0, 1].iter().all(|&side| health_of(&pair, side).0 == Some(0)));
    thread::scope(|scope| {
        scope.spawn(|| stream(&sites, false, 300, 12));
        for (side, id, text) in [
            (0, "residual_out", "packets to the peer stay lost"),
            (1, "residual_in", "packets from the peer stay lost"),
        ] {
            wait_until("packets stay lost", || health_of(&pair, side).0 == Some(1));
            let (_, document) = health_of(&pair, side);
            assert_eq!((&document["state"], reason(&document, id)), (&"degraded".into(), text), "{document}");
        }
    });
    pair.stop().unwrap();
}

#[test]
fn a_gateway_that_ended_leaves_no_interface_and_no_route() {
    if !privilege::available_or_skip("a_gateway_that_ended_leaves_no_interface_and_no_route") {
        return;
    }
    let sites = sites("none", 16);
    let state = || {
        let mut interfaces = sites.a.gateway.interfaces().unwrap();
        interfaces.sort();
        (interfaces, sites.a.gateway.run(|| fs::read_to_string("/proc/thread-self/net/route").unwrap()))
    };
    let before = state();
    let pair = start(&sites, &Setting::layered());
    assert_ne!(state(), before);
    pair.stop().unwrap();
    assert_eq!(state(), before);
    let mut pair = start(&sites, &Setting::layered());
    pair.kill(0).unwrap();
    assert_eq!(state(), before, "also if it was killed");
}

#[test]
fn a_gateway_that_fails_at_once_is_reported_at_once() {
    if !privilege::available_or_skip("a_gateway_that_fails_at_once_is_reported_at_once") {
        return;
    }
    let sites = sites("none", 18);
    let started = GatewayPair::start(Path::new("/bin/false"), &End::of(&sites), &Setting::layered());
    let error = started.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("ended with exit status: 1"), "{error}");
}
