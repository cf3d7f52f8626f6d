//! A recovered packet passes the rules that the lost packet would have passed.

mod bounds;
mod iptables;
pub(crate) mod lab;
mod treatment;

use std::time::Duration;
use std::{env, fs, process};

use maelstrom::config::{self, Severity};
use netlab::topology::HOST;
use netlab::traffic::{TcpTransfer, tcp_transfer, unwatched};
use stage::gateways::{GatewayPair, Setting};
use testkit::wait_until;

use crate::health::{health_of, reason};
use lab::{Lab, Wan};
pub(crate) use lab::{command_at, possible, skipped};

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
        assert_eq!(status.counters["not_at_wan"], 0);
    }
}

/// Returns the codes of the errors and warnings of a check at the second gateway.
fn complaints(lab: &Lab, pair: &GatewayPair) -> Vec<&'static str> {
    let report = lab.gateway().run(|| config::check(&pair.config(1)));
    let serious = report.diagnostics().iter().filter(|finding| finding.severity != Severity::Note);
    serious.map(|finding| finding.code).collect()
}

fn packets_pass_rules_by_interface(test: &str, wan: Wan, tap: &'static str, v6: bool) {
    if !possible(test) {
        return;
    }
    let Some(lab) = Lab::build(wan, 4.0) else { return };
    lab.rules(PERMITTED_BY_INTERFACE);
    let pair = lab.start(&Setting { tap, ..Setting::layered() });
    lab.assert_recovered(&pair, v6);
    assert_injects_at_wan(&pair);
    assert!(!complaints(&lab, &pair).contains(&"rules-by-interface"), "the rules apply");
    pair.stop().unwrap();
}

testkit::cases! { packets_pass_rules_by_interface:
    recovered_packets_pass_rules_by_interface(Wan::Plain, "auto", false);
    recovered_packets_pass_rules_by_interface_with_the_packet_tap(Wan::Plain, "packet", true);
    recovered_packets_pass_rules_by_interface_on_ethernet(Wan::Ethernet, "auto", true);
    recovered_packets_pass_rules_by_interface_on_ethernet_with_the_packet_tap(Wan::Ethernet, "packet", false);
    recovered_packets_pass_rules_by_interface_on_a_vlan(Wan::Vlan, "auto", false);
    recovered_packets_pass_rules_by_interface_on_a_bridge(Wan::Bridge, "auto", false);
}

fn a_packet_that_a_rule_shuts_out_stays_out(test: &str, wan: Wan, tap: &'static str, rules: &str) {
    if !possible(test) {
        return;
    }
    let lab = Lab::build(wan, 4.0).unwrap();
    let pair = lab.start(&Setting { tap, ..Setting::layered() });
    lab.rules(&rules.replace("LOCAL", &lab.address(false).to_string()));
    let report = lab.stream(false);
    assert_eq!(report.arrived_us.len(), 0, "{rules}\n{}", pair.logs());
    assert!(pair.status(1).unwrap().peers[0].ingress.injected_packets > 0, "packets were recovered");
    pair.stop().unwrap();
}

const SHUT_IN_FORWARD: &str = "table inet filter { chain forward { type filter hook forward priority 0; iifname WAN meta l4proto udp ip daddr LOCAL drop\n}\n}";
const SHUT_IN_PREROUTING: &str = "table inet filter { chain early { type filter hook prerouting priority -300; iifname WAN meta l4proto udp ip daddr LOCAL drop\n}\n}";
const SHUT_AT_INGRESS: &str = "table netdev filter { chain first { type filter hook ingress device WAN priority 0; meta l4proto udp ip daddr LOCAL drop\n}\n}";

testkit::cases! { a_packet_that_a_rule_shuts_out_stays_out:
    a_packet_that_a_forward_rule_shuts_out_stays_out(Wan::Plain, "auto", SHUT_IN_FORWARD);
    a_packet_that_a_prerouting_rule_shuts_out_stays_out(Wan::Ethernet, "packet", SHUT_IN_PREROUTING);
    a_packet_that_an_ingress_rule_shuts_out_stays_out(Wan::Plain, "auto", SHUT_AT_INGRESS);
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
    let pair = lab.start(&Setting::layered());
    let transfer =
        TcpTransfer { duration: Duration::from_secs(4), least_bytes: 2_000_000, ..TcpTransfer::default() };
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
    let pair = lab.start(&Setting { injection: "tun", ..Setting::layered() });
    let status = pair.status(1).unwrap();
    assert_eq!(status.gateway.injection, "tun");
    assert_eq!(status.gateway.injection_reason.as_deref(), Some("the configuration demands it"));
    assert!(status.health.reasons.iter().all(|reason| reason.id != "injection_by_tun"), "it is wanted");
    lab.assert_recovered(&pair, false);
    lab.rules(PERMITTED_BY_INTERFACE);
    assert!(complaints(&lab, &pair).contains(&"rules-by-interface"));
    let missing = lab.stream(false).missing();
    assert!(missing > 20, "no recovered packet passes the rules, but only {missing} are missing");
    pair.stop().unwrap();
}

#[test]
fn without_the_right_to_load_programs_packets_enter_by_the_tun_device_and_the_operator_is_told() {
    if !possible(
        "without_the_right_to_load_programs_packets_enter_by_the_tun_device_and_the_operator_is_told",
    ) {
        return;
    }
    let directory = env::temp_dir().join(format!("undrop-without-bpf-{}", process::id()));
    fs::create_dir_all(&directory).unwrap();
    let lab = Lab::build(Wan::Plain, 4.0).unwrap();
    let pair = lab.start_without_bpf(&directory, &Setting::layered());
    for side in [0, 1] {
        let gateway = pair.status(side).unwrap().gateway;
        assert_eq!((gateway.injection.as_str(), gateway.tap.as_str()), ("tun", "packet"), "{}", pair.logs());
        let why = gateway.injection_reason.unwrap();
        let (_, document) = health_of(&pair, side);
        assert!(reason(&document, "injection_by_tun").ends_with(&why), "{document}");
    }
    assert_eq!(pair.logs().matches("do not apply to them").count(), 2, "{}", pair.logs());
    lab.assert_recovered(&pair, false);
    assert_eq!(health_of(&pair, 1).0, Some(1), "degraded");
    // The device forwards as the WAN interface does.
    let forwarding = || lab.gateway().read_sysctl("net/ipv4/conf/undrop0/forwarding").unwrap();
    assert_eq!(forwarding().trim(), "1");
    lab.gateway().sysctl(&format!("net/ipv4/conf/{}/forwarding", lab.wan()), "0").unwrap();
    wait_until("the device follows", || forwarding().trim() == "0");
    pair.stop().unwrap();
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn an_ingress_chain_below_the_wan_interface_is_told() {
    if !possible("an_ingress_chain_below_the_wan_interface_is_told") {
        return;
    }
    let lab = Lab::build(Wan::Bridge, 0.0).unwrap();
    let pair = lab.start(&Setting::layered());
    let chain = "table netdev filter { chain first { type filter hook ingress device DEVICE priority 0\n}\n}";
    lab.rules(&chain.replace("DEVICE", "WAN"));
    assert!(!complaints(&lab, &pair).contains(&"ingress-below-wan"));
    lab.command("nft", &["flush", "ruleset"]);
    lab.rules(&chain.replace("DEVICE", HOST));
    assert!(complaints(&lab, &pair).contains(&"ingress-below-wan"));
    pair.stop().unwrap();
}
