//! Links whose MTU is that of the sites: gateways make TCP segments short enough for repairs, and leave
//! nothing behind.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use maelstrom::status::EgressStatus;
use netlab::emulator::EmulatorConfig;
use netlab::privilege;
use netlab::topology::{TwoSites, TwoSitesConfig};
use netlab::traffic::{
    Between, Direction, Pace, TcpTransfer, UdpStream, tcp_transfer, udp_stream, unwatched,
};
use simnet::link::LinkConfig;
use stage::gateways::{End, GatewayPair, Setting};
use testkit::wait_until;

use crate::firewall::lab::{command_at, possible};
use crate::pair::{PROGRAM, peer, reload};

/// The table of a gateway with the default name of its TUN device.
const TABLE: &str = "undrop_mss_undrop0";

/// Builds sites whose packets are as long as those of the link.
fn sites() -> TwoSites {
    let link = LinkConfig {
        rate_bps: Some(50_000_000),
        delay_us: 5_000,
        loss: "uniform:0.01".parse().unwrap(),
        seed: 41,
        ..LinkConfig::default()
    };
    let sites = TwoSitesConfig { lan_mtu: 1_500, ..TwoSitesConfig::default() };
    TwoSites::build(&sites, &EmulatorConfig::symmetric(link)).unwrap()
}

/// The first file in README, for one of the two sites, with paths beside it.
fn file_of_readme(side: usize) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(path).unwrap();
    let (_, file) = readme.split_once("```toml\n").unwrap();
    let (file, _) = file.split_once("```").unwrap();
    let file = file.replace("/etc/undrop/peer.key", "peer.key");
    let file = file.replace("[gateway]", &format!("[gateway]\ncontrol = \"gateway-{side}.sock\""));
    if side == 0 {
        return file;
    }
    let swapped =
        file.replace("10.81.9.1", "NEAR").replace("10.81.9.2", "10.81.9.1").replace("NEAR", "10.81.9.2");
    swapped.replace("10.81.2.0", "10.81.1.0")
}

/// Runs TCP in both directions between the sites.
fn transfer(sites: &TwoSites, v6: bool) {
    let address = if v6 { sites.b.host_v6(0) } else { sites.b.host_v4(0) };
    let between = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address };
    let plan = TcpTransfer {
        duration: Duration::from_secs(2),
        least_bytes: 2_000_000,
        direction: Direction::Both,
        ..TcpTransfer::default()
    };
    let report = tcp_transfer(between, &plan, &mut unwatched).unwrap();
    assert_eq!(report.mismatch, None);
}

fn egress(pair: &GatewayPair) -> [EgressStatus; 2] {
    [0, 1].map(|side| peer(pair, side).egress)
}

/// Asserts that TCP is protected, and that no repair is cut in two.
fn assert_no_repair_is_cut(sites: &TwoSites, pair: &GatewayPair, v6: bool, packet_max: u64) {
    for side in [0, 1] {
        wait_until("segments are limited", || pair.status(side).unwrap().gateway.mtu == "managed");
    }
    transfer(sites, v6);
    for egress in egress(pair) {
        let EgressStatus { source_packets, repair_packets, repairs_cut_in_two, long_packets, .. } = egress;
        assert!(source_packets > 100 && repair_packets > 10, "{source_packets} {repair_packets}");
        println!("{repairs_cut_in_two} of {repair_packets} repairs cut in two");
        assert_eq!((repairs_cut_in_two, long_packets), (0, 0), "of {repair_packets} {}", pair.logs());
        assert_eq!(egress.packet_max, packet_max);
    }
    wait_until("packets are recovered", || {
        let recovered = (0..2).map(|side| peer(pair, side).ingress.injected_packets).sum::<u64>();
        if recovered == 0 {
            transfer(sites, v6);
        }
        recovered > 0
    });
}

