//! Traffic of the real kernel over a cable between two namespaces.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use netlab::emulator::EmulatorConfig;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{
    Between, Course, Direction, MessageStream, Pace, TcpFetch, TcpTransfer, UdpStream, message_stream,
    tcp_fetch, tcp_transfer, udp_stream, unwatched,
};
use netlab::{Namespace, privilege};
use simnet::link::LinkConfig;

struct Cable {
    left: Namespace,
    right: Namespace,
}

impl Cable {
    /// Returns `None`, after a message, if namespaces cannot be made.
    fn build(test: &str) -> Option<Self> {
        if !privilege::namespaces_or_skip(test) {
            return None;
        }
        let cable =
            Self { left: Namespace::create("left").unwrap(), right: Namespace::create("right").unwrap() };
        cable.left.add_veth("eth0", &cable.right, "eth0", 1300).unwrap();
        for (left, right) in [("10.0.0.1/24", "10.0.0.2/24"), ("fd00::1/64", "fd00::2/64")] {
            cable.left.add_address("eth0", left.parse().unwrap()).unwrap();
            cable.right.add_address("eth0", right.parse().unwrap()).unwrap();
        }
        Some(cable)
    }

    fn to(&self, address: &str) -> Between<'_> {
        Between { from: &self.left, to: &self.right, address: address.parse::<IpAddr>().unwrap() }
    }
}

#[test]
fn bulk_tcp_arrives_bit_for_bit_over_both_ip_versions() {
    let Some(cable) = Cable::build("bulk_tcp_arrives_bit_for_bit_over_both_ip_versions") else { return };
    let plan =
        TcpTransfer { duration: Duration::from_millis(500), least_bytes: 100_001, ..TcpTransfer::default() };
    for address in ["10.0.0.2", "fd00::2"] {
        let mut reports = 0;
        let mut watcher = |_| {
            reports += 1;
            ControlFlow::Continue(())
        };
        let report = tcp_transfer(cable.to(address), &plan, &mut watcher).unwrap();
        assert!(report.forward.received_bytes() > 100_000, "{report:?}");
        assert!(report.forward.goodput_bps() > 0.0 && report.forward.second_half_bps() > 0.0, "{report:?}");
        assert_eq!(report.mismatch, None);
        assert!(report.backward.samples.is_empty());
        assert_eq!(reports, report.forward.samples.len());
        assert!(report.forward.samples.is_sorted_by_key(|sample| (sample.elapsed_us, sample.received_bytes)));
    }
}

#[test]
fn bulk_tcp_runs_both_ways_in_several_flows() {
    let Some(cable) = Cable::build("bulk_tcp_runs_both_ways_in_several_flows") else { return };
    let plan = TcpTransfer {
        congestion: Some("reno".to_owned()),
        duration: Duration::from_millis(500),
        least_bytes: 1 << 20,
        flows: 3,
        direction: Direction::Both,
        ..TcpTransfer::default()
    };
    let report = tcp_transfer(cable.to("10.0.0.2"), &plan, &mut unwatched).unwrap();
    assert!(report.forward.received_bytes() > 0 && report.backward.received_bytes() > 0, "{report:?}");
    assert_eq!(report.mismatch, None);
    let second_half: u64 = report.flow_bytes.iter().sum();
    assert!(report.flow_bytes.len() == 6 && second_half > 0, "{report:?}");
    assert!(second_half <= report.forward.received_bytes() + report.backward.received_bytes(), "{report:?}");
    let backward = TcpTransfer { direction: Direction::Backward, ..plan };
    let report = tcp_transfer(cable.to("10.0.0.2"), &backward, &mut unwatched).unwrap();
    assert!(report.forward.received_bytes() == 0 && report.backward.received_bytes() > 0, "{report:?}");
}

#[test]
fn a_fetch_takes_two_round_trips_and_ends_with_the_patience() {
    let test = "a_fetch_takes_two_round_trips_and_ends_with_the_patience";
    if !privilege::available_or_skip(test) {
        return;
    }
    let link = LinkConfig { delay_us: 40_000, ..LinkConfig::default() };
    let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap();
    let between = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    let short = TcpFetch {
        congestion: Some("reno".to_owned()),
        bytes: 1,
        course: Course::Asked,
        port: 8_080,
        receive_buffer: None,
        patience: Duration::from_secs(30),
    };
    for _ in 0..2 {
        let time_us = tcp_fetch(between, &short, &mut unwatched).unwrap().unwrap();
        assert!(time_us >= 160_000, "{time_us} us");
    }
    // The kernel doubles the buffer, and each round trip brings a window.
    let long = TcpFetch { bytes: 5_000_000, receive_buffer: Some(64 << 10), ..short.clone() };
    let time_us = tcp_fetch(between, &long, &mut unwatched).unwrap().unwrap();
    assert!(time_us >= 5_000_000 / (128 << 10) * 80_000, "{time_us} us");
    // One whose bytes follow the handshake spares half a round trip or, in the other direction, none.
    let sent = TcpFetch { course: Course::Sent, bytes: 5_000, ..short.clone() };
    let unasked = TcpFetch { course: Course::Unasked, ..sent.clone() };
    for (fetch, least_us) in [(sent, 120_000), (unasked, 160_000)] {
        let time_us = tcp_fetch(between, &fetch, &mut unwatched).unwrap().unwrap();
        assert!(time_us >= least_us, "{:?}: {time_us} us", fetch.course);
        let hasty = TcpFetch { patience: Duration::from_millis(50), ..fetch };
        assert_eq!(tcp_fetch(between, &hasty, &mut unwatched).unwrap(), None);
    }
    let hasty = TcpFetch { patience: Duration::from_millis(50), ..short };
    assert_eq!(tcp_fetch(between, &hasty, &mut unwatched).unwrap(), None);
}

