//! A gateway that reaches two far sites by links of their own.

use std::fs;
use std::path::Path;
use std::process::Command;

use maelstrom::status::{HealthStatus, InterfaceStatus, Status};
use netlab::privilege;
use stage::gateways::{Modes, ThreeSites};
use testkit::wait_until;

use crate::by_tunnel::ip;
use crate::firewall::lab::possible;
use crate::pair::PROGRAM;
use crate::three_sites::stream;
use crate::upgrade::{Successors, upgrade_by};

/// Number of streams of which one must arrive whole. A busy machine protects a part of the flows for a while.
const TRIES: usize = 5;

/// Asserts that what is lost from one site to another is recovered, and that nothing comes twice but packets
/// that arrived after their recovery (`disturbance.rs`).
fn assert_recovers(lab: &ThreeSites, from: usize, to: usize) {
    let legs = if from == 3 || to == 3 { vec![(to, from)] } else { vec![(3, from), (to, 3)] };
    let after_recovery = |(at, peer)| lab.peer(at, peer).unwrap().ingress.after_recovery;
    let whole = (0..TRIES).any(|_| {
        let before: u64 = legs.iter().copied().map(after_recovery).sum();
        let report = stream(lab, from, to);
        let late = legs.iter().copied().map(after_recovery).sum::<u64>().saturating_sub(before);
        assert!(
            report.duplicates <= late && report.altered == 0,
            "from {from} to {to}: {} came twice, {late} of them after their recovery, {} are altered\n{}",
            report.duplicates,
            report.altered,
            lab.logs()
        );
        report.missing() == 0
    });
    assert!(whole, "packets from {from} to {to} stay lost\n{}", lab.logs());
}

fn interfaces(lab: &ThreeSites) -> Vec<InterfaceStatus> {
    lab.status(3).unwrap().gateway.interfaces
}

fn names(interfaces: &[InterfaceStatus]) -> Vec<(&str, bool)> {
    interfaces.iter().map(|one| (one.name.as_str(), one.tap != "none")).collect()
}

