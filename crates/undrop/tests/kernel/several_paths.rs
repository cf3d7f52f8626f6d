//! Peers in tunnel mode with two paths between them, each a link of its own.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use loss::LossModel;
use maelstrom::status::{PeerStatus, TunnelPath};
use netlab::privilege;
use netlab::traffic::{Pace, UdpReport, UdpStream, udp_stream, unwatched};
use netlab::{Direction, conntrack};
use simnet::link::LinkConfig;
use stage::gateways::{GatewayPair, TwoPaths, between};

use crate::disturbance::undisturbed;
use crate::firewall::lab::possible;
use crate::pair::{PROGRAM, peer, reload, wait_for_log, wait_for_peer, wait_until_up};

/// Two sites with two links, and gateways that use both.
struct Lab {
    paths: TwoPaths,
    pair: GatewayPair,
}

impl Lab {
    /// Starts gateways whose second path takes the second link.
    fn start(path_use: &str) -> Self {
        Self::start_with(path_use, "", |text| text)
    }

    /// The same with rules of nftables at the second gateway, and a change of the file of the first.
    fn start_with(path_use: &str, rules: &str, change: fn(String) -> String) -> Self {
        let link = LinkConfig { rate_bps: Some(100_000_000), delay_us: 5_000, ..LinkConfig::default() };
        let paths = TwoPaths::build(link.clone(), link).unwrap();
        let mut pair = paths.prepare(PROGRAM.as_ref(), Some(path_use)).unwrap();
        fs::write(pair.config(0), change(fs::read_to_string(pair.config(0)).unwrap())).unwrap();
        if !rules.is_empty() {
            let run = || Command::new("nft").arg(rules).status();
            assert!(paths.sites.b.gateway.run(run).unwrap().success());
        }
        paths.launch(&mut pair).unwrap();
        let lab = Self { paths, pair };
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
        udp_stream(between(&self.paths.sites), &plan, &mut unwatched).unwrap()
    }

    fn assert_all_of_a_stream_arrive(&self, seconds: u64) {
        self.assert_all_arrive(&undisturbed(&self.pair, || self.stream(seconds)));
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
        lab.paths.sites.link.set_loss(direction, &LossModel::Uniform(if is_silent { 1.0 } else { 0.0 }));
    }
}

/// Takes the first link's interface of one gateway down, or up.
fn take_down(lab: &Lab, is_down: bool) {
    let state = if is_down { "down" } else { "up" };
    let set = ["link", "set", "wan0", state];
    assert!(lab.paths.sites.a.gateway.run(|| Command::new("ip").args(set).status()).unwrap().success());
}

fn packets_take_the_path_that_is_left(test: &str, break_link: fn(&Lab, bool)) {
    if !privilege::available_or_skip(test) {
        return;
    }
    let lab = Lab::start("failover");
    let sessions = peer(&lab.pair, 0).sessions;
    lab.assert_all_of_a_stream_arrive(1);
    assert!(paths(&peer(&lab.pair, 0))[0].used && paths(&peer(&lab.pair, 0))[1].sent.packets == 0);
    break_link(&lab, true);
    lab.wait_for_paths([false, true]);
    wait_for_log(&lab.pair, "path 1 is dead");
    lab.assert_all_of_a_stream_arrive(2);
    let status = peer(&lab.pair, 0);
    assert!(status.up && status.health.reasons.iter().any(|one| one.id == "path_dead"), "{status:?}");
    assert!(paths(&status)[1].used && paths(&status)[1].sent.packets >= 900, "{status:?}");
    break_link(&lab, false);
    lab.wait_for_paths([true, true]);
    wait_for_peer(&lab.pair, 0, "packets take the first path", |peer| paths(peer)[0].used);
    lab.assert_all_of_a_stream_arrive(1);
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
        lab.paths.sites.link.set_loss(direction, &LossModel::Uniform(0.05));
    }
    lab.assert_all_of_a_stream_arrive(6);
    let [near, far] = [0, 1].map(|side| peer(&lab.pair, side));
    assert!(far.ingress.loss.recovered > 50, "{far:?}");
    let [first, second] = paths(&near) else { panic!("{near:?}") };
    assert!(first.sent.repairs == 0 && second.sent.repairs > 100, "{near:?}");
    // A machine that stands still for a while looks like a path that is full.
    assert!(second.sent.packets < first.sent.packets / 4, "{near:?}");
    assert!(first.sent.lost > 50 && second.sent.lost < 20, "{near:?}");
    lab.pair.stop().unwrap();
}

