//! The two ends of the traffic.

use std::net::IpAddr;

use crate::namespace::Namespace;

/// The two ends of the traffic.
#[derive(Clone, Copy, Debug)]
pub struct Between<'a> {
    /// Namespace of the host that connects and sends.
    pub from: &'a Namespace,
    /// Namespace of the host that listens and receives.
    pub to: &'a Namespace,
    /// Address of the receiving host.
    pub address: IpAddr,
}
