//! Hosts on one bridge: a local network on which multicast reaches everybody.
//!
//! ```text
//! host 0  eth0 ── port0 ┐
//! host 1  eth0 ── port1 ┼─ br0      10.88.0.1, 10.88.0.2 …   (10.88.0.0/16)
//!    …                  │           fd88::1,   fd88::2 …     (fd88::/64)
//! ```
//!
//! The bridge is in a namespace of its own, without addresses: it is the switch, and its ports count what the wires
//! carry. Every host knows the hardware addresses of the others from the start: nobody asks for them, so the wires carry
//! what the hosts send and no more, and the kernel's table of neighbours, which is one for all namespaces, does not
//! overflow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::namespace::{DeviceCounters, Route};
use crate::{LabError, Namespace};

/// The interface of a host.
pub const HOST: &str = "eth0";

const BRIDGE: &str = "br0";
const HOSTS_MAX: u8 = 64;

/// What the network is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeLanConfig {
    /// Hosts on the bridge, 1 to 64.
    pub hosts: u8,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Whether the bridge sends multicast only to ports behind which it heard a member. Without a querier on the
    /// network, which there is not, it forgets them after a few minutes.
    pub snooping: bool,
    /// Whether hosts may hand over super-packets that stay whole on the wire. Without, every packet on the wire is one
    /// that a real wire could carry.
    pub super_packets: bool,
}

impl Default for BridgeLanConfig {
    /// Eight hosts, 1500 bytes, multicast to all ports, no super-packets.
    fn default() -> Self {
        Self { hosts: 8, mtu: 1500, snooping: false, super_packets: false }
    }
}

/// Hosts and the bridge between them; all of it vanishes when this is dropped, or with the process.
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
    /// Builds the network; when this returns, every host reaches every other, by unicast and by multicast.
    ///
    /// # Errors
    /// When privilege is missing or a setting is out of range.
    pub fn build(config: &BridgeLanConfig) -> Result<Self, LabError> {
        if !(1..=HOSTS_MAX).contains(&config.hosts) {
            return Err(LabError::Invalid(format!(
                "expected 1 to {HOSTS_MAX} hosts on a bridge, got {}",
                config.hosts
            )));
        }
        let switch = Namespace::create("bridge")?;
        // A switch says nothing itself. A kernel without IPv6 has no such setting.
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
        // There is no router to look for.
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
        // Who joins without naming an interface is given that of the route. IPv6 has such a route on each device.
        let multicast = IpNet::new_assert(Ipv4Addr::new(224, 0, 0, 0).into(), 4);
        host.add_route(&Route::to(multicast).interface(HOST))?;
        self.hosts.push(host);
        Ok(())
    }

    /// Tells every host the hardware addresses of all.
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

    /// How many hosts there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Never: a bridge has one host at least.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// A host, counted from 0.
    ///
    /// # Panics
    /// When there is no such host.
    #[must_use]
    pub fn host(&self, index: usize) -> &Namespace {
        &self.hosts[index]
    }

    /// The namespace of the bridge.
    #[must_use]
    pub fn switch(&self) -> &Namespace {
        &self.switch
    }

    /// The IPv4 address of a host, counted from 0.
    ///
    /// # Panics
    /// When there is no such host.
    #[must_use]
    pub fn address_v4(&self, index: usize) -> IpAddr {
        self.addresses(index)[0].addr()
    }

    /// The IPv6 address of a host, counted from 0.
    ///
    /// # Panics
    /// When there is no such host.
    #[must_use]
    pub fn address_v6(&self, index: usize) -> IpAddr {
        self.addresses(index)[1].addr()
    }

    /// The networks of all hosts, IPv4 and IPv6.
    #[must_use]
    pub fn networks(&self) -> [IpNet; 2] {
        self.addresses(0).map(|address| address.trunc())
    }

    fn addresses(&self, index: usize) -> [IpNet; 2] {
        assert!(index < self.hosts.len(), "the bridge has {} hosts, asked for {index}", self.hosts.len());
        addresses(index)
    }

    /// What the wire of each host has carried so far, as the bridge sees it: received is what the host sent.
    ///
    /// Bytes count the Ethernet header, not what a real wire adds to it (preamble, checksum, gap: 24 bytes a packet).
    ///
    /// # Errors
    /// When the kernel does not give its counters.
    pub fn wires(&self) -> Result<Vec<DeviceCounters>, LabError> {
        let all = self.switch.device_counters()?;
        let of = |index| {
            let name = port(index);
            let found = all.iter().find(|(device, _)| *device == name).map(|(_, counters)| *counters);
            found.ok_or_else(|| LabError::Invalid(format!("the port {name} of the bridge has gone")))
        };
        (0..self.hosts.len()).map(of).collect()
    }

    /// The sum of all wires. A unicast packet counts on two wires, a multicast packet on every one.
    ///
    /// # Errors
    /// When the kernel does not give its counters.
    pub fn wires_total(&self) -> Result<DeviceCounters, LabError> {
        Ok(self.wires()?.into_iter().fold(DeviceCounters::default(), DeviceCounters::plus))
    }
}

fn port(index: usize) -> String {
    format!("port{index}")
}

/// `10.88.0.N/16` and `fd88::N/64`, N counted from 1.
fn addresses(index: usize) -> [IpNet; 2] {
    let number = u16::try_from(index + 1).unwrap_or(u16::MAX);
    let [high, low] = number.to_be_bytes();
    let v4 = IpAddr::from(Ipv4Addr::new(10, 88, high, low));
    let v6 = IpAddr::from(Ipv6Addr::new(0xfd88, 0, 0, 0, 0, 0, 0, number));
    [IpNet::new_assert(v4, 16), IpNet::new_assert(v6, 64)]
}
