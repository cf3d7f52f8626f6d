//! The firewall's rules, as far as they depend on the interface by which a packet arrives.

use std::fs;
use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::behind::{EgressFilter, NFTABLES, bridge_chains, egress_filters};
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
/// Index, name, type, group and kind of the interface by which a packet arrives; index and name of the port
/// of a VRF.
const ARRIVAL_KEYS: [u32; 7] = [4, 6, 8, 21, 26, 33, 34];
const FIB_FLAGS: u16 = 3;
/// A search for a route takes the interface of arrival into account.
const FIB_ARRIVAL: u32 = 8;
const MATCH_NAME: u16 = 1;
/// Matches of iptables that look at the interface of arrival, beside its option `-i`.
const MATCHES: [&str; 2] = ["physdev", "rpfilter"];
const FAMILIES: [(u8, &str); 4] = [(1, "inet"), (2, "ip"), (5, "netdev"), (10, "ip6")];
const INET: u8 = 1;
const NETDEV: u8 = 5;
const HOOK_NUMBER: u16 = 1;
/// Hook of packets that leave, in the family netdev.
const NETDEV_EGRESS: u32 = 1;

/// Rules that recovered packets may meet otherwise than the packets that were lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    /// Chains with rules that look at the interface of arrival, as `inet filter forward`.
    pub(super) by_interface: Vec<String>,
    /// Devices below the WAN interfaces with an ingress chain.
    pub(super) below_wan: Vec<String>,
    /// Filters with actions on packets that leave by the WAN interfaces, or by devices below them.
    pub(super) egress_filters: Vec<EgressFilter>,
    /// Chains of the family bridge that packets pass, as `filter forward`.
    pub(super) bridge_chains: Vec<String>,
    /// Tables of the old `iptables`, whose rules are not read.
    pub(super) unread: Vec<String>,
    /// Whether the kernel refused to list its rules.
    pub(super) refused: bool,
}

impl Rules {
    /// Reads the rules of this thread's network namespace that concern the WAN interfaces and the devices
    /// below them.
    pub(super) fn gather(wans: &[&str], below: &[&str]) -> Self {
        let mut rules = Self::default();
        if let Err(error) = rules.read_rules() {
            rules.refused = error.kind() == io::ErrorKind::PermissionDenied;
        }
        rules.egress_filters = egress_filters(wans.iter().chain(below).copied());
        rules.add_device_chains(wans, below, device_chains().unwrap_or_default());
        rules.bridge_chains = bridge_chains().unwrap_or_default();
        for (file, program) in [("ip_tables_names", "iptables"), ("ip6_tables_names", "ip6tables")] {
            let names = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
            rules.unread.extend(names.lines().map(|name| format!("{program} {name}")));
        }
        rules
    }

    /// Adds chains that belong to a device. Those of packets that leave by a WAN interface itself come
    /// before the tap.
    fn add_device_chains(&mut self, wans: &[&str], below: &[&str], chains: Vec<DeviceChain>) {
        for DeviceChain { device, name, is_egress } in chains {
            let is_below = below.contains(&device.as_str());
            if is_egress && is_below {
                let filter = EgressFilter { device, kind: NFTABLES.to_owned(), is_early: false };
                self.egress_filters.push(filter);
            } else if !is_egress && (is_below || wans.contains(&device.as_str())) {
                self.by_interface.push(name);
                self.below_wan.extend(Some(device).filter(|_| is_below));
            }
        }
        self.by_interface.sort_unstable();
        self.by_interface.dedup();
        self.below_wan.sort_unstable();
        self.below_wan.dedup();
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
    let found = each(find(rule, RULE_EXPRESSIONS)?).any(|(_, expression)| looks_at_arrival(expression));
    let name = |kind| find(rule, kind).map(text).unwrap_or_default();
    found.then(|| format!("{family} {} {}", name(RULE_TABLE), name(RULE_CHAIN)))
}

fn looks_at_arrival(expression: &[u8]) -> bool {
    let (Some(name), Some(data)) =
        (find(expression, EXPRESSION_NAME).map(text), find(expression, EXPRESSION_DATA))
    else {
        return false;
    };
    match name.as_str() {
        "meta" => number(data, META_KEY).is_some_and(|key| ARRIVAL_KEYS.contains(&key)),
        "fib" => number(data, FIB_FLAGS).is_some_and(|flags| flags & FIB_ARRIVAL != 0),
        "match" => find(data, MATCH_NAME).map(text).is_some_and(|name| MATCHES.contains(&name.as_str())),
        _ => false,
    }
}

fn number(attributes: &[u8], kind: u16) -> Option<u32> {
    Some(u32::from_be_bytes(find(attributes, kind)?.try_into().ok()?))
}

/// A chain that is hooked into the packets of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DeviceChain {
    device: String,
    /// As `netdev filter ingress`.
    name: String,
    is_egress: bool,
}

/// Returns the chains of devices. The family inet has such chains too.
fn device_chains() -> io::Result<Vec<DeviceChain>> {
    let mut chains = Vec::new();
    for family in [NETDEV, INET] {
        query(NETLINK_NETFILTER, GET_CHAIN, DUMP, &[family, 0, 0, 0], |answer| {
            if let Some((head, chain)) = answer.split_at_checked(FAMILY_LEN) {
                chains.extend(chains_of(head[0], chain));
            }
        })?;
    }
    Ok(chains)
}

