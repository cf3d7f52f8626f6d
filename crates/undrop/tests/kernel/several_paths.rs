//! Peers in tunnel mode with two paths between them, each a link of its own.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use loss::LossModel;
use maelstrom::status::{PeerStatus, TunnelPath};
use netlab::Direction;
use netlab::emulator::{Emulator, EmulatorConfig};
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{Pace, UdpReport, UdpStream, udp_stream, unwatched};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting, between};

use crate::pair::{PROGRAM, peer, wait_for_log, wait_for_peer};

/// Two sites, and a second link between their gateways.
struct Lab {
    /// First, so that it is dropped before the sites.
    second: Emulator,
    sites: TwoSites,
    pair: GatewayPair,
}

impl Lab {
    /// Starts gateways whose second path takes the second link, `local` and `interface` stated.
    fn start(path_use: &str) -> Self {
        let link = LinkConfig { rate_bps: Some(100_000_000), delay_us: 5_000, ..LinkConfig::default() };
        let config = EmulatorConfig::symmetric(link);
        let sites = TwoSites::build(&TwoSitesConfig::default(), &config).unwrap();
        let other = EmulatorConfig { interface: "wan1".to_owned(), ..config };
        let second = Emulator::start(&sites.a.gateway, &sites.b.gateway, &other).unwrap();
        let ends = End::of(&sites);
        let mut pair = GatewayPair::prepare(PROGRAM.as_ref(), &ends, &Setting::default()).unwrap();
        for (side, (near, far)) in [(&sites.a, &sites.b), (&sites.b, &sites.a)].into_iter().enumerate() {
            for network in far.networks() {
                let family = if network.addr().is_ipv4() { "-4" } else { "-6" };
                let route = [family, "route", "del", &network.to_string()];
                assert!(near.gateway.run(|| Command::new("ip").args(route).status()).unwrap().success());
            }
            let (own, other) = (side + 1, 2 - side);
            near.gateway.add_address("wan1", format!("10.82.9.{own}/24").parse().unwrap()).unwrap();
            let paths = format!(
                "use = \"{path_use}\"\npaths = [{{ address = \"10.82.9.{other}:4701\", local = \"10.82.9.{own}:4701\", \
                 interface = \"wan1\" }}]\nkey_file ="
            );
            let text = fs::read_to_string(pair.config(side)).unwrap();
            let text = text.replace("mode = \"passive\"", "mode = \"tunnel\"").replace("key_file =", &paths);
            fs::write(pair.config(side), text).unwrap();
        }
        for (side, end) in ends.iter().enumerate() {
            pair.launch(side, end.namespace).unwrap();
        }
        pair.wait_until_up(Duration::from_secs(30)).unwrap();
        let lab = Self { second, sites, pair };
        lab.wait_for_paths([true, true]);
        lab
    }

    /// Waits until these paths live at both ends, and no others.
    fn wait_for_paths(&self, alive: [bool; 2]) {
        for side in 0..2 {
            wait_for_peer(&self.pair, side, "the paths live", |peer| {
                paths(peer).iter().map(|path| path.alive).eq(alive)
            });
        }
    }

    fn stream(&self, seconds: u64) -> UdpReport {
        let plan = UdpStream {
            pace: Pace::Packets(500.0),
            payload_bytes: 800,
            duration: Duration::from_secs(seconds),
            patience: Duration::from_secs(1),
            ..UdpStream::default()
        };
        udp_stream(between(&self.sites), &plan, &mut unwatched).unwrap()
    }

    fn assert_all_arrive(&self, report: &UdpReport) {
        let fates = (report.missing(), report.duplicates, report.altered);
        assert_eq!(fates, (0, 0, 0), "{:?}\n{}", peer(&self.pair, 1), self.pair.logs());
    }
}

fn paths(peer: &PeerStatus) -> &[TunnelPath] {
    &peer.egress.tunnel.as_ref().expect("it is a tunnel").paths
}

