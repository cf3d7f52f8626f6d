//! Two pairs of gateways on the same two machines, among whose tunnels the kernel shares the flows, so that
//! each gateway has a processor of its own.

use std::fs;
use std::thread;
use std::time::Duration;

use netlab::topology::TwoSites;
use netlab::traffic::{Between, Pace, UdpReport, UdpStream, udp_stream, unwatched};
use stage::gateways::{End, GatewayPair, Setting};

use crate::by_tunnel::{apart, ip};
use crate::firewall::lab::possible;
use crate::pair::{PROGRAM, peer};

/// Devices of the tunnels, one for each pair.
const DEVICES: [&str; 2] = ["undrop1", "undrop2"];
/// Number of flows each way. All of them take the same tunnel once in 2^15 runs.
const FLOWS: usize = 16;
/// Number of rounds of which one must arrive whole. A busy machine loses packets of its own.
const TRIES: usize = 5;

/// Starts a pair whose packets leave by a device of its own, and which sets no routes.
fn start(sites: &TwoSites, number: usize) -> GatewayPair {
    let mut ends = End::of(sites);
    for end in &mut ends {
        end.listen.set_port(4700 + number as u16);
    }
    let mut pair = GatewayPair::prepare(PROGRAM.as_ref(), &ends, &Setting::tunnel()).unwrap();
    for (side, end) in ends.iter().enumerate() {
        let text = fs::read_to_string(pair.config(side)).unwrap();
        let devices = format!("tunnel = \"{}\"\ntun = \"undrop-r{number}\"\nwan =", DEVICES[number]);
        let text = text.replace("wan =", &devices).replace("key_file =", "route = false\nkey_file =");
        fs::write(pair.config(side), text).unwrap();
        pair.launch(side, end.namespace).unwrap();
    }
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    pair
}

/// Lets the kernel choose a tunnel for each flow, by addresses and ports.
fn share(sites: &TwoSites) {
    let [one, other] = DEVICES;
    for (near, far) in [(&sites.a, &sites.b), (&sites.b, &sites.a)] {
        let ip = |words: &str| ip(&near.gateway, &words.split(' ').collect::<Vec<_>>());
        // Without these objects, a route of IPv4 would go with the first of its devices.
        for (version, family, network) in
            [("ipv4", "-4", &far.networks()[0]), ("ipv6", "-6", &far.networks()[1])]
        {
            near.gateway.sysctl(&format!("net.{version}.fib_multipath_hash_policy"), "1").unwrap();
            let id = |number: usize| format!("{}{number}", &family[1..]);
            ip(&format!("{family} nexthop add id {} dev {one}", id(1)));
            ip(&format!("{family} nexthop add id {} dev {other}", id(2)));
            ip(&format!("nexthop add id {} group {}/{}", id(0), id(1), id(2)));
            ip(&format!("{family} route replace {network} nhid {}", id(0)));
        }
    }
}

/// Sends flows of both IP versions both ways at once.
fn flows(sites: &TwoSites) -> Vec<UdpReport> {
    let plan = UdpStream {
        pace: Pace::Packets(100.0),
        payload_bytes: 600,
        duration: Duration::from_secs(2),
        patience: Duration::from_secs(1),
        ..UdpStream::default()
    };
    let ways = [(&sites.a, &sites.b), (&sites.b, &sites.a)].map(|(near, far)| {
        [far.host_v4(0), far.host_v6(0)].map(|address| Between {
            from: &near.hosts[0],
            to: &far.hosts[0],
            address,
        })
    });
    let ways: Vec<_> = ways.into_iter().flatten().collect();
    thread::scope(|scope| {
        let plan = &plan;
        let flows = ways.iter().cycle().take(2 * FLOWS);
        let flows: Vec<_> =
            flows.map(|&way| scope.spawn(move || udp_stream(way, plan, &mut unwatched).unwrap())).collect();
        flows.into_iter().map(|flow| flow.join().unwrap()).collect()
    })
}

/// Whether all flows of a round arrive whole.
fn comes_whole(sites: &TwoSites) -> bool {
    (0..TRIES).any(|_| {
        let reports = flows(sites);
        let wrong: u64 = reports.iter().map(|report| report.duplicates + report.altered).sum();
        assert_eq!(wrong, 0, "packets came twice or altered");
        let missing: Vec<_> = reports.iter().map(UdpReport::missing).collect();
        println!("missing of each flow: {missing:?}");
        missing.iter().all(|&missing| missing == 0)
    })
}

#[test]
fn the_kernel_shares_flows_among_two_tunnels_and_each_recovers_its_own() {
    if !possible("the_kernel_shares_flows_among_two_tunnels_and_each_recovers_its_own") {
        return;
    }
    let sites = apart(0.02);
    let pairs = [0, 1].map(|number| start(&sites, number));
    share(&sites);
    let logs = || pairs.each_ref().map(GatewayPair::logs).join("\n");
    assert!(comes_whole(&sites), "packets stay lost\n{}", logs());
    for (number, pair) in pairs.iter().enumerate() {
        for side in 0..2 {
            let peer = peer(pair, side);
            let (left, recovered) = (peer.egress.source_packets, peer.ingress.injected_packets);
            // A flow has 200 packets, of which the link loses four.
            assert!(left >= 150 && recovered > 0, "tunnel {number}, side {side}: {left}, {recovered}");
        }
    }
    // Without the device of one tunnel, all flows take the other.
    let [first, second] = pairs;
    first.stop().unwrap();
    let before = [0, 1].map(|side| peer(&second, side).egress.source_packets);
    assert!(comes_whole(&sites), "packets stay lost\n{}", second.logs());
    for (side, before) in before.into_iter().enumerate() {
        let left = peer(&second, side).egress.source_packets - before;
        assert!(left >= FLOWS as u64 * 150, "side {side}: {left} of 200 for each flow");
    }
    second.stop().unwrap();
}
