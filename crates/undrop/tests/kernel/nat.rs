//! A gateway behind a NAT, which forgets its mapping while packets are protected.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use netlab::conntrack;
use netlab::traffic::{Pace, UdpStream, udp_stream, unwatched};
use stage::gateways::{GatewayPair, Setting};

use crate::firewall::lab::{Lab, Wan, possible};
use crate::pair::{PROGRAM, peer, wait_for_log, wait_for_peer, wait_until_up};

/// Translates the repair channel of the second gateway, and no packets of the sites.
const NAT: &str = "table ip nat {
chain post {
type nat hook postrouting priority srcnat; policy accept;
ip saddr 10.83.0.2 udp sport 4700 masquerade to :20000-29999 random
}
}
";

#[test]
fn a_gateway_behind_a_nat_stays_protected_when_its_mapping_is_forgotten() {
    if !possible("a_gateway_behind_a_nat_stays_protected_when_its_mapping_is_forgotten") {
        return;
    }
    let lab = Lab::build(Wan::Ethernet, 4.0).unwrap();
    let router = &lab.sites.b.gateway;
    lab.rules_at(router, NAT);
    let ends = lab.ends();
    let mut pair = GatewayPair::prepare(Path::new(PROGRAM), &ends, &Setting::layered()).unwrap();
    let text = fs::read_to_string(pair.config(0)).unwrap();
    let any = text.replace("address = \"10.83.0.2:4700\"", "name = \"osaka\"\naddress = \"any\"");
    assert_ne!(any, text);
    fs::write(pair.config(0), any).unwrap();
    pair.launch(0, ends[0].namespace).unwrap();
    wait_for_log(&pair, "the peer has not called");
    wait_for_peer(&pair, 0, "the status says so too", |peer| {
        peer.trouble.as_ref().is_some_and(|trouble| trouble.cause.contains("has not called"))
    });
    pair.launch(1, ends[1].namespace).unwrap();
    wait_until_up(&pair);
    let found = peer(&pair, 0);
    assert_eq!((found.address.ip(), found.host.as_deref()), (lab.sites.b.wan_v4(), Some("any")));
    assert!((20_000..30_000).contains(&found.address.port()), "{}", found.address);
    lab.assert_recovered(&pair, false);
    let plan = UdpStream {
        pace: Pace::Packets(500.0),
        payload_bytes: 300,
        duration: Duration::from_secs(3),
        patience: Duration::from_secs(1),
        ..UdpStream::default()
    };
    for _ in 0..3 {
        let before = peer(&pair, 0);
        let report = thread::scope(|scope| {
            let (between, plan) = (lab.between(false), &plan);
            let stream = scope.spawn(move || udp_stream(between, plan, &mut unwatched).unwrap());
            wait_for_peer(&pair, 0, "packets are protected", |peer| {
                peer.egress.source_packets > before.egress.source_packets + 100
            });
            conntrack::forget(router).unwrap();
            wait_for_peer(&pair, 0, "the peer is found again", |peer| peer.address != before.address);
            stream.join().unwrap()
        });
        assert_eq!(report.altered, 0);
        let after = peer(&pair, 0);
        let expected = (before.moves + 1, before.sessions, lab.sites.b.wan_v4());
        assert_eq!((after.moves, after.sessions, after.address.ip()), expected, "{}", pair.logs());
    }
    wait_for_log(&pair, "the peer is at 10.81.9.2:2");
    lab.assert_recovered(&pair, false);
    pair.stop().unwrap();
}
