//! `local_networks` bounds the packets that are protected and recovered; by default routes do.

use netlab::topology::HOST;
use stage::gateways::Setting;
use testkit::wait_until;

use crate::pair::{peer, reload, wait_until_up};

use super::lab::{Lab, Wan, net, possible};

const NOT_LOCAL: &str = "not_local";
const RETURNING: &str = "returning";

/// Drops the packets to the host behind the second gateway on their way, so that all of them look lost.
const SHUT_ON_THE_WAY: &str = "
table inet shut {
    chain forward {
        type filter hook forward priority 0;
        ip daddr 10.82.0.2 meta l4proto udp drop
    }
}";

/// Recovers packets of a stream that never arrives.
fn trusting(text: &str) -> String {
    text.replacen("[[peer]]\n", "[[peer]]\npath = \"trusted\"\n", 1)
}

fn with_local_networks(networks: &str) -> impl FnOnce(String) -> String {
    let line = format!("[gateway]\nlocal_networks = [{networks}]\n");
    move |text| text.replacen("[gateway]\n", &line, 1)
}

/// Sends packets that must not arrive until `is_done`.
fn stream_until(lab: &Lab, what: &str, mut is_done: impl FnMut() -> bool) {
    let found = (0..10).any(|_| {
        assert_eq!(lab.stream_at(27.0, false).arrived_us.len(), 0);
        is_done()
    });
    assert!(found, "not in ten streams: {what}");
}

#[test]
fn nothing_is_recovered_for_a_network_that_is_not_local() {
    if !possible("nothing_is_recovered_for_a_network_that_is_not_local") {
        return;
    }
    let lab = Lab::build(Wan::Ethernet, 0.0).unwrap();
    lab.rules_at(&lab.sites.b.gateway, SHUT_ON_THE_WAY);
    let mut pair = lab.start(&Setting::layered());
    reload(&mut pair, 1, |text| trusting(&with_local_networks("\"10.85.0.0/24\"")(text)));
    wait_until_up(&pair);
    // The packets of a stream are settled a second later.
    stream_until(&lab, "the losses are counted", || {
        let ingress = peer(&pair, 1).ingress;
        assert_eq!(ingress.loss.recovered, 0);
        ingress.withheld[NOT_LOCAL] > 40 && ingress.loss.withheld > 40
    });
    assert_eq!(pair.status(1).unwrap().peers[0].ingress.injected_packets, 0);
    pair.stop().unwrap();
}

#[test]
fn packets_of_a_network_that_is_not_local_are_not_protected() {
    if !possible("packets_of_a_network_that_is_not_local_are_not_protected") {
        return;
    }
    let lab = Lab::build(Wan::Ethernet, 0.0).unwrap();
    lab.rules_at(&lab.sites.b.gateway, SHUT_ON_THE_WAY);
    let mut pair = lab.start(&Setting::layered());
    reload(&mut pair, 0, with_local_networks("\"10.81.7.0/24\""));
    reload(&mut pair, 1, |text| trusting(&text));
    wait_until_up(&pair);
    stream_until(&lab, "the packets are counted", || pair.status(0).unwrap().not_protected["not_local"] > 40);
    pair.stop().unwrap();
}

#[test]
fn packets_within_local_networks_are_recovered_as_before() {
    if !possible("packets_within_local_networks_are_recovered_as_before") {
        return;
    }
    let lab = Lab::build(Wan::Ethernet, 4.0).unwrap();
    let mut pair = lab.start(&Setting::layered());
    reload(&mut pair, 0, with_local_networks("\"10.81.1.0/24\""));
    reload(&mut pair, 1, with_local_networks("\"10.82.0.0/24\""));
    lab.assert_recovered(&pair, false);
    assert_eq!(pair.status(1).unwrap().peers[0].ingress.withheld[NOT_LOCAL], 0);
    pair.stop().unwrap();
}

/// The far gateway protects a network that is not behind this one: this machine would send its packets back.
fn nothing_is_recovered_whose_route_leads_back(test: &str, injection: &'static str) {
    if !possible(test) {
        return;
    }
    let lab = Lab::build(Wan::Ethernet, 0.0).unwrap();
    lab.rules_at(&lab.sites.b.gateway, SHUT_ON_THE_WAY);
    let mut pair = lab.start(&Setting { injection, ..Setting::layered() });
    reload(&mut pair, 1, |text| trusting(&text));
    wait_until_up(&pair);
    // The gateway loses its own route to the host and sends packets for it to the router.
    let up = net("10.83.0.1/32").addr();
    lab.command("ip", &["route", "replace", "10.82.0.2/32", "via", &up.to_string(), "dev", HOST]);
    stream_until(&lab, "the packets are refused", || {
        let ingress = peer(&pair, 1).ingress;
        assert_eq!((ingress.loss.recovered, ingress.injected_packets), (0, 0), "nothing is delivered");
        ingress.refused_injections[RETURNING] > 40 && ingress.loss.residual > 40
    });
    assert!(pair.status(1).unwrap().counters["returning"] > 40);
    wait_until("the operator is told", || pair.logs().contains("set `local_networks`"));
    // The count belongs to the gateway, and not to the device.
    let before = pair.status(1).unwrap().counters["returning"];
    lab.command("ip", &["link", "delete", "undrop0"]);
    wait_until("the device is back", || pair.logs().contains("the TUN device was created again"));
    assert!(pair.status(1).unwrap().counters["returning"] >= before);
    pair.stop().unwrap();
}

testkit::cases! { nothing_is_recovered_whose_route_leads_back:
    nothing_is_recovered_whose_route_leads_back_to_the_wan("auto");
    nothing_is_recovered_by_the_tun_device_whose_route_leads_back_to_the_wan("tun");
}
