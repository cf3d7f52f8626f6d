//! The address of the peer, which may change while its session continues.

use std::net::SocketAddr;

use super::Peer;
use crate::channel::Trouble;

impl Peer {
    /// Changes the address that the peer is at.
    pub(crate) fn set_address(&mut self, address: SocketAddr) {
        self.config.address = address;
        self.path_mtu.restart();
        // The peer learns at once where we are.
        self.next_hello_us = 0;
    }

    /// Why the repair channel does not work.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        if self.config.has_address() { self.channel.trouble() } else { Some(Trouble::NoAddress) }
    }
}
