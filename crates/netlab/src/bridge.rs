//! Hosts on one bridge: a local network on which multicast reaches every host.
//!
//! ```text
//! host 0  eth0 ── port0 ┐
//! host 1  eth0 ── port1 ┼─ br0      10.88.0.1, 10.88.0.2 …   (10.88.0.0/16)
//!    …                  │           fd88::1,   fd88::2 …     (fd88::/64)
//! ```
//!
//! The bridge has a namespace of its own, without addresses: it is the switch, and its ports count the
//! traffic on the wires. Every host knows the hardware addresses of the others from the start. So the wires
//! carry no address resolution, only what the hosts send, and the kernel's neighbor table, which all
//! namespaces share, does not overflow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::error::LabError;
use crate::namespace::{DeviceCounters, Namespace, Route};

/// Interface of a host.
pub const HOST: &str = "eth0";

const BRIDGE: &str = "br0";
const HOSTS_MAX: u8 = 64;

/// Settings of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeLanConfig {
    /// Number of hosts, 1 to 64.
    pub hosts: u8,
    /// Size of the largest packet in bytes.
    pub mtu: u32,
    /// Whether the bridge sends multicast only to ports with members. Without a querier, and this network has
    /// none, it forgets them after a few minutes.
    pub snooping: bool,
    /// Whether super-packets stay whole on the wire. Otherwise every packet on the wire is one that a real
    /// wire could carry.
    pub super_packets: bool,
}

impl Default for BridgeLanConfig {
    /// Returns eight hosts, 1500 bytes, multicast to all ports, no super-packets.
    fn default() -> Self {
        Self { hosts: 8, mtu: 1500, snooping: false, super_packets: false }
    }
}

/// Hosts and the bridge between them. All of it vanishes when this is dropped, or with the process.
///
/// ```
/// # fn main() -> Result<(), netlab::LabError> {
/// # if !netlab::privilege::namespaces_or_skip("BridgeLan example") { return Ok(()); }
/// use netlab::bridge::{BridgeLan, BridgeLanConfig};
/// let lan = BridgeLan::build(&BridgeLanConfig { hosts: 3, ..BridgeLanConfig::default() })?;
/// let address = (lan.address_v4(2), 0);
/// let socket = lan.host(2).run(|| std::net::UdpSocket::bind(address)).unwrap();
/// # drop(socket); Ok(()) }
/// ```
#[derive(Debug)]
pub struct BridgeLan {
    hosts: Vec<Namespace>,
    switch: Namespace,
}

impl BridgeLan {
    /// Builds the network. On return every host reaches every other, by unicast and by multicast.
    ///
    /// # Errors
    /// If privilege is missing or a setting is out of range.
    pub fn build(config: &BridgeLanConfig) -> Result<Self, LabError> {
        if !(1..=HOSTS_MAX).contains(&config.hosts) {
            return Err(LabError::Invalid(format!(
                "expected 1 to {HOSTS_MAX} hosts on a bridge, saw {}",
                config.hosts
            )));
        }
        let switch = Namespace::create("bridge")?;
        // The switch itself sends nothing. A kernel without IPv6 lacks this setting.
        let _ = switch.sysctl("net.ipv6.conf.default.disable_ipv6", "1");
        switch.add_bridge(BRIDGE, config.mtu)?;
        switch.set_multicast_snooping(BRIDGE, config.snooping)?;
        let mut lan = Self { hosts: Vec::new(), switch };
        for index in 0..usize::from(config.hosts) {
            lan.add_host(index, config)?;
        }
        lan.introduce()?;
        Ok(lan)
    }

