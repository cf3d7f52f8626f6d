//! Machines whose paths have no local end.

use super::*;

const PATHS: &str = "mode = \"tunnel\"\n\
    [[peer.paths]]\naddress = \"10.82.9.2:4701\"\nlocal = \"10.82.9.1:4701\"\ninterface = \"lte0\"\n";

/// The codes of findings about paths.
fn about_paths(change: impl FnOnce(&mut Facts)) -> Vec<(Severity, &'static str)> {
    let found = found(&format!("{FILE}{PATHS}"), |facts| {
        facts.interfaces.as_mut().unwrap().push(interface("lte0", 1500, &["10.82.9.1"]));
        change(facts);
    });
    found.iter().filter(|one| one.code.starts_with("path-")).map(|one| (one.severity, one.code)).collect()
}

#[test]
fn a_path_whose_local_end_is_missing_is_told() {
    assert!(about_paths(|_| {}).is_empty());
    let absent = about_paths(|facts| facts.interfaces.as_mut().unwrap().retain(|one| one.name != "lte0"));
    assert_eq!(absent, [(Severity::Warning, "path-interface-absent")]);
    // The address is that of another interface.
    let elsewhere = about_paths(|facts| {
        let address = named(facts, "lte0").addresses.remove(0);
        named(facts, "lan0").addresses.push(address);
    });
    assert_eq!(elsewhere, [(Severity::Warning, "path-not-local")]);
    let strict = about_paths(|facts| facts.rp_filter_all = Some(1));
    assert_eq!(strict, [(Severity::Warning, "path-rp-filter")]);
    // The larger of both holds.
    for (all, own, warns) in [(0, 1, true), (1, 2, false), (2, 1, false), (0, 0, false)] {
        let found = about_paths(|facts| {
            (facts.rp_filter_all, facts.rp_filter_of) = (Some(all), [("lte0".to_owned(), own)].into());
        });
        assert_eq!(found.is_empty(), !warns, "{all} and {own}: {found:?}");
    }
}

#[test]
fn an_interface_of_the_first_path_is_compared_with_the_machine() {
    let text = FILE.replacen("listen =", "listen_interface = \"dsl0\"\nlisten =", 1);
    let about = |addresses: &[&str], change: &dyn Fn(&mut Facts)| -> Vec<_> {
        let found = found(&text, |facts| {
            facts.interfaces.as_mut().unwrap().push(interface("dsl0", 1500, addresses));
            // The route to the peer leads by another interface, which the bound socket does not take.
            facts
                .routes
                .get_mut(&"10.81.9.2".parse::<IpAddr>().unwrap())
                .unwrap()
                .as_mut()
                .unwrap()
                .interface = "lan0".to_owned();
            change(facts);
        });
        let about_paths = |code: &&str| code.starts_with("path-") || *code == "other-interface";
        found.iter().map(|one| one.code).filter(about_paths).collect()
    };
    let owns = |facts: &mut Facts| named(facts, "wan0").addresses.clear();
    assert!(about(&["10.81.9.1"], &owns).is_empty());
    assert_eq!(about(&["10.82.9.1"], &|_| {}), ["path-from-elsewhere"]);
    let strict = about(&["10.81.9.1"], &|facts| {
        owns(facts);
        (facts.rp_filter_all, facts.rp_filter_of) = (Some(0), [("dsl0".to_owned(), 1)].into());
    });
    assert_eq!(strict, ["path-rp-filter"]);
    let gone = about(&[], &|facts| facts.interfaces.as_mut().unwrap().retain(|one| one.name != "dsl0"));
    assert_eq!(gone, ["path-interface-absent"]);
}

/// Lets a gateway run, whose tunnel has all networks.
fn running(facts: &mut Facts) {
    facts.control = Some(ControlPlace::Answered);
    let device = interface("undrop1", 1400, &[]);
    facts.interfaces.as_mut().unwrap().push(Interface { tun: true, ..device });
    let networks: Vec<IpAddr> = facts.routes.keys().copied().collect();
    for to in networks {
        facts.routes.insert(to, Some(Route { interface: "undrop1".to_owned(), gateway: None, mtu: None }));
    }
    facts.routes.get_mut(&"10.81.9.2".parse::<IpAddr>().unwrap()).unwrap().as_mut().unwrap().interface =
        "wan0".to_owned();
}