#[test]
fn the_file_of_readme_passes_the_check_and_no_repair_of_tcp_is_cut_in_two() {
    if !privilege::available_or_skip("the_file_of_readme_passes_the_check_and_no_repair_of_tcp_is_cut_in_two")
    {
        return;
    }
    let sites = sites();
    let ends = End::of(&sites);
    let mut pair = GatewayPair::prepare(Path::new(PROGRAM), &ends, &Setting::default()).unwrap();
    for (side, end) in ends.iter().enumerate() {
        fs::write(pair.config(side), file_of_readme(side)).unwrap();
        let mut check = Command::new(PROGRAM);
        check.args(["gateway", "check", "--config"]).arg(pair.config(side)).stdin(Stdio::null());
        let output = end.namespace.run(|| check.output().unwrap());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        pair.launch(side, end.namespace).unwrap();
    }
    pair.wait_until_up(Duration::from_secs(30)).unwrap();
    assert_no_repair_is_cut(&sites, &pair, false, 1_301);

    // Long packets that are not TCP are protected. Their repairs are cut in two, and the status counts them.
    let plan = UdpStream {
        pace: Pace::Packets(200.0),
        payload_bytes: 1_472,
        duration: Duration::from_secs(1),
        ..UdpStream::default()
    };
    let between = Between { from: &sites.a.hosts[0], to: &sites.b.hosts[0], address: sites.b.host_v4(0) };
    // A gateway that stood still discards what it captured meanwhile.
    let all_count = (0..5).any(|_| {
        let before = egress(&pair)[0].long_packets;
        let sent = udp_stream(between, &plan, &mut unwatched).unwrap().sent_us.len() as u64;
        let counted = egress(&pair)[0].long_packets - before;
        assert!(counted <= sent, "{counted} of {sent}");
        counted == sent
    });
    assert!(all_count, "{}", pair.logs());
    wait_until("their repairs are cut", || egress(&pair)[0].repairs_cut_in_two > 0);

    // Without the limits, TCP sends packets whose repairs are cut in two.
    for side in [0, 1] {
        reload(&mut pair, side, |text| text.replace("[gateway]", "[gateway]\nmtu = \"check\""));
        wait_until("the limits are gone", || pair.status(side).unwrap().gateway.mtu == "checked");
    }
    let before = egress(&pair).map(|egress| egress.repairs_cut_in_two);
    transfer(&sites, false);
    let after = egress(&pair).map(|egress| egress.repairs_cut_in_two);
    assert!((0..2).all(|side| after[side] > before[side]), "{before:?} {after:?}");
    pair.stop().unwrap();
}

#[test]
fn no_repair_of_tcp_is_cut_in_two_over_ipv6() {
    if !privilege::available_or_skip("no_repair_of_tcp_is_cut_in_two_over_ipv6") {
        return;
    }
    let sites = sites();
    let mut ends = End::of(&sites);
    for (end, site) in ends.iter_mut().zip([&sites.a, &sites.b]) {
        end.listen = SocketAddr::new(site.wan_v6(), 4700);
    }
    let pair = GatewayPair::start(Path::new(PROGRAM), &ends, &Setting::default()).unwrap();
    assert_no_repair_is_cut(&sites, &pair, true, 1_281);
    pair.stop().unwrap();
}

#[test]
fn a_gateway_that_ended_leaves_no_table_and_removes_that_of_a_killed_one() {
    if !possible("a_gateway_that_ended_leaves_no_table_and_removes_that_of_a_killed_one") {
        return;
    }
    let sites = sites();
    let namespace = &sites.a.gateway;
    let tables = || command_at(namespace, "nft", &["list", "tables"]);
    let rules = || command_at(namespace, "nft", &["list", "ruleset"]);
    // The table that a killed gateway leaves on a kernel whose tables have no owner.
    command_at(namespace, "nft", &["add", "table", "inet", TABLE]);
    command_at(namespace, "nft", &["add", "chain", "inet", TABLE, "old"]);
    command_at(namespace, "nft", &["add", "table", "inet", "of_somebody_else"]);
    let start = || GatewayPair::start(Path::new(PROGRAM), &End::of(&sites), &Setting::default()).unwrap();
    let pair = start();
    wait_until("the table is replaced", || !rules().contains("chain old"));
    let shown = rules();
    assert!(shown.contains("ip saddr 10.81.2.0/24 tcp option maxseg size set 1261"), "{shown}");
    assert!(shown.contains("ip6 saddr fd81:0:0:2::/64 tcp option maxseg size set 1241"), "{shown}");
    pair.stop().unwrap();
    assert_eq!(tables(), "table inet of_somebody_else\n");
    let mut pair = start();
    wait_until("the table is there", || tables().contains(TABLE));
    // Rules of the firewall may be loaded again meanwhile.
    command_at(namespace, "nft", &["flush", "ruleset"]);
    assert!(rules().contains("maxseg size set 1261"), "{}", rules());
    pair.kill(0).unwrap();
    wait_until("the kernel removes the table of a killed gateway", || tables().is_empty());
}
