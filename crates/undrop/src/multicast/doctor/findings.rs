//! Findings: the facts about the machine, judged for a node.

use std::net::IpAddr;

use netio::multicast::{BridgeFacts, BufferLimits, Limits};
use ricochet::Config;
use serde::Serialize;

/// Severity of a finding, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// The node does not work.
    Error,
    /// The node works, but packets will be lost or misdirected.
    Warning,
    /// Needs no action.
    Note,
    /// Correct.
    Ok,
}

/// The result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// Its severity.
    pub(super) severity: Severity,
    /// Subject of the check.
    pub(super) about: &'static str,
    /// State of the subject.
    pub(super) seen: String,
    /// The remedy, if one is needed.
    pub(super) remedy: Option<String>,
}

impl Severity {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
            Self::Ok => "ok",
        }
    }
}

impl Finding {
    pub(super) fn new(severity: Severity, about: &'static str, seen: impl Into<String>) -> Self {
        Self { severity, about, seen: seen.into(), remedy: None }
    }

    pub(super) fn ok(about: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Severity::Ok, about, seen)
    }

    #[must_use]
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// Whether the node uses IPv6.
pub(super) fn is_ipv6(config: &Config) -> bool {
    config.node.address.or(config.node.groups_base).map_or(config.node.ipv6, |address| address.is_ipv6())
}

/// Returns all findings about the machine.
pub(super) fn all(limits: &Limits, config: &Config) -> Vec<Finding> {
    let multicast = !config.node.unicast;
    let mut findings = vec![interface(limits, multicast), address(limits, config), mtu(limits, config)];
    findings.push(receive_buffer(&limits.receive_buffer, config));
    findings.push(send_buffer(&limits.send_buffer));
    if multicast {
        findings.extend(memberships(limits, config));
        findings.push(group_port(limits, config));
        findings.extend(bridge(limits.interface.bridge.as_ref(), is_ipv6(config)));
    }
    findings.extend(wireless(limits, config));
    findings.extend(reverse_path_filter(limits, config));
    findings
}

fn interface(limits: &Limits, multicast: bool) -> Finding {
    const ABOUT: &str = "interface";
    let facts = &limits.interface;
    let name = &facts.name;
    if !facts.is_up {
        return Finding::new(Severity::Error, ABOUT, format!("{name} is down"))
            .remedy(format!("ip link set {name} up"));
    }
    if multicast && !facts.is_multicast && !facts.is_loopback {
        return Finding::new(Severity::Error, ABOUT, format!("{name} lacks multicast")).remedy(format!(
            "ip link set {name} multicast on; if the network has no multicast at all, set `node.unicast = true`"
        ));
    }
    if !facts.is_running {
        return Finding::new(Severity::Warning, ABOUT, format!("{name} is up, but has no carrier"))
            .remedy("check the cable, or the far end of the virtual link");
    }
    Finding::ok(ABOUT, format!("{name} is up{}", if multicast { ", with multicast" } else { "" }))
}

fn address(limits: &Limits, config: &Config) -> Finding {
    const ABOUT: &str = "address";
    let facts = &limits.interface;
    let version = if is_ipv6(config) { "IPv6" } else { "IPv4" };
    let listed = facts.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let seen = if listed.is_empty() { "none" } else { listed.as_str() };
    let fits = |address: &&IpAddr| address.is_ipv6() == is_ipv6(config);
    match (config.node.address, facts.addresses.iter().find(fits)) {
        (Some(wanted), _) if facts.addresses.contains(&wanted) => Finding::ok(ABOUT, wanted.to_string()),
        (Some(wanted), _) => {
            Finding::new(Severity::Error, ABOUT, format!("expected {wanted} on {}, saw {seen}", facts.name))
                .remedy("set `node.address` to an address of this interface")
        }
        (None, Some(address)) => Finding::ok(ABOUT, address.to_string()),
        (None, None) => Finding::new(
            Severity::Error,
            ABOUT,
            format!("expected an {version} address on {}, saw {seen}", facts.name),
        )
        .remedy(format!("ip address add ADDRESS/PREFIX dev {}, or use the other IP version", facts.name)),
    }
}

fn mtu(limits: &Limits, config: &Config) -> Finding {
    const ABOUT: &str = "MTU";
    let headers = if is_ipv6(config) { 48 } else { 28 };
    let (mtu, wanted) = (limits.interface.mtu_bytes as usize, config.buffers.datagram_max + headers);
    if mtu < wanted {
        return Finding::new(
            Severity::Error,
            ABOUT,
            format!("expected {wanted} bytes for datagrams of {}, saw {mtu}", config.buffers.datagram_max),
        )
        .remedy(format!(
            "set `buffers.datagram_max = {}` on all nodes, or ip link set {} mtu {wanted}",
            mtu.saturating_sub(headers),
            limits.interface.name
        ));
    }
    Finding::ok(ABOUT, format!("{mtu} bytes, of which datagrams need {wanted}"))
}

