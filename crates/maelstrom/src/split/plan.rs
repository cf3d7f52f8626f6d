//! The part of the configuration that split mode needs.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use maelstrom_core::PeerKey;
use maelstrom_core::split::{CarrierKey, Ends};
use netio::divert::{Diversion, Take};

use crate::config::{AcceptChoice, GatewayConfig};

/// Upper half of the mark of packets that are delivered here, and of the number of their routing table.
const MARK: u32 = 0x7564_0000;

/// The settings of split mode.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) listen: SocketAddr,
    pub(super) ports: Vec<u16>,
    /// Far networks to which connections are split; `None` for all of the sites.
    only: Option<Vec<IpNet>>,
    pub(super) buffer: u64,
    pub(super) congestion: String,
    /// Time for a server to answer.
    pub(super) connect: Duration,
    /// Time for connections to end as the gateway stops.
    pub(super) drain: Duration,
    /// Directory for bytes that the link does not take yet, and how many.
    pub(super) spool: Option<(PathBuf, u64)>,
    /// Whether clients are answered when their servers have been reached.
    pub(super) is_late: bool,
    wan: String,
    tun: String,
    /// Networks of this site.
    local: Vec<IpNet>,
    pub(super) sites: Vec<FarSite>,
}

/// A far site.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FarSite {
    /// The peer in logs.
    pub(super) label: String,
    /// Where it takes carriers, and the address from which it dials.
    pub(super) carrier: SocketAddr,
    networks: Vec<IpNet>,
    keys: Vec<PeerKey>,
}

impl FarSite {
    pub(super) fn carrier_keys(&self) -> Vec<CarrierKey> {
        self.keys.iter().map(CarrierKey::of).collect()
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Its networks to which connections are split, or the parts of them: all, or those that are stated.
    fn taken<'a>(&'a self, only: Option<&'a [IpNet]>) -> impl Iterator<Item = IpNet> + 'a {
        let stated = only.unwrap_or(&self.networks).iter().copied();
        stated.filter(|part| self.networks.iter().any(|network| network.contains(part)))
    }

    /// Whether it has hosts of this version of IP.
    pub(super) fn has_version(&self, v6: bool) -> bool {
        self.networks.iter().any(|network| network.addr().is_ipv6() == v6)
    }
}

impl Plan {
    /// `None` if the file asks for no split mode.
    pub(super) fn of(config: &GatewayConfig) -> Option<Self> {
        let listen = config.split.listen?;
        let sites = config.peers.iter().filter_map(|peer| {
            Some(FarSite {
                label: peer.label(),
                carrier: peer.carrier?,
                networks: peer.networks.clone(),
                keys: std::iter::once(peer.key.clone()).chain(peer.next_key.clone()).collect(),
            })
        });
        Some(Self {
            listen,
            ports: config.split.ports.clone().unwrap_or_default(),
            only: config
                .split
                .networks
                .as_ref()
                .map(|only| only.iter().map(|network| network.value).collect()),
            buffer: config.split.buffer,
            congestion: config.split.congestion.clone(),
            connect: config.split.connect,
            drain: config.split.drain,
            spool: config.split.spool_dir.clone().map(|directory| (directory, config.split.spool)),
            is_late: config.split.accept == AcceptChoice::Late,
            wan: config.gateway.wan.clone(),
            tun: config.gateway.tun.clone(),
            local: config.gateway.local_networks(),
            sites: sites.collect(),
        })
    }

    /// Whether only such settings differ that connections may go on.
    pub(super) fn keeps_connections(&self, other: &Self) -> bool {
        let mut same = Self { connect: other.connect, drain: other.drain, ..self.clone() };
        for (site, other) in same.sites.iter_mut().zip(&other.sites) {
            site.keys.clone_from(&other.keys);
        }
        same == *other
    }

    /// The WAN interface.
    pub(super) fn wan(&self) -> &str {
        &self.wan
    }

    /// Number of the site whose gateway has this address.
    pub(super) fn site_of(&self, address: IpAddr) -> Option<usize> {
        self.sites.iter().position(|site| site.carrier.ip() == address)
    }

    /// Whether a gateway may open a connection with these ends for the site.
    pub(super) fn admits(&self, site: usize, ends: &Ends) -> bool {
        let server = ends.server.ip();
        self.sites[site].contains(ends.client.ip())
            && self.local.iter().any(|network| network.contains(&server))
            && self.sites.iter().all(|site| !site.contains(server))
    }

    /// Name of the table of nftables. Gateways on one machine have TUN devices with different names.
    pub(super) fn table(&self) -> String {
        format!("undrop_split_{}", self.tun)
    }

    /// The connections to be taken. `ports` are those of the listeners of each site for IPv4 and IPv6.
    pub(super) fn diversion(&self, ports: &[[u16; 2]]) -> Diversion {
        let takes = self.sites.iter().zip(ports).flat_map(|(site, ports)| {
            site.taken(self.only.as_deref()).map(|to| Take {
                to,
                ports: self.ports.clone(),
                listener: ports[usize::from(to.addr().is_ipv6())],
            })
        });
        Diversion {
            wan: self.wan.clone(),
            mark: self.mark(),
            from: self.local.clone(),
            exempt: self.sites.iter().map(|site| site.carrier.ip()).collect(),
            takes: takes.filter(|take| take.listener > 0).collect(),
            queue: self.queue(),
        }
    }

