//! Further paths to a peer.

use maelstrom_core::PathUse;

use super::*;

const PATHS: &str = "mode = \"tunnel\"\nuse = \"spread\"\n\
    [[peer.paths]]\naddress = \"10.82.9.2:4701\"\nlocal = \"10.82.9.1:4701\"\n\
    [[peer.paths]]\naddress = \"10.83.9.2:4702\"\nlocal = \"0.0.0.0:4702\"\ninterface = \"lte0\"\n";

/// A good file with three paths, as sections.
fn with_paths() -> String {
    format!("{GOOD}{PATHS}")
}

/// The codes of what is found about that file with `from` replaced by `to`.
fn codes(from: &str, to: &str) -> Vec<&'static str> {
    let text = with_paths().replacen(from, to, 1);
    assert_ne!(text, with_paths(), "{from} is not in the file");
    examined(&text).1.diagnostics().iter().map(|finding| finding.code).collect()
}

#[test]
fn paths_are_read_as_sections_and_as_an_array() {
    let peer = configuration(&with_paths()).peers.remove(0);
    let path = |address: &str, local: &str, interface: Option<&str>| PeerPath {
        address: address.parse().map_or(PeerAddress::Any, PeerAddress::Ip),
        local: Some(local.parse().unwrap()),
        interface: interface.map(str::to_owned),
    };
    let expected = [
        path("10.82.9.2:4701", "10.82.9.1:4701", None),
        path("10.83.9.2:4702", "0.0.0.0:4702", Some("lte0")),
    ];
    assert_eq!((&peer.paths[..], peer.path_use), (&expected[..], PathUse::Spread));
    let array = format!(
        "{GOOD}mode = \"tunnel\"\nuse = \"spread\"\npaths = [{{ address = \"10.82.9.2:4701\", local = \
         \"10.82.9.1:4701\" }}, {{ interface = \"lte0\", local = \"0.0.0.0:4702\", address = \"10.83.9.2:4702\" }}]"
    );
    assert_eq!(configuration(&array).peers[0], peer);
    let any = configuration(&with_paths().replace("10.82.9.2:4701", "any")).peers.remove(0);
    assert_eq!(any.paths[0], path("any", "10.82.9.1:4701", None));
    let plain = configuration(GOOD).peers.remove(0);
    assert!(plain.paths.is_empty() && plain.path_use == PathUse::Failover);
}

#[test]
fn paths_need_a_tunnel_and_a_use_needs_paths() {
    assert_eq!(codes("mode = \"tunnel\"\n", ""), ["foreign-setting"]);
    assert_eq!(examined(&with_paths().replace("mode = \"passive\"", "mode = \"tunnel\"")).1.errors(), 0);
    let (_, report) = examined(&format!("{GOOD}use = \"spread\"\n"));
    assert_eq!(report.diagnostics()[0].code, "foreign-setting");
}

#[test]
fn packets_are_put_in_order_and_aggregated_in_a_tunnel_alone() {
    let held = format!("{GOOD}resequence_ms = 40\naggregate_us = 500\n");
    let (_, report) = examined(&held);
    let codes: Vec<_> = report.diagnostics().iter().map(|finding| finding.code).collect();
    assert_eq!((codes, report.errors()), (vec!["foreign-setting"; 2], 0));
    for tunnel in [format!("{held}mode = \"tunnel\"\n"), held.replace("\"passive\"", "\"tunnel\"")] {
        assert!(examined(&tunnel).1.diagnostics().is_empty());
        let peer = configuration(&tunnel).peers.remove(0);
        assert_eq!((peer.resequence_ms, peer.aggregate_us), (40, 500));
    }
}

#[test]
fn a_tunnel_fails_closed_unless_the_file_says_open() {
    let tunnel = format!("{GOOD}mode = \"tunnel\"\n");
    assert_eq!(configuration(&tunnel).peers[0].fail, FailChoice::Closed);
    for (word, fail) in [("closed", FailChoice::Closed), ("open", FailChoice::Open)] {
        let stated = format!("{tunnel}fail = \"{word}\"\n");
        assert!(examined(&stated).1.diagnostics().is_empty());
        assert_eq!(configuration(&stated).peers[0].fail, fail);
        // Where the gateway sets no routes.
        for useless in [format!("{stated}route = false\n"), format!("{GOOD}fail = \"{word}\"\n")] {
            let (_, report) = examined(&useless);
            let codes: Vec<_> = report.diagnostics().iter().map(|finding| finding.code).collect();
            assert_eq!((codes, report.errors()), (vec!["foreign-setting"], 0), "{useless}");
        }
    }
    assert!(examined(&format!("{tunnel}route = false\n")).1.diagnostics().is_empty());
    for (value, code) in [("\"shut\"", "bad-value"), ("\"\"", "bad-value"), ("true", "wrong-type")] {
        let (_, report) = examined(&format!("{tunnel}fail = {value}\n"));
        assert_eq!(report.diagnostics().iter().map(|one| one.code).collect::<Vec<_>>(), [code], "{value}");
    }
}

