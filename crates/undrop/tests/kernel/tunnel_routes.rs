//! Routes to peers in tunnel mode, beside those of others, who may remove them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use maelstrom::config::{self, Diagnostic, Severity};
use netlab::topology::{TwoSites, WAN};
use testkit::wait_until;

use crate::by_tunnel::ip;
use crate::fail_closed::{both, closing, leaked, sites, start, start_program, under_traffic};
use crate::firewall::lab::possible;
use crate::health::{health_of, reason};
use crate::pair::{PROGRAM, peer, reload, wait_for_log, wait_for_peer};
use crate::upgrade::{install, upgrade_by};

/// Networks of either IP version with a route by a device, in the gateway of the first site.
fn leading(sites: &TwoSites, device: &str) -> Vec<String> {
    let routes = |family| ip(&sites.a.gateway, &[family, "route", "show", "proto", "147", "dev", device]);
    let text = routes("-4") + &routes("-6");
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn networks(sites: &TwoSites) -> Vec<String> {
    sites.b.networks().iter().map(ToString::to_string).collect()
}

fn mtu(sites: &TwoSites) -> usize {
    let text = ip(&sites.a.gateway, &["-oneline", "link", "show", "undrop1"]);
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "mtu").unwrap();
    words[at + 1].parse().unwrap()
}

#[test]
fn packets_take_the_tunnel_whatever_other_routes_there_are_to_their_network() {
    if !possible("packets_take_the_tunnel_whatever_other_routes_there_are_to_their_network") {
        return;
    }
    let sites = sites();
    let [v4, v6] = sites.b.networks().map(|network| network.to_string());
    let (next_v4, next_v6) = (sites.b.wan_v4().to_string(), sites.b.wan_v6().to_string());
    // Those of a routing daemon, and of a router advertisement.
    for (family, network, next_hop, metric) in
        [("-4", &v4, &next_v4, "20"), ("-6", &v6, &next_v6, "20"), ("-6", &v6, &next_v6, "1024")]
    {
        let to = [family, "route", "add", network, "via", next_hop, "dev", WAN, "metric", metric];
        ip(&sites.a.gateway, &to);
    }
    let mut pair = start(&sites, "");
    under_traffic(&sites, |traffic| {
        let before = (leaked(&sites), peer(&pair, 0).egress.source_packets);
        traffic.wait_for(300);
        assert_eq!(leaked(&sites), before.0, "{}", ip(&sites.a.gateway, &["-6", "route"]));
        // The hosts send as many packets of each version.
        let both = before.1 + 500;
        wait_for_peer(&pair, 0, "packets travel", |peer| peer.egress.source_packets > both);
        assert_eq!(leading(&sites, "undrop1"), networks(&sites));
        for (family, host) in [("-4", sites.b.host_v4(0)), ("-6", sites.b.host_v6(0))] {
            let way = ip(&sites.a.gateway, &[family, "route", "get", &host.to_string()]);
            assert!(way.contains("dev undrop1"), "{way}");
        }
    });
    assert!(pair.child(0).unwrap().terminate(std::time::Duration::from_secs(10)).unwrap().success());
    let left = ip(&sites.a.gateway, &["-6", "route", "show", &v6]);
    assert_eq!(left.lines().count(), 2, "those of others stay: {left}");
}

