//! A recovered packet passes the rules that the lost packet would have passed.

mod bounds;
mod lab;
mod treatment;

use std::thread::sleep;
use std::time::{Duration, Instant};

use netlab::traffic::{TcpTransfer, tcp_transfer, unwatched};
use stage::gateways::{GatewayPair, Setting};

use lab::{Lab, Wan, possible};

/// As `ufw`, `firewalld` and Docker leave a router: what is not permitted by interface is dropped.
const PERMITTED_BY_INTERFACE: &str = "
table inet filter {
    chain forward {
        type filter hook forward priority 0; policy drop;
        iifname WAN oifname LAN accept
        iifname LAN oifname WAN accept
    }
}";

fn assert_injects_at_wan(pair: &GatewayPair) {
    for side in [0, 1] {
        let status = pair.status(side).unwrap();
        assert_eq!(status.gateway.injection, "wan", "{:?}", status.gateway.injection_reason);
        assert_eq!(status.counters["recovered packets that did not arrive at the WAN interface"], 0);
    }
}

/// Waits until `done`, however busy the machine is.
fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn packets_are_recovered_through_rules_that_permit_by_interface() {
    if !possible("packets_are_recovered_through_rules_that_permit_by_interface") {
        return;
    }
    for (wan, tap, v6) in [
        (Wan::Plain, "auto", false),
        (Wan::Plain, "packet", true),
        (Wan::Ethernet, "packet", false),
        (Wan::Ethernet, "auto", true),
        (Wan::Vlan, "auto", false),
        (Wan::Bridge, "auto", false),
    ] {
        let Some(lab) = Lab::build(wan, 4.0) else { continue };
        lab.rules(PERMITTED_BY_INTERFACE);
        let pair = lab.start(&Setting { tap, ..Setting::default() });
        lab.assert_recovered(&pair, v6);
        assert_injects_at_wan(&pair);
        pair.stop().unwrap();
    }
}

#[test]
fn what_a_rule_shuts_on_the_wan_stays_shut() {
    if !possible("what_a_rule_shuts_on_the_wan_stays_shut") {
        return;
    }
    let shut_by = [
        "table inet filter { chain forward { type filter hook forward priority 0; iifname WAN meta l4proto udp ip daddr LOCAL drop\n}\n}",
        "table inet filter { chain early { type filter hook prerouting priority -300; iifname WAN meta l4proto udp ip daddr LOCAL drop\n}\n}",
        "table netdev filter { chain first { type filter hook ingress device WAN priority 0; meta l4proto udp ip daddr LOCAL drop\n}\n}",
    ];
    for (wan, tap, rules) in [
        (Wan::Plain, "auto", shut_by[0]),
        (Wan::Ethernet, "packet", shut_by[1]),
        (Wan::Plain, "auto", shut_by[2]),
    ] {
        let lab = Lab::build(wan, 4.0).unwrap();
        let pair = lab.start(&Setting { tap, ..Setting::default() });
        lab.rules(&rules.replace("LOCAL", &lab.address(false).to_string()));
        let report = lab.stream(false);
        assert_eq!(report.arrived_us.len(), 0, "{rules}\n{}", pair.logs());
        assert!(pair.status(1).unwrap().peers[0].ingress.injected_packets > 0, "packets were recovered");
        pair.stop().unwrap();
    }
}

#[test]
fn a_connection_lives_where_unknown_interfaces_are_reset() {
    if !possible("a_connection_lives_where_unknown_interfaces_are_reset") {
        return;
    }
    let lab = Lab::build(Wan::Plain, 4.0).unwrap();
    lab.rules(
        "table inet filter { chain forward { type filter hook forward priority 0;
            iifname != { WAN, LAN } meta l4proto tcp reject with tcp reset\n}\n}",
    );
    let pair = lab.start(&Setting::default());
    let transfer = TcpTransfer { duration: Duration::from_secs(4), ..TcpTransfer::default() };
    let report = tcp_transfer(lab.between(false), &transfer, &mut unwatched).unwrap();
    assert_eq!(report.mismatch, None);
    let last = report.forward.samples.last().unwrap();
    assert!(last.elapsed_us > 3_000_000 && last.received_bytes > 100_000, "{last:?}\n{}", pair.logs());
    assert!(pair.status(1).unwrap().peers[0].ingress.injected_packets > 0);
    pair.stop().unwrap();
}

/// Rules by interface do not permit packets of the TUN device, and the operator learns that this way is in
/// use.
#[test]
fn the_way_by_the_tun_device_is_reported_and_meets_other_rules() {
    if !possible("the_way_by_the_tun_device_is_reported_and_meets_other_rules") {
        return;
    }
    let lab = Lab::build(Wan::Plain, 4.0).unwrap();
    let pair = lab.start(&Setting { injection: "tun", ..Setting::default() });
    let status = pair.status(1).unwrap();
    assert_eq!(status.gateway.injection, "tun");
    assert_eq!(status.gateway.injection_reason.as_deref(), Some("the configuration demands it"));
    lab.assert_recovered(&pair, false);
    lab.rules(PERMITTED_BY_INTERFACE);
    let missing = lab.stream(false).missing();
    assert!(missing > 20, "no recovered packet passes the rules, but only {missing} are missing");
    pair.stop().unwrap();
}
