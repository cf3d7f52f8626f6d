//! Passes the kernel's path MTU of each peer to the core. Routers lower it by messages that the repair socket
//! ignores.

use std::iter;

use netio::udp;
use tracing::trace;

use crate::config::{Peer, PeerPath};
use crate::passive::Passive;

/// Interval between questions to the kernel.
const ASK_US: u64 = 100_000;

impl Passive {
    /// Asks the kernel for the MTU of the path to each peer.
    pub(crate) fn follow_path_mtu(&mut self) {
        let now_us = self.engine.now_us;
        if now_us < self.next_path_mtu_us {
            return;
        }
        self.next_path_mtu_us = now_us + ASK_US;
        let from = self.config.gateway.listen.ip();
        let known = |peer: &&Peer| !peer.address.ip().is_unspecified();
        for (index, peer) in self.config.peers.iter().enumerate().filter(|(_, peer)| known(peer)) {
            let stated = |path: &PeerPath| Some((path.local.map_or(from, |local| local.ip()), path.address?));
            let further = peer.paths.iter().filter_map(stated);
            let paths = iter::once((from, peer.address)).chain(further);
            let known = paths.filter_map(|(from, to)| {
                udp::path_mtu(from, to).inspect_err(|error| trace!(%error, "no path MTU")).ok()
            });
            // Of several paths the narrowest counts, because a datagram may take any of them.
            if let Some(mtu) = known.min() {
                self.engine.gateway.handle_path_mtu(now_us, index, mtu as usize);
            }
        }
    }
}
