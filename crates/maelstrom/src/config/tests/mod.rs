//! Whole files, correct and wrong.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use diagnostics::settings::KeyInfo;
use maelstrom_core::Whereabouts;

use super::*;

mod codes;
mod multicast;
mod paths;
mod rack;
mod split;
mod table;
mod wans;

const GOOD: &str = r#"
[gateway]
mode = "passive"
wan = "wan0"
listen = "10.81.9.1:4700"
control = "/run/undrop/gateway.sock"
[code]
scheme = "layered"
r = 8
interleaves = [1, 11, 19]
max_delay_ms = 20
[[peer]]
address = "10.81.9.2:4700"
networks = ["10.81.2.0/24", "2001:db8:2::/48"]
key_file = "peer.key"
"#;

/// The same file with Reed–Solomon blocks.
fn blocks() -> String {
    let layers = "scheme = \"layered\"\nr = 8\ninterleaves = [1, 11, 19]";
    let text = GOOD.replace(layers, "scheme = \"reed-solomon\"\nr = 8\nc = 3\ninterleave = 20");
    assert_ne!(text, GOOD);
    text
}

/// The same file with a sliding window.
fn window() -> String {
    let layers = "scheme = \"layered\"\nr = 8\ninterleaves = [1, 11, 19]";
    GOOD.replace(layers, "scheme = \"sliding\"\nrate = 0.375\nwindow = 160\ndensity = 15")
}

/// The same file with the rate left to the gateway.
fn auto() -> String {
    let layers = "scheme = \"layered\"\nr = 8\ninterleaves = [1, 11, 19]";
    GOOD.replace(layers, "scheme = \"auto\"")
}

/// A good file in which a key of one of `schemes` may stand.
fn good_for(schemes: Option<&[&str]>) -> String {
    match schemes {
        Some(["reed-solomon"]) => blocks(),
        Some(["sliding"]) => window(),
        Some(["auto"]) => auto(),
        _ => GOOD.to_owned(),
    }
}

/// Stands in for the disk: the name of a key file decides its contents.
fn read_key(path: &Path) -> Result<PeerKey, KeyError> {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or("");
    match name {
        "absent" => Err(io::Error::from(io::ErrorKind::NotFound).into()),
        "open" => Err(KeyError::Mode { mode: 0o644 }),
        "short" => Err(KeyError::Length { seen: 5 }),
        _ => Ok(PeerKey::new([name.bytes().fold(1, u8::wrapping_add); 32])),
    }
}

pub(super) fn examined(text: &str) -> (Option<Draft>, Report) {
    let reading = examine(Source::new(Path::new("gateway.toml"), text), &mut read_key);
    let report = reading.report();
    (reading.draft, report)
}

/// The keys of a section.
fn keys_of(section: &str) -> Vec<KeyInfo> {
    let layout = layout();
    layout.keys().filter(|(name, ..)| *name == section).map(|(_, _, key)| key.clone()).collect()
}

pub(crate) fn configuration(text: &str) -> GatewayConfig {
    let (draft, report) = examined(text);
    assert_eq!(report.errors(), 0, "{report}");
    draft.unwrap().finish()
}

/// The only finding about the good file with `from` replaced by `to`.
fn finding(from: &str, to: &str) -> Diagnostic {
    let text = GOOD.replacen(from, to, 1);
    assert_ne!(text, GOOD, "{from} is not in the file");
    let (_, report) = examined(&text);
    assert_eq!(report.diagnostics().len(), 1, "{report}");
    report.diagnostics()[0].clone()
}

fn code_of(from: &str, to: &str) -> &'static str {
    finding(from, to).code
}

/// Compares `actual` with a file in git. `UPDATE_SNAPSHOTS=1` writes the file instead, so that git shows the
/// difference.
pub(super) fn assert_snapshot(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/snapshots").join(name);
    let actual = format!("{actual}\n");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &actual).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == actual, "{} differs; the report is:\n{actual}", path.display());
}

