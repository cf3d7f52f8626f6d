//! The two versions of the Internet protocol.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Which Internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// That of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    pub(super) fn wildcard(self, port: u16) -> SocketAddr {
        match self {
            Self::V4 => (Ipv4Addr::UNSPECIFIED, port).into(),
            Self::V6 => (Ipv6Addr::UNSPECIFIED, port).into(),
        }
    }
}

impl fmt::Display for IpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::V4 { "IPv4" } else { "IPv6" })
    }
}