/// Runs `nft` at the hub; returns what it prints.
fn nft(lab: &ThreeSites, words: &str) -> String {
    let output = lab.gateway(3).run(|| Command::new("nft").arg(words).output()).unwrap();
    assert!(output.status.success(), "nft {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn start(test: &str, seed: u64) -> Option<ThreeSites> {
    let is_possible = privilege::available_or_skip(test);
    is_possible.then(|| ThreeSites::start(Path::new(PROGRAM), Modes::Hub, "", seed).unwrap())
}

/// Renames an interface of the hub.
fn rename(lab: &ThreeSites, from: &str, to: &str) {
    ip(lab.gateway(3), &["link", "set", from, "down"]);
    ip(lab.gateway(3), &["link", "set", from, "name", to]);
    ip(lab.gateway(3), &["link", "set", to, "up"]);
}

/// Gives the second link its name again, and asserts that packets by it are recovered from then on.
fn assert_returns(lab: &ThreeSites) {
    rename(lab, "gone2", "wan2");
    ip(lab.gateway(3), &["route", "replace", "10.81.2.0/24", "via", "10.83.2.2", "dev", "wan2"]);
    // On a busy machine a gateway that opens a tap may answer later than the reader waits.
    let are_open = |status: &Status| names(&status.gateway.interfaces) == [("wan1", true), ("wan2", true)];
    wait_until("the tap is open again", || lab.status(3).is_ok_and(|status| are_open(&status)));
    wait_until("the peer is back", || lab.peer(3, 2).is_ok_and(|peer| peer.up));
    assert_recovers(lab, 2, 3);
}

#[test]
fn packets_of_two_links_are_recovered_and_those_between_their_sites_on_both() {
    let name = "packets_of_two_links_are_recovered_and_those_between_their_sites_on_both";
    if !possible(name) {
        return;
    }
    let Some(lab) = start(name, 6) else { return };
    assert_eq!(names(&interfaces(&lab)), [("wan1", true), ("wan2", true)]);
    assert!(interfaces(&lab).iter().all(|one| one.injection == "wan"));
    nft(&lab, "add table ip astray");
    nft(&lab, "add chain ip astray by { type filter hook prerouting priority 0; }");
    for (interface, network) in [("wan1", "10.81.2.0/24"), ("wan2", "10.81.1.0/24")] {
        nft(&lab, &format!("add rule ip astray by iifname {interface} ip saddr {network} counter"));
    }
    for (from, to) in [(1, 3), (3, 2), (2, 3), (3, 1), (1, 2), (2, 1)] {
        assert_recovers(&lab, from, to);
    }
    let astray = nft(&lab, "list table ip astray");
    assert_eq!(astray.matches("counter packets 0 bytes 0").count(), 2, "each by its own interface: {astray}");
    for (at, peer) in [(3, 1), (3, 2), (1, 3), (2, 3)] {
        let recovered = lab.peer(at, peer).unwrap().ingress.injected_packets;
        assert!(recovered > 5, "{recovered} of {peer} at {at}\n{}", lab.logs());
    }
    // Each names the network of the other one, whose packets pass the hub.
    for site in [1, 2] {
        let differences = lab.peer(3, site).unwrap().differences;
        assert!(differences.is_empty(), "{differences:?}");
    }
    lab.stop().unwrap();
}

#[test]
fn a_link_whose_interface_is_gone_does_not_stop_the_recovery_of_the_other_one() {
    let name = "a_link_whose_interface_is_gone_does_not_stop_the_recovery_of_the_other_one";
    let Some(mut lab) = start(name, 7) else { return };
    rename(&lab, "wan2", "gone2");
    wait_until("the loss is told", || names(&interfaces(&lab)) == [("wan1", true), ("wan2", false)]);
    let health = lab.status(3).unwrap().health;
    let told = health.reasons.iter().any(|reason| reason.id == "no_tap" && reason.text.contains("wan2"));
    assert!(told && !health.is_down(), "{health:?}");
    wait_until("recovery pauses there", || interfaces(&lab)[1].paused.as_deref() == Some("interface"));
    // A class, so that the file differs.
    let text = fs::read_to_string(lab.file(3)).unwrap();
    let class =
        "[[class]]\nname = \"bulk\"\nmatch = { protocol = [\"tcp\"], ports = [873] }\nprotect = \"off\"\n";
    fs::write(lab.file(3), text + class).unwrap();
    lab.reload(3).unwrap();
    wait_until("the file is read", || lab.status(3).unwrap().classes.len() == 1);
    let before = lab.peer(3, 1).unwrap().ingress.injected_packets;
    assert_recovers(&lab, 1, 3);
    assert!(lab.peer(3, 1).unwrap().ingress.injected_packets > before, "{}", lab.logs());
    assert_returns(&lab);
    lab.stop().unwrap();
}

#[test]
fn a_gateway_starts_and_hands_over_while_the_interface_of_a_peer_is_gone() {
    let name = "a_gateway_starts_and_hands_over_while_the_interface_of_a_peer_is_gone";
    let Some(mut lab) = start(name, 9) else { return };
    rename(&lab, "wan2", "gone2");
    lab.restart(3).unwrap();
    wait_until("the gateway runs", || lab.status(3).is_ok());
    assert_eq!(names(&interfaces(&lab)), [("wan1", true), ("wan2", false)]);
    assert!(lab.logs().contains("there is no interface `wan2` on this machine"), "{}", lab.logs());
    let is_told = |health: &HealthStatus| {
        health.reasons.iter().any(|reason| reason.id == "no_tap" && reason.text.contains("wan2"))
    };
    wait_until("the other peer is protected", || {
        let health = lab.status(3).unwrap().health;
        is_told(&health) && !health.is_down()
    });
    assert_recovers(&lab, 1, 3);
    let mut successors = Successors::default();
    successors.add(upgrade_by(&lab.file(3)).unwrap_or_else(|said| panic!("{said}\n{}", lab.logs())));
    assert_eq!(names(&interfaces(&lab)), [("wan1", true), ("wan2", false)]);
    assert_recovers(&lab, 1, 3);
    assert_returns(&lab);
    successors.stop();
    lab.stop().unwrap();
}

#[test]
fn a_reload_adds_and_removes_a_link_and_an_upgrade_hands_both_over() {
    let name = "a_reload_adds_and_removes_a_link_and_an_upgrade_hands_both_over";
    let Some(mut lab) = start(name, 8) else { return };
    let text = fs::read_to_string(lab.file(3)).unwrap();
    // Without the key, no packet of the second site passes the interface that is watched.
    fs::write(lab.file(3), text.replace("wan = \"wan2\"\n", "")).unwrap();
    lab.reload(3).unwrap();
    wait_until("one link is left", || names(&interfaces(&lab)) == [("wan1", true)]);
    assert!(!ip(lab.gateway(3), &["-oneline", "link"]).contains("undrop0.1"));
    assert_recovers(&lab, 1, 3);
    fs::write(lab.file(3), &text).unwrap();
    lab.reload(3).unwrap();
    wait_until("both links are there", || names(&interfaces(&lab)) == [("wan1", true), ("wan2", true)]);
    assert_recovers(&lab, 2, 3);
    let before = [1, 2].map(|peer| lab.peer(3, peer).unwrap().sessions);
    let mut successors = Successors::default();
    successors.add(upgrade_by(&lab.file(3)).unwrap_or_else(|said| panic!("{said}\n{}", lab.logs())));
    wait_until("the devices have their names", || {
        let links = ip(lab.gateway(3), &["-oneline", "link"]);
        links.contains("undrop0:") && links.contains("undrop0.1:")
    });
    assert_eq!(names(&interfaces(&lab)), [("wan1", true), ("wan2", true)]);
    for (from, to) in [(1, 3), (2, 3)] {
        assert_recovers(&lab, from, to);
    }
    // A gateway that stands still may begin another session.
    if !lab.logs().contains("stood still") {
        assert_eq!([1, 2].map(|peer| lab.peer(3, peer).unwrap().sessions), before, "{}", lab.logs());
    }
    successors.stop();
    lab.stop().unwrap();
}
