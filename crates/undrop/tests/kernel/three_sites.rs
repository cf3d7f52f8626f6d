//! Three gateways, each with two peers: a passive one on a path that the routers know, and tunnels to a site
//! that no router knows.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use netlab::privilege;
use netlab::traffic::{Pace, TcpTransfer, UdpReport, UdpStream, tcp_transfer, udp_stream, unwatched};
use nix::sys::socket::{setsockopt, sockopt};
use stage::gateways::{Modes, ThreeSites};
use testkit::{wait_for, wait_until};

use crate::by_tunnel::ip;
use crate::groups::{self, Got};
use crate::pair::PROGRAM;

/// Number of streams of which one must arrive whole. A busy machine protects a part of the flows for a while.
const TRIES: usize = 5;

fn start(sections: &str) -> ThreeSites {
    ThreeSites::start(Path::new(PROGRAM), Modes::Mixed, sections, 0).unwrap()
}

pub(crate) fn stream(lab: &ThreeSites, from: usize, to: usize) -> UdpReport {
    let plan = UdpStream {
        pace: Pace::Packets(300.0),
        payload_bytes: 700,
        duration: Duration::from_secs(3),
        patience: Duration::from_secs(1),
        ..UdpStream::default()
    };
    udp_stream(lab.between(from, to), &plan, &mut unwatched).unwrap()
}

#[test]
fn three_sites_in_mixed_modes_recover_what_is_lost_between_any_two() {
    let name = "three_sites_in_mixed_modes_recover_what_is_lost_between_any_two";
    if !privilege::available_or_skip(name) {
        return;
    }
    let lab = start("");
    let mut open: Vec<_> = ThreeSites::pairs().collect();
    for _ in 0..TRIES {
        let reports: Vec<_> = thread::scope(|scope| {
            let lab = &lab;
            let streams = open.iter().map(|&(from, to)| scope.spawn(move || stream(lab, from, to)));
            let streams: Vec<_> = streams.collect();
            streams.into_iter().map(|stream| stream.join().unwrap()).collect()
        });
        let mut rest = Vec::new();
        for (&(from, to), report) in open.iter().zip(&reports) {
            let seen = (report.duplicates, report.altered);
            assert_eq!(seen, (0, 0), "from {from} to {to}: {report:?}\n{}", lab.logs());
            if report.missing() > 0 {
                rest.push((from, to));
            }
        }
        open = rest;
    }
    assert!(open.is_empty(), "packets of these pairs stay lost: {open:?}\n{}", lab.logs());
    for (from, to) in ThreeSites::pairs() {
        let ingress = lab.peer(to, from).unwrap().ingress;
        assert!(ingress.injected_packets > 5, "from {from} to {to}: {ingress:?}");
        let has_tunnel = lab.peer(from, to).unwrap().egress.tunnel.is_some();
        assert_eq!(has_tunnel, from == 3 || to == 3, "from {from} to {to}");
    }
    let transfer =
        TcpTransfer { duration: Duration::from_secs(2), least_bytes: 100_001, ..TcpTransfer::default() };
    let reports = thread::scope(|scope| {
        let (lab, transfer) = (&lab, &transfer);
        let flows = [(1, 2), (2, 3), (3, 1)].map(|(from, to)| {
            scope.spawn(move || tcp_transfer(lab.between(from, to), transfer, &mut unwatched).unwrap())
        });
        flows.map(|flow| flow.join().unwrap())
    });
    for report in reports {
        assert!(report.mismatch.is_none() && report.forward.received_bytes() > 100_000, "{report:?}");
    }
    lab.stop().unwrap();
}

#[test]
fn two_sites_reach_each_other_by_the_tunnels_of_a_third_one() {
    let name = "two_sites_reach_each_other_by_the_tunnels_of_a_third_one";
    if !privilege::available_or_skip(name) {
        return;
    }
    let lab = ThreeSites::start(Path::new(PROGRAM), Modes::Star, "", 5).unwrap();
    assert_eq!([1, 2, 3].map(|site| lab.status(site).unwrap().peers.len()), [1, 1, 2]);
    assert_all_arrive(&lab);
    // Both legs lose packets, and each tunnel recovers its own.
    let recovered = [(3, 1), (2, 3)].map(|(at, peer)| lab.peer(at, peer).unwrap().ingress.injected_packets);
    assert!(recovered.iter().all(|&count| count > 5), "{recovered:?}");
    lab.stop().unwrap();
}