#[test]
fn a_good_file_becomes_a_configuration() {
    let config = configuration(GOOD);
    assert_eq!(config.gateway.mode, Mode::Passive);
    assert_eq!(config.gateway.wan, "wan0");
    assert_eq!(config.gateway.listen, "10.81.9.1:4700".parse::<SocketAddr>().unwrap());
    assert_eq!(config.gateway.control, PathBuf::from("/run/undrop/gateway.sock"));
    assert_eq!(config.code.schedule, Schedule::Layered { r: 8, interleaves: vec![1, 11, 19] });
    assert_eq!(config.code.max_delay_us(), 20_000);
    assert_eq!(config.peers.len(), 1);
    assert_eq!(config.peers[0].networks.len(), 2);
    assert_eq!(config.peers[0].label(), "10.81.9.2:4700");
}

fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

fn toml_blocks(name: &str) -> Vec<String> {
    let text = document(name);
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split_once("```"));
    blocks.map(|(block, _)| block.to_owned()).collect()
}

#[test]
fn the_readme_shows_a_file_that_is_right() {
    let blocks = toml_blocks("README.md");
    let [whole] = &blocks[..] else { panic!("expected one file, saw {}", blocks.len()) };
    assert_eq!(configuration(whole).code.schedule.to_string(), "auto");
}

#[test]
fn the_manual_shows_files_that_are_right() {
    let blocks = toml_blocks("docs/maelstrom.md");
    let whole: Vec<&String> = blocks.iter().filter(|block| block.contains("[[peer]]")).collect();
    let [whole, further] = whole[..] else { panic!("expected a file and a peer, saw {}", whole.len()) };
    assert_eq!(configuration(&format!("{whole}{further}")).wans(), ["wan0", "wan1"]);
    let mut schemes = vec![configuration(whole).code.schedule.to_string()];
    let (head, rest) = whole.split_once("[code]").unwrap();
    let (_, peer) = rest.split_once("[[peer]]").unwrap();
    for code in blocks.iter().filter(|block| block.starts_with("[code]")) {
        let schedule = configuration(&format!("{head}{code}[[peer]]{peer}")).code.schedule;
        // The MTUs in the manual.
        assert!(1_300 + schedule.repair_overhead(true) <= 1_500);
        schemes.push(schedule.to_string());
    }
    assert_eq!(schemes, ["auto", "layered (8; 1,11,19)", "reed-solomon (8,3) x20", "sliding (256; 3/8)"]);
}

#[test]
fn the_manual_lists_every_key() {
    let page = document("docs/maelstrom.md");
    for (_, _, key) in layout().keys() {
        assert!(page.contains(&format!("\n| `{}` | ", key.name)), "docs/maelstrom.md lacks `{}`", key.name);
    }
}

#[test]
fn ten_mistakes_are_reported_in_one_pass() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/snapshots/ten-mistakes.toml");
    let (_, report) = examined(&fs::read_to_string(file).unwrap());
    assert_snapshot("ten-mistakes.txt", &report.to_string());
    assert_snapshot("ten-mistakes.json", &report.to_json());
    assert_eq!(report.errors(), 10);
}

#[test]
fn a_misspelt_word_is_corrected() {
    let near = finding("\"passive\"", "\"pasive\"");
    assert_eq!(near.help, ["did you mean `\"passive\"`?"]);
    assert_eq!(finding("[code]", "[codes]").help, ["did you mean `code`?"]);
    assert_eq!(finding("r = 8", "wan = \"wan0\"").help, ["`wan` belongs under [gateway]"]);
    assert_eq!(finding("[code]", "[code]\nxyzzy = 1").help, ["leave it out"]);
}

#[test]
fn interface_names_follow_the_rules_of_linux() {
    for wrong in ["", "sixteen-letters-", "a b", "a/b", "a:b", ".."] {
        assert_eq!(code_of("\"wan0\"", &format!("\"{wrong}\"")), "bad-value", "{wrong}");
    }
    configuration(&GOOD.replace("wan0", "fifteen-letters"));
    assert_eq!(code_of("mode = \"passive\"", "tun = \"wan0\""), "same-interface");
    assert_eq!(code_of("mode = \"passive\"", "tun = 7"), "wrong-type");
}

