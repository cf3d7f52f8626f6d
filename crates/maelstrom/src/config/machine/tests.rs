//! Made-up machines, each with one fault.

mod managed;
mod multicast;
mod paths;
mod split;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use super::super::tests::{assert_snapshot, examined};
use super::super::{Diagnostic, Report, Severity, Source};
use super::behind::EgressFilter;
use super::facts::{Capability, ControlPlace, Facts, Reach, first_host};
use super::record::RecordPlace;
use super::route::{Interface, Route, TableRoute};
use super::ruleset::Rules;
use super::*;

const FILE: &str = r#"
[gateway]
wan = "wan0"
listen = "10.81.9.1:4700"
mtu = "check"
[[peer]]
address = "10.81.9.2:4700"
networks = ["10.81.2.0/24", "2001:db8:2::/48"]
key_file = "peer.key"
"#;

/// An overhead of 100 bytes for r = 8 over IPv4, 120 over IPv6.
fn overhead(schedule: &Schedule, ipv6: bool) -> usize {
    schedule.names() * 10 + if ipv6 { 40 } else { 20 }
}

fn interface(name: &str, mtu: u32, addresses: &[&str]) -> Interface {
    Interface {
        name: name.to_owned(),
        index: ["lo", "wan0", "lan0", "old0"].iter().position(|known| *known == name).unwrap_or(8) as u32 + 1,
        mtu,
        up: true,
        carrier: true,
        loopback: name == "lo",
        bridge: false,
        tun: false,
        master: None,
        carrier_index: None,
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

/// A machine without faults.
fn machine(draft: &Draft) -> Facts {
    let peer = &draft.peers[0];
    let networks = peer.networks.iter().map(|network| first_host(&network.value));
    let address = peer.address.iter().filter_map(|address| Some(address.value.fixed()?.ip()));
    let route = |to: IpAddr| Route {
        interface: "wan0".to_owned(),
        gateway: Some(if to.is_ipv4() {
            "10.81.9.2".parse().unwrap()
        } else {
            "2001:db8:9::2".parse().unwrap()
        }),
        mtu: None,
    };
    Facts {
        interfaces: Some(vec![
            interface("lo", 65536, &["127.0.0.1"]),
            interface("wan0", 1500, &["10.81.9.1", "2001:db8:9::1"]),
            interface("lan0", 1300, &["10.81.1.1"]),
            interface("old0", 1300, &[]),
        ]),
        routes: networks.chain(address).map(|to| (to, Some(route(to)))).collect(),
        table: Vec::new(),
        capabilities: Some(u64::MAX),
        initial_user_namespace: true,
        tun_device: Reach::Usable,
        forwarding_v4: Some(1),
        forwarding_v6: Some(1),
        rp_filter_all: Some(2),
        rp_filter_of: BTreeMap::new(),
        settings_writable: true,
        rules: Rules::default(),
        nf_tables: None,
        foreign_listen: false,
        control: Some(ControlPlace::Free),
        record: None,
        split: None,
        port_in_use: false,
        kernel: Some("6.1.0-18-amd64".to_owned()),
        program: "/usr/bin/undrop".to_owned(),
    }
}

fn judged(text: &str, change: impl FnOnce(&mut Facts)) -> Report {
    // The made-up overhead is that of layers.
    let layers = text.replacen("[[peer]]", "[code]\nscheme = \"layered\"\n[[peer]]", 1);
    let text = if text.contains("[code]") { text } else { &layers };
    judged_with(text, overhead, change)
}

fn judged_with(
    text: &str,
    overhead: impl Fn(&Schedule, bool) -> usize,
    change: impl FnOnce(&mut Facts),
) -> Report {
    let (draft, report) = examined(text);
    assert_eq!(report.errors(), 0, "{report}");
    let draft = draft.unwrap();
    let mut facts = machine(&draft);
    change(&mut facts);
    let mut findings = Findings::default();
    judge(&draft, &facts, overhead, &mut findings);
    findings.into_report(Source::new(Path::new("gateway.toml"), text))
}

/// The findings, without the notes that the budget and the memory fit.
fn found(text: &str, change: impl FnOnce(&mut Facts)) -> Vec<Diagnostic> {
    let report = judged(text, change);
    let fits =
        |one: &Diagnostic| ["mtu-budget", "memory"].contains(&one.code) && one.severity == Severity::Note;
    report.diagnostics().iter().filter(|one| !fits(one)).cloned().collect()
}

fn one(text: &str, change: impl FnOnce(&mut Facts)) -> (Severity, &'static str) {
    let found = found(text, change);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(!found[0].help.is_empty() || found[0].severity == Severity::Note, "no remedy: {found:?}");
    (found[0].severity, found[0].code)
}

fn codes(text: &str, change: impl FnOnce(&mut Facts)) -> Vec<&'static str> {
    found(text, change).iter().map(|one| one.code).collect()
}

fn with(line: &str) -> String {
    FILE.replace("[gateway]", &format!("[gateway]\n{line}"))
}

fn named<'a>(facts: &'a mut Facts, name: &str) -> &'a mut Interface {
    facts.interfaces.as_mut().unwrap().iter_mut().find(|one| one.name == name).unwrap()
}