    fn add_host(&mut self, index: usize, config: &BridgeLanConfig) -> Result<(), LabError> {
        let host = Namespace::create(&format!("host-{index}"))?;
        // The network has no router.
        let _ = host.sysctl("net.ipv6.conf.default.router_solicitations", "0");
        let port = port(index);
        host.add_veth(HOST, &self.switch, &port, config.mtu)?;
        if !config.super_packets {
            host.set_segments_max(HOST, 1)?;
        }
        self.switch.set_bridge(&port, BRIDGE)?;
        for address in addresses(index) {
            host.add_address(HOST, address)?;
        }
        // A program that joins without naming an interface gets that of the route. IPv6 has such a route on
        // each device.
        let multicast = IpNet::new_assert(Ipv4Addr::new(224, 0, 0, 0).into(), 4);
        host.add_route(&Route::to(multicast).interface(HOST))?;
        self.hosts.push(host);
        Ok(())
    }

    /// Adds the hardware addresses of all hosts to every host.
    fn introduce(&self) -> Result<(), LabError> {
        let mut cards = Vec::new();
        for (index, host) in self.hosts.iter().enumerate() {
            let card = host.hardware_address(HOST)?;
            cards.extend(addresses(index).map(|address| (index, address.addr(), card)));
        }
        for (index, host) in self.hosts.iter().enumerate() {
            let others: Vec<_> = cards
                .iter()
                .filter(|(of, ..)| *of != index)
                .map(|&(_, address, card)| (address, card))
                .collect();
            host.add_neighbours(HOST, &others)?;
        }
        Ok(())
    }

    /// Returns the number of hosts.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Returns false: a bridge has at least one host.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Returns a host, counted from 0.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn host(&self, index: usize) -> &Namespace {
        &self.hosts[index]
    }

    /// Returns the namespace of the bridge.
    pub fn switch(&self) -> &Namespace {
        &self.switch
    }

    /// Returns the IPv4 address of a host, counted from 0.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn address_v4(&self, index: usize) -> IpAddr {
        self.addresses(index)[0].addr()
    }

    /// Returns the IPv6 address of a host, counted from 0.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn address_v6(&self, index: usize) -> IpAddr {
        self.addresses(index)[1].addr()
    }

    /// Returns the networks of all hosts, IPv4 and IPv6.
    pub fn networks(&self) -> [IpNet; 2] {
        self.addresses(0).map(|address| address.trunc())
    }

    fn addresses(&self, index: usize) -> [IpNet; 2] {
        assert!(index < self.hosts.len(), "expected a host below {}, saw {index}", self.hosts.len());
        addresses(index)
    }

    /// Returns the traffic of each host's wire as counted by the bridge: "received" is what the host sent.
    ///
    /// Bytes include the Ethernet header, but not the overhead of a real wire (preamble, checksum, gap: 24
    /// bytes per packet).
    ///
    /// # Errors
    /// If the kernel does not return its counters.
    pub fn wires(&self) -> Result<Vec<DeviceCounters>, LabError> {
        let all = self.switch.device_counters()?;
        let of = |index| {
            let name = port(index);
            let found = all.iter().find(|(device, _)| *device == name).map(|(_, counters)| *counters);
            found.ok_or_else(|| LabError::Invalid(format!("expected port {name} of the bridge, saw none")))
        };
        (0..self.hosts.len()).map(of).collect()
    }

    /// Returns the sum of all wires. A unicast packet counts on two wires, a multicast packet on every one.
    ///
    /// # Errors
    /// If the kernel does not return its counters.
    pub fn wires_total(&self) -> Result<DeviceCounters, LabError> {
        Ok(self.wires()?.into_iter().fold(DeviceCounters::default(), DeviceCounters::plus))
    }
}

fn port(index: usize) -> String {
    format!("port{index}")
}

/// Returns `10.88.0.N/16` and `fd88::N/64`, with N counted from 1.
fn addresses(index: usize) -> [IpNet; 2] {
    let number = u16::try_from(index + 1).unwrap_or(u16::MAX);
    let [high, low] = number.to_be_bytes();
    let v4 = IpAddr::from(Ipv4Addr::new(10, 88, high, low));
    let v6 = IpAddr::from(Ipv6Addr::new(0xfd88, 0, 0, 0, 0, 0, 0, number));
    [IpNet::new_assert(v4, 16), IpNet::new_assert(v6, 64)]
}