/// Returns a chain once for each of its devices.
fn chains_of(family: u8, chain: &[u8]) -> Vec<DeviceChain> {
    let named = FAMILIES.into_iter().find(|(number, _)| *number == family).and_then(|(_, family)| {
        Some(format!("{family} {} {}", text(find(chain, CHAIN_TABLE)?), text(find(chain, CHAIN_NAME)?)))
    });
    // A chain without a hook is only jumped to.
    let (Some(name), Some(hook)) = (named, find(chain, CHAIN_HOOK)) else { return Vec::new() };
    let is_egress = family == NETDEV && number(hook, HOOK_NUMBER) == Some(NETDEV_EGRESS);
    let several = find(hook, HOOK_DEVICES).into_iter().flat_map(each).map(|(_, name)| name);
    let devices = find(hook, HOOK_DEVICE).into_iter().chain(several).map(text);
    devices.map(|device| DeviceChain { device, name: name.clone(), is_egress }).collect()
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
        assert_eq!(by_interface(2, &rule(b"meta\0", 26)).as_deref(), Some("ip filter forward"));
        // the interface by which a packet leaves; another expression; ARP
        assert_eq!(by_interface(2, &rule(b"meta\0", 7)), None);
        assert_eq!(by_interface(2, &rule(b"ct\0", 6)), None);
        assert_eq!(by_interface(3, &rule(b"meta\0", 6)), None);
        assert_eq!(by_interface(2, &[7; 9]), None);
    }

    #[test]
    fn searches_for_the_way_back_look_at_the_interface_of_arrival() {
        let of = |name: &[u8], data: &[u8]| {
            let expression = attributes(&[(EXPRESSION_NAME, name), (EXPRESSION_DATA | 0x8000, data)]);
            looks_at_arrival(&expression)
        };
        let flags = |flags: u32| attributes(&[(1, &[0; 4]), (FIB_FLAGS, &flags.to_be_bytes())]);
        // `fib saddr . iif oif missing`, and `fib daddr type local`.
        assert!(of(b"fib\0", &flags(1 | FIB_ARRIVAL)) && !of(b"fib\0", &flags(2)));
        for (name, expected) in [(&b"rpfilter\0"[..], true), (b"physdev\0", true), (b"comment\0", false)] {
            assert_eq!(of(b"match\0", &attributes(&[(MATCH_NAME, name)])), expected);
        }
        assert!(!of(b"fib\0", &[7; 9]) && !looks_at_arrival(&[7; 9]));
    }

    /// Returns a chain `t c` with this hook.
    fn chain(number: u32, devices: (u16, &[u8])) -> Vec<u8> {
        let hook = attributes(&[(HOOK_NUMBER, &number.to_be_bytes()), devices]);
        attributes(&[(CHAIN_TABLE, b"t\0"), (CHAIN_NAME, b"c\0"), (CHAIN_HOOK, &hook)])
    }

    #[test]
    fn a_chain_names_its_devices() {
        let devices = attributes(&[(1, b"eth0\0"), (1, b"eth1\0")]);
        let devices_of = |family, chain: &[u8]| {
            chains_of(family, chain).into_iter().map(|chain| chain.device).collect::<Vec<_>>()
        };
        assert_eq!(devices_of(NETDEV, &chain(0, (HOOK_DEVICES, &devices))), ["eth0", "eth1"]);
        assert_eq!(devices_of(INET, &chain(5, (HOOK_DEVICE, b"eth2\0"))), ["eth2"]);
        assert!(devices_of(INET, &chain(1, (9, b""))).is_empty(), "it belongs to no device");
        assert!(
            devices_of(NETDEV, &attributes(&[(CHAIN_TABLE, b"t\0"), (CHAIN_NAME, b"c\0")])).is_empty(),
            "it is only jumped to"
        );
    }

    #[test]
    fn chains_of_devices_are_told_where_recovered_packets_pass_by_them() {
        let add = |family, number, device: &[u8]| {
            let mut rules = Rules::default();
            let chains = chains_of(family, &chain(number, (HOOK_DEVICE, device)));
            rules.add_device_chains(&["wan0"], &["eth0"], chains);
            rules
        };
        for (family, number, name) in [(NETDEV, 0, "netdev t c"), (INET, 5, "inet t c")] {
            let at_wan = add(family, number, b"wan0\0");
            assert_eq!(at_wan, Rules { by_interface: vec![name.to_owned()], ..Rules::default() });
            let below = add(family, number, b"eth0\0");
            assert_eq!((&below.below_wan[..], below.by_interface.len()), (&["eth0".to_owned()][..], 1));
            assert_eq!(add(family, number, b"lan0\0"), Rules::default());
        }
        let leaving = add(NETDEV, NETDEV_EGRESS, b"eth0\0");
        let filter = EgressFilter { device: "eth0".to_owned(), kind: NFTABLES.to_owned(), is_early: false };
        assert_eq!(leaving, Rules { egress_filters: vec![filter], ..Rules::default() });
        assert_eq!(add(NETDEV, NETDEV_EGRESS, b"wan0\0"), Rules::default(), "it comes before the tap");
    }
}
