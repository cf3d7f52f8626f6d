//! Interfaces of peers, and the buffers of their taps.

use super::*;

/// A good file with a second peer at another interface.
fn with_wan() -> String {
    format!(
        "{GOOD}[[peer]]\nname = \"osaka\"\naddress = \"10.81.9.3:4700\"\nnetworks = [\"10.81.3.0/24\"]\n\
         key_file = \"second.key\"\nwan = \"wan1\"\n"
    )
}

fn codes(text: &str) -> Vec<&'static str> {
    examined(text).1.diagnostics().iter().map(|finding| finding.code).collect()
}

#[test]
fn each_interface_counts_once_and_that_of_the_gateway_first() {
    let config = configuration(&with_wan());
    assert_eq!((config.wans(), config.wan_numbers()), (vec!["wan0", "wan1"], vec![0, 1]));
    assert_eq!([0, 1].map(|wan| config.tun_of(wan)), ["undrop0", "undrop0.1"]);
    assert!(config.is_watched(0) && config.is_watched(1));
    let same = configuration(&with_wan().replace("wan1", "wan0"));
    assert_eq!((same.wans(), same.wan_numbers()), (vec!["wan0"], vec![0, 0]));
    // The interface of the gateway is there, though all peers have another one.
    let other = configuration(&GOOD.replace("[[peer]]", "[[peer]]\nwan = \"wan1\""));
    assert_eq!((other.wans(), other.wan_numbers()), (vec!["wan0", "wan1"], vec![1]));
    assert!(!other.is_watched(0) && other.is_watched(1));
}

#[test]
fn an_interface_of_a_peer_must_make_sense() {
    let good = with_wan();
    assert!(codes(&good).is_empty());
    for (from, to, code) in [
        ("wan = \"wan1\"", "wan = \"wan1\"\nmode = \"tunnel\"", "foreign-setting"),
        ("wan = \"wan1\"", "wan = \"undrop0\"", "same-interface"),
        ("wan = \"wan1\"", "wan = \"undrop1\"", "same-interface"),
        ("wan = \"wan1\"", "wan = \"undrop0.1\"", "same-interface"),
        ("wan = \"wan1\"", "wan = \"wan1\"\ncarrier = \"10.81.3.1:4701\"", "foreign-setting"),
        ("wan = \"wan1\"", "wan = \"wan 1\"", "bad-value"),
        ("[code]", "tun = \"fourteen-long0\"\n[code]", "out-of-range"),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from} is not in the file");
        assert_eq!(codes(&text), [code], "{to}");
    }
    let peers = |count: usize| {
        (0..count).map(|n| {
        format!(
            "[[peer]]\naddress = \"10.9.{n}.2:4700\"\nnetworks = [\"10.{}.0.0/16\"]\nkey_file = \"{}.key\"\nwan = \
             \"wan{}\"\n",
            100 + n,
            "x".repeat(n + 1),
            n + 1
        )
    })
    };
    assert!(codes(&format!("{GOOD}{}", peers(7).collect::<String>())).is_empty());
    assert_eq!(codes(&format!("{GOOD}{}", peers(8).collect::<String>())), ["out-of-range"]);
}

#[test]
fn gateways_of_a_far_rack_have_one_interface() {
    let rack = GOOD.replace("[[peer]]", "[[peer]]\nrack = \"east\"");
    let second = "[[peer]]\nrack = \"east\"\naddress = \"10.81.9.3:4700\"\nnetworks = [\"10.81.2.0/24\", \
        \"2001:db8:2::/48\"]\nkey_file = \"second.key\"\nwan = \"wan1\"\n";
    let both = format!("{rack}{second}");
    assert_eq!(codes(&both), ["rack-wan"]);
    let same = rack.replace("rack = \"east\"", "rack = \"east\"\nwan = \"wan1\"") + second;
    assert!(codes(&same).is_empty());
}

#[test]
fn a_tap_has_the_buffer_that_the_file_states() {
    let with = |size: &str| GOOD.replacen("[gateway]", &format!("[gateway]\ntap_buffer = \"{size}\""), 1);
    assert_eq!(configuration(GOOD).gateway.tap_buffer, netio::tap::BUFFER_BYTES as u64);
    assert_eq!(
        ["1MiB", "64MiB", "1GiB"].map(|size| configuration(&with(size)).gateway.tap_buffer),
        [1 << 20, 64 << 20, 1 << 30]
    );
    for (size, code) in [("1023KiB", "out-of-range"), ("2GiB", "out-of-range"), ("64", "bad-value")] {
        assert_eq!(codes(&with(size)), [code], "{size}");
    }
}