#[test]
fn addresses_have_a_port_and_are_those_of_one_machine() {
    assert_eq!(finding("10.81.9.2:4700", "10.81.9.2").help, ["add one: `\"10.81.9.2:4700\"`"]);
    assert_eq!(finding("10.81.9.1:4700", "[2001:db8::1]").help, ["add one: `\"[2001:db8::1]:4700\"`"]);
    for wrong in ["10.81.9.2:0", "224.0.0.1:4700", "255.255.255.255:4700", "0.0.0.0:4700", ""] {
        assert_eq!(code_of("10.81.9.2:4700", wrong), "bad-value", "{wrong}");
    }
    assert_eq!(
        code_of("10.81.9.1:4700", "near.example:4700"),
        "bad-value",
        "a gateway knows its own address"
    );
    configuration(&GOOD.replace("10.81.9.1:4700", "0.0.0.0:4700"));
}

#[test]
fn a_peer_may_call_from_any_address_if_it_has_a_name() {
    let any = GOOD.replace("address = \"10.81.9.2:4700\"", "name = \"osaka\"\naddress = \"any\"");
    let peer = configuration(&any).peers.remove(0);
    assert_eq!((peer.whereabouts, peer.label().as_str()), (Whereabouts::Unstated, "osaka"));
    assert_eq!((peer.address, peer.moving().as_deref()), (([0, 0, 0, 0], 0).into(), Some("any")));
    let v6 = any.replace("10.81.9.1:4700", "[2001:db8::1]:4700");
    assert!(configuration(&v6).peers[0].address.is_ipv6());
    let other =
        "\n[[peer]]\nname = \"nagoya\"\naddress = \"any\"\nnetworks = [\"10.81.3.0/24\"]\nkey_file = \"b\"\n";
    assert_eq!(configuration(&(any.clone() + other)).peers.len(), 2);
    let nameless = finding("10.81.9.2:4700", "any");
    assert_eq!(nameless.code, "nameless-peer");
    assert!(nameless.help[0].contains("name = "), "{:?}", nameless.help);
    assert!(finding("10.81.9.2:4700", "Any").help[0].ends_with("write `\"any\"`"));
    let shared = any + &other.replace("\"b\"", "\"peer.key\"");
    assert_eq!(examined(&shared).1.diagnostics()[0].code, "shared-key");
    let anywhere = finding("10.81.9.2:4700", "0.0.0.0:4700");
    assert!(anywhere.help[0].contains("`any`"), "{:?}", anywhere.help);
}

#[test]
fn a_peer_may_have_the_name_of_a_host() {
    let peer = |address: &str| configuration(&GOOD.replace("10.81.9.2:4700", address)).peers.remove(0);
    let named = peer("gw-1.far.example:4701");
    assert_eq!(named.host, Some(Host { name: "gw-1.far.example".to_owned(), port: 4701 }));
    assert_eq!(
        (named.label().as_str(), named.address),
        ("gw-1.far.example:4701", ([0, 0, 0, 0], 4701).into())
    );
    assert!(peer("10.81.9.3:4700").host.is_none() && peer("localhost:4700").host.is_some());
    assert_eq!(finding("10.81.9.2:4700", "far.example").help, ["add one: `\"far.example:4700\"`"]);
    let long = format!("{}.example:4700", "x".repeat(64));
    for wrong in
        ["10.81.9.2.7:4700", "far_site:4700", "-far.example:4700", "far..example:4700", "far:0", &long]
    {
        assert_eq!(code_of("10.81.9.2:4700", wrong), "bad-value", "{wrong}");
    }
    let twice = second_peer("far.example:4700", "\"10.81.3.0/24\"", "b");
    assert_eq!(twice.diagnostics().len(), 0, "{twice}");
    let named = GOOD.replace("10.81.9.2:4700", "far.example:4700");
    let other =
        "\n[[peer]]\naddress = \"far.example:4700\"\nnetworks = [\"10.81.3.0/24\"]\nkey_file = \"b\"\n";
    let report = examined(&(named + other)).1;
    assert_eq!(report.diagnostics()[0].code, "duplicate-peer", "{report}");
}

