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
    // Before the gateway runs, any route will do: the gateway sets a narrower one.
    for interface in ["", "wan0", "lan0"] {
        assert!(codes(&by(interface)).is_empty(), "{interface}");
    }
    let running = |facts: &mut Facts| {
        facts.control = Some(ControlPlace::Answered);
        facts.interfaces.as_mut().unwrap().push(interface("undrop1", 1400, &[]));
        let networks: Vec<IpAddr> = facts.routes.keys().copied().collect();
        for to in networks {
            facts
                .routes
                .insert(to, Some(Route { interface: "undrop1".to_owned(), gateway: None, mtu: None }));
        }
        facts.routes.get_mut(&"10.81.9.2".parse::<IpAddr>().unwrap()).unwrap().as_mut().unwrap().interface =
            "wan0".to_owned();
    };
    assert!(codes(&running).is_empty());
    for interface in ["wan0", "lan0"] {
        let past = |facts: &mut Facts| {
            running(facts);
            by(interface)(facts);
        };
        assert_eq!(codes(&past), ["past-tunnel"], "{interface}");
    }
}
