//! Rules that act on packets of the WAN interface where the gateway does not look: on packets that leave,
//! after the tap has copied them, and below the interface.
//!
//! A packet that such a rule drops on its way out looks lost at the far end, which recovers it: the rule has
//! no effect. A rule below the interface does not see recovered packets at all.

use std::io;

use diagnostics::settings::Setting;
use diagnostics::{Diagnostic, Findings};
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::super::draft::Draft;
use super::super::types::TapChoice;
use super::super::wans;
use super::bypass::{DUMP, find, query, text};
use super::facts::Facts;
use super::filters::{Hook, each_filter};

// linux/rtnetlink.h, linux/pkt_cls.h
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
/// Classifiers with the attributes that hold their actions. Without any, a filter chooses a class and no
/// more.
const ACTIONS: [(&str, &[u16]); 6] = [
    ("basic", &[3, 4]),
    ("bpf", &[1, 2]),
    ("flower", &[3]),
    ("fw", &[2, 4]),
    ("matchall", &[2]),
    ("u32", &[6, 7]),
];
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
/// The program itself decides what happens to a packet.
const BPF_DIRECT: u32 = 1;
/// Priority of the tap where it is a filter of clsact itself, and the first kernel where it is not.
const TAP_PRIORITY: u32 = 60_047;
const TCX_MIN: (u32, u32) = (6, 6);
/// Begin of the names of the gateway's own programs.
const OWN: &str = "undrop_";

// linux/netfilter.h, linux/netfilter/nf_tables.h, linux/netfilter/nfnetlink.h
const BRIDGE: u8 = 7;
const GET_CHAIN: u16 = (10 << 8) | 4;
const FAMILY_LEN: usize = 4;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;

/// Kind of a filter that is an egress chain.
pub(super) const NFTABLES: &str = "nftables";

/// A filter with actions on packets that leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EgressFilter {
    pub(super) device: String,
    /// Its classifier, such as `flower`; or [`NFTABLES`].
    pub(super) kind: String,
    /// Whether it runs before the tap where the tap is a filter too.
    pub(super) is_early: bool,
}

pub(super) fn check(draft: &Draft, facts: &Facts, findings: &mut Findings) {
    // A packet socket sees packets after the filters of its own interface.
    let is_late = draft.gateway.tap.as_ref().is_some_and(|tap| tap.value == TapChoice::Packet);
    let is_filter = facts.kernel_version().is_some_and(|version| version < TCX_MIN);
    for EgressFilter { device, kind, is_early } in &facts.rules.egress_filters {
        let Some(wan) = facts.wan_above(draft, device) else { continue };
        if *device == wan.value && (is_late || is_filter && *is_early) {
            continue;
        }
        let (filter, shows) = match kind.as_str() {
            NFTABLES => ("an egress chain of nftables".to_owned(), "nft list ruleset".to_owned()),
            _ => (format!("a `{kind}` filter"), format!("tc filter show dev {device} egress")),
        };
        findings.add(
            Diagnostic::warning(
                "egress-filter",
                format!("{filter} acts on packets that leave by `{device}`, after the tap has copied them"),
            )
            .at(wan.span.clone())
            .note("packets that it drops are recovered at the far site as if they had been lost; those that it changes look lost there")
            .help(format!(
                "drop packets before they reach the tap, in a chain of nftables with the hook forward or output: \
                 `{shows}` shows the filter"
            ))
            .help("or let the tap be a packet socket, if the filter is on the WAN interface itself: `tap = \"packet\"`"),
        );
    }
    let on_bridge = |wan: &Setting<String>| facts.is_on_bridge(&wan.value);
    for wan in wans::of_draft(draft).into_iter().filter(on_bridge) {
        if facts.rules.bridge_chains.is_empty() {
            continue;
        }
        findings.add(
            Diagnostic::warning(
                "bridge-rules",
                format!("rules of the bridge act below the WAN interface `{}`", wan.value),
            )
            .at(wan.span.clone())
            .seen(format!("chains {}", facts.rules.bridge_chains.join(", ")))
            .note("recovered packets arrive by the WAN interface itself and do not pass these chains; packets that the chains drop on their way out are recovered at the far site")
            .help(format!("repeat the rules for `{}` in a table of the family inet: nft list ruleset bridge", wan.value)),
        );
    }
}

/// Returns the filters with actions on packets that leave by these devices.
pub(super) fn egress_filters<'a>(devices: impl Iterator<Item = &'a str>) -> Vec<EgressFilter> {
    let mut found = Vec::new();
    for device in devices {
        for (kind, is_early) in acting_kinds(device).unwrap_or_default() {
            found.push(EgressFilter { device: device.to_owned(), kind, is_early });
        }
    }
    found
}