#[test]
fn a_relative_control_socket_is_beside_the_file_and_its_path_is_bounded() {
    let path = |bytes: usize| format!("/{}", "x".repeat(bytes - 1));
    for long in [100, 108] {
        assert_eq!(code_of("/run/undrop/gateway.sock", &path(long)), "bad-value", "{long} bytes");
    }
    let longest = configuration(&GOOD.replace("/run/undrop/gateway.sock", &path(99))).gateway.control;
    for beside in [".losses", ".cache", ".capture", ".upgrade", ".next"] {
        let socket = format!("{}{beside}", longest.display());
        assert!(std::os::unix::net::SocketAddr::from_pathname(&socket).is_ok(), "{beside}");
    }
    assert_eq!(code_of("/run/undrop/gateway.sock", ""), "bad-value");
    let source = Source::new(Path::new("/etc/undrop/gateway.toml"), "");
    assert_eq!(source.resolve(Path::new("a.sock")), Path::new("/etc/undrop/a.sock"));
    assert_eq!(source.resolve(Path::new("/a.sock")), Path::new("/a.sock"));
}

#[test]
fn networks_have_a_prefix_and_no_host_bits() {
    let host_bits = finding("10.81.2.0/24", "10.81.2.7/24");
    assert_eq!(host_bits.help, ["write the network itself, `\"10.81.2.0/24\"`"]);
    assert_eq!(finding("10.81.2.0/24", "10.81.2.7").help, ["for this one host, write `\"10.81.2.7/32\"`"]);
    for wrong in ["10.81.2.0/33", "far site", "224.0.0.0/4", "127.0.0.0/8", "ff00::/8"] {
        assert_eq!(code_of("10.81.2.0/24", wrong), "bad-value", "{wrong}");
    }
    assert_eq!(code_of("[\"10.81.2.0/24\", \"2001:db8:2::/48\"]", "[]"), "out-of-range");
    assert_eq!(code_of("[\"10.81.2.0/24\", \"2001:db8:2::/48\"]", "\"10.81.2.0/24\""), "wrong-type");
    let many = vec!["\"10.0.0.0/8\""; NETWORKS_MAX + 1].join(",");
    assert_eq!(code_of("\"10.81.2.0/24\", \"2001:db8:2::/48\"", &many), "out-of-range");
}

#[test]
fn a_string_is_not_a_boolean() {
    let delayed = |value: &str| format!("scheme = \"layered\"\ndelayed = {value}");
    assert_eq!(code_of("scheme = \"layered\"", &delayed("\"yes\"")), "wrong-type");
    assert!(!configuration(&GOOD.replace("scheme = \"layered\"", &delayed("false"))).code.delayed);
}

#[test]
fn a_peer_has_a_name_that_can_be_printed() {
    for wrong in ["\"\"", "\"a\\u001b[31mb\"", "7", &format!("\"{}\"", "x".repeat(65))] {
        let text = format!("[[peer]]\nname = {wrong}");
        assert!(matches!(code_of("[[peer]]", &text), "bad-value" | "wrong-type"), "{wrong}");
    }
}

#[test]
fn sections_of_the_wrong_shape_are_explained() {
    assert_eq!(finding("[[peer]]", "[peer]").code, "wrong-type");
    assert_eq!(finding("[gateway]", "[[gateway]]").code, "wrong-type");
    assert_eq!(examined("").1.diagnostics().len(), 2);
    let peers = "[[peer]]\n".repeat(PEERS_MAX + 1);
    assert_eq!(examined(&GOOD.replace("[[peer]]", &peers)).1.errors(), 1);
    assert_eq!(examined("peer = [1, 2]").1.errors(), 3);
}

fn second_peer(address: &str, networks: &str, key: &str) -> Report {
    let peer =
        format!("\n[[peer]]\naddress = \"{address}\"\nnetworks = [{networks}]\nkey_file = \"{key}\"\n");
    examined(&(GOOD.to_owned() + &peer)).1
}