/// A route of the main table, set by hand.
fn table_route(network: &str, metric: u32, interfaces: &[&str]) -> TableRoute {
    let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
    TableRoute { network: network.parse().unwrap(), metric, protocol: 4, interfaces }
}

/// Findings about routes of a file with these lines for a peer in tunnel mode, and this main table.
fn about_table(lines: &str, runs: bool, table: &[TableRoute]) -> Vec<Diagnostic> {
    let text = format!("{FILE}mode = \"tunnel\"\n{lines}");
    let mut found = found(&text, |facts| {
        if runs {
            running(facts);
        }
        facts.table = table.to_vec();
    });
    found.retain(|one| ["past-tunnel", "route-taken"].contains(&one.code));
    found
}

#[test]
fn each_narrower_route_that_leads_past_the_tunnel_is_told() {
    let past = [table_route("10.81.2.128/25", 0, &["wan0"]), table_route("10.81.2.77/32", 20, &["lan0"])];
    let inside = [
        TableRoute { protocol: 147, ..table_route("10.81.2.0/24", 0, &["undrop1"]) },
        table_route("10.81.2.64/26", 0, &["undrop1"]),
        // It is unreachable.
        table_route("10.81.2.32/27", 0, &[]),
        // It is another gateway's, of the same machine.
        TableRoute { protocol: 147, ..table_route("10.81.2.16/28", 0, &["undrop9"]) },
        table_route("10.81.0.0/16", 0, &["wan0"]),
        table_route("10.81.3.0/24", 0, &["wan0"]),
    ];
    for runs in [false, true] {
        assert!(about_table("", runs, &inside).is_empty(), "{runs}");
        let found = about_table("", runs, &[&inside[..], &past].concat());
        let told: Vec<_> = found.iter().map(|one| (one.code, one.message.as_str())).collect();
        assert_eq!(
            told,
            [
                ("past-tunnel", "packets to 10.81.2.128/25 leave through `wan0`, past the tunnel `undrop1`"),
                ("past-tunnel", "packets to 10.81.2.77/32 leave through `lan0`, past the tunnel `undrop1`"),
            ]
        );
        assert!(found[0].help[0].ends_with("ip route delete 10.81.2.128/25 dev wan0"), "{found:?}");
    }
    // One of several next hops is enough to lead past it.
    let shared = [table_route("10.81.2.128/25", 0, &["undrop1", "wan0"])];
    assert_eq!(about_table("", true, &shared).len(), 1);
    let v6 = [table_route("2001:db8:2:1::/64", 1024, &["wan0"])];
    assert!(about_table("", true, &v6)[0].help[0].contains("ip -6 route delete"));
    // Those of a routing daemon may be thousands.
    let many: Vec<_> = (0..100).map(|n| table_route(&format!("10.81.2.{n}/32"), 20, &["wan0"])).collect();
    let found = about_table("", true, &many);
    assert_eq!(found.len(), 8);
    assert!(found[7].notes.iter().any(|note| note.contains("92 further routes")), "{found:?}");
}