#[test]
fn an_unknown_congestion_control_is_refused_with_the_available_ones() {
    let Some(cable) = Cable::build("an_unknown_congestion_control_is_refused_with_a_place_to_look") else {
        return;
    };
    let plan = TcpTransfer { congestion: Some("nonesuch".to_owned()), ..TcpTransfer::default() };
    let error = tcp_transfer(cable.to("10.0.0.2"), &plan, &mut unwatched).unwrap_err().to_string();
    assert!(error.contains("nonesuch"), "{error}");
    assert!(error.contains("/proc/sys/net/ipv4/tcp_available_congestion_control"), "{error}");
    let none = TcpTransfer { flows: 0, ..TcpTransfer::default() };
    assert!(tcp_transfer(cable.to("10.0.0.2"), &none, &mut unwatched).is_err());
}

#[test]
fn a_watcher_ends_a_transfer_and_keeps_what_was_measured() {
    let Some(cable) = Cable::build("a_watcher_ends_a_transfer_and_keeps_what_was_measured") else { return };
    let plan = TcpTransfer { duration: Duration::from_secs(3600), ..TcpTransfer::default() };
    let mut ticks = 0;
    let mut watcher = |_| {
        ticks += 1;
        if ticks == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let report = tcp_transfer(cable.to("10.0.0.2"), &plan, &mut watcher).unwrap();
    assert_eq!(report.forward.samples.len(), 3);
}

#[test]
fn an_unreachable_host_is_an_error() {
    let Some(cable) = Cable::build("an_unreachable_host_is_an_error") else { return };
    let plan = TcpTransfer { duration: Duration::from_secs(3600), ..TcpTransfer::default() };
    cable.left.set_down("eth0").unwrap();
    // The address stays, so the listener can be made, but nothing can reach it.
    let error = tcp_transfer(cable.to("10.0.0.2"), &plan, &mut unwatched).unwrap_err().to_string();
    assert!(error.contains("10.0.0.2"), "{error}");
}

#[test]
fn every_message_arrives_in_order() {
    let Some(cable) = Cable::build("every_message_arrives_in_its_place") else { return };
    for message_bytes in [16, 1024, 65_536] {
        let plan = MessageStream {
            congestion: Some("reno".to_owned()),
            rate_hz: 400.0,
            message_bytes,
            duration: Duration::from_millis(500),
            ..MessageStream::default()
        };
        let report = message_stream(cable.to("10.0.0.2"), &plan, &mut unwatched).unwrap();
        assert_eq!(report.messages.len(), 200);
        assert_eq!(report.missing(), 0);
        assert!(report.messages.is_sorted_by_key(|message| message.sent_us));
    }
}

#[test]
fn udp_packets_arrive_with_their_latency() {
    let Some(cable) = Cable::build("udp_packets_arrive_with_their_latency") else { return };
    let plan = UdpStream {
        pace: Pace::Bits(4e6),
        payload_bytes: 1000,
        duration: Duration::from_millis(500),
        ..UdpStream::default()
    };
    for address in ["10.0.0.2", "fd00::2"] {
        let report = udp_stream(cable.to(address), &plan, &mut unwatched).unwrap();
        assert_eq!((report.sent_us.len(), report.latencies_us.len()), (250, 250));
        assert_eq!((report.missing(), report.duplicates, report.altered), (0, 0, 0));
        assert_eq!(report.sorted_latencies_us().len(), 250);
    }
}

#[test]
fn identical_udp_packets_are_counted() {
    let Some(cable) = Cable::build("identical_udp_packets_are_counted") else { return };
    let plan = UdpStream {
        pace: Pace::Packets(500.0),
        payload_bytes: 100,
        identical: true,
        duration: Duration::from_millis(500),
        ..UdpStream::default()
    };
    let report = udp_stream(cable.to("10.0.0.2"), &plan, &mut unwatched).unwrap();
    assert_eq!((report.sent_us.len(), report.arrived_us.len()), (250, 250));
    assert_eq!((report.missing(), report.duplicates, report.altered), (0, 0, 0));
    assert!(report.latencies_us.is_empty());
}