#[test]
fn two_peers_have_no_address_network_name_or_key_in_common() {
    assert_eq!(second_peer("10.81.9.3:4700", "\"10.81.3.0/24\"", "b").diagnostics().len(), 0);
    let one = |report: Report| {
        assert_eq!(report.diagnostics().len(), 1, "{report}");
        report.diagnostics()[0].code
    };
    assert_eq!(one(second_peer("10.81.9.2:4700", "\"10.81.3.0/24\"", "b")), "duplicate-peer");
    assert_eq!(one(second_peer("10.81.9.3:4700", "\"10.81.0.0/21\"", "b")), "overlapping-networks");
    assert_eq!(one(second_peer("10.81.9.3:4700", "\"10.81.2.0/24\"", "b")), "overlapping-networks");
    assert_eq!(one(second_peer("10.81.9.3:4700", "\"10.81.2.128/25\"", "b")), "overlapping-networks");
    assert_eq!(one(second_peer("10.81.9.3:4700", "\"10.81.3.0/24\"", "peer.key")), "shared-key");
    assert_eq!(
        one(second_peer("10.81.9.3:4700", "\"10.81.3.0/24\", \"10.81.3.0/25\"", "b")),
        "redundant-network"
    );
    let local = |networks: &str| code_of("[gateway]", &format!("[gateway]\nlocal_networks = [{networks}]"));
    assert_eq!(local("\"10.81.2.0/23\""), "overlapping-networks");
    assert_eq!(local("\"10.81.2.64/26\""), "overlapping-networks");
    assert_eq!(local("\"10.81.1.0\""), "bad-value");
    assert_eq!(local(""), "out-of-range");
    let named = GOOD.replace("[[peer]]", "[[peer]]\nname = \"x\"");
    let twice = named.clone() + &named[named.find("[[peer]]").unwrap()..];
    let codes: Vec<_> = examined(&twice).1.diagnostics().iter().map(|d| d.code).collect();
    assert_eq!(codes.iter().filter(|&&code| code == "duplicate-peer").count(), 2, "{codes:?}");
}

#[test]
fn a_second_key_is_another_one_and_no_other_peer_has_it() {
    let next = "key_file = \"peer.key\"\nnext_key_file = \"next.key\"";
    let keys = |text: &str| configuration(text).peers.remove(0);
    assert_eq!(keys(GOOD).next_key, None);
    let both = keys(&GOOD.replace("key_file = \"peer.key\"", next));
    assert!(both.next_key.is_some_and(|key| key != both.key));
    let same = finding("key_file = \"peer.key\"", &next.replace("next.key", "peer.key"));
    assert_eq!(same.code, "same-key");
    let with_next = GOOD.replace("key_file = \"peer.key\"", next);
    for (key, next_key) in [("next.key", "b"), ("b", "next.key"), ("b", "peer.key")] {
        let other = "\n[[peer]]\naddress = \"10.81.9.3:4700\"\nnetworks = [\"10.81.3.0/24\"]\n";
        let files = format!("key_file = \"{key}\"\nnext_key_file = \"{next_key}\"\n");
        let report = examined(&[&with_next, other, &files].concat()).1;
        let codes: Vec<_> = report.diagnostics().iter().map(|finding| finding.code).collect();
        assert_eq!(codes, ["shared-key"], "{report}");
    }
}

/// A gateway with a new key of its own would protect nothing.
#[test]
fn no_remedy_for_a_key_file_is_to_make_a_key() {
    for file in ["absent.key", "open.key", "short.key"] {
        for setting in ["key_file = \"{}\"", "key_file = \"peer.key\"\nnext_key_file = \"{}\""] {
            let wrong = finding("key_file = \"peer.key\"", &setting.replace("{}", file));
            assert_eq!((wrong.code, wrong.seen), ("key-file", Some(format!("\"{file}\""))));
            assert!(!wrong.help.is_empty() && !wrong.help.concat().contains("genkey"), "{:?}", wrong.help);
        }
    }
}

#[test]
fn a_gateway_is_outside_the_networks_that_it_protects() {
    assert_eq!(code_of("10.81.2.0/24", "10.81.9.2/32"), "peer-inside-network");
    assert_eq!(code_of("10.81.2.0/24", "10.81.9.1/32"), "listen-inside-network");
    let everything = examined(&GOOD.replace("10.81.2.0/24", "0.0.0.0/0")).1;
    assert_eq!(everything.errors(), 2, "{everything}");
    assert_eq!(code_of("10.81.9.2:4700", "10.81.9.1:4700"), "peer-is-self");
    assert_eq!(code_of("10.81.9.2:4700", "[2001:db8::2]:4700"), "family-mismatch");
}

