//! Gateways that were stopped for seconds, as by a paused machine.

use std::path::Path;
use std::thread;
use std::time::Duration;

use netlab::config_lock::ConfigLock;
use netlab::emulator::{Direction, EmulatorConfig};
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Between, Pace, UdpReport, UdpStream, udp_stream, unwatched};
use nix::sys::signal::Signal;
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};

use crate::by_tunnel::{apart, start};
use crate::disturbance::{assert_duplicates_arrived_late, undisturbed};
use crate::pair::{PROGRAM, peer};

fn sites(seed: u64) -> TwoSites {
    let loss = "uniform:0.02".parse().unwrap();
    let link =
        LinkConfig { rate_bps: Some(200_000_000), delay_us: 20_000, loss, seed, ..LinkConfig::default() };
    TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap()
}

fn stream(sites: &TwoSites, packets: f64, seconds: u64) -> UdpReport {
    let between = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    let plan = UdpStream {
        pace: Pace::Packets(packets),
        payload_bytes: 300,
        duration: Duration::from_secs(seconds),
        patience: Duration::from_secs(1),
        ..UdpStream::default()
    };
    udp_stream(between, &plan, &mut unwatched).unwrap()
}

/// Streams packets while the gateway of one side is stopped for `stopped`, from the second second on. The far
/// gateway remembers all packets of that time.
fn stream_with_stop(sites: &TwoSites, pair: &mut GatewayPair, side: usize, stopped: Duration) -> UdpReport {
    thread::scope(|scope| {
        let streamed = scope.spawn(|| stream(sites, 700.0, 4 + stopped.as_secs()));
        thread::sleep(Duration::from_secs(1));
        pair.child(side).unwrap().signal(Signal::SIGSTOP).unwrap();
        thread::sleep(stopped);
        pair.child(side).unwrap().signal(Signal::SIGCONT).unwrap();
        streamed.join().unwrap()
    })
}

fn nothing_old_is_delivered(test: &str, side: usize, seconds: u64) {
    if !privilege::available_or_skip(test) {
        return;
    }
    let sites = sites(30 + seconds);
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::layered()).unwrap();
    let report = stream_with_stop(&sites, &mut pair, side, Duration::from_secs(seconds));
    assert_eq!(report.altered, 0);
    assert_duplicates_arrived_late(&pair, 1, report.duplicates);
    // The link takes 20 ms, and a gateway that was stopped for seconds recovers packets of that age if it
    // uses what waited. Anything between is the business of a busy machine.
    let oldest_us = report.sorted_latencies_us().last().copied().unwrap_or(0);
    assert!(oldest_us < 1_000 * 1_000 * seconds / 2, "a packet arrived {oldest_us} us after it was sent");
    assert!(pair.status(side).unwrap().counters["stalls"] > 0, "{}", pair.logs());
    pair.wait_until_up(Duration::from_secs(20)).unwrap();
    let lost = || sites.link.counters(Direction::AToB).link.lost;
    let before = lost();
    let report = undisturbed(&pair, || stream(&sites, 1_000.0, 2));
    assert!(lost() > before + 20, "the link must lose packets");
    assert!(report.missing() <= 4, "{} are missing\n{}", report.missing(), pair.logs());
    pair.stop().unwrap();
}

testkit::cases! { nothing_old_is_delivered:
    nothing_old_is_delivered_after_the_sending_gateway_was_stopped_and_losses_are_recovered_again(0, 5);
    nothing_old_is_delivered_after_the_receiving_gateway_was_stopped_and_losses_are_recovered_again(1, 5);
    nothing_old_is_delivered_after_a_short_stop_and_losses_are_recovered_again(1, 2);
}

fn a_tunnel_loses_nothing(test: &str, side: usize) {
    if !privilege::available_or_skip(test) {
        return;
    }
    let sites = apart(0.0);
    let mut pair = start(&sites);
    let before = [0, 1].map(|side| peer(&pair, side).sessions);
    let report = stream_with_stop(&sites, &mut pair, side, Duration::from_secs(1));
    assert_eq!((report.missing(), report.duplicates, report.altered), (0, 0, 0), "{}", pair.logs());
    // Those that waited came late.
    assert!(report.sorted_latencies_us().last().is_some_and(|&us| us > 500_000));
    assert!(pair.status(side).unwrap().counters["stalls"] > 0, "{}", pair.logs());
    assert_eq!([0, 1].map(|side| peer(&pair, side).sessions), before, "{}", pair.logs());
    pair.stop().unwrap();
}

testkit::cases! { a_tunnel_loses_nothing:
    a_tunnel_loses_nothing_while_its_sending_gateway_is_stopped(0);
    a_tunnel_loses_nothing_while_its_receiving_gateway_is_stopped(1);
}

#[test]
fn a_gateway_goes_on_while_others_change_the_network_configuration_of_the_machine() {
    let name = "a_gateway_goes_on_while_others_change_the_network_configuration_of_the_machine";
    if !privilege::available_or_skip(name) {
        return;
    }
    let sites = sites(40);
    let pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::layered()).unwrap();
    let stalls = || [0, 1].map(|side| pair.status(side).unwrap().counters["stalls"]);
    for round in 0.. {
        let before = stalls();
        let Some(held) = ConfigLock::hold_or_skip(name) else { return };
        thread::sleep(Duration::from_millis(900));
        drop(held);
        // A gateway that stood still says so in its next turn.
        thread::sleep(Duration::from_millis(100));
        if stalls() == before {
            break;
        }
        assert!(round < 4, "{:?} after {before:?}\n{}", stalls(), pair.logs());
    }
    pair.stop().unwrap();
}
