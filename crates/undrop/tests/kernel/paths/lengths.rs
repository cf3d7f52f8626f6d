//! Paths that carry shorter packets than the interfaces, and boxes that make packets or segments shorter.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use maelstrom::status::PeerStatus;
use netlab::emulator::Direction;
use netlab::middlebox::{MiddleBox, clamp_mss, narrow, udp_port};
use netlab::privilege;
use netlab::topology::TwoSites;
use netlab::traffic::{TcpTransfer, tcp_transfer, unwatched};
use stage::gateways::Setting;

use super::{between, has_finding, sites, start, stream_of};
use crate::disturbance::{assert_duplicates_arrived_late, undisturbed};
use crate::pair::{peer, wait_for_peer};

/// Lets the link from A to B carry packets of at most `mtu` bytes, with or without messages of its router.
fn narrow_link(sites: &TwoSites, mtu: usize, tells: bool) {
    let router = tells.then_some(Ipv4Addr::new(10, 81, 9, 99));
    let narrow: MiddleBox = Box::new(move |packet, exits| narrow(packet, mtu, router, exits));
    sites.link.set_middle_box(Direction::AToB, Some(narrow));
}

fn repairs_shrink(test: &str, tells: bool) {
    if !privilege::available_or_skip(test) {
        return;
    }
    let sites = sites("none");
    let pair = start(&sites, &Setting::layered());
    narrow_link(&sites, 1_400, tells);
    stream_of(&sites, 1_272, 400.0, 1);
    // The probes end within two bytes of the limit.
    let is_narrow = |peer: &PeerStatus| {
        (1_398..=1_400).contains(&peer.egress.path_mtu) && peer.egress.narrow_path.is_some()
    };
    wait_for_peer(&pair, 0, "the MTU of the path is found", is_narrow);
    sites.link.set_loss(Direction::AToB, &"uniform:0.02".parse().unwrap());
    let report = undisturbed(&pair, || stream_of(&sites, 1_272, 500.0, 4));
    // Each repair travels in two halves, and half a repair is of no use.
    assert!(
        report.missing() <= 10,
        "tells: {tells}: {} missing\n{:?}",
        report.missing(),
        peer(&pair, 0).egress
    );
    assert!(peer(&pair, 0).egress.repairs_cut_in_two > 100);
    pair.stop().unwrap();
}

testkit::cases! { repairs_shrink:
    repairs_shrink_to_the_mtu_of_the_path_that_a_router_tells(true);
    repairs_shrink_to_the_mtu_of_the_path_that_no_router_tells(false);
}

fn packets_are_fragmented_on_the_way(test: &str, tells: bool, rate: f64) {
    if !privilege::available_or_skip(test) {
        return;
    }
    let sites = sites("none");
    // Its packets may be fragmented.
    sites.a.hosts[0].sysctl("net.ipv4.ip_no_pmtu_disc", "1").unwrap();
    let pair = start(&sites, &Setting::layered());
    // The flow is known and its path proven when its packets begin to arrive in fragments. Repairs fit at
    // first: if they were too long at once, the egress could know before any of them told of a packet.
    let report = thread::scope(|scope| {
        let stream = scope.spawn(|| stream_of(&sites, 1_272, rate, 7));
        wait_for_peer(&pair, 1, "packets arrive", |peer| peer.ingress.source_packets > 20);
        let fragmenting: MiddleBox = Box::new(|packet, exits| match udp_port(packet) {
            Some(4700) => exits.forward(packet),
            _ => narrow(packet, 1_000, None, exits),
        });
        sites.link.set_middle_box(Direction::AToB, Some(fragmenting));
        wait_for_peer(&pair, 1, "fragments are told from losses", |peer| {
            peer.ingress.withheld["fragmented"] > 0
        });
        narrow_link(&sites, 1_000, tells);
        stream.join().unwrap()
    });
    let ingress = peer(&pair, 1).ingress;
    assert_eq!((report.missing(), report.altered), (0, 0), "{ingress:?}");
    assert_duplicates_arrived_late(&pair, 1, report.duplicates);
    wait_for_peer(&pair, 0, "the MTU of the path is found", |peer| {
        (998..=1_000).contains(&peer.egress.path_mtu) && peer.egress.narrow_path.is_some()
    });
    stream_of(&sites, 1_272, rate, 1);
    let unprotected = pair.status(0).unwrap().not_protected;
    assert!(unprotected["too_long_for_path"] > 0, "{unprotected:?}");
    pair.stop().unwrap();
}

testkit::cases! { packets_are_fragmented_on_the_way:
    packets_that_are_fragmented_on_the_way_do_not_count_as_lost(true, 400.0);
    packets_that_are_silently_fragmented_on_the_way_do_not_count_as_lost(false, 20.0);
}

#[test]
fn a_syn_whose_mss_is_clamped_on_the_way_is_not_recovered() {
    if !privilege::available_or_skip("a_syn_whose_mss_is_clamped_on_the_way_is_not_recovered") {
        return;
    }
    let sites = sites("none");
    let pair = start(&sites, &Setting::layered());
    for direction in Direction::BOTH {
        let clamp: MiddleBox = Box::new(|packet, exits| {
            let mut packet = packet.to_vec();
            clamp_mss(&mut packet, 1_000);
            exits.forward(&packet);
        });
        sites.link.set_middle_box(direction, Some(clamp));
    }
    let transfer = TcpTransfer {
        duration: Duration::from_secs(2),
        least_bytes: (1 << 20) + 1,
        ..TcpTransfer::default()
    };
    let transferred = tcp_transfer(between(&sites), &transfer, &mut unwatched).unwrap();
    assert!(transferred.mismatch.is_none() && transferred.forward.received_bytes() > 1 << 20);
    wait_for_peer(&pair, 1, "it is told", |peer| has_finding(peer, "TCP SYNs are rewritten on the way"));
    assert!(peer(&pair, 1).ingress.withheld["opening_rewritten"] > 0);
    pair.stop().unwrap();
}