#[test]
fn a_correct_machine_gets_a_note_on_the_mtu_budget() {
    let report = judged(FILE, |_| {});
    let messages: Vec<_> = report.diagnostics().iter().map(|one| one.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "1300 bytes of packet + 100 of repair overhead fit into 1500",
            "packets and repairs need up to 227 MiB of memory"
        ]
    );
}

#[test]
fn memory_is_bounded_at_any_mtu_of_the_machine() {
    let wide = |code: &str| FILE.replace("[[peer]]", &format!("[code]\n{code}\n[[peer]]"));
    // Too much memory with packets of the usual size.
    let (_, report) = examined(&wide("scheme = \"layered\"\nr = 64\ninterleaves = [1, 1024]"));
    let refused = &report.diagnostics()[0];
    assert_eq!((report.errors(), refused.code), (1, "memory"), "{report}");
    assert!(refused.help[0].contains("`r`"), "{report}");
    let (_, report) = examined(&wide("scheme = \"reed-solomon\"\nr = 64\ninterleave = 1024"));
    let refused = &report.diagnostics()[0];
    assert_eq!((report.errors(), refused.code), (1, "memory"), "{report}");
    assert!(refused.help[0].contains("`interleave`"), "{report}");
    // Too much memory only with the packets that this machine carries.
    let jumbo = |facts: &mut Facts| named(facts, "wan0").mtu = 9000;
    let middling = wide("scheme = \"layered\"\nr = 16\ninterleaves = [1, 1000]");
    assert!(found(&middling, |_| {}).is_empty());
    assert_eq!(one(&middling, jumbo), (Severity::Error, "memory"));
}

#[test]
fn interfaces_are_present_up_and_connected() {
    assert_eq!(one(&FILE.replace("wan0", "wan7"), |_| {}), (Severity::Error, "interface-absent"));
    let absent = found(&FILE.replace("wan0", "wan7"), |_| {});
    assert_eq!(absent[0].expected.as_deref(), Some("one of the interfaces present: `wan0`, `lan0`, `old0`"));
    assert_eq!(one(FILE, |facts| named(facts, "wan0").up = false), (Severity::Warning, "interface-down"));
    assert_eq!(one(FILE, |facts| named(facts, "wan0").carrier = false), (Severity::Warning, "no-carrier"));
    assert!(found(&FILE.replace("wan0", "lo"), |_| {}).iter().any(|one| one.code == "loopback-wan"));
    assert_eq!(one(FILE, |facts| facts.interfaces = None), (Severity::Warning, "unknown-machine"));
}

