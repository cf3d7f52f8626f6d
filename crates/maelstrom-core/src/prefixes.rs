//! Lookup of an address among disjoint sets of networks.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::{Config, PeerConfig};
use crate::multicast;

/// A sorted table of disjoint address ranges, each with a value. A lookup takes O(log n).
///
/// IPv4 is mapped into the 128-bit space (`::ffff:0:0/96`), so one table serves both families.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixTable<T> {
    ranges: Vec<(u128, u128, T)>,
}

impl<T: Copy> PrefixTable<T> {
    /// Creates the table of networks that do not overlap where their values differ. A network inside another
    /// is dropped.
    pub(crate) fn new(networks: impl IntoIterator<Item = (IpNet, T)>) -> Self {
        let range = |(network, value): (IpNet, T)| {
            (as_number(network.network()), as_number(network.broadcast()), value)
        };
        let mut ranges: Vec<_> = networks.into_iter().map(range).collect();
        ranges.sort_by_key(|&(first, last, _)| (first, std::cmp::Reverse(last)));
        // Networks are nested or disjoint: one that begins inside the last one kept lies inside it.
        ranges.dedup_by(|next, kept| next.0 <= kept.1);
        Self { ranges }
    }

    /// Returns the value of the network that contains `address`.
    pub(crate) fn find(&self, address: IpAddr) -> Option<T> {
        let number = as_number(address);
        let after = self.ranges.partition_point(|&(first, ..)| first <= number);
        let (_, last, value) = *self.ranges.get(after.checked_sub(1)?)?;
        (number <= last).then_some(value)
    }

    /// Whether any network contains `address`.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.find(address).is_some()
    }
}

/// The networks of this site, if they are stated, and the IP groups that enter it, toward one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalNetworks {
    stated: Option<PrefixTable<()>>,
    /// Networks of other sites that this one forwards to and from, as the centre of a star does.
    transit: PrefixTable<()>,
    groups: PrefixTable<usize>,
}

impl LocalNetworks {
    /// Those of a gateway toward one of its peers. From a tunnel to another one, packets pass this site if
    /// both files name their ends: the other gateway watches no source that its own file does not name.
    pub(crate) fn toward(peer: &PeerConfig, gateway: &Config) -> Self {
        let table = |networks: &[IpNet]| PrefixTable::new(networks.iter().map(|&network| (network, ())));
        let stated = &gateway.local_networks;
        // The gateways of a rack have the same networks.
        let others = gateway.peers.iter().filter(|other| other.is_tunnel && other.networks != peer.networks);
        let others: Vec<IpNet> = others.flat_map(|other| other.networks.iter().copied()).collect();
        Self {
            stated: (!stated.is_empty()).then(|| table(stated)),
            transit: if peer.is_tunnel { table(&others) } else { PrefixTable::default() },
            groups: multicast::table(&gateway.multicast),
        }
    }

    /// Whether a packet from `source` may leave this site for the peer.
    pub(crate) fn may_send(&self, source: IpAddr) -> bool {
        self.stated.as_ref().is_none_or(|local| local.contains(source) || self.transit.contains(source))
    }

    /// Whether a packet may enter this site: it comes from elsewhere, and goes here or on by another tunnel.
    pub(crate) fn may_receive(&self, source: IpAddr, destination: IpAddr) -> bool {
        let goes_on = self.transit.contains(destination);
        let may =
            |local: &PrefixTable<()>| (goes_on || local.contains(destination)) && !local.contains(source);
        self.stated.as_ref().is_none_or(may)
    }

    /// Whether a packet to an IP group may enter this site by a tunnel: it comes from elsewhere, and the file
    /// names the group.
    pub(crate) fn hears(&self, source: IpAddr, group: IpAddr) -> bool {
        let is_ours = self.stated.as_ref().is_some_and(|local| local.contains(source));
        !is_ours && !multicast::is_of_link(group) && self.groups.contains(group)
    }
}

fn as_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Returns what a network and those of a list have in common.
pub fn overlaps(networks: &[IpNet], network: &IpNet) -> impl Iterator<Item = IpNet> {
    networks.iter().filter_map(move |other| match (other.contains(network), network.contains(other)) {
        (true, _) => Some(*network),
        (false, true) => Some(*other),
        (false, false) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_inside_another_hides_no_part_of_it() {
        let nets = ["10.1.0.0/16", "10.0.0.0/8", "10.200.0.0/24", "10.0.0.0/16"];
        let table = PrefixTable::new(nets.map(|net| (net.parse().unwrap(), ())));
        for address in ["10.0.0.1", "10.1.2.3", "10.2.0.1", "10.200.0.9", "10.255.255.255"] {
            assert!(table.contains(address.parse().unwrap()), "{address}");
        }
        assert!(!table.contains("11.0.0.0".parse().unwrap()));
    }

    #[test]
    fn finds_the_network_that_contains_an_address() {
        let nets = [("10.81.2.0/24", 0), ("10.81.3.0/25", 1), ("fd00:2::/32", 2), ("0.0.0.0/8", 3)];
        let table = PrefixTable::new(nets.map(|(net, value)| (net.parse().unwrap(), value)));
        let find = |address: &str| table.find(address.parse().unwrap());
        assert_eq!(find("10.81.2.0"), Some(0));
        assert_eq!(find("10.81.2.255"), Some(0));
        assert_eq!(find("10.81.3.128"), None);
        assert_eq!(find("fd00:2:ffff::1"), Some(2));
        assert_eq!(find("fd00:3::1"), None);
        assert_eq!(find("::1"), None, "an IPv6 address is in no IPv4 network");
        assert_eq!(find("255.255.255.255"), None);
    }
}