#[test]
fn packets_that_the_first_link_cannot_carry_take_the_second() {
    if !privilege::available_or_skip("packets_that_the_first_link_cannot_carry_take_the_second") {
        return;
    }
    let (rate_bps, queue_bytes) = (Some(8_000_000), Some(66_000));
    let link = LinkConfig { rate_bps, queue_bytes, delay_us: 5_000, ..LinkConfig::default() };
    let paths_of_8 = TwoPaths::build(link.clone(), link).unwrap();
    let mut pair = paths_of_8.prepare(PROGRAM.as_ref(), Some("spread")).unwrap();
    paths_of_8.launch(&mut pair).unwrap();
    let lab = Lab { paths: paths_of_8, pair };
    lab.wait_for_paths([true, true]);
    // Some 9.5 Mbit/s with all headers, and repairs.
    let plan = UdpStream {
        pace: Pace::Packets(1_300.0),
        payload_bytes: 800,
        duration: Duration::from_secs(10),
        patience: Duration::from_secs(1),
        ..UdpStream::default()
    };
    let report = udp_stream(between(&lab.paths.sites), &plan, &mut unwatched).unwrap();
    let near = peer(&lab.pair, 0);
    let [first, second] = paths(&near) else { panic!("{near:?}") };
    assert!(second.sent.packets * 20 > first.sent.packets, "{near:?}");
    assert_eq!((report.duplicates, report.altered), (0, 0), "{}", lab.pair.logs());
    // The first link alone would drop every sixth.
    assert!(report.missing() * 10 < report.sent_us.len(), "{} missing: {near:?}", report.missing());
    lab.pair.stop().unwrap();
}

/// Translates the second path, as a NAT in front of that uplink does.
const NAT: &str = "add table ip nat; \
    add chain ip nat post { type nat hook postrouting priority srcnat; policy accept; }; \
    add rule ip nat post ip saddr 10.82.9.2 udp sport 4701 masquerade to :20000-29999 random";

#[test]
fn a_path_behind_a_nat_is_found_again_when_its_mapping_is_forgotten() {
    if !possible("a_path_behind_a_nat_is_found_again_when_its_mapping_is_forgotten") {
        return;
    }
    let any = |text: String| text.replace("address = \"10.82.9.2:4701\"", "address = \"any\"");
    let lab = Lab::start_with("failover", NAT, any);
    let port = || paths(&peer(&lab.pair, 0))[1].address.port();
    let before = port();
    assert!((20_000..30_000).contains(&before), "{before}");
    // Ends that start at once may begin two sessions before they agree on one.
    let sessions = peer(&lab.pair, 0).sessions;
    conntrack::forget(&lab.paths.sites.b.gateway).unwrap();
    wait_for_peer(&lab.pair, 0, "the path has another port", |peer| {
        paths(peer)[1].address.port() != before && paths(peer)[1].alive
    });
    silence(&lab, true);
    lab.wait_for_paths([false, true]);
    lab.assert_all_of_a_stream_arrive(2);
    assert_eq!(peer(&lab.pair, 0).sessions, sessions, "{}", lab.pair.logs());
    lab.pair.stop().unwrap();
}

