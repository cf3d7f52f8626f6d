use super::*;
use ricochet_core::tracker::Tracker;
use ricochet_core::{GroupId, NodeId, StreamKey};

fn mistake(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

#[test]
fn nothing_said_is_the_default() {
    assert_eq!(Config::parse("").unwrap(), Config::default());
    assert_eq!(
        toml::from_str::<Config>(&toml::to_string(&Config::default()).unwrap()).unwrap(),
        Config::default()
    );
}

#[test]
fn every_range_is_checked_and_the_key_is_named() {
    let wrong = [
        ("node", "group_port", "0", "1 to 65535"),
        ("node", "group_addresses", "65", "1 to 64"),
        ("node", "group_addresses", "0", "1 to 64"),
        ("node", "hops", "0", "1 to 255"),
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
        ("announce", "seldom", "0", "1 to 16"),
        ("announce", "seldom", "17", "1 to 16"),
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
        ("buffers", "datagram_max", "1199", "1200 to 65507"),
    ];
    for (section, key, value, expected) in wrong {
        let said = mistake(&format!("[{section}]\n{key} = {value}\n"));
        assert!(said.starts_with(&format!("{section}.{key}: expected")), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn what_serde_finds_wrong_is_shown_in_its_place() {
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
    ] {
        let said = mistake(text);
        assert!(said.contains("line"), "{said}");
    }
}

#[test]
fn values_that_do_not_go_together_are_refused() {
    assert!(mistake("[node]\nport = 7911").contains("another port"));
    assert!(mistake("[node]\naddress = \"10.0.0.1\"\ngroups_base = \"ff15::1\"").contains("same version"));
    let both = "[membership]\nseeds = [\"a:1\"]\nfile = \"members.toml\"";
    assert!(mistake(both).contains("saw both"));
}

#[test]
fn times_may_be_whole_or_not() {
    let config = Config::parse("[repair]\nmax_delay_ms = 2.5\n[nak]\ngap_ms = 3\nfirst_ms = 0").unwrap();
    assert_eq!(config.repair.max_delay_ms, Some(Duration::from_micros(2_500)));
    assert_eq!(config.nak.gap_ms, Some(Duration::from_millis(3)));
    let core = config.core(NodeId(1), true);
    assert_eq!((core.max_delay_us, core.nak.gap_us, core.trailer), (Some(2_500), Some(3_000), 16));
}

#[test]
fn the_default_is_the_ladder_for_applications() {
    let id = NodeId(1);
    let mine = Config::default().core(id, false);
    let prompt = ricochet_core::NodeConfig::prompt(id);
    assert_eq!(
        (mine.nak, mine.announce, mine.max_delay_us),
        (prompt.nak, prompt.announce, prompt.max_delay_us)
    );
}

#[test]
fn digests_are_fewer_and_wait_longer_unless_told_otherwise() {
    let repair = |text: &str| {
        let repair = Config::parse(text).unwrap().repair;
        (repair.repairs_per_packet(), repair.patience().map(|delay| delay.as_millis()))
    };
    assert_eq!(repair(""), (5, Some(3)));
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
    assert!(
        said.starts_with("fifo.streams: expected 40001 as in `buffers.streams`, or more, saw 40000"),
        "{said}"
    );
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
