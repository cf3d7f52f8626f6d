//! Source checks, connection tracking, policers and marks treat a recovered packet like the lost one.

use std::time::Duration;

use netlab::topology::LAN;
use netlab::traffic::{TcpTransfer, tcp_transfer, unwatched};
use stage::gateways::Setting;

use super::lab::{Lab, Wan, command_at, possible};

fn packets_are_recovered_with_a_source_check(test: &str, rp_filter: &str, wan: Wan, injection: &'static str) {
    if !possible(test) {
        return;
    }
    let lab = Lab::build(wan, 4.0).unwrap();
    for interface in ["all", "default", lab.wan()] {
        lab.gateway().sysctl(&format!("net/ipv4/conf/{interface}/rp_filter"), rp_filter).unwrap();
    }
    let pair = lab.start(&Setting { injection, ..Setting::layered() });
    lab.assert_recovered(&pair, false);
    assert_eq!(pair.status(1).unwrap().gateway.injection, injection);
    pair.stop().unwrap();
}

testkit::cases! { packets_are_recovered_with_a_source_check:
    packets_are_recovered_without_source_check("0", Wan::Plain, "wan");
    packets_are_recovered_with_a_strict_source_check("1", Wan::Plain, "wan");
    packets_are_recovered_with_a_loose_source_check("2", Wan::Ethernet, "wan");
    packets_of_the_tun_device_are_recovered_with_a_strict_source_check("1", Wan::Plain, "tun");
}

/// A strict check at the WAN interface drops packets whose source lies behind another interface. It knows
/// nothing of the TUN device.
#[test]
fn a_source_check_that_drops_packets_from_the_wire_drops_recovered_ones() {
    if !possible("a_source_check_that_drops_packets_from_the_wire_drops_recovered_ones") {
        return;
    }
    let lab = Lab::build(Wan::Plain, 4.0).unwrap();
    for interface in ["all", "default", lab.wan()] {
        lab.gateway().sysctl(&format!("net/ipv4/conf/{interface}/rp_filter"), "1").unwrap();
    }
    let pair = lab.start(&Setting::layered());
    lab.assert_recovered(&pair, false);
    let from = lab.sites.a.host_v4(0).to_string();
    lab.command("ip", &["route", "add", &from, "dev", LAN]);
    let injected = || pair.status(1).unwrap().peers[0].ingress.injected_packets;
    let (before, mut streams) = (injected(), 0);
    while injected() < before + 10 {
        let arrived = lab.stream(false).arrived_us.len();
        assert_eq!(arrived, 0, "of {} recovered ones\n{}", injected() - before, pair.logs());
        streams += 1;
        assert!(streams < 10, "expected 10 recovered packets, saw {}", injected() - before);
    }
    lab.command("ip", &["route", "del", &from, "dev", LAN]);
    lab.assert_recovered(&pair, false);
    pair.stop().unwrap();
}

/// A zone is chosen by interface. In another one, a packet belongs to no connection.
#[test]
fn a_connection_in_a_zone_of_its_interface_lives() {
    if !possible("a_connection_in_a_zone_of_its_interface_lives") {
        return;
    }
    let lab = Lab::build(Wan::Plain, 4.0).unwrap();
    lab.rules(
        "table inet filter {
            chain early {
                type filter hook prerouting priority -300;
                iifname { WAN, LAN } ct zone set 7
            }
            chain forward {
                type filter hook forward priority 0; policy drop;
                ct state established,related accept
                ct state new iifname WAN tcp flags & (syn | ack) == syn accept
            }
        }",
    );
    let pair = lab.start(&Setting::layered());
    let transfer =
        TcpTransfer { duration: Duration::from_secs(4), least_bytes: 2_000_000, ..TcpTransfer::default() };
    let report = tcp_transfer(lab.between(false), &transfer, &mut unwatched).unwrap();
    assert_eq!(report.mismatch, None);
    let last = report.forward.samples.last().unwrap();
    assert!(last.received_bytes > 100_000, "{last:?}\n{}", pair.logs());
    let status = pair.status(1).unwrap();
    assert!(status.peers[0].ingress.injected_packets > 0);
    // Rules that permit a zone see recovered packets in it.
    lab.command("nft", &["flush", "chain", "inet", "filter", "forward"]);
    lab.command("nft", &["add", "rule", "inet", "filter", "forward", "ct", "zone", "7", "accept"]);
    lab.assert_recovered(&pair, false);
    pair.stop().unwrap();
}

