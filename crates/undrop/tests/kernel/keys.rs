//! A key that is changed at two running gateways, under traffic over a link that loses packets.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use keyfile::KeyText;
use maelstrom::status::PeerStatus;
use netlab::emulator::{Direction, EmulatorConfig};
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Between, Pace, UdpStream, udp_stream, unwatched};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};

use crate::disturbance::assert_duplicates_arrived_late;
use crate::pair::{PROGRAM, peer, refuse_reload, reload, wait_for_logs, wait_for_peer};

/// Packets in each direction while the key is changed.
const PACKETS: u64 = 10_000;

fn wait_for_keys(pair: &GatewayPair, states: [&str; 2]) {
    for (side, state) in states.into_iter().enumerate() {
        wait_for_peer(pair, side, "the keys reach their state", |peer| peer.keys.state == state);
    }
}

/// Counters that a packet without protection, or a pause of it, would change.
fn unprotected(pair: &GatewayPair, side: usize) -> [u64; 4] {
    let status = pair.status(side).unwrap();
    let PeerStatus { sessions, wrong_key, .. } = status.peers[0];
    [status.not_protected["peer_down"], status.not_protected["unheard"], sessions, wrong_key]
}

fn count(pair: &GatewayPair, side: usize, what: &str) -> u64 {
    pair.status(side).unwrap().counters[what]
}

/// Names the next key at both ends, and then drops the old one at both.
fn change(pair: &mut GatewayPair) {
    let old = "key_file = \"peer.key\"\n";
    let both = "key_file = \"peer.key\"\nnext_key_file = \"next.key\"\n";
    let new = "key_file = \"next.key\"\n";
    reload(pair, 0, |text| text.replace(old, both));
    wait_for_keys(pair, ["waiting", "offered"]);
    refuse_reload(pair, 0, |text| text.replace(both, new));
    reload(pair, 1, |text| text.replace(old, both));
    wait_for_keys(pair, ["changed", "changed"]);
    wait_for_logs(pair, ["keys: the next key is in use"; 2]);
    reload(pair, 1, |text| text.replace(both, new));
    wait_for_keys(pair, ["changed", "left_over"]);
    reload(pair, 0, |text| text.replace(both, new));
    wait_for_keys(pair, ["single", "single"]);
}

#[test]
fn a_key_is_changed_at_both_ends_without_an_unprotected_packet() {
    if !privilege::available_or_skip("a_key_is_changed_at_both_ends_without_an_unprotected_packet") {
        return;
    }
    let link = LinkConfig {
        rate_bps: Some(200_000_000),
        delay_us: 20_000,
        loss: "uniform:0.02".parse().unwrap(),
        seed: 31,
        ..LinkConfig::default()
    };
    let sites = TwoSites::build(&TwoSitesConfig::default(), &EmulatorConfig::symmetric(link)).unwrap();
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::layered()).unwrap();
    let old = pair.config(0).with_file_name("peer.key");
    KeyText::generate().unwrap().write_new(&old.with_file_name("next.key")).unwrap();
    let before = [0, 1].map(|side| unprotected(&pair, side));
    let there = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    let back = Between { from: &sites.b.hosts[0], to: &sites.a.hosts[0], address: sites.a.host_v4(0) };
    let plan = UdpStream {
        pace: Pace::Packets(1_000.0),
        payload_bytes: 500,
        duration: Duration::from_secs(PACKETS / 1_000),
        patience: Duration::from_secs(2),
        ..UdpStream::default()
    };
    let reports = thread::scope(|scope| {
        let streams = [there, back].map(|between| {
            let plan = &plan;
            scope.spawn(move || udp_stream(between, plan, &mut unwatched).unwrap())
        });
        change(&mut pair);
        streams.map(|stream| stream.join().unwrap())
    });
    assert!(pair.logs().contains("expected a key that the peer"), "{}", pair.logs());
    for (side, report) in reports.iter().enumerate() {
        assert_eq!(unprotected(&pair, side), before[side], "side {side}\n{}", pair.logs());
        let sent = report.sent_us.len() as u64;
        // A gateway that stood still discards what it captured meanwhile.
        let overlooked: u64 = ["discarded", "tap_dropped"].map(|what| count(&pair, side, what)).iter().sum();
        assert!(peer(&pair, side).egress.source_packets + overlooked >= sent, "each packet is protected");
        assert_eq!(report.altered, 0);
        assert_duplicates_arrived_late(&pair, 1 - side, report.duplicates);
        // The link loses 200 packets. On a busy machine, some of them stay lost at any time.
        let stood_still: u64 = [0, 1].map(|side| count(&pair, side, "discarded")).iter().sum();
        let most = 50 + stood_still as usize;
        assert!(report.missing() < most, "{} are missing\n{}", report.missing(), pair.logs());
    }
    for direction in [Direction::AToB, Direction::BToA] {
        assert!(sites.link.counters(direction).link.lost > 100, "the link loses packets");
    }
    // Nothing needs the old key any more.
    fs::remove_file(&old).unwrap();
    reload(&mut pair, 0, |text| text);
    assert!(peer(&pair, 0).up && peer(&pair, 1).up);
    pair.stop().unwrap();
}