#[test]
fn each_path_has_ends_of_its_own() {
    let local = "local = \"10.82.9.1:4701\"\n";
    for (from, to, code) in [
        ("0.0.0.0:4702", "0.0.0.0:4700", "same-port"),
        ("interface = \"lte0\"\n", "", "path-without-interface"),
        ("local = \"0.0.0.0:4702\"\n", "", "path-without-local"),
        (
            "10.82.9.2:4701\"\nlocal = \"10.82.9.1:4701",
            "10.81.9.2:4700\"\nlocal = \"10.81.9.1:4700",
            "duplicate-path",
        ),
        ("10.82.9.2:4701", "[2001:db8::2]:4701", "family-mismatch"),
        ("10.82.9.1:4701", "[2001:db8::1]:4701", "family-mismatch"),
        ("10.82.9.2:4701", "10.81.2.9:4701", "peer-inside-network"),
    ] {
        assert_eq!(codes(from, to), [code], "{to}");
    }
    // The first path's local end with another address of the peer.
    let none: [&str; 0] = [];
    assert_eq!(codes(local, ""), none);
    let twice = "[[peer.paths]]\naddress = \"10.82.9.2:4701\"\nlocal = \"10.82.9.1:4701\"\n[[peer.paths]]";
    assert_eq!(codes("[[peer.paths]]", twice), ["duplicate-path"]);
    let other =
        "[[peer]]\naddress = \"10.82.9.2:4701\"\nnetworks = [\"10.99.0.0/16\"]\nkey_file = \"other.key\"\n";
    let (_, report) = examined(&format!("{}{other}", with_paths()));
    assert_eq!(report.diagnostics().iter().map(|one| one.code).collect::<Vec<_>>(), ["duplicate-peer"]);
}

#[test]
fn a_peer_may_be_anywhere_on_several_paths_to_one_socket() {
    let path = "[[peer.paths]]\naddress = \"any\"\n";
    let peer = configuration(&format!("{GOOD}mode = \"tunnel\"\n{path}{path}")).peers.remove(0);
    let expected = PeerPath { address: PeerAddress::Any, local: None, interface: None };
    assert_eq!(peer.paths, [expected.clone(), expected]);
    // The first path may have an address, or none.
    let text = format!("{GOOD}mode = \"tunnel\"\n{path}");
    let anywhere = text.replacen("address = \"10.81.9.2:4700\"", "name = \"branch\"\naddress = \"any\"", 1);
    assert_ne!(anywhere, text);
    for text in [text, anywhere] {
        assert!(examined(&text).1.diagnostics().is_empty());
    }
}

#[test]
fn a_peer_may_have_a_name_on_a_path() {
    let text = with_paths().replacen("10.82.9.2:4701", "hub.example.net:4701", 1);
    assert!(examined(&text).1.diagnostics().is_empty());
    let host = Host { name: "hub.example.net".to_owned(), port: 4701 };
    assert_eq!(configuration(&text).peers[0].paths[0].address, PeerAddress::Name(host));
    let twice =
        "[[peer.paths]]\naddress = \"hub.example.net:4701\"\nlocal = \"10.82.9.1:4701\"\n[[peer.paths]]";
    let (_, report) = examined(&text.replacen("[[peer.paths]]", twice, 1));
    assert_eq!(report.diagnostics().iter().map(|one| one.code).collect::<Vec<_>>(), ["duplicate-path"]);
}

#[test]
fn bad_values_are_found() {
    for (from, to, code) in [
        ("\"spread\"", "\"all\"", "bad-value"),
        ("10.82.9.2:4701", "10.82.9.2", "bad-value"),
        ("10.82.9.2:4701", "0.0.0.0:4701", "bad-value"),
        ("10.82.9.2:4701", "anywhere", "bad-value"),
        ("10.82.9.1:4701", "nowhere", "bad-value"),
        ("\"lte0\"", "\"\"", "bad-value"),
        ("\"lte0\"", "7", "wrong-type"),
        ("interface =", "interfaces =", "unknown-key"),
        ("address = \"10.82.9.2:4701\"\n", "", "bad-value"),
    ] {
        assert_eq!(codes(from, to), [code], "{to}");
    }
    let many = |count: u16| {
        let path = |n: u16| format!("[[peer.paths]]\naddress = \"10.82.9.2:{}\"\n", 4701 + n);
        let paths: String = (0..count).map(path).collect();
        examined(&format!("{GOOD}mode = \"tunnel\"\n{paths}")).1.errors()
    };
    assert_eq!([many(7), many(8)], [0, 1]);
    let (_, report) = examined(&format!("{GOOD}paths = [7]\n"));
    assert_eq!(report.diagnostics()[0].code, "wrong-type");
}
