//! A gateway in tunnel mode whose address changes while hosts exchange bytes: behind a NAT that forgets its
//! mapping, and on an interface that gets another address.

use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use netlab::topology::{TwoSites, WAN};
use netlab::traffic::{TcpTransfer, tcp_transfer, unwatched};
use netlab::{conntrack, privilege};
use stage::gateways::{End, GatewayPair, Setting, between};

use crate::by_tunnel::{apart, in_tunnel_mode, ip};
use crate::firewall::lab::possible;
use crate::pair::{PROGRAM, peer, reload, wait_for_peer};

/// Translates all datagrams of a gateway, as a NAT in front of it does.
const NAT: &str = "add table ip nat; \
    add chain ip nat post { type nat hook postrouting priority srcnat; policy accept; }; \
    add rule ip nat post ip saddr 10.81.9.2 udp sport 4700 masquerade to :20000-29999 random";

/// Starts tunnels. The first gateway does not know where the second one is, which may be anywhere.
fn start(sites: &TwoSites) -> GatewayPair {
    let ends = End::of(sites);
    let mut pair = GatewayPair::prepare(PROGRAM.as_ref(), &ends, &Setting::default()).unwrap();
    for (side, end) in ends.iter().enumerate() {
        in_tunnel_mode(&pair, side);
        let text = fs::read_to_string(pair.config(side)).unwrap();
        let text = text.replace("address = \"10.81.9.2:4700\"", "name = \"osaka\"\naddress = \"any\"");
        let text = text.replace("listen = \"10.81.9.2:4700\"", "listen = \"0.0.0.0:4700\"");
        fs::write(pair.config(side), text).unwrap();
        pair.launch(side, end.namespace).unwrap();
    }
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    pair
}

/// Lets something happen to the second gateway in the middle of a transfer, which must go on.
fn survive(sites: &TwoSites, pair: &GatewayPair, happen: impl FnOnce()) {
    let before = peer(pair, 0);
    let (congestion, duration) = (Some("cubic".to_owned()), Duration::from_secs(5));
    let transfer = TcpTransfer { congestion, duration, least_bytes: 1_000_001, ..TcpTransfer::default() };
    let report = thread::scope(|scope| {
        let transfer = scope.spawn(|| tcp_transfer(between(sites), &transfer, &mut unwatched).unwrap());
        wait_for_peer(pair, 0, "packets travel", |peer| {
            peer.egress.source_packets > before.egress.source_packets + 500
        });
        happen();
        wait_for_peer(pair, 0, "the peer is found again", |peer| peer.address != before.address);
        let found = peer(pair, 0).egress.source_packets;
        wait_for_peer(pair, 0, "packets travel again", |peer| peer.egress.source_packets > found + 500);
        transfer.join().unwrap()
    });
    assert!(report.mismatch.is_none() && report.forward.received_bytes() > 1_000_000, "{report:?}");
    let after = peer(pair, 0);
    assert!(after.moves > before.moves && after.sessions == before.sessions, "{}", pair.logs());
}

#[test]
fn a_tunnel_passes_a_nat_that_forgets_its_mapping_in_mid_transfer() {
    if !possible("a_tunnel_passes_a_nat_that_forgets_its_mapping_in_mid_transfer") {
        return;
    }
    let sites = apart(0.01);
    let translated = sites.b.gateway.run(|| Command::new("nft").arg(NAT).status()).unwrap();
    assert!(translated.success());
    let pair = start(&sites);
    let port = peer(&pair, 0).address.port();
    assert!((20_000..30_000).contains(&port), "{port}");
    survive(&sites, &pair, || conntrack::forget(&sites.b.gateway).unwrap());
    pair.stop().unwrap();
}

#[test]
fn a_tunnel_follows_a_gateway_whose_interface_gets_another_address_in_mid_transfer() {
    let name = "a_tunnel_follows_a_gateway_whose_interface_gets_another_address_in_mid_transfer";
    if !privilege::available_or_skip(name) {
        return;
    }
    let sites = apart(0.01);
    let pair = start(&sites);
    survive(&sites, &pair, || {
        // As with DHCP: the old address is gone before the new one is there.
        ip(&sites.b.gateway, &["-4", "address", "flush", "dev", WAN]);
        ip(&sites.b.gateway, &["address", "add", "10.81.9.22/24", "dev", WAN]);
    });
    let expected: IpAddr = "10.81.9.22".parse().unwrap();
    assert_eq!(peer(&pair, 0).address.ip(), expected);
    pair.stop().unwrap();
}

#[test]
fn a_reload_lets_a_gateway_listen_at_one_address_of_all_and_at_all_again() {
    let name = "a_reload_lets_a_gateway_listen_at_one_address_of_all_and_at_all_again";
    if !privilege::available_or_skip(name) {
        return;
    }
    let sites = apart(0.01);
    let mut pair = start(&sites);
    for (present, next) in [("0.0.0.0", "10.81.9.2"), ("10.81.9.2", "0.0.0.0")] {
        let listen = |address| format!("listen = \"{address}:4700\"");
        reload(&mut pair, 1, |text| {
            assert!(text.contains(&listen(present)));
            text.replace(&listen(present), &listen(next))
        });
        pair.wait_until_up(Duration::from_secs(30)).unwrap();
        let transfer =
            TcpTransfer { duration: Duration::from_secs(1), least_bytes: 100_001, ..TcpTransfer::default() };
        let report = tcp_transfer(between(&sites), &transfer, &mut unwatched).unwrap();
        assert!(report.mismatch.is_none() && report.forward.received_bytes() > 100_000, "{report:?}");
    }
    pair.stop().unwrap();
}
