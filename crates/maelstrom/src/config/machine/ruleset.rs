//! The firewall's rules, as far as they depend on the interface by which a packet arrives.

use std::fs;
use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::behind::{EgressFilter, bridge_chains, egress_filters};
use super::bypass::{DUMP, each, find, query, text};

// linux/netfilter/nf_tables.h, linux/netfilter/nfnetlink.h
const GET_CHAIN: u16 = (10 << 8) | 4;
const GET_RULE: u16 = (10 << 8) | 7;
const FAMILY_LEN: usize = 4;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const HOOK_DEVICE: u16 = 3;
const HOOK_DEVICES: u16 = 4;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const META_KEY: u16 = 2;
/// Index, name and group of the interface by which a packet arrives.
const ARRIVAL_KEYS: [u32; 3] = [4, 6, 21];
const FAMILIES: [(u8, &str); 4] = [(1, "inet"), (2, "ip"), (5, "netdev"), (10, "ip6")];
const NETDEV: u8 = 5;

/// Rules that recovered packets may meet otherwise than the packets that were lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    /// Chains with rules that look at the interface of arrival, as `inet filter forward`.
    pub(super) by_interface: Vec<String>,
    /// Devices below the WAN interface with an ingress chain.
    pub(super) below_wan: Vec<String>,
    /// Filters with actions on packets that leave by the WAN interface, or by devices below it.
    pub(super) egress_filters: Vec<EgressFilter>,
    /// Chains of the family bridge that packets pass, as `filter forward`.
    pub(super) bridge_chains: Vec<String>,
    /// Tables of the old `iptables`, whose rules are not read.
    pub(super) unread: Vec<String>,
    /// Whether the kernel refused to list its rules.
    pub(super) refused: bool,
}

impl Rules {
    /// Reads the rules of this thread's network namespace that concern the WAN interface and the devices
    /// below it.
    pub(super) fn gather<'a>(wan: &'a str, below: impl Iterator<Item = &'a str> + Clone) -> Self {
        let mut rules = Self::default();
        if let Err(error) = rules.read_rules() {
            rules.refused = error.kind() == io::ErrorKind::PermissionDenied;
        }
        rules.below_wan = ingress_devices().unwrap_or_default();
        rules.below_wan.retain(|device| below.clone().any(|lower| lower == device));
        rules.egress_filters = egress_filters([wan].into_iter().chain(below));
        rules.bridge_chains = bridge_chains().unwrap_or_default();
        for (file, program) in [("ip_tables_names", "iptables"), ("ip6_tables_names", "ip6tables")] {
            let names = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
            rules.unread.extend(names.lines().map(|name| format!("{program} {name}")));
        }
        rules
    }

    fn read_rules(&mut self) -> io::Result<()> {
        query(NETLINK_NETFILTER, GET_RULE, DUMP, &[0; FAMILY_LEN], |answer| {
            let chain =
                answer.split_at_checked(FAMILY_LEN).and_then(|(head, rule)| by_interface(head[0], rule));
            if let Some(chain) = chain.filter(|chain| !self.by_interface.contains(chain)) {
                self.by_interface.push(chain);
            }
        })
    }
}

/// Returns the chain of a rule that looks at the interface of arrival.
fn by_interface(family: u8, rule: &[u8]) -> Option<String> {
    let (_, family) = FAMILIES.into_iter().find(|(number, _)| *number == family)?;
    let looks = |expression: &[u8]| {
        let Some(data) = find(expression, EXPRESSION_DATA) else { return false };
        let key = find(data, META_KEY).and_then(|key| Some(u32::from_be_bytes(key.try_into().ok()?)));
        find(expression, EXPRESSION_NAME).map(text).as_deref() == Some("meta")
            && key.is_some_and(|key| ARRIVAL_KEYS.contains(&key))
    };
    let found = each(find(rule, RULE_EXPRESSIONS)?).any(|(_, expression)| looks(expression));
    let name = |kind| find(rule, kind).map(text).unwrap_or_default();
    found.then(|| format!("{family} {} {}", name(RULE_TABLE), name(RULE_CHAIN)))
}

/// Returns the devices that have an ingress chain.
fn ingress_devices() -> io::Result<Vec<String>> {
    let mut devices = Vec::new();
    query(NETLINK_NETFILTER, GET_CHAIN, DUMP, &[NETDEV, 0, 0, 0], |answer| {
        devices.extend(answer.get(FAMILY_LEN..).map(devices_of_chain).unwrap_or_default());
    })?;
    devices.sort_unstable();
    devices.dedup();
    Ok(devices)
}

fn devices_of_chain(chain: &[u8]) -> Vec<String> {
    // A chain without a hook is only jumped to.
    let named = find(chain, CHAIN_TABLE).is_some() && find(chain, CHAIN_NAME).is_some();
    let Some(hook) = find(chain, CHAIN_HOOK).filter(|_| named) else { return Vec::new() };
    let several = find(hook, HOOK_DEVICES).into_iter().flat_map(each).map(|(_, name)| text(name));
    find(hook, HOOK_DEVICE).map(text).into_iter().chain(several).collect()
}

#[cfg(test)]
mod tests {
    use super::super::bypass::tests::attributes;
    use super::*;

    fn rule(expression: &[u8], key: u32) -> Vec<u8> {
        let data = attributes(&[(1, &[0; 4]), (META_KEY, &key.to_be_bytes())]);
        let expression = attributes(&[(EXPRESSION_NAME, expression), (EXPRESSION_DATA | 0x8000, &data)]);
        let list = attributes(&[(1, &attributes(&[(EXPRESSION_NAME, b"counter\0")])), (1, &expression)]);
        attributes(&[(RULE_TABLE, b"filter\0"), (RULE_CHAIN, b"forward\0"), (RULE_EXPRESSIONS, &list)])
    }

    #[test]
    fn only_rules_about_the_interface_of_arrival_are_found() {
        assert_eq!(by_interface(1, &rule(b"meta\0", 6)).as_deref(), Some("inet filter forward"));
        assert_eq!(by_interface(10, &rule(b"meta\0", 4)).as_deref(), Some("ip6 filter forward"));
        // the interface by which a packet leaves; another expression; ARP
        assert_eq!(by_interface(2, &rule(b"meta\0", 7)), None);
        assert_eq!(by_interface(2, &rule(b"ct\0", 6)), None);
        assert_eq!(by_interface(3, &rule(b"meta\0", 6)), None);
        assert_eq!(by_interface(2, &[7; 9]), None);
    }

    #[test]
    fn a_chain_names_its_devices() {
        let devices = attributes(&[(1, b"eth0\0"), (1, b"eth1\0")]);
        let hook = attributes(&[(1, &[0; 4]), (HOOK_DEVICES, &devices)]);
        let chain = |hook: &[u8]| attributes(&[(1, b"t\0"), (3, b"c\0"), (CHAIN_HOOK, hook)]);
        assert_eq!(devices_of_chain(&chain(&hook)), ["eth0", "eth1"]);
        assert_eq!(devices_of_chain(&chain(&attributes(&[(HOOK_DEVICE, b"eth2\0")]))), ["eth2"]);
        assert!(devices_of_chain(&attributes(&[(1, b"t\0"), (3, b"c\0")])).is_empty());
    }
}