    /// Mark of the packets that are taken. Gateways on one machine have others, and other queues.
    pub(super) fn mark(&self) -> u32 {
        MARK | u32::from(hash16(&self.tun))
    }

    /// Number of the queue in which first packets wait, if they do.
    pub(super) fn queue(&self) -> Option<u16> {
        (self.is_late && !self.ports.is_empty()).then(|| hash16(&self.tun))
    }
}

/// A hash that is the same in each process, so that a start finds what one before it has left.
fn hash16(text: &str) -> u16 {
    let hash =
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let site = |n: u8| FarSite {
            label: format!("site {n}"),
            carrier: SocketAddr::from(([10, 81, n, 1], 4701)),
            networks: vec![
                format!("10.81.{n}.0/24").parse().unwrap(),
                format!("fd81:0:0:{n}::/64").parse().unwrap(),
            ],
            keys: vec![PeerKey::new([n; 32])],
        };
        Plan {
            listen: SocketAddr::from(([10, 81, 1, 1], 4701)),
            ports: vec![80],
            only: None,
            buffer: 64 << 20,
            congestion: "bbr".to_owned(),
            connect: Duration::from_secs(10),
            spool: None,
            drain: Duration::from_secs(5),
            is_late: false,
            wan: "wan0".to_owned(),
            tun: "undrop0".to_owned(),
            local: vec!["10.81.1.0/24".parse().unwrap()],
            sites: vec![site(2), site(3)],
        }
    }

    #[test]
    fn a_peer_may_open_connections_from_its_own_hosts_to_this_site_only() {
        let ends = |client: &str, server: &str| Ends {
            client: SocketAddr::new(client.parse().unwrap(), 40_000),
            server: SocketAddr::new(server.parse().unwrap(), 80),
        };
        let plan = plan();
        assert!(plan.admits(0, &ends("10.81.2.9", "10.81.1.9")));
        for (client, server) in [
            ("10.81.3.9", "10.81.1.9"),
            ("10.81.1.8", "10.81.1.9"),
            ("10.81.2.9", "10.81.3.9"),
            ("10.81.2.9", "10.81.2.8"),
            ("10.81.2.9", "127.0.0.1"),
            ("10.81.2.9", "192.0.2.1"),
        ] {
            assert!(!plan.admits(0, &ends(client, server)), "{client} to {server}");
        }
        assert_eq!(plan.site_of("10.81.3.1".parse().unwrap()), Some(1));
        assert_eq!(plan.site_of("10.81.3.2".parse().unwrap()), None);
    }

    #[test]
    fn connections_go_on_with_another_key_or_other_times_and_with_nothing_else() {
        let mut keys = plan();
        keys.sites[1].keys.push(PeerKey::new([9; 32]));
        keys.drain = Duration::ZERO;
        keys.connect = Duration::from_secs(1);
        assert!(keys != plan() && keys.keeps_connections(&plan()));
        let mut ports = keys.clone();
        ports.ports = vec![81];
        assert!(!ports.keeps_connections(&plan()));
        let mut fewer = keys;
        fewer.sites.pop();
        assert!(!fewer.keeps_connections(&plan()));
    }

    #[test]
    fn each_network_has_the_listener_of_its_site_and_version() {
        let diversion = plan().diversion(&[[40_001, 40_002], [40_003, 0]]);
        let listeners: Vec<(String, u16)> =
            diversion.takes.iter().map(|take| (take.to.to_string(), take.listener)).collect();
        let expected = [("10.81.2.0/24", 40_001), ("fd81:0:0:2::/64", 40_002), ("10.81.3.0/24", 40_003)];
        assert_eq!(listeners, expected.map(|(to, listener)| (to.to_owned(), listener)));
        let parts = ["10.81.2.128/25", "10.81.3.0/24", "10.81.9.0/24"].map(|part| part.parse().unwrap());
        let some = Plan { only: Some(parts.to_vec()), ..plan() }.diversion(&[[40_001, 40_002], [40_003, 0]]);
        let some: Vec<(String, u16)> =
            some.takes.iter().map(|take| (take.to.to_string(), take.listener)).collect();
        let expected = [("10.81.2.128/25", 40_001), ("10.81.3.0/24", 40_003)];
        assert_eq!(some, expected.map(|(to, listener)| (to.to_owned(), listener)));
        assert_eq!(diversion.exempt, ["10.81.2.1", "10.81.3.1"].map(|host| host.parse::<IpAddr>().unwrap()));
        assert_eq!((diversion.mark >> 16, diversion.queue), (MARK >> 16, None));
        let late = Plan { is_late: true, ..plan() };
        assert!(late.diversion(&[[40_001, 40_002], [40_003, 0]]).queue.is_some());
        assert_eq!(Plan { ports: Vec::new(), ..late }.queue(), None);
    }
}