#[test]
fn routes_that_somebody_removes_are_set_again_and_nothing_leaks_meanwhile() {
    if !possible("routes_that_somebody_removes_are_set_again_and_nothing_leaks_meanwhile") {
        return;
    }
    let sites = sites();
    let mut pair = start(&sites, "");
    let travel = |pair: &_| {
        let before = peer(pair, 0).egress.source_packets;
        wait_for_peer(pair, 0, "packets travel", |peer| peer.egress.source_packets > before + 100);
    };
    under_traffic(&sites, |_| {
        travel(&pair);
        // The device goes down, and comes up again.
        let before = leaked(&sites);
        ip(&sites.a.gateway, &["link", "set", "undrop1", "down"]);
        wait_for_log(&pair, "undrop1 is down");
        let (_, document) = health_of(&pair, 0);
        assert!(reason(&document, "no_route").contains("ip link set undrop1 up"), "{document}");
        assert!(leading(&sites, "undrop1").is_empty());
        ip(&sites.a.gateway, &["link", "set", "undrop1", "up"]);
        wait_until("the routes are back", || leading(&sites, "undrop1") == networks(&sites));
        wait_for_log(&pair, "packets to all peers in tunnel mode take the tunnel again");
        travel(&pair);
        assert_eq!((leaked(&sites), closing(&sites)), (before, both(&sites)));
        // Somebody deletes some.
        for family in ["-4", "-6"] {
            ip(&sites.a.gateway, &[family, "route", "flush", "proto", "147", "dev", "undrop1"]);
        }
        wait_until("the routes are back", || leading(&sites, "undrop1") == networks(&sites));
        wait_for_log(&pair, "somebody had removed routes");
        travel(&pair);
        assert_eq!((leaked(&sites), closing(&sites)), (before, both(&sites)));
    });
    // Or all, also while the device is down.
    ip(&sites.a.gateway, &["link", "set", "undrop1", "down"]);
    let flush = || {
        for family in ["-4", "-6"] {
            ip(&sites.a.gateway, &[family, "route", "flush", "proto", "147"]);
        }
    };
    flush();
    wait_until("the closing routes are back", || closing(&sites) == both(&sites));
    ip(&sites.a.gateway, &["link", "set", "undrop1", "up"]);
    flush();
    wait_until("all routes are back", || {
        leading(&sites, "undrop1") == networks(&sites) && closing(&sites) == both(&sites)
    });
    pair.wait_until_up(std::time::Duration::from_secs(30)).unwrap();
}

#[test]
fn a_reload_sets_the_routes_that_it_can_and_the_others_when_their_way_is_free() {
    if !possible("a_reload_sets_the_routes_that_it_can_and_the_others_when_their_way_is_free") {
        return;
    }
    let sites = sites();
    let mut pair = start(&sites, "");
    let own = networks(&sites);
    let list =
        |networks: &[String]| networks.iter().map(|one| format!("\"{one}\"")).collect::<Vec<_>>().join(", ");
    let taken = "10.99.1.0/24";
    let next_hop = sites.b.wan_v4().to_string();
    ip(&sites.a.gateway, &["route", "add", taken, "via", &next_hop, "dev", WAN]);
    let all: Vec<String> =
        [taken, "10.99.2.0/24"].iter().map(|one| (*one).to_owned()).chain(own.clone()).collect();
    let (before, after) = (list(&own), list(&all));
    reload(&mut pair, 0, |text| text.replace(&before, &after));
    let mut but_one: Vec<String> = all.iter().filter(|one| *one != taken).cloned().collect();
    but_one.sort();
    let sorted = || {
        let mut leading = leading(&sites, "undrop1");
        leading.sort();
        leading
    };
    wait_until("the other routes are set", || sorted() == but_one);
    wait_for_log(&pair, &format!("set the route to {taken} by undrop1; delete the present route"));
    let (_, document) = health_of(&pair, 0);
    assert!(reason(&document, "no_route").contains(taken), "{document}");
    ip(&sites.a.gateway, &["route", "del", taken]);
    let mut every = all;
    every.sort();
    wait_until("the last route is set", || sorted() == every);
    // The routes of networks that the file does not have any more go.
    reload(&mut pair, 0, |text| text.replace(&after, &before));
    let mut own = own;
    own.sort();
    wait_until("the routes follow the file", || sorted() == own);
}