/// Lets the first link drop everything, or nothing, without a word.
fn silence(lab: &Lab, is_silent: bool) {
    for direction in Direction::BOTH {
        lab.sites.link.set_loss(direction, &LossModel::Uniform(if is_silent { 1.0 } else { 0.0 }));
    }
}

/// Takes the first link's interface of one gateway down, or up.
fn take_down(lab: &Lab, is_down: bool) {
    let state = if is_down { "down" } else { "up" };
    let set = ["link", "set", "wan0", state];
    assert!(lab.sites.a.gateway.run(|| Command::new("ip").args(set).status()).unwrap().success());
}

fn packets_take_the_path_that_is_left(test: &str, break_link: fn(&Lab, bool)) {
    if !privilege::available_or_skip(test) {
        return;
    }
    let lab = Lab::start("failover");
    let sessions = peer(&lab.pair, 0).sessions;
    lab.assert_all_arrive(&lab.stream(1));
    assert!(paths(&peer(&lab.pair, 0))[0].used && paths(&peer(&lab.pair, 0))[1].sent.packets == 0);
    break_link(&lab, true);
    lab.wait_for_paths([false, true]);
    wait_for_log(&lab.pair, "path 1 is dead");
    lab.assert_all_arrive(&lab.stream(2));
    let status = peer(&lab.pair, 0);
    assert!(status.up && status.health.reasons.iter().any(|one| one.id == "path_dead"), "{status:?}");
    assert!(paths(&status)[1].used && paths(&status)[1].sent.packets >= 900, "{status:?}");
    break_link(&lab, false);
    lab.wait_for_paths([true, true]);
    wait_for_peer(&lab.pair, 0, "packets take the first path", |peer| paths(peer)[0].used);
    lab.assert_all_arrive(&lab.stream(1));
    assert_eq!(peer(&lab.pair, 0).sessions, sessions, "{}", lab.pair.logs());
    lab.pair.stop().unwrap();
}

testkit::cases! { packets_take_the_path_that_is_left:
    packets_take_the_other_path_when_a_link_drops_all_silently(silence);
    packets_take_the_other_path_when_an_interface_goes_down(take_down);
}

#[test]
fn duplicates_over_two_paths_lose_nothing_while_one_of_them_dies_and_comes_back() {
    if !privilege::available_or_skip(
        "duplicates_over_two_paths_lose_nothing_while_one_of_them_dies_and_comes_back",
    ) {
        return;
    }
    let lab = Lab::start("duplicate");
    let before = paths(&peer(&lab.pair, 1))[1].received.packets;
    let report = thread::scope(|scope| {
        let stream = scope.spawn(|| lab.stream(8));
        wait_for_peer(&lab.pair, 1, "packets arrive twice", |peer| paths(peer)[1].copies > 100);
        silence(&lab, true);
        lab.wait_for_paths([false, true]);
        silence(&lab, false);
        lab.wait_for_paths([true, true]);
        stream.join().unwrap()
    });
    lab.assert_all_arrive(&report);
    assert!(paths(&peer(&lab.pair, 1))[1].received.packets > before, "the other path was of use");
    assert_eq!(lab.pair.status(1).unwrap().rejected["replayed"], 0);
    lab.pair.stop().unwrap();
}

#[test]
fn repairs_on_one_path_recover_what_the_other_loses() {
    if !privilege::available_or_skip("repairs_on_one_path_recover_what_the_other_loses") {
        return;
    }
    let lab = Lab::start("spread");
    for direction in Direction::BOTH {
        lab.sites.link.set_loss(direction, &LossModel::Uniform(0.05));
    }
    let report = lab.stream(6);
    lab.assert_all_arrive(&report);
    let [near, far] = [0, 1].map(|side| peer(&lab.pair, side));
    assert!(far.ingress.loss.recovered > 50, "{far:?}");
    let [first, second] = paths(&near) else { panic!("{near:?}") };
    assert!(first.sent.repairs == 0 && second.sent.packets == 0 && second.sent.repairs > 100, "{near:?}");
    assert!(first.sent.lost > 50 && second.sent.lost < 20, "{near:?}");
    drop(lab.second);
}