#[test]
fn a_path_without_a_local_end_is_used_as_soon_as_it_has_one() {
    if !privilege::available_or_skip("a_path_without_a_local_end_is_used_as_soon_as_it_has_one") {
        return;
    }
    let link = LinkConfig { rate_bps: Some(100_000_000), delay_us: 5_000, ..LinkConfig::default() };
    let paths = TwoPaths::build(link.clone(), link).unwrap();
    let address = |action: &str| {
        let change = ["address", action, "10.82.9.1/24", "dev", "wan1"];
        assert!(paths.sites.a.gateway.run(|| Command::new("ip").args(change).status()).unwrap().success());
    };
    address("del");
    let mut pair = paths.prepare(PROGRAM.as_ref(), Some("failover")).unwrap();
    paths.launch(&mut pair).unwrap();
    wait_for_log(&pair, "cannot use the path from 10.82.9.1:4701 by wan1 yet");
    address("add");
    let lab = Lab { paths, pair };
    lab.wait_for_paths([true, true]);
    silence(&lab, true);
    lab.wait_for_paths([false, true]);
    lab.assert_all_of_a_stream_arrive(1);
    lab.pair.stop().unwrap();
}

/// Runs `ip` at one gateway.
fn ip(paths: &TwoPaths, side: usize, arguments: &str) {
    let gateway = [&paths.sites.a.gateway, &paths.sites.b.gateway][side];
    let run = || Command::new("ip").args(arguments.split(' ')).status();
    assert!(gateway.run(run).unwrap().success(), "{arguments}");
}

#[test]
fn a_first_path_with_an_interface_does_not_move_to_the_uplink_of_another() {
    if !privilege::available_or_skip("a_first_path_with_an_interface_does_not_move_to_the_uplink_of_another")
    {
        return;
    }
    let mut lab = Lab::start("failover");
    silence(&lab, true);
    lab.wait_for_paths([false, true]);
    // The routes of the first path lead by the second link, as when the default route of an uplink is gone.
    ip(&lab.paths, 0, "route add 10.81.9.2 via 10.82.9.2");
    ip(&lab.paths, 1, "route add 10.81.9.1 via 10.82.9.1");
    lab.wait_for_paths([true, true]);
    let change = |lab: &mut Lab, from: &str, to: &str| {
        for side in 0..2 {
            reload(&mut lab.pair, side, |text| text.replacen(from, to, 1));
        }
    };
    change(&mut lab, "listen = ", "listen_interface = \"wan0\"\nlisten = ");
    lab.wait_for_paths([false, true]);
    lab.assert_all_of_a_stream_arrive(1);
    silence(&lab, false);
    lab.wait_for_paths([true, true]);
    silence(&lab, true);
    lab.wait_for_paths([false, true]);
    change(&mut lab, "listen_interface = \"wan0\"\n", "");
    lab.wait_for_paths([true, true]);
    lab.pair.stop().unwrap();
}

#[test]
fn the_interface_of_the_first_path_may_come_and_go() {
    if !privilege::available_or_skip("the_interface_of_the_first_path_may_come_and_go") {
        return;
    }
    let link = LinkConfig { rate_bps: Some(100_000_000), delay_us: 5_000, ..LinkConfig::default() };
    let paths = TwoPaths::build(link.clone(), link).unwrap();
    let rename = |paths: &TwoPaths, from: &str, to: &str| {
        ip(paths, 0, &format!("link set {from} down"));
        ip(paths, 0, &format!("link set {from} name {to}"));
        ip(paths, 0, &format!("link set {to} up"));
    };
    let mut pair = paths.prepare(PROGRAM.as_ref(), Some("failover")).unwrap();
    let text = fs::read_to_string(pair.config(0)).unwrap();
    let text = text.replacen("wan = \"wan0\"", "wan = \"wan1\"\nlisten_interface = \"up0\"", 1);
    fs::write(pair.config(0), text).unwrap();
    paths.launch(&mut pair).unwrap();
    wait_for_log(&pair, "there is no interface up0");
    let lab = Lab { paths, pair };
    lab.wait_for_paths([false, true]);
    rename(&lab.paths, "wan0", "up0");
    lab.wait_for_paths([true, true]);
    lab.assert_all_of_a_stream_arrive(1);
    // The same interface by another name is not the one in the file.
    rename(&lab.paths, "up0", "wan0");
    lab.wait_for_paths([false, true]);
    lab.assert_all_of_a_stream_arrive(1);
    lab.pair.stop().unwrap();
}

