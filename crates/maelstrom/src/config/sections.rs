//! The three sections: what each key means.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use maelstrom_core::Schedule;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::draft::{CodeDraft, Draft, GatewayDraft, PeerDraft, Scheme, Setting};
use super::knobs::{
    INTERFACE_NAME_BYTES_MAX, NETWORKS_MAX, PEER_NAME_CHARS_MAX, PEERS_MAX, SOCKET_PATH_BYTES_MAX,
};
use super::read::{Fault, Section, quoted, type_of, unknown_key};
use super::report::Findings;
use super::{Diagnostic, KeyError, Mode, PeerKey, Source, Span, TapChoice};

/// How a key file is read; tests put something else in its place.
pub(super) type ReadKey<'a> = &'a mut dyn FnMut(&Path) -> Result<PeerKey, KeyError>;

/// Reads the whole table.
pub(super) fn read_sections(
    root: &DeTable<'_>,
    source: &Source,
    findings: &mut Findings,
    read_key: ReadKey<'_>,
) -> Draft {
    let empty = DeTable::new();
    let gateway = match only_table(root, "gateway", findings) {
        Some((span, table)) => {
            read_gateway(Section::new("gateway", "[gateway]", span, table, findings), source)
        }
        None => {
            if !root.contains_key("gateway") {
                let diagnostic = Diagnostic::error("missing-section", "the section [gateway] is missing");
                findings
                    .add(diagnostic.help("start the file with `[gateway]`, and give it `wan` and `listen`"));
            }
            GatewayDraft::unknown()
        }
    };
    let code = match only_table(root, "code", findings) {
        Some((span, table)) => read_code(Section::new("code", "[code]", span, table, findings)),
        // A section left out is one with every default.
        None if !root.contains_key("code") => {
            read_code(Section::new("code", "[code]", 0..0, &empty, findings))
        }
        None => CodeDraft::unknown(),
    };
    let peers = read_peers(root, source, findings, read_key);
    for (key, _) in root.iter() {
        let name: &str = key.get_ref();
        if !["gateway", "code", "peer"].contains(&name) {
            findings.add(unknown_key(name, key.span(), "the file", &["gateway", "code", "peer"]));
        }
    }
    Draft { gateway, code, peers }
}

/// A section that stands once.
fn only_table<'a, 'i>(
    root: &'a DeTable<'i>,
    name: &str,
    findings: &mut Findings,
) -> Option<(Span, &'a DeTable<'i>)> {
    let value = root.get(name)?;
    if let DeValue::Table(table) = value.get_ref() {
        return Some((value.span(), table));
    }
    findings.add(
        Diagnostic::error("wrong-type", format!("`{name}` is not a section"))
            .at(value.span())
            .expected(format!("a table, `[{name}]`"))
            .seen(type_of(value))
            .help(format!("write `[{name}]` on a line of its own, once, and its keys below")),
    );
    None
}

impl GatewayDraft {
    fn unknown() -> Self {
        Self {
            mode: None,
            wan: None,
            listen: None,
            control: None,
            lan_mtu: None,
            wan_mtu: None,
            tap: None,
            tun: None,
        }
    }
}

impl CodeDraft {
    fn unknown() -> Self {
        Self {
            scheme: None,
            r: None,
            interleaves: None,
            c: None,
            interleave: None,
            rate: None,
            window: None,
            density: None,
            delayed: None,
            max_delay_ms: None,
        }
    }
}

fn read_gateway(mut section: Section<'_, '_>, source: &Source) -> GatewayDraft {
    let wan = section.text("wan", interface_name);
    let listen = section.text("listen", |text| socket_address(text, Local::Ours));
    let draft = GatewayDraft {
        mode: read_mode(&mut section),
        wan: section.required("wan", wan),
        listen: section.required("listen", listen),
        control: section
            .text("control", |text| socket_path(text, source))
            .or(PathBuf::from("/run/undrop/gateway.sock")),
        lan_mtu: section.integer("lan_mtu").optional(),
        wan_mtu: section.integer("wan_mtu").optional(),
        tap: section
            .choice("tap", &[TapChoice::Auto, TapChoice::Ebpf, TapChoice::Packet])
            .or(TapChoice::Auto),
        tun: section.text("tun", interface_name).or("undrop0".to_owned()),
    };
    section.finish();
    draft
}

