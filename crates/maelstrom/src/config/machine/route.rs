//! Interfaces and routes, as netlink reports them.

use std::net::IpAddr;

use ipnet::IpNet;

/// A network interface.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) mtu: u32,
    pub(super) up: bool,
    pub(super) carrier: bool,
    pub(super) loopback: bool,
    pub(super) bridge: bool,
    /// Whether it is a TUN device, as those of tunnels are.
    pub(super) tun: bool,
    /// Index of the bridge, bond or VRF that it is a port of.
    pub(super) master: Option<u32>,
    /// Index of the interface that carries it, as the card does for a VLAN.
    pub(super) carrier_index: Option<u32>,
    pub(super) addresses: Vec<IpAddr>,
}

/// Returns the interfaces below another one: the ports of a bridge or bond, the card of a VLAN, and those
/// below these.
pub(super) fn below<'a>(interfaces: &'a [Interface], name: &str) -> Vec<&'a Interface> {
    let mut found: Vec<&Interface> = interfaces.iter().filter(|one| one.name == name).collect();
    let mut next = 0;
    while let Some(&upper) = found.get(next) {
        next += 1;
        for lower in interfaces {
            let is_below = lower.master == Some(upper.index) || upper.carrier_index == Some(lower.index);
            if is_below && found.iter().all(|known| known.index != lower.index) {
                found.push(lower);
            }
        }
    }
    found.drain(..found.len().min(1));
    found
}

/// The kernel's route to a destination.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) interface: String,
    pub(super) gateway: Option<IpAddr>,
    /// The route's own MTU, if it has one.
    pub(super) mtu: Option<u32>,
}

/// A route of the main table to a network of a peer in tunnel mode, or to a part of one.
#[derive(Clone, Debug)]
pub(super) struct TableRoute {
    pub(super) network: IpNet,
    pub(super) metric: u32,
    /// Number of the program that has set it.
    pub(super) protocol: u8,
    /// The interfaces by which packets leave; none if they are answered as unreachable, or dropped.
    pub(super) interfaces: Vec<String>,
}
