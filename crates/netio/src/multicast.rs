//! The sockets of a multicast node, IPv4 and IPv6.
//!
//! | socket | what passes through it |
//! |---|---|
//! | [`GroupSocket`] | every multicast datagram to the port that all nodes share |
//! | [`OwnSocket`] | what is for this node alone; and all that it sends, by its [`Sending`] half |
//! | [`Joiner`] | nothing: its sockets hold the memberships |
//!
//! A datagram costs as much time as the socket that receives it has memberships, so the group socket has none: the
//! kernel hands it what anyone on this host has joined. Others on this host may have joined other IP groups; their
//! datagrams to the same port arrive too.

mod group;
mod joiner;
mod limits;
mod own;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use crate::batch::{Outbox, PIECES_MAX, Sending, UdpCounts};
pub use group::GroupSocket;
pub use joiner::{JoinError, Joiner};
pub use limits::{BridgeFacts, BufferLimits, InterfaceFacts, Limits};
pub use own::{OwnConfig, OwnSocket};

use crate::interface::Interface;

/// Most datagrams that one receive of a [`GroupSocket`] or [`OwnSocket`] hands over.
pub const RECEIVED_MAX: usize = crate::batch::receive::RECEIVED_MAX;
/// Most bytes that these hold together.
pub const RECEIVED_BYTES_MAX: usize = crate::batch::receive::RECEIVED_BYTES_MAX;

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
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn wildcard(self, port: u16) -> SocketAddr {
        match self {
            Self::V4 => (Ipv4Addr::UNSPECIFIED, port).into(),
            Self::V6 => (Ipv6Addr::UNSPECIFIED, port).into(),
        }
    }
}

/// What a socket received and what it did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveCounts {
    /// Datagrams handed over.
    pub received: u64,
    /// Arrivals that the kernel dropped because the socket's buffer was full. The kernel counts a merged train once,
    /// and tells with the next datagram only.
    pub overflowed: u64,
    /// Datagrams dropped because they were sent to this host alone (group socket).
    pub not_multicast: u64,
    /// Datagrams dropped because they came by another interface (group socket).
    pub other_interface: u64,
    /// Arrivals dropped because they or what the kernel tells of them had no room.
    pub truncated: u64,
    /// Receives that the kernel refused for a reason that passes: an interface down, memory short, news of a datagram
    /// that did not arrive elsewhere.
    pub failed: u64,
}

impl ReceiveCounts {
    /// Counts an error that passes by itself, after which more may wait; any other stays one.
    fn survive(&mut self, received: io::Result<bool>) -> io::Result<bool> {
        received.or_else(|error| {
            if !is_passing(&error) {
                return Err(error);
            }
            self.failed += 1;
            Ok(true)
        })
    }
}

/// Whether a socket that says so goes on all the same.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EINTR
                | libc::ENOBUFS
                | libc::ENOMEM
                | libc::ENETDOWN
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::EHOSTUNREACH
                | libc::ECONNREFUSED
                | libc::ECONNRESET
                | libc::EMSGSIZE
                | libc::EACCES
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::ENONET
        )
    )
}

/// Why a socket could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such interface.
    #[error("expected an interface of this host (`ip link` lists them), saw {name:?}: {source}")]
    Interface {
        /// As it was given.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A port of the kernel's choosing would be known to nobody else.
    #[error("expected the port that all nodes share, saw 0")]
    NoPort,
    /// Somebody has the port and does not share it.
    #[error("expected UDP port {} to be free or shared, saw a program that has it for itself (`ss -ulnp` tells which)", .0.port())]
    PortTaken(SocketAddr),
    /// The address is not ours.
    #[error("expected an address of this host (`ip address` lists them), saw {}", .0.ip())]
    Address(SocketAddr),
    /// Ports below 1024 are kept for root.
    #[error("expected a port that may be used without privilege (1024 and above), saw {}", .0.port())]
    Privileged(SocketAddr),
    /// Something else.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl OpenError {
    fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    fn bind(address: SocketAddr) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EADDRINUSE) => Self::PortTaken(address),
            Some(libc::EADDRNOTAVAIL) => Self::Address(address),
            Some(libc::EACCES) => Self::Privileged(address),
            _ => Self::System { what: "bind a UDP socket", source },
        }
    }
}

impl fmt::Display for IpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::V4 { "IPv4" } else { "IPv6" })
    }
}

fn interface_of(name: &str) -> Result<Interface, OpenError> {
    Interface::open(name).map_err(|source| OpenError::Interface { name: name.to_owned(), source })
}
