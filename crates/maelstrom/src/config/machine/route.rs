//! Interfaces and routes, as netlink reports them.

use std::net::IpAddr;

/// A network interface.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) mtu: u32,
    pub(super) up: bool,
    pub(super) carrier: bool,
    pub(super) loopback: bool,
    pub(super) addresses: Vec<IpAddr>,
}

/// The kernel's route to a destination.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) interface: String,
    pub(super) gateway: Option<IpAddr>,
    /// The route's own MTU, if it has one.
    pub(super) mtu: Option<u32>,
}
