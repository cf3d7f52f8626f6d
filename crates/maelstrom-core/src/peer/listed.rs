//! The list in a peer's Hellos: networks of this site that it watches, and to which it protects packets.
//! A gateway of a rack lists those of the parts that it holds.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::prefixes::PrefixTable;

/// Time for which arrivals count as watched after the peer has ceased to list their destination. Packets that
/// it protected before may come later than the Hello, and would count as lost if they were not seen.
const WANE_US: u64 = 1_000_000;

/// The networks, with the time since which each is listed.
#[derive(Clone, Debug, Default)]
pub(super) struct Listed {
    networks: Vec<IpNet>,
    table: PrefixTable<u64>,
    /// Networks that were listed until recently.
    waning: Vec<IpNet>,
    waning_until_us: u64,
    /// Both.
    shown: PrefixTable<()>,
}

impl Listed {
    pub(super) fn new(now_us: u64, networks: &[IpNet]) -> Self {
        let mut listed = Self::default();
        listed.update(now_us, networks);
        listed
    }

    /// Takes the list of another Hello; returns whether it differs.
    pub(super) fn update(&mut self, now_us: u64, networks: &[IpNet]) -> bool {
        if self.networks == networks {
            return false;
        }
        let since_us = |network: &IpNet| {
            let is_listed = self.networks.contains(network);
            self.table.find(network.addr()).filter(|_| is_listed).unwrap_or(now_us)
        };
        let table = PrefixTable::new(networks.iter().map(|network| (*network, since_us(network))));
        if now_us >= self.waning_until_us {
            self.waning.clear();
        }
        let gone = self.networks.iter().filter(|network| !networks.contains(network));
        self.waning.extend(gone);
        self.waning.retain(|network| !networks.contains(network));
        self.waning.sort();
        self.waning.dedup();
        self.waning_until_us = now_us + WANE_US;
        self.shown = PrefixTable::new(networks.iter().chain(&self.waning).map(|network| (*network, ())));
        (self.networks, self.table) = (networks.to_vec(), table);
        true
    }

    /// The networks, as the latest Hello lists them.
    pub(super) fn networks(&self) -> &[IpNet] {
        &self.networks
    }

    /// Whether the peer lists a network with this address.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.table.contains(address)
    }

    /// Time since which it does.
    pub(super) fn since_us(&self, address: IpAddr) -> Option<u64> {
        self.table.find(address)
    }

    /// Whether it does, or did until recently.
    pub(super) fn shows(&self, now_us: u64, address: IpAddr) -> bool {
        let is_waning = now_us < self.waning_until_us && self.shown.contains(address);
        is_waning || self.table.contains(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_time_of_the_hello_that_listed_it_first_and_wanes_a_second() {
        let net = |text: &str| -> IpNet { text.parse().unwrap() };
        let at = |text: &str| -> IpAddr { text.parse().unwrap() };
        let (one, other) = (net("10.81.1.0/25"), net("10.81.1.128/25"));
        let mut listed = Listed::new(100, &[one]);
        assert!(!listed.update(200, &[one]), "nothing differs");
        assert!(listed.update(300, &[one, other]));
        assert_eq!(
            (listed.since_us(at("10.81.1.1")), listed.since_us(at("10.81.1.200"))),
            (Some(100), Some(300))
        );
        assert!(listed.update(400, &[other]));
        assert_eq!((listed.since_us(at("10.81.1.1")), listed.since_us(at("10.81.1.200"))), (None, Some(300)));
        // A network that ceased a moment ago wanes on while another one ceases too.
        assert!(listed.update(500_000, &[]));
        for address in ["10.81.1.1", "10.81.1.200"] {
            assert!(listed.shows(1_499_999, at(address)) && !listed.contains(at(address)));
            assert!(!listed.shows(1_500_000, at(address)));
        }
        assert!(!listed.shows(600_000, at("10.81.2.1")));
        // Listed again, it has a new time.
        assert!(listed.update(2_000_000, &[one]));
        assert_eq!(listed.since_us(at("10.81.1.1")), Some(2_000_000));
    }
}