fn read_mode(section: &mut Section<'_, '_>) -> Option<Setting<Mode>> {
    section.choice("mode", &[Mode::Passive]).or(Mode::Passive)
}

fn read_code(mut section: Section<'_, '_>) -> CodeDraft {
    let draft = CodeDraft {
        scheme: section
            .choice("scheme", &[Scheme::Layered, Scheme::ReedSolomon, Scheme::Sliding])
            .or(Scheme::Layered),
        r: section.integer("r").or(Schedule::R),
        interleaves: section.integers("interleaves").or(Schedule::INTERLEAVES.to_vec()),
        c: section.integer("c").or(Schedule::C),
        interleave: section.integer("interleave").or(Schedule::INTERLEAVE),
        rate: section.rate("rate").or(Schedule::RATE),
        window: section.integer("window").or(Schedule::WINDOW),
        density: section.integer("density").or(Schedule::DENSITY),
        delayed: section.boolean("delayed").or(Schedule::DELAYED),
        max_delay_ms: section.integer("max_delay_ms").or(Schedule::MAX_DELAY_MS),
    };
    section.finish();
    draft
}

fn read_peers(
    root: &DeTable<'_>,
    source: &Source,
    findings: &mut Findings,
    read_key: ReadKey<'_>,
) -> Vec<PeerDraft> {
    let Some(value) = root.get("peer") else {
        let diagnostic = Diagnostic::error("missing-section", "there is no peer: nothing would be protected");
        findings.add(diagnostic.help("add a `[[peer]]` section with `address`, `networks` and `key_file`"));
        return Vec::new();
    };
    let DeValue::Array(entries) = value.get_ref() else {
        findings.add(not_a_peer(value));
        return Vec::new();
    };
    if entries.is_empty() || entries.len() > PEERS_MAX {
        findings.add(
            Diagnostic::error("out-of-range", "wrong number of peers")
                .at(value.span())
                .expected(format!("1 to {PEERS_MAX} `[[peer]]` sections"))
                .seen(entries.len().to_string())
                .help("run a gateway for each part of the peers"),
        );
        return Vec::new();
    }
    let mut peers = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let DeValue::Table(table) = entry.get_ref() else {
            findings.add(not_a_peer(entry));
            continue;
        };
        let title =
            if entries.len() == 1 { "[[peer]]".to_owned() } else { format!("[[peer]] {}", index + 1) };
        peers.push(read_peer(Section::new("peer", title, entry.span(), table, findings), source, read_key));
    }
    peers
}

fn not_a_peer(value: &Spanned<DeValue<'_>>) -> Diagnostic {
    Diagnostic::error("wrong-type", "`peer` is not a list of sections")
        .at(value.span())
        .expected("a `[[peer]]` section for each peer")
        .seen(type_of(value))
        .help("write `[[peer]]`, with two brackets on each side, and its keys below")
}

fn read_peer(mut section: Section<'_, '_>, source: &Source, read_key: ReadKey<'_>) -> PeerDraft {
    let address = section.text("address", |text| socket_address(text, Local::Theirs));
    let networks = section.texts("networks", NETWORKS_MAX, network);
    let networks = section.required("networks", networks);
    let key = section.text("key_file", |text| key_file(text, source, read_key));
    let draft = PeerDraft {
        name: section.text("name", peer_name).optional(),
        address: section.required("address", address),
        networks: networks.map_or(Vec::new(), |networks| networks.value.into_iter().flatten().collect()),
        key: section.required("key_file", key),
    };
    section.finish();
    draft
}