#[test]
fn an_operator_who_sets_the_routes_may_share_flows_among_tunnels() {
    let with = |runs, route: TableRoute| {
        let text = format!("{FILE}mode = \"tunnel\"\nroute = false\n");
        let mut found = found(&text, |facts| {
            if runs {
                running(facts);
                let other = Interface { tun: true, index: 20, ..interface("undrop-t2", 1400, &[]) };
                facts.interfaces.as_mut().unwrap().push(other);
                // The kernel answers with any of the next hops.
                let last = route.interfaces.last().unwrap().clone();
                let asked = facts.routes.get_mut(&"10.81.2.1".parse::<IpAddr>().unwrap()).unwrap();
                asked.as_mut().unwrap().interface = last;
            }
            facts.table = vec![route.clone()];
        });
        found.retain(|one| ["past-tunnel", "route-taken"].contains(&one.code));
        found
    };
    let whole = |interfaces: &[&str]| table_route("10.81.2.0/24", 0, interfaces);
    let part = |interfaces: &[&str]| table_route("10.81.2.128/25", 0, interfaces);
    assert!(with(true, whole(&["undrop1", "undrop-t2"])).is_empty());
    assert!(with(true, whole(&["undrop1", "wan0"])).is_empty(), "he may want that");
    assert!(with(true, part(&["undrop-t2"])).is_empty());
    assert!(with(false, part(&["wan0"])).is_empty() && with(false, whole(&["wan0"])).is_empty());
    for (route, to) in [(whole(&["wan0"]), "10.81.2.1 "), (part(&["wan0"]), "10.81.2.128/25 ")] {
        let found = with(true, route);
        let one = found.first().unwrap_or_else(|| panic!("nothing about {to}"));
        assert!(one.code == "past-tunnel" && one.message.contains(to), "{found:?}");
        let words = one.notes.concat() + &one.help.concat();
        assert!(words.contains("route = false") && !words.contains("delete"), "{words}");
    }
}

#[test]
fn a_route_of_the_best_metric_in_the_way_of_the_gateways_is_an_error_before_the_start() {
    let of = |found: &[Diagnostic]| found.iter().map(|one| (one.severity, one.code)).collect::<Vec<_>>();
    let (error, warning) = ((Severity::Error, "route-taken"), (Severity::Warning, "route-taken"));
    for route in [
        table_route("10.81.2.0/24", 0, &["wan0"]),
        table_route("2001:db8:2::/48", 1, &["wan0"]),
        table_route("10.81.2.0/24", 0, &[]),
        // That of another gateway of this machine.
        TableRoute { protocol: 147, ..table_route("10.81.2.0/24", 0, &["undrop9"]) },
    ] {
        let table = std::slice::from_ref(&route);
        assert_eq!(of(&about_table("", false, table)), [error], "{route:?}");
        assert!(about_table("route = false\n", false, table).is_empty(), "{route:?}");
        let is_ours = route.protocol == 147;
        let expected = if is_ours { &[][..] } else { &[warning] };
        assert_eq!(of(&about_table("", true, table)), expected, "{route:?}");
    }
    // The gateway's own counts before these.
    for route in [
        table_route("10.81.2.0/24", 20, &["wan0"]),
        table_route("2001:db8:2::/48", 1024, &["wan0"]),
        table_route("10.81.2.0/24", 4_294_967_295, &[]),
        TableRoute { protocol: 147, ..table_route("10.81.2.0/24", 4_000_000_007, &[]) },
    ] {
        assert!(about_table("", false, std::slice::from_ref(&route)).is_empty(), "{route:?}");
    }
}

#[test]
fn networks_of_a_tunnel_need_no_route_but_none_may_lead_past_it() {
    let text = format!("{FILE}mode = \"tunnel\"\n");
    let by = |interface: &'static str| {
        move |facts: &mut Facts| {
            let route = facts.routes.get_mut(&"10.81.2.1".parse::<IpAddr>().unwrap()).unwrap();
            *route = (!interface.is_empty()).then(|| Route {
                interface: interface.to_owned(),
                gateway: None,
                mtu: None,
            });
        }
    };
    let codes = |change: &dyn Fn(&mut Facts)| -> Vec<_> {
        let about_routes = ["no-route", "other-interface", "past-tunnel"];
        let found = found(&text, |facts| change(facts));
        found.iter().map(|one| one.code).filter(|code| about_routes.contains(code)).collect()
    };
    // Before the gateway runs, any route to the first host will do that the gateway can set its own before.
    for interface in ["", "wan0", "lan0"] {
        assert!(codes(&by(interface)).is_empty(), "{interface}");
    }
    assert!(codes(&running).is_empty());
    for interface in ["wan0", "lan0"] {
        let past = |facts: &mut Facts| {
            running(facts);
            by(interface)(facts);
        };
        assert_eq!(codes(&past), ["past-tunnel"], "{interface}");
    }
}