fn receive_buffer(limits: &BufferLimits, config: &Config) -> Finding {
    const ABOUT: &str = "receive buffer";
    let wanted = config.buffers.socket_bytes;
    if limits.may_exceed || limits.max_bytes >= wanted {
        return Finding::ok(ABOUT, format!("{wanted} bytes, as configured"));
    }
    let seen = format!("expected {wanted} bytes, saw {} granted: bursts overflow it", limits.max_bytes);
    Finding::new(Severity::Warning, ABOUT, seen)
        .remedy(format!("sysctl -w net.core.rmem_max={wanted}, or give the node CAP_NET_ADMIN"))
}

fn send_buffer(limits: &BufferLimits) -> Finding {
    /// Room for the datagrams of a view change, or for a burst of repairs.
    const WANTED: usize = 1 << 18;
    const ABOUT: &str = "send buffer";
    if limits.may_exceed || limits.max_bytes >= WANTED {
        return Finding::ok(ABOUT, format!("{WANTED} bytes or more"));
    }
    Finding::new(Severity::Note, ABOUT, format!("expected {WANTED} bytes, saw {} granted", limits.max_bytes))
        .remedy(format!("sysctl -w net.core.wmem_max={WANTED}"))
}

fn memberships(limits: &Limits, config: &Config) -> Vec<Finding> {
    /// Memory of one membership, rounded up.
    const OPTION_BYTES: u64 = 1_024;
    let groups = u64::from(config.node.group_addresses);
    let mut findings = Vec::new();
    if !is_ipv6(config) {
        findings.push(match limits.igmp_max_memberships {
            None => {
                Finding::new(Severity::Note, "memberships", "net.ipv4.igmp_max_memberships cannot be read")
            }
            Some(0) => Finding::new(Severity::Error, "memberships", "net.ipv4.igmp_max_memberships is 0")
                .remedy("sysctl -w net.ipv4.igmp_max_memberships=20"),
            Some(each) => {
                let sockets = groups.div_ceil(each);
                Finding::ok(
                    "memberships",
                    format!("{each} per socket: {sockets} sockets hold {groups} IP groups"),
                )
            }
        });
    }
    match limits.optmem_max_bytes {
        Some(bytes) if bytes < OPTION_BYTES => findings.push(
            Finding::new(
                Severity::Error,
                "option memory",
                format!("expected net.core.optmem_max of {OPTION_BYTES} bytes, saw {bytes}"),
            )
            .remedy("sysctl -w net.core.optmem_max=20480"),
        ),
        Some(bytes) => findings.push(Finding::ok("option memory", format!("{bytes} bytes per socket"))),
        None => {}
    }
    findings
}

fn group_port(limits: &Limits, config: &Config) -> Finding {
    const ABOUT: &str = "port of the groups";
    let port = config.node.group_port;
    match (limits.is_ephemeral(port), &limits.ephemeral_ports) {
        (Some(true), Some(range)) => Finding::new(
            Severity::Warning,
            ABOUT,
            format!(
                "{port} is in the range of ephemeral ports ({} to {}): another program may hold it when a node starts",
                range.start(),
                range.end()
            ),
        )
        .remedy(format!("sysctl -w net.ipv4.ip_local_reserved_ports={port}, or another `node.group_port` on all nodes")),
        _ => Finding::ok(ABOUT, format!("{port}")),
    }
}

fn bridge(bridge: Option<&BridgeFacts>, ipv6: bool) -> Option<Finding> {
    const ABOUT: &str = "bridge";
    let facts = bridge?;
    let name = &facts.name;
    let heard = if ipv6 { facts.querier_v6.is_some() } else { facts.querier_v4.is_some() };
    if facts.snooping && !facts.querier && !heard {
        return Some(
            Finding::new(
                Severity::Warning,
                ABOUT,
                format!(
                    "{name} snoops, but no querier was heard: the bridge forgets the members of groups after \
                     some minutes"
                ),
            )
            .remedy(format!(
                "ip link set {name} type bridge mcast_querier 1, or mcast_snooping 0 to switch snooping off"
            )),
        );
    }
    if facts.snooping && facts.groups_max.is_some_and(|max| max < 64) {
        return Some(
            Finding::new(
                Severity::Warning,
                ABOUT,
                format!("{name} has room for fewer than 64 groups, and floods datagrams to the others"),
            )
            .remedy(format!("ip link set {name} type bridge mcast_hash_max 4096")),
        );
    }
    Some(Finding::ok(
        ABOUT,
        format!("{name} {}", if facts.snooping { "snoops, with a querier" } else { "floods" }),
    ))
}

