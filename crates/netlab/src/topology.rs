//! Two sites with a long-haul link between their gateways.
//!
//! ```text
//! host 1 ─┐                                          ┌─ host 1
//! host 2 ─┼─ lan0  gateway A  wan0 ══ link ══ wan0  gateway B  lan0 ─┼─ host 2
//!    …    │                                          │     …
//!    10.81.1.0/24          10.81.9.0/24            10.81.2.0/24
//!    fd81:0:0:1::/64       fd81:0:0:9::/64         fd81:0:0:2::/64
//! ```
//!
//! A gateway is `.1` of its site (`10.81.1.1`), and hosts count from `.2`. On the link, gateway A is `.1` and
//! gateway B `.2`. The interface of a host is `eth0`. A single host is joined to its gateway by a cable,
//! several by a bridge.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::emulator::{Emulator, EmulatorConfig};
use crate::error::LabError;
use crate::namespace::{Namespace, Route};

/// Interface of a gateway toward the long-haul link, unless the link's settings name another.
pub const WAN: &str = "wan0";
/// Interface of a gateway toward its site.
pub const LAN: &str = "lan0";
/// Interface of a host.
pub const HOST: &str = "eth0";

const HOSTS_MAX: u8 = 250;
const LINK_SITE: u8 = 9;

/// Settings of the two sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwoSitesConfig {
    /// Hosts in each site, 1 to 250.
    pub hosts: u8,
    /// Size of the largest packet inside a site, in bytes. It is smaller than the link's, so that repairs
    /// fit.
    pub lan_mtu: u32,
    /// Maximum size of TCP buffers in hosts, in bytes.
    pub tcp_buffer_max: u64,
}

impl Default for TwoSitesConfig {
    /// Returns one host each, 1300 bytes, 128 MiB (twice the data in flight and queued at 50 ms one way and 4
    /// Gbit/s).
    fn default() -> Self {
        Self { hosts: 1, lan_mtu: 1300, tcp_buffer_max: 128 << 20 }
    }
}

/// Two sites and the link between them. All of it vanishes when this is dropped.
#[derive(Debug)]
pub struct TwoSites {
    /// The long-haul link; first, so that it is dropped before the sites.
    pub link: Emulator,
    /// Site A, 10.81.1.0/24.
    pub a: Site,
    /// Site B, 10.81.2.0/24.
    pub b: Site,
}

/// A site.
#[derive(Debug)]
pub struct Site {
    /// Router between the site and the link.
    pub gateway: Namespace,
    /// Hosts behind it, at least one.
    pub hosts: Vec<Namespace>,
    number: u8,
}

impl TwoSites {
    /// Builds both sites and the link. On return, hosts of one site reach those of the other.
    ///
    /// # Errors
    /// If privilege is missing or a setting is out of range.
    pub fn build(config: &TwoSitesConfig, link: &EmulatorConfig) -> Result<Self, LabError> {
        if !(1..=HOSTS_MAX).contains(&config.hosts) {
            return Err(LabError::Invalid(format!(
                "expected 1 to {HOSTS_MAX} hosts in a site, saw {}",
                config.hosts
            )));
        }
        let (a, b) = (Site::build("a", 1, config)?, Site::build("b", 2, config)?);
        let emulator = Emulator::start(&a.gateway, &b.gateway, link)?;
        for (near, far) in [(&a, &b), (&b, &a)] {
            near.join_link(&link.interface, far, config.lan_mtu)?;
        }
        Ok(Self { link: emulator, a, b })
    }
}

impl Site {
    fn build(name: &str, number: u8, config: &TwoSitesConfig) -> Result<Self, LabError> {
        let gateway = Namespace::create(&format!("gateway-{name}"))?;
        let mut site = Self { gateway, hosts: Vec::new(), number };
        site.set_up_gateway()?;
        if config.hosts > 1 {
            site.gateway.add_bridge(LAN, config.lan_mtu)?;
        }
        for index in 0..config.hosts {
            let host = Namespace::create(&format!("host-{name}{}", index + 1))?;
            let port = if config.hosts > 1 { format!("{LAN}p{}", index + 1) } else { LAN.to_owned() };
            host.add_veth(HOST, &site.gateway, &port, config.lan_mtu)?;
            if config.hosts > 1 {
                site.gateway.set_bridge(&port, LAN)?;
            }
            site.hosts.push(host);
        }
        for address in site.gateway_addresses() {
            site.gateway.add_address(LAN, address)?;
        }
        for index in 0..site.hosts.len() {
            site.set_up_host(index, config)?;
        }
        Ok(site)
    }

