//! Passes the kernel's path MTU of each peer to the core. Routers lower it by messages that the repair socket
//! ignores.

use std::iter;

use netio::udp;
use tracing::trace;

use crate::config::PeerPath;
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
        let (from, by) = (self.config.gateway.listen.ip(), &self.config.gateway.listen_interface);
        for (index, peer) in self.config.peers.iter().enumerate() {
            let first = Some(peer.address).filter(|address| !address.ip().is_unspecified());
            let stated = |path: &PeerPath| {
                let (local, by) = path.local.map_or((from, by), |local| (local.ip(), &path.interface));
                Some((local, path.address.fixed()?, by.clone()))
            };
            let first = first.map(|to| (from, to, by.clone()));
            let paths = iter::once(first).chain(peer.paths.iter().map(stated));
            for (path, (from, to, by)) in paths.enumerate().filter_map(|(path, ends)| Some((path, ends?))) {
                match udp::path_mtu(from, to, by.as_deref()) {
                    Ok(mtu) => self.engine.gateway.handle_path_mtu(now_us, (index, path), mtu as usize),
                    Err(error) => trace!(%error, "no path MTU"),
                }
            }
        }
    }
}