#[test]
fn a_process_that_takes_over_and_fails_leaves_none_of_its_routes() {
    if !possible("a_process_that_takes_over_and_fails_leaves_none_of_its_routes") {
        return;
    }
    let sites = sites();
    let program = std::env::temp_dir().join(format!("undrop-routes-{}", std::process::id()));
    let _ = fs::remove_file(&program);
    symlink(PROGRAM, &program).unwrap();
    let pair = start_program(&program, &sites, "");
    let before = mtu(&sites);
    // It follows an edited file, and ends before it works.
    let script = "#!/bin/sh\n\
        printf '%s\\n' '{\"step\":\"ready\",\"version\":3,\"listen\":\"10.81.9.1:4700\",\"wan\":\"wan0\",\
        \"tunnel\":\"undrop1\"}' '{\"step\":\"watching\"}' >&0\n\
        while read -r line; do case $line in *'\"over\"'*) break;; esac; done\n\
        ip route flush proto 147; ip -6 route flush proto 147\n\
        ip route add 10.99.3.0/24 dev undrop1 proto 147\n\
        ip link set undrop1 mtu 1390\n\
        exit 1\n";
    install(&program, script);
    let said = upgrade_by(&pair.config(0)).unwrap_err();
    assert!(said.contains("which protects as before"), "{said}\n{}", pair.logs());
    wait_for_log(&pair, "although it had the sessions");
    assert_eq!(mtu(&sites), before);
    wait_until("all routes are those of the file", || {
        leading(&sites, "undrop1") == networks(&sites) && closing(&sites) == both(&sites)
    });
    fs::remove_file(&program).unwrap();
}

#[test]
fn the_device_of_the_tunnel_follows_the_file() {
    if !possible("the_device_of_the_tunnel_follows_the_file") {
        return;
    }
    let sites = sites();
    let mut pair = start(&sites, "");
    let wide = mtu(&sites);
    reload(&mut pair, 0, |text| text.replace("[gateway]\n", "[gateway]\nwan_mtu = 1400\n"));
    assert_eq!(mtu(&sites), wide - 100);
    // IPv6 stays on a device that is narrower than its least MTU.
    reload(&mut pair, 0, |text| text.replace("wan_mtu = 1400\n", "wan_mtu = 1300\n"));
    assert_eq!(mtu(&sites), 1_280);
    wait_until("all routes are there", || leading(&sites, "undrop1") == networks(&sites));
    reload(&mut pair, 0, |text| text.replace("wan_mtu = 1300\n", ""));
    assert_eq!(mtu(&sites), wide);
    // Another device, to which all routes lead then.
    reload(&mut pair, 0, |text| text.replace("[gateway]\n", "[gateway]\ntunnel = \"other7\"\n"));
    wait_until("the routes lead to the other device", || leading(&sites, "other7") == networks(&sites));
    wait_until("and others close it", || closing(&sites) == both(&sites));
    assert!(!ip(&sites.a.gateway, &["-oneline", "link"]).contains("undrop1"));
}