fn interface_name(text: &str) -> Result<String, Fault> {
    let wrong = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
    if text.is_empty()
        || text.len() > INTERFACE_NAME_BYTES_MAX
        || text.contains(wrong)
        || text == "."
        || text == ".."
    {
        let fault = Fault::new("bad-value", "is not the name of an interface").seen(quoted(text));
        return Err(fault.help("`ip -br link` lists the interfaces of this machine"));
    }
    Ok(text.to_owned())
}

/// Whose address it is: ours may be the unspecified one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Local {
    Ours,
    Theirs,
}

fn socket_address(text: &str, whose: Local) -> Result<SocketAddr, Fault> {
    let fault = |message: &str| Fault::new("bad-value", message).seen(quoted(text));
    let Ok(address) = text.parse::<SocketAddr>() else {
        return Err(match text.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => fault("has no port").help(format!("add one: `\"{ip}:4700\"`")),
            Ok(IpAddr::V6(ip)) => fault("has no port").help(format!("add one: `\"[{ip}]:4700\"`")),
            Err(_) => fault("is not an address with a port").help(
                "give the address in digits: names are not looked up, for a gateway must start without DNS",
            ),
        });
    };
    let ip = address.ip();
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    if address.port() == 0 {
        return Err(fault("has port 0").help("choose a port from 1 to 65535: the peer must know it"));
    }
    if ip.is_multicast() || broadcast {
        return Err(fault("is not the address of one machine").help("give the gateway's own address"));
    }
    if whose == Local::Theirs && ip.is_unspecified() {
        return Err(fault("is the address of no machine").help("give what the peer has as `listen`"));
    }
    Ok(address)
}

fn socket_path(text: &str, source: &Source) -> Result<PathBuf, Fault> {
    let path = source.resolve(Path::new(text));
    if text.is_empty() || text.contains('\0') || path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(Fault::new("bad-value", "is not the path of a socket").seen(quoted(text)));
    }
    Ok(path)
}

fn peer_name(text: &str) -> Result<String, Fault> {
    if text.is_empty() || text.chars().count() > PEER_NAME_CHARS_MAX || text.contains(char::is_control) {
        return Err(Fault::new("bad-value", "is not a name").seen(quoted(text)));
    }
    Ok(text.to_owned())
}

fn network(text: &str) -> Result<IpNet, Fault> {
    let fault = |message: &str| Fault::new("bad-value", message).seen(quoted(text));
    let Ok(network) = text.parse::<IpNet>() else {
        return Err(match text.parse::<IpAddr>() {
            Ok(ip) => fault("holds an address without a prefix length")
                .help(format!("for this one host, write `\"{}\"`", IpNet::from(ip))),
            Err(_) => fault("holds something that is not a network"),
        });
    };
    if network != network.trunc() {
        let help = format!("write the network itself, `\"{}\"`", network.trunc());
        return Err(fault("holds a network with host bits set").help(help));
    }
    if network.addr().is_multicast() || network.addr().is_loopback() {
        let help = "name the unicast networks of the far site: only what is routed to it can be protected";
        return Err(fault("holds a network that no gateway forwards").help(help));
    }
    Ok(network)
}

fn key_file(text: &str, source: &Source, read_key: ReadKey<'_>) -> Result<PeerKey, Fault> {
    if text.is_empty() || text.contains('\0') {
        return Err(Fault::new("bad-value", "is not the path of a file").seen(quoted(text)));
    }
    let path = source.resolve(Path::new(text));
    let shown = shell_word(&path);
    read_key(&path).map_err(|error| {
        let help = match &error {
            KeyError::Unreadable(_) => {
                format!("make one with `undrop gateway genkey --out {shown}`, and copy it to the peer")
            }
            KeyError::Mode { .. } => format!("chmod 600 {shown}"),
            _ => format!(
                "make a new one with `undrop gateway genkey --out FILE`, the same for both gateways ({shown})"
            ),
        };
        Fault::new("key-file", format!("names a file that gives no key: {error}"))
            .seen(quoted(text))
            .help(help)
    })
}

/// A path as it can stand on a command line.
fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:".contains(c);
    if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.escape_debug()) }
}
