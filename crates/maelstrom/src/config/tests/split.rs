//! The section `[split]`.

use std::time::Duration;

use super::*;

/// A good file with split mode.
fn with_split() -> String {
    let local = "[gateway]\nlocal_networks = [\"10.81.1.0/24\"]";
    let split = "[split]\nlisten = \"10.81.1.1:4701\"\nports = [80, 443]\naccept = \"early\"\n\n\
                 [[peer]]\ncarrier = \"10.81.2.1:4701\"";
    GOOD.replace("[gateway]", local).replace("[[peer]]", split)
}

/// The codes of what is found about that file with `from` replaced by `to`.
fn codes(from: &str, to: &str) -> Vec<&'static str> {
    let text = with_split().replacen(from, to, 1);
    assert_ne!(text, with_split(), "{from} is not in the file");
    examined(&text).1.diagnostics().iter().map(|finding| finding.code).collect()
}

#[test]
fn a_file_with_split_mode_is_read_and_one_without_has_none() {
    let config = configuration(&with_split());
    assert_eq!(config.split.listen, Some("10.81.1.1:4701".parse().unwrap()));
    assert_eq!(config.split.ports, Some(vec![80, 443]));
    assert_eq!(config.split.accept, AcceptChoice::Early);
    assert_eq!((config.split.buffer, config.split.congestion.as_str()), (64 << 20, "bbr"));
    let split = &config.split;
    assert_eq!([split.connect, split.drain], [10, 5].map(Duration::from_secs));
    assert_eq!(config.peers[0].carrier, Some("10.81.2.1:4701".parse().unwrap()));
    let plain = configuration(GOOD);
    assert_eq!((plain.split.listen, plain.peers[0].carrier), (None, None));
    let sized = |size: &str| {
        let text = with_split().replace("accept", &format!("buffer = \"{size}\"\naccept"));
        configuration(&text).split.buffer
    };
    let drained = |time: &str| {
        let text = with_split().replace("accept", &format!("drain = \"{time}\"\naccept"));
        configuration(&text).split.drain.as_millis()
    };
    let spooled = |limit: &str| {
        let keys = format!("spool_dir = \"/var/lib/undrop\"\nspool = \"{limit}\"\naccept");
        let split = configuration(&with_split().replace("accept", &keys)).split;
        (split.spool_dir, split.spool)
    };
    let directory = || Some("/var/lib/undrop".into());
    assert_eq!((split.spool_dir.clone(), split.spool), (None, 1 << 30));
    assert_eq!([spooled("64MiB"), spooled("16TiB")], [(directory(), 64 << 20), (directory(), 16 << 40)]);
    assert_eq!([drained("0s"), drained("250 ms"), drained("5min")], [0, 250, 300_000]);
    assert_eq!([sized("8MiB"), sized("8192 KiB"), sized("16GiB")], [8 << 20, 8 << 20, 16 << 30]);
}

#[test]
fn carriers_must_be_packets_between_the_sites() {
    let none: [&str; 0] = [];
    assert_eq!(codes("[80, 443]", "[80]"), none);
    assert_eq!(codes("local_networks = [\"10.81.1.0/24\"]", ""), ["split-without-networks"]);
    assert_eq!(codes("10.81.1.1:4701", "10.81.9.1:4701"), ["split-listen-outside"]);
    assert_eq!(codes("10.81.2.1:4701", "10.81.9.2:4701"), ["carrier-outside"]);
    assert_eq!(codes("10.81.2.1:4701", "[2001:db8:2::1]:4701"), ["carrier-family"]);
    assert_eq!(codes("carrier = \"10.81.2.1:4701\"", ""), ["split-without-carrier"]);
    assert_eq!(codes("listen = \"10.81.1.1:4701\"", ""), ["split-without-listen"]);
    // A peer that takes carriers needs no section here.
    let split = "[split]\nlisten = \"10.81.1.1:4701\"\nports = [80, 443]\naccept = \"early\"\n";
    assert_eq!(codes(split, ""), none);
}

#[test]
fn a_client_is_answered_late_unless_the_file_says_otherwise() {
    let accept = |line: &str| configuration(&with_split().replace("accept = \"early\"\n", line)).split.accept;
    assert_eq!(accept(""), AcceptChoice::Late);
    assert_eq!(accept("accept = \"late\"\n"), AcceptChoice::Late);
    assert_eq!(accept("accept = \"early\"\n"), AcceptChoice::Early);
    assert_eq!(codes("accept = \"early\"", "accept = \"soon\""), ["bad-value"]);
}

#[test]
fn connections_may_be_split_to_some_networks_of_the_peers_only() {
    let networks = |list: &str| format!("networks = {list}\naccept");
    let text = with_split().replacen("accept", &networks("[\"10.81.2.128/25\", \"10.81.2.0/26\"]"), 1);
    let stated = configuration(&text).split.networks.unwrap();
    assert_eq!(
        stated.iter().map(|one| one.value.to_string()).collect::<Vec<_>>(),
        ["10.81.2.128/25", "10.81.2.0/26"]
    );
    assert_eq!(configuration(&with_split()).split.networks, None);
    for (list, code) in [
        ("[\"10.81.7.0/24\"]", "split-network-of-no-peer"),
        ("[\"10.81.0.0/16\"]", "split-network-of-no-peer"),
        ("[]", "out-of-range"),
        ("[\"ten\"]", "bad-value"),
    ] {
        assert_eq!(codes("accept", &networks(list)), [code], "{list}");
    }
}

#[test]
fn bad_values_are_found() {
    assert_eq!(codes("[80, 443]", "[]"), ["out-of-range"]);
    assert_eq!(codes("[80, 443]", "[0]"), ["out-of-range"]);
    assert_eq!(codes("[80, 443]", "[80, 80]"), ["duplicate-value"]);
    for (value, code) in
        [("7MiB", "out-of-range"), ("17GiB", "out-of-range"), ("64", "bad-value"), ("MiB", "bad-value")]
    {
        assert_eq!(codes("accept", &format!("buffer = \"{value}\"\naccept")), [code], "{value}");
    }
    for (value, code) in
        [("301s", "out-of-range"), ("5", "bad-value"), ("s", "bad-value"), ("-1s", "bad-value")]
    {
        assert_eq!(codes("accept", &format!("drain = \"{value}\"\naccept")), [code], "{value}");
    }
    for (value, code) in [("999ms", "out-of-range"), ("121s", "out-of-range"), ("10", "bad-value")] {
        assert_eq!(codes("accept", &format!("connect = \"{value}\"\naccept")), [code], "{value}");
    }
    for (value, code) in [("63MiB", "out-of-range"), ("17TiB", "out-of-range"), ("1PiB", "bad-value")] {
        assert_eq!(codes("accept", &format!("spool = \"{value}\"\naccept")), [code], "{value}");
    }
    assert_eq!(codes("accept", "spool_dir = \"\"\naccept"), ["bad-value"]);
    for value in ["", "no spaces", "a-name-that-is-too-long"] {
        assert_eq!(codes("accept", &format!("congestion = \"{value}\"\naccept")), ["bad-value"], "{value}");
    }
    assert_eq!(codes("10.81.1.1:4701", "10.81.1.1"), ["bad-value"]);
}