#[test]
fn mistakes_in_the_syntax_are_shown_with_a_caret() {
    let (draft, report) = examined("[gateway]\nwan = eth0\nlisten = \"10.0.0.1:1\n");
    assert!(draft.is_none());
    assert_snapshot("syntax.txt", &report.to_string());
}

#[test]
fn a_key_given_twice_does_not_hide_other_mistakes() {
    let (_, report) = examined(&GOOD.replace("r = 8", "r = 8\nr = 9\nscheem = 1"));
    let codes: Vec<_> = report.diagnostics().iter().map(|d| d.code).collect();
    assert_eq!(codes, ["duplicate-key", "unknown-key"]);
}

#[test]
fn a_file_that_cannot_be_read_is_one_clear_error() {
    let load = |path: &Path| read(path).config();
    let report = load(Path::new("/nonexistent/gateway.toml")).unwrap_err();
    assert_eq!(report.diagnostics()[0].code, "unreadable-file");
    let path = std::env::temp_dir().join(format!("undrop-big-{}.toml", std::process::id()));
    fs::write(&path, " ".repeat(FILE_BYTES_MAX as usize + 1)).unwrap();
    assert!(load(&path).unwrap_err().to_string().contains("larger than"));
    fs::write(&path, b"wan = \"\xff\"").unwrap();
    assert!(load(&path).unwrap_err().to_string().contains("not UTF-8"));
    fs::remove_file(&path).unwrap();
}

#[test]
fn one_reading_gives_the_configuration_and_the_check_of_the_machine() {
    let directory = std::env::temp_dir().join(format!("undrop-reading-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let file = directory.join("gateway.toml");
    fs::write(&file, GOOD).unwrap();
    keyfile::KeyText::generate().unwrap().write_new(&directory.join("peer.key")).unwrap();
    let reading = read(&file);
    // The file and the key are gone, so that a second reading would fail.
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(reading.config().unwrap().gateway.wan, "wan0");
    assert_eq!(reading.control().unwrap(), PathBuf::from("/run/undrop/gateway.sock"));
    let report = reading.check_machine();
    let codes: Vec<_> = report.diagnostics().iter().map(|finding| finding.code).collect();
    assert!(codes.contains(&"interface-absent") && !codes.contains(&"unreadable-file"), "{report}");
    assert!(report.to_string().contains("| wan = \"wan0\""), "{report}");
}

/// A piece of TOML that is often nearly correct.
fn fragment() -> impl Strategy<Value = String> {
    let keys: Vec<&str> = layout().keys().map(|(_, _, key)| key.name).collect();
    let values = vec![
        "8",
        "-1",
        "1e9",
        "true",
        "[]",
        "[1, 11, 19]",
        "[\"10.0.0.0/8\"]",
        "[[1], {a = 2}]",
        "\"10.0.0.1:1\"",
        "\"[::1]:1\"",
        "\"\"",
        "\"\\u0000\"",
        "'é'",
        "{}",
        "1979-05-27",
        "nan",
        "0xffffffffffffffffffff",
    ];
    prop_oneof![
        prop::sample::select(vec![
            "[gateway]\n",
            "[code]\n",
            "[[peer]]\n",
            "[peer]\n",
            "peer = 1\n",
            "[",
            "\r\n"
        ])
        .prop_map(str::to_owned),
        (prop::sample::select(keys), prop::sample::select(values))
            .prop_map(|(key, value)| format!("{key} = {value}\n")),
        ".*",
    ]
}

proptest! {
    #[test]
    fn no_text_panics(fragments in prop::collection::vec(fragment(), 0..24)) {
        let (draft, report) = examined(&fragments.concat());
        let _ = (report.to_string(), report.to_json());
        if report.errors() == 0 {
            draft.expect("a file without error has a draft").finish();
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = examined(&String::from_utf8_lossy(&bytes)).1.to_string();
    }
}
