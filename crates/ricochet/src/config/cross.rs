//! Checks of values against each other: each is correct by itself, but together they are not.

use std::net::{IpAddr, Ipv4Addr};

use diagnostics::{Diagnostic, Findings};

use super::draft::Draft;
use super::membership::MembershipDraft;
use super::sections::NodeDraft;

/// Runs all cross checks. Values that could not be read take no part in them.
pub(super) fn check(draft: &Draft, findings: &mut Findings) {
    membership_has_one_source(draft, findings);
    settings_of_sources_are_used(draft, findings);
    ports_differ(&draft.node, findings);
    versions_agree(&draft.node, findings);
    groups_base_fits(&draft.node, findings);
    ordered_streams_suffice(draft, findings);
}

fn membership_has_one_source(draft: &Draft, findings: &mut Findings) {
    let MembershipDraft { file, seeds, etcd, kubernetes, .. } = &draft.membership;
    let sources = [
        ("file", file.as_ref().filter(|set| set.value.is_some()).map(|set| &set.span)),
        ("seeds", seeds.as_ref().filter(|set| !set.value.is_empty()).map(|set| &set.span)),
        ("etcd", etcd.as_ref().filter(|set| !set.value.is_empty()).map(|set| &set.span)),
        ("kubernetes", kubernetes.as_ref().filter(|set| set.value.is_some()).map(|set| &set.span)),
    ];
    let mut set = sources.iter().filter_map(|(name, span)| Some((name, (*span)?)));
    let (Some((first, first_at)), Some((second, second_at))) = (set.next(), set.next()) else { return };
    let message = format!("`membership.{first}` and `membership.{second}` exclude each other");
    findings.add(
        Diagnostic::error("contradiction", message)
            .at(first_at.clone())
            .related(second_at.clone(), format!("`{second}` is here"))
            .expected("one source of members")
            .seen("both")
            .note("each of them names all members, or leads to them")
            .help("leave one of them out"),
    );
}

/// Settings of a source that is not used are a mistake: the one that they belong to was forgotten.
fn settings_of_sources_are_used(draft: &Draft, findings: &mut Findings) {
    let MembershipDraft { etcd, etcd_prefix, etcd_lease_s, kubernetes, kubernetes_api, .. } =
        &draft.membership;
    let has_etcd = etcd.as_ref().is_none_or(|set| !set.value.is_empty());
    let has_kubernetes = kubernetes.as_ref().is_none_or(|set| set.value.is_some());
    let settings = [
        ("etcd_prefix", "etcd", has_etcd, etcd_prefix.as_ref().and_then(|set| set.span.clone())),
        ("etcd_lease_s", "etcd", has_etcd, etcd_lease_s.as_ref().and_then(|set| set.span.clone())),
        (
            "kubernetes_api",
            "kubernetes",
            has_kubernetes,
            kubernetes_api.as_ref().and_then(|set| set.span.clone()),
        ),
    ];
    for (name, source, is_used, span) in settings {
        if is_used || span.is_none() {
            continue;
        }
        findings.add(
            Diagnostic::error("unused", format!("`membership.{name}` has no effect"))
                .at(span)
                .expected(format!("`membership.{source}` as well"))
                .seen("none")
                .help(format!("set `{source}`, or leave `{name}` out")),
        );
    }
}

fn ports_differ(node: &NodeDraft, findings: &mut Findings) {
    let (Some(port), Some(group_port)) = (&node.port, &node.group_port) else { return };
    if port.value == Some(group_port.value) {
        findings.add(
            Diagnostic::error("same-port", "`node.port` and `node.group_port` are the same")
                .at(port.span.clone().or(group_port.span.clone()))
                .expected("another port than that of the groups")
                .seen(format!("{} for both", group_port.value))
                .help("leave `port` out"),
        );
    }
}

fn versions_agree(node: &NodeDraft, findings: &mut Findings) {
    let Some(ipv6) = node.ipv6.as_ref().filter(|ipv6| ipv6.value) else { return };
    for (name, setting) in [("address", &node.address), ("groups_base", &node.groups_base)] {
        let Some(setting) = setting else { continue };
        let Some(address) = setting.value.filter(IpAddr::is_ipv4) else { continue };
        findings.add(
            Diagnostic::error("contradiction", format!("`node.{name}` is not an IPv6 address"))
                .at(setting.span.clone())
                .related(ipv6.span.clone(), "`ipv6` is here")
                .expected("an IPv6 address, because `node.ipv6` is true")
                .seen(address.to_string())
                .help("change the address, or leave `ipv6` out"),
        );
    }
}

/// The base must be a multicast address, of the node's IP version, with room for all addresses after it.
fn groups_base_fits(node: &NodeDraft, findings: &mut Findings) {
    let Some(setting) = &node.groups_base else { return };
    let Some(base) = setting.value else { return };
    let mut refuse = |expected: String, help: &str| {
        findings.add(
            Diagnostic::error("bad-base", "`node.groups_base` cannot be the first address of the groups")
                .at(setting.span.clone())
                .expected(expected)
                .seen(base.to_string())
                .help(help),
        );
    };
    if !base.is_multicast() {
        let help = "choose an address of 239.0.0.0/8, or of ff15::/16 with IPv6, or leave it out";
        return refuse("a multicast address".to_owned(), help);
    }
    if let Some(Some(address)) = node.address.as_ref().map(|address| address.value)
        && address.is_ipv6() != base.is_ipv6()
    {
        return refuse(format!("the IP version of `address`, {address}"), "change one of the two");
    }
    let Some(count) = &node.group_addresses else { return };
    if !has_room(base, count.value) {
        refuse(
            format!("room for {} multicast addresses (`group_addresses`)", count.value),
            "choose a smaller address, or fewer of them",
        );
    }
}

/// Whether `count` addresses from `base` on are multicast addresses.
fn has_room(base: IpAddr, count: u8) -> bool {
    let more = count - 1;
    match base {
        IpAddr::V4(base) => {
            let last = base.to_bits().checked_add(more.into());
            last.is_some_and(|last| Ipv4Addr::from_bits(last).is_multicast())
        }
        IpAddr::V6(base) => base.to_bits().checked_add(more.into()).is_some(),
    }
}

fn ordered_streams_suffice(draft: &Draft, findings: &mut Findings) {
    let (Some(fifo), Some(buffers)) = (&draft.fifo.streams, &draft.buffers.streams) else { return };
    if let Some(seen) = fifo.value.filter(|&seen| seen < buffers.value) {
        findings.add(
            Diagnostic::error("too-few-streams", "`fifo.streams` is smaller than `buffers.streams`")
                .at(fifo.span.clone().or(buffers.span.clone()))
                .related(buffers.span.clone(), "`buffers.streams` is here")
                .expected(format!("{} or more", buffers.value))
                .seen(seen.to_string())
                .help("leave `fifo.streams` out"),
        );
    }
}