/// Streams between the sites of a star, of which one in a few must arrive whole.
fn assert_all_arrive(lab: &ThreeSites) {
    for (from, to) in [(1, 2), (2, 1), (1, 3)] {
        let whole = (0..TRIES).any(|_| {
            let report = stream(lab, from, to);
            assert_eq!((report.duplicates, report.altered), (0, 0), "from {from} to {to}: {report:?}");
            report.missing() == 0
        });
        assert!(whole, "packets from {from} to {to} stay lost\n{}", lab.logs());
    }
}

/// Whether the host of the first site learns that a packet to the second one ended its life at the third.
fn learns_of_the_end(lab: &ThreeSites) -> bool {
    lab.host(1).run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        setsockopt(&socket, sockopt::Ipv4RecvErr, &true).unwrap();
        socket.set_ttl(2).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket.connect(SocketAddr::new(lab.address(2), 4_999)).unwrap();
        socket.send(b"short").unwrap();
        socket.recv(&mut [0; 9]).is_err_and(|error| error.kind() == ErrorKind::HostUnreachable)
    })
}

#[test]
fn a_third_site_that_states_its_own_networks_forwards_between_its_tunnels() {
    let name = "a_third_site_that_states_its_own_networks_forwards_between_its_tunnels";
    if !privilege::available_or_skip(name) {
        return;
    }
    let mut lab = ThreeSites::start(Path::new(PROGRAM), Modes::Star, "", 6).unwrap();
    let file = lab.file(3);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("listen =", "local_networks = [\"10.81.3.0/24\"]\nlisten =", 1)).unwrap();
    lab.reload(3).unwrap();
    wait_until("the gateway has read its file", || lab.logs().contains("reloaded"));
    assert_all_arrive(&lab);
    let foreign = [1, 2].map(|peer| lab.peer(3, peer).unwrap().ingress.foreign_packets);
    assert_eq!(foreign, [0; 2], "{}", lab.logs());
    let differences = [(3, 1), (3, 2), (1, 3), (2, 3)].map(|(at, of)| lab.peer(at, of).unwrap().differences);
    assert!(differences.iter().all(Vec::is_empty), "{differences:?}");
    // Its kernel reports errors from the address of the uplink, which is in no network of a site. Filters of
    // the reverse path let them pass at a device that has an address.
    ip(lab.gateway(3), &["address", "add", "10.83.3.2", "dev", "undrop1"]);
    ip(lab.gateway(1), &["address", "add", "10.83.1.2", "dev", "undrop1"]);
    wait_until("an error of the third site arrives", || learns_of_the_end(&lab));
    lab.stop().unwrap();
}

#[test]
fn a_group_crosses_to_two_sites_once_each_and_reaches_every_host_once() {
    let name = "a_group_crosses_to_two_sites_once_each_and_reaches_every_host_once";
    if !privilege::available_or_skip(name) {
        return;
    }
    let lab = start(groups::FILE);
    // The first two sites have no tunnel between them, so that groups cross to and from the third one alone.
    let is_known = |site, count| {
        let wanted = lab.status(site).unwrap().wanted_groups;
        wanted.len() == count && wanted.iter().all(|wanted| wanted.count == 3)
    };
    let all_known = wait_for(|| (is_known(3, 2) && is_known(1, 1) && is_known(2, 1)).then_some(()));
    assert!(all_known.is_some(), "the sites do not know what others want\n{}", lab.logs());
    let group: SocketAddr = "239.1.7.7:5007".parse().unwrap();
    let source: IpAddr = "10.81.3.2".parse().unwrap();
    let mut listeners: Vec<_> =
        [1, 2].map(|site| groups::listener(lab.host(site), group)).into_iter().collect();
    let mut came = false;
    for round in 0..TRIES as u32 {
        let numbers = round * 1_000..round * 1_000 + 1_000;
        groups::send(lab.host(3), group, groups::TTL, numbers.clone());
        let mut got = [Got::new(), Got::new()];
        came = wait_for(|| {
            listeners.iter_mut().zip(&mut got).for_each(|(listener, got)| groups::take(listener, got));
            got.iter().all(|got| numbers.clone().all(|number| got.contains_key(&number))).then_some(())
        })
        .is_some();
        for (at, got) in got.iter().enumerate() {
            let wrong: Vec<_> =
                got.iter().filter(|(_, came)| came[..] != [(source, groups::TTL - 1)]).collect();
            assert!(wrong.is_empty(), "site {}: {wrong:?}\n{}", at + 1, lab.logs());
        }
        if came {
            break;
        }
    }
    assert!(came, "packets of {group} stay lost\n{}", lab.logs());
    let sent = lab.status(3).unwrap().multicast.remove(0);
    assert!(sent.forwarded >= 1_000 && sent.sent == 2 * sent.forwarded, "one copy a site: {sent:?}");
    lab.stop().unwrap();
}