    fn set_up_gateway(&self) -> Result<(), LabError> {
        for (key, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            // Loose filtering: a source must be reachable by any interface. A gateway may hand recovered
            // packets to the kernel by another device than the link's.
            ("net.ipv4.conf.all.rp_filter", "2"),
            ("net.ipv4.conf.default.rp_filter", "2"),
            ("net.ipv4.conf.all.send_redirects", "0"),
            ("net.ipv4.conf.default.send_redirects", "0"),
        ] {
            self.gateway.sysctl(key, value)?;
        }
        Ok(())
    }

    fn set_up_host(&self, index: usize, config: &TwoSitesConfig) -> Result<(), LabError> {
        let host = &self.hosts[index];
        for (key, value) in [
            ("net.ipv4.tcp_rmem", format!("4096 131072 {}", config.tcp_buffer_max)),
            ("net.ipv4.tcp_wmem", format!("4096 16384 {}", config.tcp_buffer_max)),
            // Every transfer starts without metrics of earlier ones.
            ("net.ipv4.tcp_no_metrics_save", "1".to_owned()),
        ] {
            host.sysctl(key, &value)?;
        }
        for (address, gateway) in self.host_addresses(index).into_iter().zip(self.gateway_addresses()) {
            host.add_address(HOST, address)?;
            let everywhere = if gateway.addr().is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            let everywhere = everywhere.parse().map_err(|_| LabError::Invalid(everywhere.to_owned()))?;
            host.add_route(&Route::to(everywhere).via(gateway.addr()).mtu(config.lan_mtu))?;
        }
        Ok(())
    }

    fn join_link(&self, interface: &str, far: &Self, lan_mtu: u32) -> Result<(), LabError> {
        let (ours, theirs) = (self.link_addresses(), far.link_addresses());
        for address in ours {
            self.gateway.add_address(interface, address)?;
        }
        for (network, next_hop) in far.gateway_addresses().into_iter().zip(theirs) {
            self.gateway
                .add_route(&Route::to(network).via(next_hop.addr()).interface(interface).mtu(lan_mtu))?;
        }
        Ok(())
    }

    /// Returns the IPv4 address of a host, counted from 0.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn host_v4(&self, index: usize) -> IpAddr {
        self.host_addresses(index)[0].addr()
    }

    /// Returns the IPv6 address of a host, counted from 0.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn host_v6(&self, index: usize) -> IpAddr {
        self.host_addresses(index)[1].addr()
    }

    /// Returns the gateway's IPv4 address on the link.
    pub fn wan_v4(&self) -> IpAddr {
        self.link_addresses()[0].addr()
    }

    /// Returns the gateway's IPv6 address on the link.
    pub fn wan_v6(&self) -> IpAddr {
        self.link_addresses()[1].addr()
    }

    /// Returns the site's networks, IPv4 and IPv6.
    pub fn networks(&self) -> [IpNet; 2] {
        self.gateway_addresses().map(|address| address.trunc())
    }

    fn gateway_addresses(&self) -> [IpNet; 2] {
        addresses(self.number, 1)
    }

    fn link_addresses(&self) -> [IpNet; 2] {
        addresses(LINK_SITE, self.number)
    }

    fn host_addresses(&self, index: usize) -> [IpNet; 2] {
        assert!(index < self.hosts.len(), "expected a host below {}, saw {index}", self.hosts.len());
        addresses(self.number, u8::try_from(index).map_or(u8::MAX, |index| index + 2))
    }
}

/// Returns `10.81.SITE.HOST/24` and `fd81:0:0:SITE::HOST/64`.
fn addresses(site: u8, host: u8) -> [IpNet; 2] {
    let v4 = IpAddr::from(Ipv4Addr::new(10, 81, site, host));
    let v6 = IpAddr::from(Ipv6Addr::new(0xfd81, 0, 0, site.into(), 0, 0, 0, host.into()));
    [IpNet::new_assert(v4, 24), IpNet::new_assert(v6, 64)]
}
