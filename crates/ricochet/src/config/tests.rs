use std::path::PathBuf;
use std::time::Duration;

use super::*;
use ricochet_core::tracker::Tracker;
use ricochet_core::{GroupId, NodeId, StreamKey};

fn mistake(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

#[test]
fn an_empty_file_is_the_default() {
    let default = Config::default();
    assert_eq!(Config::parse("").unwrap(), default);
    assert_eq!((default.node.group_port, default.node.group_addresses), (GROUP_PORT, GROUP_ADDRESSES_MAX));
    default.check().unwrap();
}

#[test]
fn the_examples_in_the_table_are_correct() {
    let mut text = String::new();
    let mut header = "";
    for (_, next, key) in sections::layout().keys() {
        if next != header {
            header = next;
            text += &format!("{header}\n");
        }
        // The seeds would exclude other sources of members.
        let is_other_source =
            ["members.toml", "etcd", "kubernetes"].iter().any(|part| key.example.contains(part));
        if !is_other_source {
            text += &format!("{}\n", key.example);
        }
    }
    let config = Config::parse(&text).unwrap();
    assert_eq!((config.repair.r, config.node.port), (8, Some(7_900)));
    assert_eq!(config.nak, Config::default().nak);
    assert_eq!(config.key.file, Some(PathBuf::from("/etc/undrop/cluster.key")));
}

#[test]
fn the_description_and_the_manual_list_every_key() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ricochet.md");
    let (manual, text) = (std::fs::read_to_string(manual).unwrap(), Config::describe());
    for (section, _, key) in sections::layout().keys() {
        assert!(text.contains(&format!("\n  {}: ", key.name)), "{}", key.name);
        assert!(
            manual.contains(&format!("| `{}` |", key.name)),
            "{section}.{} is not in the manual",
            key.name
        );
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text =
        "[node]\nhop = 2\nport = 7911\n[repair]\nr = 65\nstagger = \"2\"\n[nak]\nqueue = 1\n[buffer]\n";
    let said = mistake(text);
    for part in [
        "error[unknown-key]: unknown key `hop` in [node]\n --> configuration:2:1\n",
        "= help: did you mean `hops`?",
        "error[same-port]: `node.port` and `node.group_port` are the same\n --> configuration:3:8\n",
        "error[out-of-range]: `r` in [repair] is out of range\n --> configuration:5:5\n",
        "error[wrong-type]: `stagger` in [repair] has the wrong type\n --> configuration:6:11\n",
        "= help: leave the quotes out: `2`",
        "= help: `queue` belongs under [buffers]",
        "= help: did you mean `buffers`?",
        "configuration: 6 errors",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}

#[test]
fn settings_of_a_program_are_checked_like_those_of_a_file() {
    let mut config = Config::default();
    config.repair.r = 65;
    config.nak.retry_ms = Duration::ZERO;
    config.node.port = Some(GROUP_PORT);
    let said = config.check().unwrap_err().to_string();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "`r` in [repair] is out of range: expected an integer from 1 to 64, seen 65");
    assert!(lines[1].starts_with("`retry_ms` in [nak] is out of range: expected a number of milliseconds"));
    assert!(lines[2].starts_with("`node.port` and `node.group_port` are the same: expected another port"));
    assert_eq!(lines.len(), 3, "{said}");
}

#[test]
fn a_check_reads_the_files_that_the_configuration_names() {
    let directory = std::env::temp_dir().join(format!("ricochet-check-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let file = directory.join("node.toml");
    let absent = directory.join("absent").display().to_string();
    std::fs::write(&file, format!("[membership]\nfile = '{absent}'\n[key]\nfile = '{absent}'\n")).unwrap();
    let report = Config::check_file(&file);
    let codes: Vec<_> = report.diagnostics().iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["member-file", "key-file"], "{report}");
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(Config::check_file(&file).diagnostics()[0].code, "unreadable-file");
}

#[test]
fn only_where_no_key_file_is_does_the_remedy_make_one() {
    let remedy = |error: KeyError| key_remedy(Path::new("a key"), &error);
    let of_kind = |kind: io::ErrorKind| remedy(KeyError::Unreadable(kind.into()));
    assert!(of_kind(io::ErrorKind::NotFound).contains("genkey --out 'a key'"));
    for help in [
        of_kind(io::ErrorKind::PermissionDenied),
        of_kind(io::ErrorKind::IsADirectory),
        remedy(KeyError::Length { seen: 7 }),
        remedy(KeyError::Character { at: 7 }),
        remedy(KeyError::Zero),
        remedy(KeyError::Mode { mode: 0o644 }),
        remedy(KeyError::Link),
    ] {
        assert!(!help.contains("genkey") && !help.contains("make"), "{help}");
    }
}

#[test]
fn every_range_is_checked_and_the_key_is_named() {
    let wrong = [
        ("node", "group_port", "0", "1 to 65535"),
        ("node", "group_addresses", "65", "1 to 64"),
        ("node", "group_addresses", "0", "1 to 64"),
        ("node", "hops", "0", "1 to 255"),
        ("node", "dscp", "64", "0 to 63"),
        ("node", "group_dscp", "[\"urgent=64\"]", "a DSCP of 1 to 63"),
        ("node", "group_dscp", "[\"urgent\"]", "a DSCP of 1 to 63"),
        ("node", "group_dscp", "[\"prices/*=46\"]", "a DSCP of 1 to 63"),
        ("node", "max_groups", "0", "1 to 65536"),
        ("node", "max_groups", "65537", "1 to 65536"),
        ("node", "groups_base", "\"10.0.0.1\"", "a multicast address"),
        ("node", "groups_base", "\"239.255.255.250\"", "room for"),
        ("repair", "r", "0", "1 to 64"),
        ("repair", "r", "65", "1 to 64"),
        ("repair", "c", "65", "0 to 64"),
        ("repair", "stagger", "0", "1 to 256"),
        ("repair", "stagger", "257", "1 to 256"),
        ("repair", "max_delay_ms", "10000.1", "0 to 10000"),
        ("nak", "retry_ms", "0", "0.001 to 60000"),
        ("nak", "give_up_ms", "0", "0.001 to 3600000"),
        ("nak", "expires_after_ms", "0", "0.001 to 3600000"),
        ("announce", "first_ms", "0", "0.001 to 60000"),
        ("announce", "growth", "1", "2 to 16"),
        ("announce", "times", "17", "0 to 16"),
        ("announce", "stride", "0", "1 to 16"),
        ("announce", "stride", "17", "1 to 16"),
        ("announce", "unless_named_ms", "3600001", "0 to 3600000"),
        ("fifo", "messages", "0", "1 to 1048576"),
        ("fifo", "bytes", "65535", "65536 to 1073741824"),
        ("fifo", "streams", "0", "1 to 1048576"),
        ("fifo", "settle_ms", "10000.1", "0 to 10000"),
        ("nak", "tries", "0", "1 to 255"),
        ("nak", "packets_per_second", "0", "1 to 10000000"),
        ("buffers", "packets", "15", "16 to 1048576"),
        ("buffers", "equations", "0", "1 to 65536"),
        ("buffers", "streams", "0", "1 to 1048576"),
        ("buffers", "ring", "63", "64 to 1048576"),
        ("buffers", "socket_bytes", "1", "4096 to 1073741824"),
        ("buffers", "payloads", "1048577", "0 to 1048576"),
        ("buffers", "queue", "0", "1 to 1048576"),
        ("buffers", "queue_bytes", "0", "1 to 1099511627776"),
        ("buffers", "send_bytes", "0", "1 to 1099511627776"),
        ("buffers", "fragment_bytes", "1048575", "1048576 to 1099511627776"),
        ("history", "keyed_bytes", "1073741825", "0 to 1073741824"),
        ("flow", "silence_ms", "19", "20 to 60000"),
        ("flow", "rate_mbit", "1000001", "0 to 1000000"),
        ("buffers", "datagram_max", "1199", "1200 to 65507"),
    ];
    for (section, key, value, expected) in wrong {
        let said = mistake(&format!("[{section}]\n{key} = {value}\n"));
        assert!(said.contains(&format!("`{key}` in [{section}]")) || said.contains("bad-base"), "{said}");
        assert!(said.contains(expected) && said.ends_with(": 1 error"), "{said}");
    }
}

#[test]
fn a_mistake_is_shown_at_its_place() {
    for text in [
        "[repair]\nmode = \"xnor\"",
        "[repair]\nrate = 8",
        "[nope]",
        "[node]\naddress = \"300.0.0.1\"",
        "[nak]\nfirst_ms = -1",
        "[nak]\ngap_ms = \"soon\"",
        "[nak]\nfirst_ms = 86400001",
        "[buffers]\npolicy = \"drop\"",
        "[key]\nfile = 7",
        "[node]\ncontrol = \"\"",
        "[node]\nrandomness = -1",
        "[membership]\nseeds = [\"10.0.0.7\"]",
        "[membership]\nseeds = \"10.0.0.7:7900\"",
        "[nak]\nfirst_ms = nan",
        "[nak]\nfirst_ms = inf",
        "[[node]]\nport = 1",
        "node = 1",
        "[node\n",
    ] {
        let said = mistake(text);
        assert!(said.contains(" --> configuration:") && said.ends_with(": 1 error"), "{said}");
    }
}

#[test]
fn values_that_do_not_go_together_are_refused() {
    assert!(mistake("[node]\nport = 7911").contains("another port"));
    assert!(
        mistake("[node]\naddress = \"10.0.0.1\"\ngroups_base = \"ff15::1\"")
            .contains("the IP version of `address`")
    );
    let sources = ["seeds = [\"a:1\"]", "file = \"m\"", "etcd = [\"http://a:1\"]", "kubernetes = \"a/b\""];
    for (at, first) in sources.iter().enumerate() {
        Config::parse(&format!("[membership]\n{first}")).unwrap();
        for second in &sources[at + 1..] {
            let said = mistake(&format!("[membership]\n{first}\n{second}"));
            assert!(said.contains("exclude each other") && said.contains("seen: both"), "{said}");
            assert!(said.contains("` is here (line"), "{said}");
        }
    }
}

#[test]
fn settings_of_a_source_of_members_need_the_source() {
    for (lone, source) in [
        ("etcd_prefix = \"/a\"", "`membership.etcd` as well"),
        ("etcd_lease_s = 5", "`membership.etcd` as well"),
        ("kubernetes_api = \"http://a:1\"", "`membership.kubernetes` as well"),
    ] {
        let said = mistake(&format!("[membership]\n{lone}"));
        assert!(said.contains("has no effect") && said.contains(source), "{said}");
    }
    let config =
        Config::parse("[membership]\netcd = [\"http://[fd00::1]:2379/\"]\netcd_prefix = \"/a/b\"").unwrap();
    let etcd = config.membership.etcd().unwrap().unwrap();
    assert_eq!(
        (etcd.endpoints[0].to_string().as_str(), etcd.prefix.as_str(), etcd.ttl_s),
        ("http://[fd00::1]:2379", "/a/b", 10)
    );
    let config = Config::parse("[membership]\nkubernetes = \"prices/undrop\"").unwrap();
    let kubernetes = config.membership.kubernetes().unwrap().unwrap();
    assert_eq!((kubernetes.namespace.as_str(), kubernetes.service.as_str()), ("prices", "undrop"));
    assert_eq!(kubernetes.endpoint.to_string(), "http://127.0.0.1:8001");
}

#[test]
fn addresses_of_services_are_checked() {
    for (text, said) in [
        ("etcd = [\"https://10.0.0.1:2379\"]", "`stunnel` or `kubectl proxy`"),
        ("etcd = [\"10.0.0.1:2379\"]", "write `\"http://HOST:PORT\"`"),
        ("etcd = \"http://10.0.0.1:2379\"", "an array of addresses"),
        ("etcd = [\"http://a:1\"]\netcd_prefix = \"undrop\"", "a path of letters"),
        ("etcd = [\"http://a:1\"]\netcd_prefix = \"/undrop/\"", "a path of letters"),
        ("etcd = [\"http://a:1\"]\netcd_prefix = \"/\"", "a path of letters"),
        ("etcd = [\"http://a:1\"]\netcd_lease_s = 1", "2 to 3600"),
        ("kubernetes = \"undrop\"", "write `\"NAMESPACE/SERVICE\"`"),
        ("kubernetes = \"Default/undrop\"", "write `\"NAMESPACE/SERVICE\"`"),
        ("kubernetes = \"a/b/c\"", "write `\"NAMESPACE/SERVICE\"`"),
        ("kubernetes = \"a/b\"\nkubernetes_api = \"https://kubernetes.default.svc\"", "kubectl proxy"),
    ] {
        let seen = mistake(&format!("[membership]\n{text}\n"));
        assert!(seen.contains(said) && seen.ends_with(": 1 error"), "{seen}");
    }
    let mut config = Config::default();
    config.membership.etcd = vec!["ftp://a".to_owned()];
    assert!(config.membership.etcd().unwrap_err().contains("membership.etcd: expected http://HOST:PORT"));
}

#[test]
fn times_may_be_whole_or_not() {
    let config = Config::parse("[repair]\nmax_delay_ms = 2.5\n[nak]\ngap_ms = 3\nfirst_ms = 0").unwrap();
    assert_eq!(config.repair.max_delay_ms, Some(Duration::from_micros(2_500)));
    assert_eq!(config.nak.gap_ms, Some(Duration::from_millis(3)));
    let core = config.core(NodeId(1), true);
    assert_eq!((core.max_delay_us, core.nak.gap_us, core.trailer), (Some(2_500), Some(3_000), 36));
}

#[test]
fn the_default_is_the_ladder_for_applications() {
    let id = NodeId(1);
    let mine = Config::default().core(id, false);
    let prompt = ricochet_core::NodeConfig::prompt(id);
    assert_eq!((mine.nak, mine.announce), (prompt.nak, prompt.announce));
    assert_eq!((mine.content, mine.max_delay_us), (ricochet_core::bins::Content::Names, Some(5_000)));
}

#[test]
fn digests_are_fewer_and_wait_longer_by_default() {
    let repair = |text: &str| {
        let repair = Config::parse(text).unwrap().repair;
        (repair.repairs_per_packet(), repair.patience().map(|delay| delay.as_millis()))
    };
    assert_eq!(repair(""), (3, Some(5)));
    assert_eq!(repair("[repair]\nmode = \"xor\""), (5, Some(3)));
    assert_eq!(repair("[repair]\nmode = \"auto\""), (5, Some(3)));
    assert_eq!(repair("[repair]\nmode = \"digest\""), (3, Some(5)));
    assert_eq!(repair("[repair]\nmode = \"digest\"\nc = 5\nmax_delay_ms = 0"), (5, None));
}

#[test]
fn what_keeps_order_knows_as_many_streams_as_its_node() {
    let fifo = |text: &str| {
        let config = Config::parse(text).unwrap();
        config.fifo.core(&config.buffers).streams_max
    };
    assert_eq!(fifo(""), 16_384);
    assert_eq!(fifo("[buffers]\nstreams = 40000"), 40_000);
    assert_eq!(fifo("[fifo]\nstreams = 20000"), 20_000);
    let said = mistake("[fifo]\nstreams = 40000\n[buffers]\nstreams = 40001");
    assert!(said.contains("expected: 40001 or more") && said.contains("seen: 40000"), "{said}");
}

#[test]
fn however_many_streams_are_known_gaps_have_room_to_be_parted() {
    let tracker = |streams: usize| {
        let config = Config::parse(&format!("[buffers]\nstreams = {streams}")).unwrap();
        config.core(NodeId(1), false).tracker
    };
    assert_eq!(tracker(1 << 20).check(), Ok(()));
    let mut tracker = Tracker::new(tracker(20_000)).unwrap();
    let key = |sender| StreamKey { sender: NodeId(sender), group: GroupId(7) };
    for sender in 0..20_000 {
        tracker.on_received(0, key(sender), 1_000, 0);
    }
    tracker.on_received(1, key(9), 1_201, 1);
    let first = tracker.missing(key(9)).next().unwrap().first;
    tracker.mark_first(key(9), first, 64, 2);
    let parts: Vec<_> =
        tracker.missing(key(9)).map(|part| (part.last.0 - part.first.0 + 1, part.mark)).collect();
    assert_eq!(parts, [(64, 2), (136, 1)]);
}

#[test]
fn an_ipv4_address_contradicts_ipv6() {
    for (line, key) in [("address = \"10.0.0.7\"", "address"), ("groups_base = \"239.1.0.0\"", "groups_base")]
    {
        let said = mistake(&format!("[node]\nipv6 = true\n{line}\n"));
        assert!(
            said.contains(&format!("error[contradiction]: `node.{key}` is not an IPv6 address")),
            "{said}"
        );
        assert!(
            said.contains("expected: an IPv6 address") && said.contains("`ipv6` is here (line 2"),
            "{said}"
        );
        Config::parse(&format!("[node]\nipv6 = false\n{line}\n")).unwrap();
    }
    let config = Config::parse("[node]\naddress = \"2001:db8::7\"\n").unwrap();
    assert!(config.node.is_ipv6());
    let mut config = Config::default();
    (config.node.ipv6, config.node.address) = (true, Some("10.0.0.7".parse().unwrap()));
    assert!(config.check().unwrap_err().to_string().contains("expected an IPv6 address"));
}

#[test]
fn interface_names_follow_the_rules_of_linux() {
    for wrong in ["sixteen-letters-", &"x".repeat(5_000), "a b", "a/b", "a:b", ".."] {
        let said = mistake(&format!("[node]\ninterface = \"{wrong}\"\n"));
        assert!(said.contains("`interface` in [node] is not the name of an interface"), "{said}");
        assert!(said.len() < 700, "{said}");
    }
    Config::parse("[node]\ninterface = \"fifteen-letters\"\n").unwrap();
}
