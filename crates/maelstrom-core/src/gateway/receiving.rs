//! Datagrams that arrive on the repair channel: whose they are, and by which path they came.

use std::net::{Ipv4Addr, SocketAddr};

use super::Gateway;
use crate::config::{Inbound, Source};
use crate::counters::Rejected;
use crate::ecn::Ecn;
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::peer::paths::Arrival;
use crate::wire::{KeyPart, Outer, SealedHeader};

/// Minimum interval between attempts to find out which peer a Hello from an unknown address is of.
const STRAY_US: u64 = 100_000;

impl Gateway {
    /// Takes a datagram that arrived at `listen`, and decrypts it in place.
    pub fn handle_datagram(&mut self, now_us: u64, from: SocketAddr, datagram: &mut [u8], out: &mut Outbox) {
        self.handle_datagram_by(now_us, Source { door: 0, address: from }, datagram, out);
    }

    /// Takes a datagram that arrived on any socket of the repair channel, and decrypts it in place.
    pub fn handle_datagram_by(&mut self, now_us: u64, from: Source, datagram: &mut [u8], out: &mut Outbox) {
        let from = Inbound { source: from, ecn: Ecn::NotEct, arrived_us: now_us };
        self.handle_inbound(now_us, from, datagram, out);
    }

    /// The same for a datagram with a mark of congestion, which counts for the packets of a tunnel in it,
    /// that has waited for the gateway.
    pub fn handle_inbound(&mut self, now_us: u64, from: Inbound, datagram: &mut [u8], out: &mut Outbox) {
        let before = out.recovered.len();
        if let Err(reason) = self.receive(now_us, from, datagram, out) {
            self.rejected.add(reason);
        }
        self.share_recovered(now_us, before, out);
        self.count_recovered(before, out);
    }

    fn receive(
        &mut self,
        now_us: u64,
        from: Inbound,
        datagram: &mut [u8],
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let outer = Outer::read(datagram).inspect_err(|&reason| {
            if reason == Rejected::OtherVersion {
                self.on_other_version(now_us, from.source, datagram[0] >> 4);
            }
        })?;
        match outer {
            Outer::Sealed(header) => {
                let index = self.peers.iter().position(|peer| peer.has_epoch(header.epoch));
                let index = index.ok_or(Rejected::UnknownEpoch)?;
                self.receive_sealed(now_us, index, from, &header, datagram, out)
            }
            Outer::Hello(part) => self.receive_hello(now_us, from.source, part, datagram, out),
        }
    }

    /// Notes a datagram of another version, of which nothing shows that it is authentic. From an unknown
    /// address it may be of any peer that has not called from a known one.
    #[cold]
    fn on_other_version(&mut self, now_us: u64, from: Source, version: u8) {
        let is_known = self.peers.iter().any(|peer| peer.config.path_of(from).is_some());
        let may_be = |peer: &&mut Peer| match peer.config.path_of(from) {
            Some(_) => true,
            None => !is_known && peer.config.callable_at(from.door).is_some() && !peer.is_up(),
        };
        self.peers.iter_mut().filter(may_be).for_each(|peer| peer.on_other_version(now_us, version));
    }

    fn receive_sealed(
        &mut self,
        now_us: u64,
        index: usize,
        Inbound { source: from, ecn, arrived_us }: Inbound,
        header: &SealedHeader,
        datagram: &mut [u8],
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let config = &self.peers[index].config;
        let path = match config.path_of(from).or_else(|| config.movable_at(from.door)) {
            None if from.door > 0 => return Err(Rejected::UnknownSender),
            path => path.unwrap_or(0),
        };
        let may_move = config.callable_at(from.door).is_some();
        let place = if may_move { self.place_of(index, from.address) } else { None };
        let peer = &mut self.peers[index];
        let len = datagram.len();
        let arrival = Arrival { path, source: from, place, ecn, arrived_us: arrived_us.min(now_us) };
        let result = peer.handle_sealed(now_us, &arrival, header, datagram, out);
        if result == Err(Rejected::Replayed) && peer.paths.are_several() {
            peer.on_copy(path, len);
            return Ok(());
        }
        self.follow(index);
        result
    }

    fn receive_hello(
        &mut self,
        now_us: u64,
        from: Source,
        part: KeyPart,
        datagram: &mut [u8],
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let known = self.peers.iter().position(|peer| peer.config.path_of(from).is_some());
        let may_move = |peer: &Peer| peer.config.callable_at(from.door).is_some();
        let roamers = self.peers.iter().filter(|peer| may_move(peer)).count();
        let is_of = |index: &usize| roamers == 0 || self.peers[*index].opens(datagram);
        let index = match known.filter(is_of) {
            Some(index) => Some(index),
            // A NAT may have given the address of one peer to another.
            None if roamers > 0 && !self.attempts.take(now_us, roamers) => return Err(Rejected::Unopened),
            None => self.peers.iter().position(|peer| may_move(peer) && peer.opens(datagram)),
        };
        let Some(index) = index.or(known) else {
            self.find_sender(now_us, from, datagram);
            return Err(Rejected::UnknownSender);
        };
        let may_move = may_move(&self.peers[index]);
        let place = if may_move { self.place_of(index, from.address) } else { None };
        let (peer, entropy) = (&mut self.peers[index], &mut |bytes: &mut [u8]| self.entropy.fill(bytes));
        if peer.config.path_of(from).is_some() {
            return match peer.handle_hello(now_us, part, datagram, entropy, out) {
                // A Hello takes all paths.
                Err(Rejected::Replayed) if peer.paths.are_several() => Ok(()),
                result => result,
            };
        }
        let Some(address) = place else {
            peer.on_unusable_address(now_us, from.address);
            return Err(Rejected::UnknownSender);
        };
        let from = Source { address, ..from };
        let result = peer.handle_hello_elsewhere(now_us, from, part, datagram, entropy, out);
        self.follow(index);
        result
    }

    /// Finds the peer with a stated address whose Hello comes from another one, for the operator. Strangers
    /// cannot make us do much work.
    #[cold]
    fn find_sender(&mut self, now_us: u64, from: Source, datagram: &[u8]) {
        if now_us >= self.next_stray_us {
            self.next_stray_us = now_us + STRAY_US;
            let is_stated = |peer: &&mut Peer| peer.config.callable_at(from.door).is_none();
            let mut stated = self.peers.iter_mut().filter(is_stated);
            let _ = stated.any(|peer| peer.handle_stray_hello(now_us, from.address, datagram));
        }
    }

    /// Returns the source of a datagram if its peer may be there: not at this gateway itself, and not inside
    /// a protected network, because repairs to the peer would get repairs.
    fn place_of(&self, peer: usize, from: SocketAddr) -> Option<SocketAddr> {
        let config = &self.peers[peer].config;
        let ip = from.ip().to_canonical();
        let at = if ip == from.ip() { from } else { SocketAddr::new(ip, from.port()) };
        let is_host = !ip.is_unspecified() && !ip.is_multicast() && ip != Ipv4Addr::BROADCAST;
        let is_free = at != self.config.listen && self.sites.find(ip).is_none();
        let fits = at.is_ipv6() == self.config.listen.is_ipv6() && at.port() != 0;
        (config.is_at(at) || is_host && is_free && fits).then_some(at)
    }

    /// Takes over the address that a peer has shown.
    pub(super) fn follow(&mut self, peer: usize) {
        let (known, shown) = (&mut self.config.peers[peer], &self.peers[peer].config);
        if known.address != shown.address || known.paths != shown.paths {
            known.address = shown.address;
            known.paths.clone_from(&shown.paths);
            self.moves += 1;
        }
    }
}
