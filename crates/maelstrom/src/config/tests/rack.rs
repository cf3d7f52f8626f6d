//! The sections `[rack]` and `[[member]]`, and peers of a rack.

use super::*;

/// A good file of a member.
fn with_rack() -> String {
    let rack = "[rack]\nmember = \"east-1\"\nkey_file = \"rack.key\"\n\
                [[member]]\nname = \"east-1\"\naddress = \"10.81.1.1:4702\"\n\
                networks = [\"10.81.2.0/25\", \"2001:db8:2::/48\"]\n\
                [[member]]\nname = \"east-2\"\naddress = \"10.81.1.2:4702\"\nnetworks = [\"10.81.2.128/25\"]\n\
                [[peer]]";
    GOOD.replace("[[peer]]", rack)
}

/// A good file of a gateway whose far site has a rack.
fn with_peers() -> String {
    let networks = "networks = [\"10.81.2.0/24\", \"2001:db8:2::/48\"]";
    let second = format!(
        "rack = \"east\"\n[[peer]]\nrack = \"east\"\naddress = \"10.81.9.3:4700\"\n{networks}\nkey_file = \"second.key\"\n"
    );
    GOOD.to_owned() + &second
}

/// The codes of what is found about a file with `from` replaced by `to`.
fn codes(good: &str, from: &str, to: &str) -> Vec<&'static str> {
    let text = good.replacen(from, to, 1);
    assert_ne!(text, good, "{from} is not in the file");
    examined(&text).1.diagnostics().iter().map(|finding| finding.code).collect()
}

#[test]
fn a_member_knows_the_parts_and_their_order() {
    let rack = configuration(&with_rack()).rack.unwrap();
    assert_eq!((rack.own, rack.address(), rack.by_hand), (0, "10.81.1.1:4702".parse().unwrap(), true));
    let parts: Vec<(&str, &[usize])> =
        rack.parts.iter().map(|part| (part.name.as_str(), &part.order[..])).collect();
    assert_eq!(parts, [("east-1", &[0, 1][..]), ("east-2", &[1, 0])]);
    // Without networks of members, a hash divides those of the peers.
    let by_hash: String =
        with_rack().lines().filter(|line| !line.contains("/25")).map(|line| format!("{line}\n")).collect();
    let rack = configuration(&by_hash).rack.unwrap();
    assert_eq!((rack.parts.len(), rack.by_hand), (32, false));
    assert_eq!(configuration(GOOD).rack, None);
}

#[test]
fn the_gateways_of_a_far_rack_have_the_same_networks() {
    let config = configuration(&with_peers());
    assert!(config.peers.iter().all(|peer| peer.rack.as_deref() == Some("east")));
    let good = with_peers();
    assert_eq!(codes(&good, "rack = \"east\"", ""), ["overlapping-networks", "overlapping-networks"]);
    assert_eq!(
        codes(&good, "[\"10.81.2.0/24\", \"2001:db8:2::/48\"]", "[\"10.81.2.0/24\"]"),
        ["rack-networks-differ"]
    );
    assert_eq!(codes(&good, "rack = \"east\"", "rack = \"east\"\nmode = \"tunnel\""), ["rack-mode"]);
    assert_eq!(codes(&good, "\"10.81.9.3:4700\"", "\"gateway.example.net:4700\""), ["rack-without-address"]);
    assert_eq!(codes(&good, "second.key", "peer.key"), ["shared-key"]);
}

#[test]
fn each_mistake_in_a_rack_is_found() {
    let good = with_rack();
    for (from, to, code) in [
        ("member = \"east-1\"\n", "", "rack-without-member"),
        ("member = \"east-1\"\n", "member = \"west\"\n", "unknown-member"),
        ("key_file = \"rack.key\"\n", "", "rack-without-key"),
        ("rack.key", "absent.key", "key-file"),
        ("rack.key", "peer.key", "shared-key"),
        ("name = \"east-2\"", "name = \"east-1\"", "duplicate-member"),
        ("10.81.1.2:4702", "10.81.1.1:4702", "duplicate-member"),
        ("10.81.1.2:4702", "[fd81::2]:4702", "family-mismatch"),
        ("10.81.1.2:4702", "0.0.0.0:4702", "bad-value"),
        ("10.81.2.128/25", "10.81.2.64/26", "overlapping-networks"),
        ("10.81.2.128/25", "10.81.2.192/26", "network-of-no-member"),
        ("[rack]", "[split]\nlisten = \"10.81.1.1:4701\"\n[rack]", "rack-mode"),
        ("mode = \"passive\"", "mode = \"tunnel\"", "rack-mode"),
        ("[[peer]]", "[[peer]]\npath = \"trusted\"", "rack-path"),
    ] {
        let found = codes(&good, from, to);
        assert!(found.contains(&code), "{from} -> {to}: {found:?}");
    }
    let (lone, _) = good.split_once("[[member]]\nname = \"east-2\"").unwrap();
    let (_, peer) = good.split_once("[[peer]]").unwrap();
    let lone = format!("{lone}[[peer]]{peer}");
    assert_eq!(codes(&lone, "\"10.81.2.0/25\"", "\"10.81.2.0/24\""), ["out-of-range"]);
}

#[test]
fn a_rack_has_no_more_parts_than_a_member_can_tell_of() {
    // A member that is alone holds all of a peer's network, in as many pieces as the members have.
    let pieces = |from: usize| -> String {
        let pieces: Vec<String> = (from..from + 32).map(|n| format!("\"10.81.2.{}/30\"", 4 * n)).collect();
        pieces.join(", ")
    };
    let one = with_rack().replace("\"10.81.2.0/25\"", &pieces(0));
    assert_eq!(configuration(&one).rack.unwrap().parts[0].networks.len(), 33);
    assert_eq!(codes(&one, "\"10.81.2.128/25\"", &pieces(32)), ["out-of-range"]);
    // A hash cuts the networks of many sites into fewer pieces.
    let by_hash: String =
        with_rack().lines().filter(|line| !line.contains("/25")).map(|line| format!("{line}\n")).collect();
    let sites = |count: usize| {
        let peer = |n: usize| {
            format!(
                "[[peer]]\naddress = \"10.81.9.{n}:4700\"\nnetworks = [\"10.{n}.0.0/16\"]\nkey_file = \"second.key\"\n",
            )
        };
        by_hash.clone() + &(100..100 + count).map(peer).collect::<String>()
    };
    assert_eq!(configuration(&sites(1)).rack.unwrap().parts.len(), 48);
}