#[test]
fn only_the_interface_of_the_gateway_must_be_there_at_the_start() {
    let of_peer = |wan: &str| FILE.replace("key_file", &format!("wan = \"{wan}\"\nkey_file"));
    assert_eq!(one(&of_peer("ppp1"), |_| {}), (Severity::Warning, "interface-absent"));
    let absent = found(&of_peer("ppp1"), |_| {});
    assert!(absent[0].notes[0].starts_with("the gateway starts without it"), "{absent:?}");
    let without_first = of_peer("wan0").replace("[gateway]\nwan = \"wan0\"", "[gateway]\nwan = \"wan7\"");
    assert_eq!(one(&without_first, |_| {}), (Severity::Error, "interface-absent"));
    // One that a peer names as well.
    let both = of_peer("wan7").replace("[gateway]\nwan = \"wan0\"", "[gateway]\nwan = \"wan7\"");
    assert_eq!(one(&both, |_| {}), (Severity::Error, "interface-absent"));
}

#[test]
fn the_name_of_the_tun_device_is_free_unless_a_gateway_runs() {
    assert_eq!(one(&with("tun = \"old0\""), |_| {}), (Severity::Error, "tun-exists"));
    let running = |facts: &mut Facts| facts.control = Some(ControlPlace::Answered);
    assert_eq!(one(&with("tun = \"old0\""), running), (Severity::Warning, "already-running"));
}

#[test]
fn the_device_of_the_tunnel_may_be_that_of_another_gateway_where_no_peer_has_a_tunnel() {
    let passive = with("tunnel = \"old0\"");
    assert!(found(&passive, |_| {}).is_empty());
    let of_tunnel = passive.replace("key_file", "mode = \"tunnel\"\nkey_file");
    assert!(codes(&of_tunnel, |_| {}).contains(&"tun-exists"));
}

#[test]
fn the_listen_address_is_ours_and_its_port_free() {
    let (severity, code) = one(FILE, |facts| named(facts, "wan0").addresses.clear());
    assert_eq!((severity, code), (Severity::Error, "listen-not-local"));
    let standby = |facts: &mut Facts| {
        named(facts, "wan0").addresses.clear();
        facts.foreign_listen = true;
    };
    assert_eq!(one(FILE, standby), (Severity::Warning, "listen-not-local"));
    assert_eq!(one(FILE, |facts| facts.port_in_use = true), (Severity::Error, "port-in-use"));
    assert!(found(&FILE.replace("10.81.9.1:", "0.0.0.0:"), |_| {}).is_empty());
}

#[test]
fn a_route_by_another_interface_is_a_warning() {
    let elsewhere = |facts: &mut Facts| {
        let route = facts.routes.get_mut(&"10.81.2.1".parse::<IpAddr>().unwrap()).unwrap();
        route.as_mut().unwrap().interface = "lan0".to_owned();
    };
    assert_eq!(one(FILE, elsewhere), (Severity::Warning, "other-interface"));
    let nowhere = |facts: &mut Facts| {
        facts.routes.insert("10.81.9.2".parse().unwrap(), None);
    };
    assert_eq!(one(FILE, nowhere), (Severity::Warning, "no-route"));
}

#[test]
fn a_budget_that_does_not_fit_comes_with_command_lines() {
    let report = judged(FILE, |facts| named(facts, "lan0").mtu = 1500);
    assert_eq!((report.errors(), report.warnings()), (0, 1), "the gateway runs, and cuts repairs in two");
    assert_snapshot("mtu-budget.txt", &report.to_string());
}

#[test]
fn the_budget_is_exact() {
    assert!(found(&with("lan_mtu = 1400"), |_| {}).is_empty());
    assert_eq!(one(&with("lan_mtu = 1401"), |_| {}), (Severity::Warning, "mtu-budget"));
    assert_eq!(one(&with("wan_mtu = 1399"), |_| {}), (Severity::Warning, "mtu-budget"));
    assert!(found(&with("wan_mtu = 1400"), |_| {}).is_empty());
    let v6 = FILE.replace("10.81.9.1:", "[2001:db8:9::1]:").replace("10.81.9.2:", "[2001:db8:9::2]:");
    assert!(found(&v6.replace("[gateway]", "[gateway]\nlan_mtu = 1380"), |_| {}).is_empty());
    assert_eq!(
        one(&v6.replace("[gateway]", "[gateway]\nlan_mtu = 1381"), |_| {}),
        (Severity::Warning, "mtu-budget")
    );
}