#[test]
fn packets_are_recovered_by_routes_of_the_interface_and_rules_on_the_hardware_address() {
    if !possible("packets_are_recovered_by_routes_of_the_interface_and_rules_on_the_hardware_address") {
        return;
    }
    let lab = Lab::build(Wan::Ethernet, 4.0).unwrap();
    let router = lab.sites.b.gateway.hardware_address(LAN).unwrap().map(|byte| format!("{byte:02x}"));
    let rules = "table inet filter {
            chain early {
                type filter hook prerouting priority -300;
                iifname WAN ether saddr != ROUTER drop
            }
        }";
    lab.rules(&rules.replace("ROUTER", &router.join(":")));
    // Only packets that arrive by the WAN interface find the host.
    for arguments in [
        "route add 10.82.0.0/24 dev lan0 table 100",
        "rule add iif eth0 lookup 100 priority 100",
        "route del 10.82.0.0/24 dev lan0",
    ] {
        lab.command("ip", &arguments.split(' ').collect::<Vec<_>>());
    }
    let pair = lab.start(&Setting::layered());
    lab.assert_recovered(&pair, false);
    let status = pair.status(1).unwrap();
    assert!(status.peers[0].ingress.injected_packets > 20);
    assert_eq!(status.counters["returning"], 0);
    pair.stop().unwrap();
}

/// A recovered packet has the hardware address that the interface had when its programs were loaded.
#[test]
fn packets_are_recovered_after_the_hardware_address_has_changed() {
    if !possible("packets_are_recovered_after_the_hardware_address_has_changed") {
        return;
    }
    let lab = Lab::build(Wan::Ethernet, 4.0).unwrap();
    let pair = lab.start(&Setting::layered());
    lab.command("ip", &["link", "set", "dev", lab.wan(), "address", "02:00:00:00:07:07"]);
    command_at(&lab.sites.b.gateway, "ip", &["neigh", "flush", "all"]);
    lab.assert_recovered(&pair, false);
    let status = pair.status(1).unwrap();
    assert!(status.peers[0].ingress.injected_packets > 20, "{}", pair.logs());
    assert_eq!(status.gateway.injection, "wan");
    pair.stop().unwrap();
}

#[test]
fn no_rule_sees_the_probe_of_the_way() {
    if !possible("no_rule_sees_the_probe_of_the_way") {
        return;
    }
    let lab = Lab::build(Wan::Plain, 4.0).unwrap();
    lab.rules(
        "table inet filter {
            counter probes { }
            chain early {
                type filter hook prerouting priority -400;
                iifname WAN ip saddr 192.0.0.8 counter name probes
            }
        }",
    );
    let pair = lab.start(&Setting::layered());
    assert_eq!(pair.status(1).unwrap().gateway.injection, "wan", "a probe arrived");
    let counter = command_at(lab.gateway(), "nft", &["list", "counter", "inet", "filter", "probes"]);
    assert!(counter.contains("packets 0 bytes 0"), "{counter}");
    pair.stop().unwrap();
}

/// Our mark is gone where rules look at marks, and a policer at the ingress counts recovered packets.
fn no_rule_sees_the_mark(test: &str, tap: &'static str, wan: Wan) {
    if !possible(test) {
        return;
    }
    let lab = Lab::build(wan, 4.0).unwrap();
    let rules = "table inet filter {
            chain early {
                type filter hook prerouting priority -400;
                meta mark != 0 drop
            }
        }
        table netdev police {
            counter met { }
            chain first {
                type filter hook ingress device WAN priority 0;
                meta mark != 0 drop
                ip daddr LOCAL meta l4proto udp counter name met
                ip daddr LOCAL meta l4proto udp limit rate over 1 kbytes/second burst 1 kbytes drop
            }
        }";
    lab.rules(&rules.replace("LOCAL", &lab.address(false).to_string()));
    let pair = lab.start(&Setting { tap, ..Setting::layered() });
    let injected = || pair.status(1).unwrap().peers[0].ingress.injected_packets;
    let (mut arrived, mut allowed) = (0, 0);
    while injected() < 40 {
        arrived += lab.stream(false).arrived_us.len() as u64;
        // In 4 s the policer lets 5 kB pass, which is some 15 packets, recovered ones among them.
        allowed += 20;
        assert!(allowed <= 100, "expected 40 recovered packets of five streams, saw {}", injected());
    }
    assert!(arrived <= allowed, "{arrived} arrived, {allowed} may; {} were recovered", injected());
    // The policer met each packet that the tap has seen on the wire, and each recovered one, once. It counts
    // merged packets as one, with one header of 28 bytes.
    let shown = command_at(lab.gateway(), "nft", &["list", "counter", "netdev", "police", "met"]);
    let number = |word: &str| -> u64 {
        let (_, rest) = shown.split_once(word).unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let met = (number("bytes ") - 28 * number("packets ")) / 300;
    let status = pair.status(1).unwrap();
    let ingress = &status.peers[0].ingress;
    let unseen = status.counters["tap_dropped"] + status.counters["discarded"];
    let expected = ingress.source_packets + ingress.injected_packets;
    assert!((expected..=expected + unseen).contains(&met), "{met} of {expected}, {shown}\n{}", pair.logs());
    assert_eq!(status.counters["not_at_wan"], 0);
    lab.command("nft", &["delete", "table", "netdev", "police"]);
    lab.assert_recovered(&pair, false);
    pair.stop().unwrap();
}

testkit::cases! { no_rule_sees_the_mark:
    no_rule_sees_the_mark_and_an_ingress_policer_sees_every_packet("auto", Wan::Ethernet);
    no_rule_sees_the_mark_and_an_ingress_policer_sees_every_packet_with_the_packet_tap("packet", Wan::Plain);
}
