//! Errors of opening a socket.

use std::io;
use std::net::SocketAddr;

use crate::interface::Interface;

/// Reason why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such interface.
    #[error("expected an interface of this host (`ip link` lists them), saw {name:?}: {source}")]
    Interface {
        /// Name as given.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Port 0: a port chosen by the kernel would be unknown to the other nodes.
    #[error("expected the port that all nodes share, saw 0")]
    NoPort,
    /// Another program has the port and does not share it.
    #[error("expected UDP port {} to be free or shared, saw a program that holds it exclusively (`ss -ulnp` shows which)", .0.port())]
    PortTaken(SocketAddr),
    /// The address does not belong to this host.
    #[error("expected an address of this host (`ip address` lists them), saw {}", .0.ip())]
    Address(SocketAddr),
    /// Ports below 1024 are reserved for root.
    #[error("expected a port of 1024 or above, which needs no privilege, saw {}", .0.port())]
    Privileged(SocketAddr),
    /// Another error.
    #[error("cannot {what}: {source}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl OpenError {
    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    pub(super) fn bind(address: SocketAddr) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EADDRINUSE) => Self::PortTaken(address),
            Some(libc::EADDRNOTAVAIL) => Self::Address(address),
            Some(libc::EACCES) => Self::Privileged(address),
            _ => Self::System { what: "bind a UDP socket", source },
        }
    }
}

pub(super) fn interface_of(name: &str) -> Result<Interface, OpenError> {
    Interface::open(name).map_err(|source| OpenError::Interface { name: name.to_owned(), source })
}