/// Lower rates need longer repairs: the longest packet decides which of them `auto` may choose.
#[test]
fn the_check_states_the_floor_of_auto_and_its_reason() {
    let auto = |line: &str, v6: bool| {
        let text = if v6 {
            FILE.replace("10.81.9.1:", "[2001:db8:9::1]:").replace("10.81.9.2:", "[2001:db8:9::2]:")
        } else {
            FILE.to_owned()
        };
        let text = text.replace("[gateway]", &format!("[gateway]\n{line}"));
        let report = judged_with(&text, Schedule::repair_overhead, |_| {});
        report.diagnostics().iter().find(|one| one.code == "mtu-budget").unwrap().clone()
    };
    for (line, v6, floor, room) in [
        ("", true, "1/6", "1281 bytes allow 1/40"),
        ("lan_mtu = 1302", false, "1/6", "1301 bytes allow 1/40"),
        ("lan_mtu = 1361", false, "3/8", "1301 bytes allow 1/40"),
    ] {
        let found = auto(line, v6);
        assert_eq!(found.severity, Severity::Note, "{line}: {found:?}");
        assert!(found.message.contains(&format!("rate of {floor} and above")), "{line}: {}", found.message);
        assert!(found.notes.iter().any(|note| note.contains(room)), "{line}: {:?}", found.notes);
    }
    assert!(!auto("lan_mtu = 1301", false).notes.iter().any(|note| note.contains("allow")));
    let none = auto("lan_mtu = 1362", false);
    assert_eq!(none.severity, Severity::Warning);
    assert!(none.help[0].contains("lan_mtu = 1301"), "{:?}", none.help);
}

#[test]
fn a_network_of_a_peer_does_not_contain_this_site() {
    let inside = |facts: &mut Facts| named(facts, "lan0").addresses.push("10.81.2.77".parse().unwrap());
    assert_eq!(one(FILE, inside), (Severity::Error, "own-network"));
    let whole = FILE.replace("10.81.2.0/24", "10.81.0.0/21");
    assert!(codes(&whole, |_| {}).contains(&"own-network"));
    let far = |facts: &mut Facts| named(facts, "lan0").addresses.push("10.81.3.77".parse().unwrap());
    assert!(found(FILE, far).is_empty());
    let of_tun = |facts: &mut Facts| {
        let tun = interface("undrop0", 1500, &["10.81.2.77"]);
        facts.interfaces.as_mut().unwrap().push(Interface { up: false, ..tun });
        facts.control = Some(ControlPlace::Answered);
    };
    assert_eq!(codes(FILE, of_tun), ["already-running"]);
}

#[test]
fn rules_behind_the_tap_and_below_the_wan_are_told() {
    let filter = |device: &str| {
        let filter = EgressFilter { device: device.to_owned(), kind: "flower".to_owned(), is_early: true };
        move |facts: &mut Facts| {
            facts.rules.egress_filters = vec![filter];
            facts.kernel = Some("6.6.1".to_owned());
        }
    };
    assert_eq!(one(FILE, filter("wan0")), (Severity::Warning, "egress-filter"));
    let old = |facts: &mut Facts| {
        filter("wan0")(facts);
        facts.kernel = Some("6.1.0".to_owned());
    };
    assert!(found(FILE, old).is_empty(), "the tap is a filter behind it");
    assert!(found(&with("tap = \"packet\""), filter("wan0")).is_empty(), "it sees what the filter leaves");
    assert_eq!(one(&with("tap = \"packet\""), filter("eth7")), (Severity::Warning, "egress-filter"));
    let chains = |facts: &mut Facts| facts.rules.bridge_chains = vec!["filter input".to_owned()];
    assert!(found(FILE, chains).is_empty(), "there is no bridge below the WAN");
    let bridged = |facts: &mut Facts| {
        chains(facts);
        named(facts, "wan0").bridge = true;
    };
    assert_eq!(one(FILE, bridged), (Severity::Warning, "bridge-rules"));
    let vlan = |facts: &mut Facts| {
        chains(facts);
        let bridge = Interface { bridge: true, ..interface("br7", 1300, &[]) };
        named(facts, "wan0").carrier_index = Some(bridge.index);
        facts.interfaces.as_mut().unwrap().push(bridge);
    };
    assert_eq!(one(FILE, vlan), (Severity::Warning, "bridge-rules"));
}

