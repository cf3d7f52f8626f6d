//! A far site: whether connections to it are taken, and the listeners that take them.
//!
//! A listener exists only while a carrier to the far gateway works and there is room for connections.
//! Otherwise nobody listens at its port, and the kernel forwards connections unsplit.

use std::io;
use std::net::TcpListener;

use netio::transparent;
use tracing::warn;

use super::flow::Moved;

/// The listeners for connections to one far site.
#[derive(Debug)]
pub(super) struct Site {
    /// For IPv4 and IPv6. `None` while connections go unsplit.
    pub(super) listeners: [Option<TcpListener>; 2],
    /// Their ports; 0 for an IP version that the site or this machine does not have.
    pub(super) ports: [u16; 2],
    pub(super) next_dial_us: u64,
    /// The reason of the last failure that the operator was told.
    pub(super) told: Option<String>,
    /// Whether the operator was told that connections are split.
    pub(super) is_told_up: bool,
    /// Time until which the far gateway counts as full.
    pub(super) far_full_until_us: u64,
    /// Why new connections go unsplit; `None` if they are split.
    pub(super) unsplit: Option<Unsplit>,
    pub(super) moved: Moved,
    /// Segments that were sent again on carriers, and to hosts of this site.
    pub(super) retransmits_wan: u64,
    pub(super) retransmits_lan: u64,
    /// Shortest round-trip time of the carriers of late, in microseconds.
    pub(super) rtt_min_us: Option<u64>,
}

/// Why new connections to a site go unsplit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsplit {
    #[error("`ports` names none")]
    Unwanted,
    #[error("no carrier works")]
    Carrier,
    #[error("the far gateway stops")]
    FarStops,
    #[error("this gateway stops")]
    Stops,
    #[error("the buffer has no room for more connections")]
    Full,
    #[error("the far gateway has no room for more connections")]
    FarFull,
    #[error("first packets of connections come too fast")]
    Flood,
    #[error("the system has no open files or no memory left")]
    Exhausted,
    #[error("nobody can listen for connections")]
    Listener,
}

impl Site {
    /// Finds a port for each IP version that the site has, and does not listen yet.
    pub(super) fn new(versions: [bool; 2]) -> io::Result<Self> {
        let mut ports = [0; 2];
        for (v6, port) in ports.iter_mut().enumerate().filter(|&(v6, _)| versions[v6]) {
            match transparent::listen(v6 == 1, 0).and_then(|listener| listener.local_addr()) {
                Ok(address) => *port = address.port(),
                Err(error) if v6 == 1 => warn!("no connection over IPv6 is split: {error}"),
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            listeners: [None, None],
            ports,
            next_dial_us: 0,
            told: None,
            is_told_up: false,
            far_full_until_us: 0,
            unsplit: Some(Unsplit::Carrier),
            moved: Moved::default(),
            retransmits_wan: 0,
            retransmits_lan: 0,
            rtt_min_us: None,
        })
    }

    pub(super) fn is_listening(&self) -> bool {
        self.listeners.iter().any(Option::is_some)
    }

    /// Begins to take connections.
    pub(super) fn listen(&mut self) -> io::Result<()> {
        for (v6, &port) in self.ports.iter().enumerate() {
            if port > 0 && self.listeners[v6].is_none() {
                self.listeners[v6] = Some(transparent::listen(v6 == 1, port)?);
            }
        }
        Ok(())
    }

    /// Takes no more connections.
    pub(super) fn fall_silent(&mut self) {
        self.listeners = [None, None];
    }
}
