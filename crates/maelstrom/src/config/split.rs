//! The section `[split]`, and its checks against the rest of the file.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::draft::{Draft, PeerDraft};
use super::keys::networks;
use super::types::AcceptChoice;
use super::values;
use diagnostics::settings::{Choice, Draft as _, Fallback, Fault, Integers, Optional, Setting, Text};
use diagnostics::{Diagnostic, Findings, quoted};
use ipnet::IpNet;

/// Smallest buffer for split connections in bytes.
const BUFFER_MIN: u64 = 8 << 20;
/// Largest buffer for split connections in bytes.
const BUFFER_MAX: u64 = 16 << 30;
/// Least and most bytes of split connections on disk.
const SPOOL: RangeInclusive<u64> = (64 << 20)..=(16 << 40);
/// Times for connections to end as the gateway stops.
const DRAIN: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(300);
/// Times for a server to answer. The longest one is what a kernel waits by itself.
const CONNECT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(120);
/// Longest name of a congestion control, as the kernel limits it.
const CONGESTION_BYTES_MAX: usize = 15;

diagnostics::settings! {
    /// TCP connections that end at the gateways: the section `[split]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Split(SplitDraft): "split" as "[split]" {
        /// Address and TCP port where far gateways dial carriers. It lies in `local_networks`, so that
        /// repairs protect the carriers. Without it no connection is split.
        listen: Option<SocketAddr> {
            form: Optional(Text::new(
                "an IP address of this machine inside its site and a port, such as `10.81.1.1:4701`",
                values::own_address,
            )),
            default: Fallback::Absent("none: connections are not split"),
            example: "listen = \"10.81.1.1:4701\"",
        }
        /// Destination ports of the connections that this gateway splits. Those that far gateways split need
        /// no setting here.
        ports: Option<Vec<u16>> {
            form: Optional(Integers { min: 1, max: 65535, count: 64 }),
            default: Fallback::Absent("none"),
            example: "ports = [80, 443]",
        }
        /// Far networks to which connections are split. Each lies inside a network of a peer.
        networks: Option<Vec<Setting<IpNet>>> {
            form: Optional(networks()),
            default: Fallback::Absent("those of the peers with a `carrier`"),
            example: "networks = [\"10.81.2.0/25\"]",
        }
        /// Time at which a client is answered. With `late` that is when its server has answered, a round trip
        /// later; the kernel needs queues of first packets (NFQUEUE) for it. With `early` it is at once, and
        /// a client learns by a reset that its server refuses. With both, what the gateway has acknowledged
        /// is lost if it dies.
        accept: AcceptChoice {
            form: Choice(&[("early", AcceptChoice::Early), ("late", AcceptChoice::Late)]),
            default: Fallback::Toml("\"late\""),
            example: "accept = \"early\"",
        }
        /// Memory for bytes that wait for hosts of this site, for all connections together. It has room for
        /// one connection for each 32 KiB; further ones are not split.
        buffer: u64 {
            form: Text::new("a size from `\"8MiB\"` to `\"16GiB\"`, such as `\"64MiB\"`", size),
            default: Fallback::Toml("\"64MiB\""),
            example: "buffer = \"64MiB\"",
        }
        /// Congestion control of the carriers, as the kernel names it. Where the kernel lacks it, they have
        /// `cubic`.
        congestion: String {
            form: Text::new("the name of a congestion control, such as `bbr`", congestion),
            default: Fallback::Toml("\"bbr\""),
            example: "congestion = \"bbr\"",
        }
        /// Time for which this gateway tries to reach a server of this site for a client of a far one. A host
        /// that is not there says nothing, and its connection holds a place in `buffer` for this long. Its
        /// client is told that the server cannot be reached.
        connect: Duration {
            form: Text::new("a time from `\"1s\"` to `\"120s\"`, such as `\"10s\"`", connect),
            default: Fallback::Toml("\"10s\""),
            example: "connect = \"10s\"",
        }
        /// Time for which the gateway, when it is stopped, lets split connections end by themselves. New ones
        /// flow unsplit meanwhile. Those that have not ended then are reset.
        drain: Duration {
            form: Text::new("a time from `\"0s\"` to `\"300s\"`, such as `\"5s\"`", drain),
            default: Fallback::Toml("\"5s\""),
            example: "drain = \"5s\"",
        }
        /// Directory for bytes that hosts of this site send faster than the link takes them. Hosts then have
        /// handed over all they send as soon as the LAN has carried it, and what the gateway still holds is
        /// lost if it dies. The files have no names, and nothing of them survives the process.
        spool_dir: Option<PathBuf> {
            form: Optional(Text::new("the path of a directory", values::file_path)),
            default: Fallback::Absent("none: hosts are slowed to what the link takes"),
            example: "spool_dir = \"/var/lib/undrop\"",
        }
        /// Bytes on disk for all connections together. A connection takes at most as much as it leaves for
        /// the others.
        spool: u64 {
            form: Text::new("a size from `\"64MiB\"` to `\"16TiB\"`, such as `\"10GiB\"`", spool),
            default: Fallback::Toml("\"1GiB\""),
            example: "spool = \"10GiB\"",
        }
    }
}

fn connect(text: &str) -> Result<Duration, Fault> {
    time(text, &CONNECT)
}

fn drain(text: &str) -> Result<Duration, Fault> {
    time(text, &DRAIN)
}

fn size(text: &str) -> Result<u64, Fault> {
    values::size(text, &(BUFFER_MIN..=BUFFER_MAX))
}

