//! Machines on which the gateway limits the length of packets itself.

use super::*;

/// The file with the default of `mtu`, on a machine whose LAN carries packets as long as those of the path.
fn managed(
    overhead: impl Fn(&Schedule, bool) -> usize,
    change: impl FnOnce(&mut Facts),
) -> Vec<(Severity, &'static str, String)> {
    let text = FILE.replace("mtu = \"check\"\n", "");
    let report = judged_with(&text, overhead, |facts| {
        named(facts, "lan0").mtu = 1500;
        change(facts);
    });
    let found = report.diagnostics().iter().filter(|one| one.code != "memory");
    found.map(|one| (one.severity, one.code, one.message.clone())).collect()
}

#[test]
fn packets_that_the_gateway_makes_short_enough_are_no_finding() {
    let found = managed(Schedule::repair_overhead, |_| {});
    assert_eq!(
        found,
        [(
            Severity::Note,
            "mtu-budget",
            "the gateway limits TCP to packets of 1301 bytes, whose repairs fit into 1500 (`mtu = \"manage\"`)"
                .to_owned()
        )]
    );
    // A kernel without nf_tables, and a path on which no packet is short enough.
    let without = managed(Schedule::repair_overhead, |facts| facts.nf_tables = Some("none".to_owned()));
    let codes: Vec<_> = without.iter().map(|(severity, code, _)| (*severity, *code)).collect();
    assert_eq!(codes, [(Severity::Warning, "mtu-budget"), (Severity::Warning, "no-nf-tables")]);
    let tiny = managed(|_, _| 1500 - 595, |_| {});
    assert_eq!((tiny.len(), tiny[0].0, tiny[0].1), (1, Severity::Warning, "mtu-budget"));
    assert_eq!(managed(|_, _| 1500 - 596, |_| {})[0].0, Severity::Note);
}

/// The default of `mtu` on a LAN whose packets are as long as those of the path.
#[test]
fn the_rates_of_auto_and_their_floor_are_told_where_the_gateway_limits_packets() {
    let notes = |code: &str| {
        let text = FILE.replace("mtu = \"check\"\n", "") + code;
        let report = judged_with(&text, Schedule::repair_overhead, |facts| named(facts, "lan0").mtu = 1500);
        report.diagnostics().iter().find(|one| one.code == "mtu-budget").unwrap().notes.clone()
    };
    let told = notes("");
    let told = told.iter().find(|note| note.contains("is the floor")).expect("a note on the floor");
    for part in ["rates of 1/40 and above", "packets of 1301 bytes", "up to 1361 bytes", "to 3/8 at most"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // A fixed code has no floor.
    let fixed = notes("\n[code]\nscheme = \"sliding\"\n");
    assert!(fixed.iter().all(|note| !note.contains("floor")), "{fixed:?}");
}

#[test]
fn routes_that_have_an_mtu_bound_the_packets() {
    let bounded = |mtu: u32| {
        move |facts: &mut Facts| {
            named(facts, "lan0").mtu = 1500;
            facts.routes.values_mut().flatten().for_each(|route| route.mtu = Some(mtu));
        }
    };
    assert!(found(FILE, bounded(1400)).is_empty());
    assert_eq!(one(FILE, bounded(1401)), (Severity::Warning, "mtu-budget"));
    // One route without an MTU leaves the packets unbounded.
    let gap = |facts: &mut Facts| {
        bounded(1400)(facts);
        facts.routes.get_mut(&"10.81.2.1".parse::<IpAddr>().unwrap()).unwrap().as_mut().unwrap().mtu = None;
    };
    assert_eq!(one(FILE, gap), (Severity::Warning, "mtu-budget"));
}

/// A bridge or VLAN as the WAN interface.
#[test]
fn ports_of_the_wan_bound_no_packets() {
    let port = |facts: &mut Facts| {
        let port = Interface { master: Some(named(facts, "wan0").index), ..interface("eth7", 1500, &[]) };
        facts.interfaces.as_mut().unwrap().push(port);
    };
    assert!(found(FILE, port).is_empty());
    let card = |facts: &mut Facts| {
        let card = interface("eth7", 1500, &[]);
        named(facts, "wan0").carrier_index = Some(card.index);
        facts.interfaces.as_mut().unwrap().push(card);
    };
    assert!(found(FILE, card).is_empty());
    let other = |facts: &mut Facts| facts.interfaces.as_mut().unwrap().push(interface("eth7", 1500, &[]));
    assert_eq!(one(FILE, other), (Severity::Warning, "mtu-budget"));
}