/// Multicast over Wi-Fi is sent once, at a rate that all stations can receive, without acknowledgement. If a
/// station saves power, the access point holds all multicast back until its next beacon (IEEE 802.11, §11.2).
fn wireless(limits: &Limits, config: &Config) -> Option<Finding> {
    const ABOUT: &str = "Wi-Fi";
    let wireless = limits.interface.wireless.as_ref()?;
    let name = &limits.interface.name;
    let carried = if wireless == name { name.clone() } else { format!("{name}, over {wireless},") };
    let finding = if config.node.unicast {
        let seen = format!("{carried} is wireless: power saving delays datagrams by up to a beacon interval");
        Finding::new(Severity::Note, ABOUT, seen).remedy(format!("iw dev {wireless} set power_save off"))
    } else {
        let seen = format!(
            "{carried} is wireless: multicast is sent at the lowest rate, is not acknowledged, and waits for \
             stations that save power, so that many packets are lost and all are late"
        );
        Finding::new(Severity::Warning, ABOUT, seen).remedy(format!(
            "use a cable; or set `node.unicast = true` on all members, whose datagrams are acknowledged, and iw dev \
             {wireless} set power_save off; or let the access point convert multicast to unicast"
        ))
    };
    Some(finding)
}

fn reverse_path_filter(limits: &Limits, config: &Config) -> Option<Finding> {
    const ABOUT: &str = "reverse-path filter";
    if is_ipv6(config) || limits.reverse_path_filter != Some(1) {
        return None;
    }
    let name = &limits.interface.name;
    Some(
        Finding::new(
            Severity::Note,
            ABOUT,
            format!(
                "strict on {name}: packets are dropped if the route to their sender leads through another \
                 interface"
            ),
        )
        .remedy(format!(
            "a change is needed only if members are outside {name}'s own network: sysctl -w net.ipv4.conf.{name}.rp_filter=2"
        )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> (Limits, Config) {
        // The fields of `Limits` cannot be made up here.
        (Limits::read("lo").expect("every machine has a loopback interface"), Config::default())
    }

    fn severity(findings: &[Finding], about: &str) -> Option<Severity> {
        findings.iter().find(|finding| finding.about == about).map(|finding| finding.severity)
    }

    #[test]
    fn each_limit_that_is_too_low_is_named_with_a_remedy() {
        let (mut limits, mut config) = machine();
        limits.interface.is_up = false;
        limits.interface.mtu_bytes = 1_280;
        limits.igmp_max_memberships = Some(0);
        limits.optmem_max_bytes = Some(512);
        limits.receive_buffer.may_exceed = false;
        limits.receive_buffer.max_bytes = 212_992;
        limits.ephemeral_ports = Some(7_000..=9_000);
        limits.reserved_ports.clear();
        config.node.address = Some([192, 0, 2, 1].into());
        let findings = all(&limits, &config);
        for about in ["interface", "address", "MTU", "memberships", "option memory"] {
            assert_eq!(severity(&findings, about), Some(Severity::Error), "{about}: {findings:?}");
        }
        for about in ["receive buffer", "port of the groups"] {
            assert_eq!(severity(&findings, about), Some(Severity::Warning), "{about}: {findings:?}");
        }
        let bad = findings.iter().filter(|finding| finding.severity < Severity::Note);
        assert!(bad.clone().all(|finding| finding.remedy.is_some()), "{findings:?}");
        assert_eq!(bad.count(), 7);
    }

    #[test]
    fn multicast_over_wi_fi_is_a_warning_and_unicast_a_note() {
        let (mut limits, mut config) = machine();
        assert_eq!(severity(&all(&limits, &config), "Wi-Fi"), None);
        limits.interface.wireless = Some("wlan0".to_owned());
        let findings = all(&limits, &config);
        assert_eq!(severity(&findings, "Wi-Fi"), Some(Severity::Warning));
        let finding = findings.iter().find(|finding| finding.about == "Wi-Fi").unwrap();
        assert!(finding.seen.starts_with("lo, over wlan0, is wireless"), "{finding:?}");
        assert!(finding.remedy.as_ref().unwrap().contains("node.unicast"), "{finding:?}");
        config.node.unicast = true;
        assert_eq!(severity(&all(&limits, &config), "Wi-Fi"), Some(Severity::Note));
    }

    #[test]
    fn a_bridge_that_snoops_without_a_querier_is_a_warning() {
        let (mut limits, mut config) = machine();
        let mut facts = BridgeFacts::default();
        facts.name = "br0".to_owned();
        facts.snooping = true;
        limits.interface.bridge = Some(facts);
        assert_eq!(severity(&all(&limits, &config), "bridge"), Some(Severity::Warning));
        let with_querier = |limits: &mut Limits| {
            if let Some(bridge) = &mut limits.interface.bridge {
                bridge.querier_v4 = Some([10, 0, 0, 1].into());
            }
        };
        with_querier(&mut limits);
        assert_eq!(severity(&all(&limits, &config), "bridge"), Some(Severity::Ok));
        config.node.ipv6 = true;
        assert_eq!(
            severity(&all(&limits, &config), "bridge"),
            Some(Severity::Warning),
            "the querier is heard for IPv4 only"
        );
        config.node.unicast = true;
        assert_eq!(severity(&all(&limits, &config), "bridge"), None, "unicast needs no bridge");
    }
}