fn spool(text: &str) -> Result<u64, Fault> {
    values::size(text, &SPOOL)
}

/// Parses a time with its unit.
fn time(text: &str, range: &RangeInclusive<Duration>) -> Result<Duration, Fault> {
    const UNITS: [(&str, u64); 3] = [("ms", 1), ("s", 1_000), ("min", 60_000)];
    let wrong = || {
        let fault = Fault::bad("is not a time").seen(quoted(text));
        fault.help("write a whole number with `ms`, `s` or `min`")
    };
    let parts = UNITS.iter().find_map(|&(unit, millis)| Some((text.strip_suffix(unit)?, millis)));
    let (number, unit) = parts.ok_or_else(wrong)?;
    let number: u64 = number.trim_end().parse().map_err(|_| wrong())?;
    let time = number.checked_mul(unit).map(Duration::from_millis).filter(|time| range.contains(time));
    time.ok_or_else(|| Fault::out_of_range(quoted(text)))
}

fn congestion(text: &str) -> Result<String, Fault> {
    let is_name = (1..=CONGESTION_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if is_name {
        return Ok(text.to_owned());
    }
    let fault = Fault::bad("is not the name of a congestion control").seen(quoted(text));
    Err(fault.help("see `sysctl net.ipv4.tcp_available_congestion_control`"))
}

/// Compares the section with the rest of the file.
pub(super) fn check(draft: &Draft, findings: &mut Findings) {
    let split = &draft.split;
    let Some(Setting { value: Some(listen), .. }) = &split.listen else {
        if let Some(span) = split.span_of("ports").filter(|_| split.listen.is_some()) {
            let finding =
                Diagnostic::error("split-without-listen", "no connection can be split without carriers");
            findings
                .add(finding.at(Some(span)).help("set `listen` in `[split]`, and `carrier` of the peers"));
        }
        return;
    };
    listen_is_protected(draft, *listen, findings);
    networks_are_far(draft, findings);
    let mut carriers = 0;
    for (index, peer) in draft.peers.iter().enumerate() {
        if let Some(Setting { value: Some(carrier), span }) = &peer.carrier {
            carriers += 1;
            if let Some(finding) = carrier_fault(peer, index, *carrier, *listen) {
                findings.add(finding.at(span.clone()));
            }
        }
    }
    if carriers == 0 {
        let finding = Diagnostic::error("split-without-carrier", "no peer states where it takes carriers");
        let finding = finding.at(split.span_of("listen"));
        findings.add(finding.help("set `carrier` of a peer to the `listen` in its `[split]`"));
    }
}

/// Carriers are protected as packets between the two sites.
fn listen_is_protected(draft: &Draft, listen: SocketAddr, findings: &mut Findings) {
    let Some(local) = &draft.gateway.local_networks else { return };
    let finding = match &local.value {
        None => Diagnostic::error("split-without-networks", "split mode needs the networks of this site")
            .note("only connections from them are split, because the far gateway refuses others")
            .help("set `local_networks` in `[gateway]` to what the peers have as `networks`"),
        Some(networks) if !contains(networks, listen) => {
            Diagnostic::error("split-listen-outside", "`listen` of `[split]` lies outside `local_networks`")
                .expected("an address of this gateway inside its site")
                .seen(listen.ip().to_string())
                .note("repairs protect packets between the sites, and carriers are such packets")
                .help("give the gateway's address on the LAN, and name it as `carrier` in the peers' files")
        }
        Some(_) => return,
    };
    findings.add(finding.at(draft.split.span_of("listen")));
}

/// A network of no peer would leave connections unsplit in silence.
fn networks_are_far(draft: &Draft, findings: &mut Findings) {
    let Some(Setting { value: Some(networks), .. }) = &draft.split.networks else { return };
    let is_far = |network: &IpNet| {
        let mut far = draft.peers.iter().flat_map(|peer| &peer.networks);
        far.any(|peer| peer.value.contains(network))
    };
    for network in networks.iter().filter(|network| !is_far(&network.value)) {
        let message = format!("{} of `[split]` lies inside no network of a peer", network.value);
        findings.add(
            Diagnostic::error("split-network-of-no-peer", message)
                .at(network.span.clone())
                .expected("a network of a peer, or a part of one")
                .help("correct it, or add it to `networks` of the peer"),
        );
    }
}

fn carrier_fault(
    peer: &PeerDraft,
    index: usize,
    carrier: SocketAddr,
    listen: SocketAddr,
) -> Option<Diagnostic> {
    let label = peer.label(index);
    if carrier.is_ipv4() != listen.is_ipv4() {
        let message = format!("`carrier` of {label} and `listen` of `[split]` have two versions of IP");
        let finding = Diagnostic::error("carrier-family", message).seen(carrier.to_string());
        return Some(finding.help("give both in the same version of IP"));
    }
    if contains(&peer.networks, carrier) {
        return None;
    }
    let message = format!("`carrier` of {label} lies outside its networks");
    Some(
        Diagnostic::error("carrier-outside", message)
            .expected("the address of the far gateway inside its site")
            .seen(carrier.ip().to_string())
            .note("repairs protect packets between the sites, and carriers are such packets")
            .help("give `listen` of the `[split]` in the peer's file"),
    )
}

fn contains(networks: &[Setting<IpNet>], address: SocketAddr) -> bool {
    networks.iter().any(|network| network.value.contains(&address.ip()))
}