#[test]
fn a_device_that_cannot_be_created_again_is_a_reason_for_poor_health() {
    if !possible("a_device_that_cannot_be_created_again_is_a_reason_for_poor_health") {
        return;
    }
    let sites = sites();
    let pair = start(&sites, "");
    // Somebody else takes the name of the device, in one go: the gateway looks ten times a second.
    let batch = std::env::temp_dir().join(format!("undrop-device-{}", std::process::id()));
    fs::write(&batch, "link del undrop1\nlink add undrop1 type veth peer name undrop1-far\n").unwrap();
    let take = || Command::new("ip").arg("-batch").arg(&batch).status().unwrap().success();
    wait_until("somebody else has the name", || sites.a.gateway.run(take));
    fs::remove_file(&batch).unwrap();
    wait_for_log(&pair, "packets to a peer may not take the tunnel: cannot create TUN device undrop1");
    let (code, document) = health_of(&pair, 0);
    assert_ne!(code, Some(0));
    let why = reason(&document, "no_route");
    assert!(why.contains("undrop1"), "{document}");
    let control = config::read(&pair.config(0)).control().unwrap();
    let shown = |words: &[&str]| {
        let output = Command::new(PROGRAM).args(words).arg("--control").arg(&control).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (status, top) = (shown(&["gateway", "status"]), shown(&["top", "--once"]));
    assert!(status.contains(&format!("\nNO ROUTE: {why}\n")), "{status}");
    assert!(top.contains("\n  ! packets to a peer may not take the tunnel: cannot create"), "{top}");
    assert_eq!(closing(&sites), both(&sites));
    ip(&sites.a.gateway, &["link", "del", "undrop1"]);
    wait_for_log(&pair, "packets to all peers in tunnel mode take the tunnel again");
    assert_eq!(leading(&sites, "undrop1"), networks(&sites));
}

/// Findings of a check at the first site about routes past the tunnel, or in its way.
fn findings(sites: &TwoSites, file: &Path) -> Vec<(Severity, &'static str, String)> {
    let report = sites.a.gateway.run(|| config::read(file).check_machine());
    let about = |one: &&Diagnostic| ["past-tunnel", "route-taken"].contains(&one.code);
    let found = report.diagnostics().iter().filter(about);
    found.map(|one| (one.severity, one.code, one.message.clone())).collect()
}

#[test]
fn the_check_tells_of_each_route_past_the_tunnel_and_of_one_in_its_way() {
    if !possible("the_check_tells_of_each_route_past_the_tunnel_and_of_one_in_its_way") {
        return;
    }
    let sites = sites();
    let mut pair = start(&sites, "");
    let file = pair.config(0);
    assert_eq!(findings(&sites, &file), []);
    let [v4, v6] = sites.b.networks();
    let half = v4.subnets(v4.prefix_len() + 1).unwrap().last().unwrap().to_string();
    let host = sites.b.host_v6(0).to_string() + "/128";
    let (next_v4, next_v6) = (sites.b.wan_v4().to_string(), sites.b.wan_v6().to_string());
    ip(&sites.a.gateway, &["route", "add", &half, "via", &next_v4, "dev", WAN, "metric", "7"]);
    ip(&sites.a.gateway, &["-6", "route", "add", &host, "via", &next_v6, "dev", WAN]);
    // Routes that lead nowhere, or by the tunnel, are no way past it.
    let (one, other) = (v4.hosts().nth(3).unwrap().to_string(), v4.hosts().nth(4).unwrap().to_string());
    ip(&sites.a.gateway, &["route", "add", "unreachable", &one]);
    ip(&sites.a.gateway, &["route", "add", &other, "dev", "undrop1"]);
    let told: Vec<_> = [&half, &host]
        .map(|to| format!("packets to {to} leave through `{WAN}`, past the tunnel `undrop1`"))
        .map(|message| (Severity::Warning, "past-tunnel", message))
        .into();
    assert_eq!(findings(&sites, &file), told);
    // A part of the flows takes the second next hop.
    let shared = v4.hosts().nth(5).unwrap().to_string();
    let hops = ["nexthop", "dev", "undrop1", "nexthop", "via", &next_v4, "dev", WAN];
    ip(&sites.a.gateway, &[&["route", "add", &shared][..], &hops].concat());
    assert_eq!(findings(&sites, &file).len(), 3);
    assert!(pair.child(0).unwrap().terminate(std::time::Duration::from_secs(10)).unwrap().success());
    // A start that cannot set its route leaves none.
    for (family, network, next_hop, metric) in [("-4", v4, &next_v4, "0"), ("-6", v6, &next_v6, "1")] {
        let network = network.to_string();
        let change = |what| {
            let to = [family, "route", what, &network, "via", next_hop, "dev", WAN, "metric", metric];
            ip(&sites.a.gateway, &to);
        };
        change("add");
        let found = findings(&sites, &file);
        let taken: Vec<_> = found.iter().filter(|one| one.1 == "route-taken").collect();
        assert!(taken.len() == 1 && taken[0].0 == Severity::Error, "{found:?}");
        let run = || Command::new(PROGRAM).args(["gateway", "run"]).arg(&file).output().unwrap();
        let refused = sites.a.gateway.run(run);
        assert!(!refused.status.success() && !refused.stderr.is_empty(), "{refused:?}");
        let left =
            ["-4", "-6"].map(|family| ip(&sites.a.gateway, &[family, "route", "show", "proto", "147"]));
        assert_eq!(left, ["", ""]);
        change("del");
    }
    assert!(findings(&sites, &file).iter().all(|one| one.1 == "past-tunnel"));
}
