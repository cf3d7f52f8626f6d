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
use crate::outbox::{Origin, Outbox};
use crate::packet::{Packet, restore};
use crate::peer::Peer;
use crate::prefixes::overlaps;

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
        let mut part: Vec<IpNet> =
            held.iter().flat_map(|network| overlaps(&peer.networks, network)).collect();
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
        let protects =
            |peer: &Peer| overlaps(&peer.config.networks, &network).all(|part| peer.protects(part));
        self.is_ready_for(network) && self.up(&network).all(protects)
    }

    /// The peers that are up and have a part of this network.
    fn up(&self, network: &IpNet) -> impl Iterator<Item = &Peer> {
        let has =
            move |peer: &&Peer| peer.is_up() && overlaps(&peer.config.networks, network).next().is_some();
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
    /// it, before any of them learns what another one recovers by it.
    pub(super) fn show(&mut self, now_us: u64, first: usize, packet: &Packet<'_>, out: &mut Outbox) {
        let rack = &self.racks[first];
        for &index in rack {
            let peer = &mut self.peers[index];
            if rack.len() == 1 || peer.shows(now_us, packet.destination()) {
                peer.handle_incoming(now_us, packet, out);
            }
        }
    }

    /// Shows the packets that a call has recovered, behind the first `before` in the outbox, to the other
    /// gateways of the same rack, which may protect them too. Of packets that several of them have recovered,
    /// one stays in the outbox.
    pub(super) fn share_recovered(&mut self, now_us: u64, before: usize, out: &mut Outbox) {
        if self.racks.iter().all(|rack| rack.len() == 1) {
            return;
        }
        let mut known = std::mem::take(&mut self.known);
        known.clear();
        let mut shared = before;
        loop {
            self.drop_twins(before, &mut known, out);
            let Some((origin, packet)) = out.recovered.iter().nth(shared) else { break };
            let (rack, places) = (&self.racks[origin.peer], &mut known[shared - before]);
            let Some(place) = (0..rack.len()).find(|place| *places >> place & 1 == 0) else {
                shared += 1;
                continue;
            };
            *places |= 1 << place;
            self.copy.clear();
            self.copy.extend_from_slice(packet);
            let (Ok(packet), peer) = (Packet::new_checked(&self.copy), &mut self.peers[rack[place]]) else {
                continue;
            };
            if peer.shows(now_us, packet.destination()) {
                peer.handle_recovered_copy(now_us, &packet, out);
            }
        }
        self.known = known;
    }

    /// Notes which gateways of a rack know the recovered packets behind the first `before`, by their places
    /// in the rack, and removes packets that are there already.
    fn drop_twins(&mut self, before: usize, known: &mut Vec<u64>, out: &mut Outbox) {
        while before + known.len() < out.recovered.len() {
            let number = before + known.len();
            let Some((origin, packet)) = out.recovered.iter().nth(number) else { return };
            let place = self.racks[origin.peer].iter().position(|&index| index == origin.peer).unwrap_or(0);
            let copy = &mut self.copy;
            let is_twin = |(other, twin): (Origin, &[u8])| {
                self.racks[other.peer].contains(&origin.peer) && is_same(twin, packet, copy)
            };
            let twin = out.recovered.iter().skip(before).take(known.len()).position(is_twin);
            match twin {
                Some(twin) => {
                    known[twin] |= 1 << place;
                    out.recovered.remove(number);
                }
                None => known.push(1 << place),
            }
        }
    }
}

/// Whether two packets differ in nothing but fields that routers change. `copy` is a buffer.
fn is_same(one: &[u8], other: &[u8], copy: &mut Vec<u8>) -> bool {
    let Some(fields) = Packet::new_checked(one).ok().filter(|_| one.len() == other.len()) else {
        return false;
    };
    copy.clear();
    copy.extend_from_slice(other);
    restore(copy, fields.mutable_fields());
    copy == one
}