/// Returns the kinds of the acting filters, and whether each runs early.
fn acting_kinds(device: &str) -> io::Result<Vec<(String, bool)>> {
    let mut kinds = Vec::new();
    each_filter(device, |hook, priority, attributes| {
        if hook != Hook::Ingress {
            let is_early = hook == Hook::Egress && priority < TAP_PRIORITY;
            kinds.extend(acting_kind(attributes).map(|kind| (kind, is_early)));
        }
    })?;
    kinds.sort_unstable();
    kinds.dedup();
    Ok(kinds)
}

/// Returns the kind of a filter that may drop or change packets, from its attributes.
fn acting_kind(attributes: &[u8]) -> Option<String> {
    let kind = text(find(attributes, TCA_KIND)?);
    // Without options it is the head of a list of filters.
    let options = find(attributes, TCA_OPTIONS)?;
    if kind == "bpf" && find(options, BPF_NAME).is_some_and(|name| text(name).starts_with(OWN)) {
        return None;
    }
    let flags = find(options, BPF_FLAGS).and_then(|flags| Some(u32::from_ne_bytes(flags.try_into().ok()?)));
    let decides = kind == "bpf" && flags.is_some_and(|flags| flags & BPF_DIRECT != 0);
    let known = ACTIONS.into_iter().find(|(name, _)| kind == *name);
    // Of an unknown classifier the worst is assumed.
    let acts = known.is_none_or(|(_, actions)| actions.iter().any(|&action| find(options, action).is_some()));
    (decides || acts).then_some(kind)
}

/// Returns the chains of the family bridge that are hooked into the path of packets.
pub(super) fn bridge_chains() -> io::Result<Vec<String>> {
    let mut chains = Vec::new();
    query(NETLINK_NETFILTER, GET_CHAIN, DUMP, &[BRIDGE, 0, 0, 0], |answer| {
        chains.extend(
            answer.split_at_checked(FAMILY_LEN).and_then(|(head, chain)| bridge_chain(head[0], chain)),
        );
    })?;
    Ok(chains)
}

fn bridge_chain(family: u8, chain: &[u8]) -> Option<String> {
    let name = |kind| find(chain, kind).map(text);
    find(chain, CHAIN_HOOK).filter(|_| family == BRIDGE)?;
    Some(format!("{} {}", name(CHAIN_TABLE)?, name(CHAIN_NAME)?))
}

#[cfg(test)]
mod tests {
    use super::super::bypass::tests::attributes;
    use super::*;

    fn filter(kind: &str, options: &[(u16, &[u8])]) -> Option<String> {
        let kind = format!("{kind}\0");
        acting_kind(&attributes(&[(TCA_KIND, kind.as_bytes()), (TCA_OPTIONS | 0x8000, &attributes(options))]))
    }

    #[test]
    fn only_filters_that_drop_or_change_packets_are_found() {
        let class = 1_u32.to_ne_bytes();
        for (kind, actions) in ACTIONS {
            assert_eq!(filter(kind, &[(99, &class)]), None, "{kind} chooses a class");
            for &action in actions {
                assert_eq!(filter(kind, &[(action, &class)]).as_deref(), Some(kind));
            }
        }
        let direct = BPF_DIRECT.to_ne_bytes();
        assert_eq!(filter("bpf", &[(BPF_FLAGS, &direct), (BPF_NAME, b"other\0")]).as_deref(), Some("bpf"));
        assert_eq!(filter("bpf", &[(BPF_FLAGS, &direct), (BPF_NAME, b"undrop_egress\0")]), None);
        assert_eq!(filter("bpf", &[(BPF_FLAGS, &0_u32.to_ne_bytes())]), None);
        assert_eq!(filter("new", &[]).as_deref(), Some("new"));
        assert_eq!(acting_kind(&attributes(&[(TCA_KIND, b"u32\0")])), None);
        assert_eq!(acting_kind(&[7; 9]), None);
    }

    #[test]
    fn only_chains_with_a_hook_of_the_family_bridge_are_found() {
        let hook = attributes(&[(1, &[0; 4]), (2, &[0; 4])]);
        let chain = attributes(&[(CHAIN_TABLE, b"t\0"), (CHAIN_NAME, b"c\0"), (CHAIN_HOOK | 0x8000, &hook)]);
        assert_eq!(bridge_chain(BRIDGE, &chain).as_deref(), Some("t c"));
        assert_eq!(bridge_chain(1, &chain), None);
        assert_eq!(bridge_chain(BRIDGE, &attributes(&[(CHAIN_TABLE, b"t\0"), (CHAIN_NAME, b"c\0")])), None);
    }

    #[test]
    fn the_loopback_interface_has_no_filters() {
        assert_eq!(egress_filters(["lo"].into_iter()), []);
    }
}
