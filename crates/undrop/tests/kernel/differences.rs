//! Configurations of the two ends that disagree.

use std::path::Path;

use maelstrom::config;
use netlab::emulator::EmulatorConfig;
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};

use crate::pair::{PROGRAM, reload, wait_for_peer};

#[test]
fn networks_that_only_the_peer_knows_are_told_by_status_log_and_check() {
    if !privilege::available_or_skip("networks_that_only_the_peer_knows_are_told_by_status_log_and_check") {
        return;
    }
    let link = EmulatorConfig::symmetric(LinkConfig::default());
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link).unwrap();
    let mut ends = End::of(&sites);
    // The file of side 0 names a network of site B that site B does not have; that of side 1 forgets IPv6 of
    // site A.
    ends[1].networks.push("10.99.0.0/16".parse().unwrap());
    ends[0].networks.pop();
    let pair = GatewayPair::start(Path::new(PROGRAM), &ends, &Setting::layered()).unwrap();
    let peer = wait_for_peer(&pair, 1, "it is told", |peer| !peer.differences.is_empty());
    assert!(peer.networks_named_there.contains(&"10.99.0.0/16".parse().unwrap()));
    assert_eq!(
        peer.differences,
        ["the peer's file names 10.99.0.0/16 as a network of this site, but this machine has no route to it"]
    );
    assert!(
        pair.logs().contains("the two ends differ: the peer's file names 10.99.0.0/16"),
        "{}",
        pair.logs()
    );
    let findings = sites.b.gateway.run(|| config::check(&pair.config(1)));
    let codes: Vec<_> = findings.diagnostics().iter().map(|finding| finding.code).collect();
    assert!(codes.contains(&"networks-differ"), "{findings}");

    // Side 0 finds nothing wrong until a packet leaves that side 1 would not watch.
    assert_eq!(pair.status(0).unwrap().peers[0].differences, [""; 0]);
    let to = std::net::SocketAddr::new(sites.b.host_v6(0), 9);
    let sender = sites.a.hosts[0].run(|| std::net::UdpSocket::bind("[::]:0").unwrap());
    let peer = wait_for_peer(&pair, 0, "it is told", |peer| {
        let _ = sender.send_to(&[0; 9], to);
        !peer.differences.is_empty()
    });
    let difference = &peer.differences[0];
    assert!(difference.starts_with(&format!("packets from {} leave", sites.a.host_v6(0))), "{difference}");
    pair.stop().unwrap();
}

#[test]
fn a_network_that_both_files_claim_for_the_other_side_is_told_at_both_ends() {
    if !privilege::available_or_skip(
        "a_network_that_both_files_claim_for_the_other_side_is_told_at_both_ends",
    ) {
        return;
    }
    let link = EmulatorConfig::symmetric(LinkConfig::default());
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link).unwrap();
    let mut ends = End::of(&sites);
    ends.iter_mut().for_each(|end| end.networks.push("10.90.0.0/16".parse().unwrap()));
    let pair = GatewayPair::start(Path::new(PROGRAM), &ends, &Setting::layered()).unwrap();
    for side in [0, 1] {
        let peer = wait_for_peer(&pair, side, "it is told", |peer| !peer.differences.is_empty());
        assert!(peer.differences[0].contains("but the file here names 10.90.0.0/16"));
    }
    pair.stop().unwrap();
}

#[test]
fn stated_networks_of_the_site_are_compared_with_those_that_the_peer_names() {
    if !privilege::available_or_skip(
        "stated_networks_of_the_site_are_compared_with_those_that_the_peer_names",
    ) {
        return;
    }
    let link = EmulatorConfig::symmetric(LinkConfig::default());
    let sites = TwoSites::build(&TwoSitesConfig::default(), &link).unwrap();
    let ends = End::of(&sites);
    let mut pair = GatewayPair::start(Path::new(PROGRAM), &ends, &Setting::layered()).unwrap();
    let stated = format!("[gateway]\nlocal_networks = [\"{}\", \"10.98.0.0/16\"]\n", ends[0].networks[0]);
    reload(&mut pair, 0, |text| text.replace("[gateway]\n", &stated));
    let peer = wait_for_peer(&pair, 0, "both are told", |peer| peer.differences.len() == 2);
    let differences = &peer.differences;
    assert_eq!(peer.difference_ids, ["network_not_local", "network_not_named"]);
    let v6 = ends[0].networks[1];
    assert!(differences[0].starts_with(&format!("the peer's file names {v6} as")), "{differences:?}");
    assert!(differences[1].starts_with("`local_networks` here contains 10.98.0.0/16"), "{differences:?}");
    // The file is corrected.
    reload(&mut pair, 0, |text| text.replace(&stated, "[gateway]\n"));
    wait_for_peer(&pair, 0, "nothing is told", |peer| peer.differences.is_empty());
    pair.stop().unwrap();
}