#[test]
fn paths_are_taken_away_and_added_by_a_reload() {
    if !privilege::available_or_skip("paths_are_taken_away_and_added_by_a_reload") {
        return;
    }
    let mut lab = Lab::start("failover");
    let files = [0, 1].map(|side| fs::read_to_string(lab.pair.config(side)).unwrap());
    let without = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("paths =") && !line.starts_with("use ="));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    for (side, file) in files.iter().enumerate() {
        reload(&mut lab.pair, side, |_| without(file));
    }
    wait_until_up(&lab.pair);
    for side in 0..2 {
        wait_for_peer(&lab.pair, side, "there is one path", |peer| peer.up && paths(peer).is_empty());
    }
    lab.assert_all_of_a_stream_arrive(1);
    for (side, file) in files.iter().enumerate() {
        reload(&mut lab.pair, side, |_| file.replace("\"failover\"", "\"duplicate\""));
    }
    lab.wait_for_paths([true, true]);
    lab.assert_all_of_a_stream_arrive(1);
    assert!(paths(&peer(&lab.pair, 1)).iter().any(|path| path.copies > 100), "{}", lab.pair.logs());
    lab.pair.stop().unwrap();
}

#[test]
fn the_session_with_a_peer_outlasts_paths_of_another_one_that_come_and_go() {
    if !privilege::available_or_skip("the_session_with_a_peer_outlasts_paths_of_another_one_that_come_and_go")
    {
        return;
    }
    let mut lab = Lab::start("failover");
    lab.assert_all_of_a_stream_arrive(1);
    let mut draw = Command::new(PROGRAM);
    draw.args(["gateway", "genkey", "--out"]).arg(lab.pair.config(0).with_file_name("other.key"));
    assert!(draw.output().unwrap().status.success());
    let other = "[[peer]]\naddress = \"10.81.9.77:4700\"\nnetworks = [\"10.99.0.0/24\"]\nkey_file = \"other.key\"\n\
        paths = [{ address = \"10.82.9.77:4701\", local = \"10.82.9.1:4702\", interface = \"wan1\" }]\n";
    let sent = |lab: &Lab| {
        let status = lab.pair.status(0).unwrap();
        let far = status.peers.iter().find(|peer| peer.address.to_string() == "10.81.9.2:4700").unwrap();
        assert_eq!((far.up, far.sessions, peer(&lab.pair, 1).sessions), (true, 1, 1), "{}", lab.pair.logs());
        far.egress.source_packets
    };
    let before = sent(&lab);
    // It comes first in the file.
    reload(&mut lab.pair, 0, |text| text.replacen("[[peer]]", &format!("{other}[[peer]]"), 1));
    let between = sent(&lab);
    assert!(between >= before, "{between} of {before}");
    lab.assert_all_of_a_stream_arrive(1);
    // The second path of the first peer has its socket.
    silence(&lab, true);
    wait_for_peer(&lab.pair, 1, "one path lives", |peer| !paths(peer)[0].alive && paths(peer)[1].alive);
    lab.assert_all_of_a_stream_arrive(1);
    silence(&lab, false);
    wait_for_peer(&lab.pair, 1, "both paths live", |peer| paths(peer).iter().all(|path| path.alive));
    reload(&mut lab.pair, 0, |text| text.replace(other, ""));
    assert!(sent(&lab) >= between);
    lab.wait_for_paths([true, true]);
    lab.assert_all_of_a_stream_arrive(1);
    lab.pair.stop().unwrap();
}
