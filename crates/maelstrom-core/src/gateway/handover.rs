//! The hand-over of all sessions to another process of this gateway.

use super::Gateway;
use crate::config::Whereabouts;
use crate::handover::PeerHandover;
use crate::outbox::Outbox;
use crate::peer::Peer;

impl Gateway {
    /// Asks the peers for new streams, which another process will decode: it has begun to watch all packets
    /// that arrive ([`Gateway::watch_for`]).
    pub fn begin_handover(&mut self, now_us: u64) {
        let entropy = &mut |bytes: &mut [u8]| self.entropy.fill(bytes);
        self.peers.iter_mut().for_each(|peer| peer.begin_handover(now_us, entropy));
    }

    /// Whether all peers that are up have begun their new streams.
    pub fn may_hand_over(&self) -> bool {
        self.peers.iter().all(Peer::may_hand_over)
    }

    /// Sends packets and repairs that wait, at the end of the stream to a peer. The outbox must be empty.
    pub fn finish_stream(&mut self, now_us: u64, peer: usize, out: &mut Outbox) {
        self.peers[peer].finish_stream(now_us, out);
    }

    /// Hands on packets of a peer that are held, and of a tunnel those that held repairs recover, as far as
    /// the outbox has room; returns whether there are more.
    pub fn release_held(&mut self, now_us: u64, peer: usize, out: &mut Outbox) -> bool {
        self.peers[peer].release_held(now_us, out)
    }

    /// Returns the sessions of the peers that are up, for [`Gateway::watch_for`].
    pub fn describe_sessions(&self) -> Vec<PeerHandover> {
        self.peers.iter().filter_map(Peer::describe).collect()
    }

    /// Returns the sessions of the peers that are up, for [`Gateway::resume`]. From here on, this gateway
    /// sends nothing, unless it takes them back.
    pub fn hand_over(&self) -> Vec<PeerHandover> {
        self.peers.iter().filter_map(Peer::hand_over).collect()
    }

    /// Goes on alone, because the other process has failed before [`Gateway::hand_over`].
    pub fn cancel_handover(&mut self, now_us: u64) {
        let entropy = &mut |bytes: &mut [u8]| self.entropy.fill(bytes);
        self.peers.iter_mut().for_each(|peer| peer.cancel_handover(now_us, entropy));
    }

    /// Goes on alone, because the other process has failed after [`Gateway::hand_over`]: it has ended, and
    /// nobody knows what it sent. The peers that are up begin other sessions.
    pub fn take_back(&mut self) {
        let entropy = &mut |bytes: &mut [u8]| self.entropy.fill(bytes);
        self.peers.iter_mut().for_each(|peer| peer.take_back(entropy));
    }

    /// Watches the packets that arrive in the sessions of another process, in a gateway that has sent
    /// nothing. From here on, it is given all of them.
    pub fn watch_for(&mut self, now_us: u64, left: &[PeerHandover]) {
        self.find_sessions(left, |peer, left| peer.watch_for(now_us, left));
    }

    /// Continues the sessions of another process, and returns their number. Peers whose session is another
    /// one than at [`Gateway::watch_for`] begin again.
    pub fn resume(&mut self, now_us: u64, left: &[PeerHandover]) -> usize {
        self.find_sessions(left, |peer, left| peer.resume(now_us, left))
    }

    fn find_sessions(
        &mut self,
        left: &[PeerHandover],
        take: impl Fn(&mut Peer, &PeerHandover) -> bool,
    ) -> usize {
        let entropy = &mut |bytes: &mut [u8]| self.entropy.fill(bytes);
        let is_v6 = self.config.listen.is_ipv6();
        let mut found = 0;
        for (peer, config) in self.peers.iter_mut().zip(&mut self.config.peers) {
            let is_it = |left: &&PeerHandover| {
                (&left.networks, left.is_tunnel) == (&config.networks, config.is_tunnel)
                    && (!config.is_of_rack || left.address == config.address)
            };
            let left = left.iter().find(is_it);
            if let Some(left) = left.filter(|_| config.whereabouts != Whereabouts::Stated)
                && left.address.is_ipv6() == is_v6
            {
                config.address = left.address;
                peer.set_address(left.address);
            }
            if left.is_some_and(|left| take(peer, left)) {
                found += 1;
            } else {
                peer.forget_session(entropy);
            }
        }
        found
    }
}