#[test]
fn a_path_with_a_tiny_mtu_needs_a_smaller_r() {
    let found = found(&with("wan_mtu = 1300"), |_| {});
    // An IPv6 link carries at least 1280 bytes.
    assert_eq!(
        found[0].help,
        ["choose a code with a smaller repair overhead, or a path that carries larger packets"]
    );
    let v4_only = with("wan_mtu = 1300").replace(", \"2001:db8:2::/48\"", "");
    assert!(self::found(&v4_only, |_| {})[0].help[0].contains("lan_mtu = 1200"));
}

#[test]
fn wan_mtu_is_no_larger_than_the_interface() {
    assert_eq!(one(&with("wan_mtu = 9000"), |_| {}), (Severity::Warning, "wan-mtu"));
    // The interface's MTU holds in its place.
    let narrow = |facts: &mut Facts| named(facts, "wan0").mtu = 1399;
    assert_eq!(codes(&with("wan_mtu = 9000"), narrow), ["wan-mtu", "mtu-budget"]);
}

#[test]
fn missing_capabilities_are_named_one_by_one() {
    let without = |capabilities: &'static [Capability]| {
        move |facts: &mut Facts| {
            let lost = capabilities.iter().fold(0, |bits, &one| bits | 1_u64 << one as u32);
            facts.capabilities = Some(!lost);
        }
    };
    let all = &[Capability::NetAdmin, Capability::NetRaw, Capability::Bpf, Capability::SysAdmin];
    let messages: Vec<_> =
        found(&with("tap = \"packet\""), without(all)).iter().map(|d| d.message.clone()).collect();
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert!(messages[0].starts_with("CAP_NET_ADMIN ") && messages[1].starts_with("CAP_NET_RAW "));
    let messages: Vec<_> =
        found(&with("tap = \"ebpf\""), without(all)).iter().map(|d| d.message.clone()).collect();
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert!(messages.iter().any(|message| message.starts_with("CAP_BPF ")), "{messages:?}");
    // The eBPF tap runs without packet sockets.
    let raw = &[Capability::NetRaw];
    assert_eq!(one(FILE, without(raw)), (Severity::Warning, "missing-capability"));
    assert_eq!(one(&with("tap = \"packet\""), without(raw)), (Severity::Error, "missing-capability"));
    let bpf = &[Capability::Bpf, Capability::SysAdmin];
    assert_eq!(codes(FILE, without(bpf)), ["tap-packet", "injection-tun"]);
    assert!(found(&with("tap = \"ebpf\""), without(&[Capability::Bpf])).is_empty());
    assert!(found(FILE, |facts| facts.capabilities = None).is_empty());
}

#[test]
fn a_user_namespace_has_no_ebpf() {
    let inside = |facts: &mut Facts| facts.initial_user_namespace = false;
    assert_eq!(codes(&with("tap = \"ebpf\""), inside), ["ebpf-forbidden", "injection-tun"]);
    assert_eq!(codes(FILE, inside), ["tap-packet", "injection-tun"]);
    assert_eq!(codes(&with("tap = \"packet\""), inside), ["injection-tun"]);
    let demanded = with("tap = \"packet\"\ninjection = \"wan\"");
    assert_eq!(one(&demanded, inside), (Severity::Error, "injection-impossible"));
}

