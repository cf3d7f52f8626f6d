//! Racks: several gateways of one site, here or at the far end.
//!
//! A gateway of a far rack lists in its Hellos which of our networks it holds. Packets from these get repairs
//! toward it; toward the one that listed them last, where several do. Packets to them that arrive are shown
//! to all that list them, and so is what the repairs of one of them recover: a packet that two gateways
//! protect is delivered once.

use ipnet::IpNet;

use super::Gateway;
use crate::config::PeerConfig;
use crate::counters::Unprotected;
use crate::outbox::Outbox;
use crate::packet::Packet;
use crate::peer::Peer;

/// For each peer, the peers with the same networks.
pub(super) fn of(peers: &[PeerConfig]) -> Vec<Vec<usize>> {
    let rack = |(index, peer): (usize, &PeerConfig)| {
        let is_in = |at: &usize| *at == index || peer.shares_site(&peers[*at]);
        (0..peers.len()).filter(is_in).collect()
    };
    peers.iter().enumerate().map(rack).collect()
}

impl Gateway {
    /// Changes the far networks that this gateway holds as a member of a rack; `None` stands for those of all
    /// peers. It protects packets to them once their peers know of it, and watches packets from them at once.
    pub fn hold(&mut self, now_us: u64, networks: Option<Vec<IpNet>>) {
        self.held = networks;
        let parts: Vec<_> = self.peers.iter().map(|peer| self.part_of(&peer.config)).collect();
        let entropy = &mut |bytes: &mut [u8]| self.entropy.fill(bytes);
        for (peer, part) in self.peers.iter_mut().zip(parts) {
            peer.hold(now_us, part, entropy);
        }
    }

    /// The part of a peer's networks that this gateway holds.
    pub(super) fn part_of(&self, peer: &PeerConfig) -> Option<Vec<IpNet>> {
        let held = self.held.as_ref()?;
        let mut part: Vec<IpNet> = held.iter().flat_map(|network| common(peer, network)).collect();
        part.sort();
        part.dedup();
        Some(part)
    }

    /// Whether a peer with a part of this network is up.
    pub fn is_ready_for(&self, network: IpNet) -> bool {
        self.up(&network).next().is_some()
    }

    /// Whether packets to all of this network are protected, as far as its peers are up.
    pub fn protects(&self, network: IpNet) -> bool {
        let protects = |peer: &Peer| common(&peer.config, &network).all(|part| peer.protects(part));
        self.is_ready_for(network) && self.up(&network).all(protects)
    }

    /// The peers that are up and have a part of this network.
    fn up(&self, network: &IpNet) -> impl Iterator<Item = &Peer> {
        let has = move |peer: &&Peer| peer.is_up() && common(&peer.config, network).next().is_some();
        self.peers.iter().filter(has)
    }

    /// The peer that gets the repairs of a packet: of a rack, the gateway that listed its source last.
    pub(super) fn peer_toward(&self, packet: &Packet<'_>) -> Result<usize, Unprotected> {
        let first = self.sites.find(packet.destination()).ok_or(Unprotected::NoPeer)?;
        let rack = &self.racks[first];
        if rack.len() == 1 {
            return Ok(first);
        }
        let claim = |&index: &usize| Some((self.peers[index].claims_us(packet.source())?, index));
        let latest = rack.iter().filter_map(claim).max();
        latest.map(|(_, index)| index).ok_or(Unprotected::Unheld)
    }

    /// Passes a packet that arrived from the networks of peer number `first` to all peers that may protect
    /// it.
    pub(super) fn show(&mut self, now_us: u64, first: usize, packet: &Packet<'_>, out: &mut Outbox) {
        let count = self.racks[first].len();
        for place in 0..count {
            let known = out.recovered.len();
            let peer = &mut self.peers[self.racks[first][place]];
            if count == 1 || peer.shows(now_us, packet.destination()) {
                peer.handle_incoming(now_us, packet, out);
                self.share_recovered(now_us, known, out);
            }
        }
    }

    /// Shows the packets that a peer has recovered, behind the first `before` in the outbox, to the other
    /// gateways of its rack, which may protect them too. A packet that one of them then recovers is shown
    /// first, before the next one can recover it again.
    pub(super) fn share_recovered(&mut self, now_us: u64, before: usize, out: &mut Outbox) {
        if self.racks.iter().all(|rack| rack.len() == 1) {
            return;
        }
        // Numbers of packets in the outbox, and the place in the rack to which each is shown next.
        self.unshared.extend((before..out.recovered.len()).rev().map(|number| (number, 0)));
        while let Some((number, place)) = self.unshared.pop() {
            let Some((origin, packet)) = out.recovered.iter().nth(number) else { continue };
            let Some(&index) = self.racks.get(origin.peer).and_then(|rack| rack.get(place)) else { continue };
            self.unshared.push((number, place + 1));
            if index == origin.peer {
                continue;
            }
            self.copy.clear();
            self.copy.extend_from_slice(packet);
            let (Ok(packet), known) = (Packet::new_checked(&self.copy), out.recovered.len()) else {
                continue;
            };
            if self.peers[index].shows(now_us, packet.destination()) {
                self.peers[index].handle_incoming(now_us, &packet, out);
                self.unshared.extend((known..out.recovered.len()).rev().map(|number| (number, 0)));
            }
        }
    }
}

/// Returns the common parts of a network and those of a peer.
fn common(peer: &PeerConfig, network: &IpNet) -> impl Iterator<Item = IpNet> {
    peer.networks.iter().filter_map(move |theirs| {
        match (theirs.contains(network), network.contains(theirs)) {
            (true, _) => Some(*network),
            (false, true) => Some(*theirs),
            (false, false) => None,
        }
    })
}