#[test]
fn devices_and_settings_are_as_a_gateway_needs_them() {
    assert_eq!(one(FILE, |facts| facts.tun_device = Reach::Absent), (Severity::Error, "no-tun"));
    assert_eq!(one(FILE, |facts| facts.tun_device = Reach::Denied), (Severity::Error, "no-tun"));
    assert_eq!(one(FILE, |facts| facts.forwarding_v4 = Some(0)), (Severity::Warning, "not-forwarding"));
    assert_eq!(one(FILE, |facts| facts.forwarding_v6 = Some(0)), (Severity::Warning, "not-forwarding"));
    let v4_only = FILE.replace(", \"2001:db8:2::/48\"", "");
    assert!(found(&v4_only, |facts| facts.forwarding_v6 = Some(0)).is_empty());
    // The source check concerns only packets that enter by the TUN device.
    let by_tun = with("injection = \"tun\"");
    assert!(found(FILE, |facts| facts.rp_filter_all = Some(1)).is_empty());
    assert_eq!(codes(&by_tun, |facts| facts.rp_filter_all = Some(1)), ["injection-tun", "rp-filter"]);
    let fixed = |facts: &mut Facts| (facts.rp_filter_all, facts.settings_writable) = (Some(1), false);
    assert_eq!(found(&by_tun, fixed)[1].severity, Severity::Warning);
}

#[test]
fn rules_that_recovered_packets_do_not_meet_are_told() {
    let named = |facts: &mut Facts| facts.rules.by_interface = vec!["inet filter forward".to_owned()];
    assert!(found(FILE, named).is_empty(), "recovered packets meet these rules");
    assert_eq!(one(&with("injection = \"tun\""), named), (Severity::Warning, "rules-by-interface"));
    let old = |facts: &mut Facts| facts.rules.unread = vec!["iptables filter".to_owned()];
    assert_eq!(one(&with("injection = \"tun\""), old), (Severity::Warning, "rules-by-interface"));
    let refused = |facts: &mut Facts| facts.rules.refused = true;
    assert_eq!(one(&with("injection = \"tun\""), refused), (Severity::Warning, "rules-unknown"));
    let below = |facts: &mut Facts| facts.rules.below_wan = vec!["eth0".to_owned()];
    assert_eq!(one(FILE, below), (Severity::Warning, "ingress-below-wan"));
}

#[test]
fn every_state_of_the_control_socket_has_its_finding() {
    for (place, expected) in [
        (ControlPlace::Answered, (Severity::Warning, "already-running")),
        (ControlPlace::Denied("/run".to_owned()), (Severity::Error, "control-directory")),
        (ControlPlace::Blocked("/run/undrop".to_owned()), (Severity::Error, "control-directory")),
        (ControlPlace::Occupied, (Severity::Error, "control-occupied")),
    ] {
        assert_eq!(one(FILE, |facts| facts.control = Some(place)), expected);
    }
}

#[test]
fn every_fault_of_the_place_of_the_record_has_its_finding() {
    let file = with("loss_record = \"/var/lib/undrop/losses.json\"");
    let directory = || "/var/lib/undrop".into();
    for (place, code) in [
        (RecordPlace::Absent(directory()), "loss-record"),
        (RecordPlace::Blocked(directory()), "loss-record"),
        (RecordPlace::Denied(directory()), "loss-record"),
        (RecordPlace::Occupied, "loss-record"),
        (RecordPlace::Writable { free: Some(899_999) }, "loss-record-room"),
    ] {
        assert_eq!(one(&file, |facts| facts.record = Some(place)), (Severity::Warning, code));
    }
    for free in [Some(900_000), None] {
        assert!(found(&file, |facts| facts.record = Some(RecordPlace::Writable { free })).is_empty());
    }
}

#[test]
fn an_untested_old_kernel_is_a_warning() {
    for old in ["5.9.16", "5.4.0-150-generic", "4.19.0"] {
        assert_eq!(one(FILE, |facts| facts.kernel = Some(old.to_owned())), (Severity::Warning, "old-kernel"));
    }
    for fine in ["5.10.0", "5.10.0-28-amd64", "6.18", "strange"] {
        assert!(found(FILE, |facts| facts.kernel = Some(fine.to_owned())).is_empty());
    }
}

#[test]
fn the_facts_of_this_machine_can_be_read() {
    let (draft, _) = examined(&FILE.replace("wan0", "no-such-wan"));
    let mut findings = Findings::default();
    check_draft(&draft.unwrap(), &mut findings);
    let report = findings.into_report(Source::new(Path::new("gateway.toml"), FILE));
    assert!(report.diagnostics().iter().any(|one| one.code == "interface-absent"), "{report}");
}
