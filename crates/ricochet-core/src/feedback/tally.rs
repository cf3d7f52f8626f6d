//! Counting of packets as they pass.

use hashbrown::HashMap;

use super::recent::Recent;
use super::report::{
    Feedback, GroupFeedback, PeerFeedback, Reception, SLOW_PACKETS_MIN, SLOW_PERCENT, Traffic, Volume,
};
use crate::groups::Groups;
use crate::ids::{GroupIndex, NodeId};
use crate::links::{Ends, Links};
use crate::message::{How, Message};
use crate::regions::Regions;
use crate::wire::Kind;

/// Silence after which a peer makes room for another, in microseconds.
const QUIET_US: u64 = 30_000_000;

#[derive(Clone, Debug)]
struct Group {
    seen: GroupFeedback,
    passed: Recent,
}

#[derive(Clone, Debug)]
struct Peer {
    seen: PeerFeedback,
    wanted: Recent,
    last_us: u64,
}

/// Counts of a node, of its groups and of its peers. Memory is allocated at construction and with the groups.
#[derive(Debug)]
pub(crate) struct Tally {
    now_us: u64,
    pub(crate) sent: Traffic,
    pub(crate) received: Traffic,
    groups: Vec<Group>,
    peers_max: usize,
    by_id: HashMap<NodeId, u32>,
    peers: Vec<Peer>,
    links: Links,
    /// The peers in order of their last event, the oldest first.
    quiet: Ends,
    /// Data packets that this node sent.
    sent_lately: Recent,
    unrecorded: u64,
}

impl Tally {
    pub(crate) fn new(groups: &Groups, peers_max: usize) -> Self {
        let mut tally = Self {
            now_us: 0,
            sent: Traffic::default(),
            received: Traffic::default(),
            groups: Vec::new(),
            peers_max,
            // With twice the room the table rehashes in place and never grows.
            by_id: HashMap::with_capacity(2 * peers_max),
            peers: Vec::with_capacity(peers_max),
            links: Links::new(peers_max),
            quiet: Ends::EMPTY,
            sent_lately: Recent::default(),
            unrecorded: 0,
        };
        tally.regroup(groups);
        tally
    }

    /// Sets the time of the events that follow.
    pub(crate) fn on_time(&mut self, now_us: u64) {
        self.now_us = now_us.max(self.now_us);
    }

    /// Continues with other groups; those that stay keep their counts.
    pub(crate) fn regroup(&mut self, groups: &Groups) {
        let before = std::mem::take(&mut self.groups);
        let kept =
            |id| before.binary_search_by_key(&id, |group| group.seen.group).ok().map(|at| before[at].clone());
        let new = |group| Group {
            seen: GroupFeedback {
                group,
                sent: Volume::default(),
                messages_sent: 0,
                reception: Reception::default(),
            },
            passed: Recent::default(),
        };
        self.groups =
            groups.iter().map(|(_, group)| kept(group.id).unwrap_or_else(|| new(group.id))).collect();
    }

    /// Counts a data packet sent to a group, with its messages; `None` if this node is not a member of it.
    pub(crate) fn on_sent(&mut self, group: Option<GroupIndex>, messages: u32, bytes: usize) {
        self.sent.data.add(bytes);
        self.sent_lately.add(self.now_us, 1);
        if let Some(group) = group {
            let group = &mut self.groups[group.at()];
            group.seen.sent.add(bytes);
            group.seen.messages_sent += u64::from(messages);
            group.passed.add(self.now_us, 1);
        }
    }

    /// Counts a data packet delivered, of `bytes` on the wire.
    pub(crate) fn on_delivered(&mut self, group: GroupIndex, packet: &Message<'_>, bytes: usize) {
        self.groups[group.at()].passed.add(self.now_us, 1);
        self.add_reception(Some(group), packet.sender, |reception| {
            reception.messages += u64::from(packet.packets);
            match packet.how {
                How::Multicast => return reception.data.add(bytes),
                How::Repaired => reception.repaired += 1,
                How::Requested => reception.requested += 1,
            }
            if let Some(missed_us) = packet.missed_us {
                reception.latencies.add(missed_us);
            }
        });
    }

    pub(crate) fn on_duplicate(&mut self, group: GroupIndex, sender: NodeId) {
        self.add_reception(Some(group), sender, |reception| reception.duplicates += 1);
    }

    pub(crate) fn on_discovered(&mut self, group: Option<GroupIndex>, sender: NodeId, packets: u64) {
        self.add_reception(group, sender, |reception| reception.discovered += packets);
    }

    pub(crate) fn on_lost(&mut self, group: Option<GroupIndex>, sender: NodeId, packets: u64) {
        self.add_reception(group, sender, |reception| reception.lost += packets);
    }

    pub(crate) fn on_repair_received(&mut self, peer: NodeId, bytes: usize) {
        self.update_peer(peer, |peer| peer.seen.repairs.add(bytes));
    }

    pub(crate) fn on_repair_sent(&mut self, peer: NodeId, bytes: usize) {
        self.sent.add(Kind::Repair, bytes);
        self.update_peer(peer, |peer| peer.seen.repairs_sent.add(bytes));
    }

    /// Counts a request sent to a peer, for a number of packets.
    pub(crate) fn on_nak_sent(&mut self, peer: NodeId, packets: u64, bytes: usize) {
        self.sent.add(Kind::Nak, bytes);
        self.update_peer(peer, |peer| peer.seen.asked += packets);
    }

    /// Counts a packet held here that a peer requested.
    pub(crate) fn on_wanted(&mut self, peer: NodeId) {
        let now_us = self.now_us;
        self.update_peer(peer, |peer| {
            peer.seen.wanted += 1;
            peer.wanted.add(now_us, 1);
        });
    }

    pub(crate) fn on_retransmission_sent(&mut self, peer: NodeId, bytes: usize) {
        self.sent.add(Kind::Retransmission, bytes);
        self.update_peer(peer, |peer| peer.seen.answered.add(bytes));
    }

    /// Returns a copy of the counts.
    pub(crate) fn feedback(&self, now_us: u64, regions: &Regions) -> Feedback {
        let mut feedback = Feedback {
            sent: self.sent,
            received: self.received,
            groups: self.groups.iter().map(|group| group.seen).collect(),
            peers: self.peers.iter().map(|peer| peer.seen).collect(),
            unrecorded: self.unrecorded,
        };
        let sent_lately = u64::from(self.sent_lately.count(now_us));
        for (reported, peer) in feedback.peers.iter_mut().zip(&self.peers) {
            reported.wanted_lately = peer.wanted.count(now_us);
            reported.passed_lately = sent_lately;
        }
        for region in regions.iter() {
            let groups = regions.groups(region).iter().map(|group| &self.groups[group.at()]);
            let passed = groups.map(|group| u64::from(group.passed.count(now_us))).sum();
            for slot in regions.members(region).iter().filter_map(|member| self.by_id.get(member)) {
                feedback.peers[*slot as usize].passed_lately = passed;
            }
        }
        for peer in &mut feedback.peers {
            let too_many = u64::from(peer.wanted_lately) * 100 > peer.passed_lately * SLOW_PERCENT;
            peer.slow = peer.wanted_lately >= SLOW_PACKETS_MIN && too_many;
        }
        feedback
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Group>() + self.peers.capacity() * size_of::<Peer>()
    }

    /// Counts an event for a group, if this node is in it, and for the sender.
    fn add_reception(&mut self, group: Option<GroupIndex>, sender: NodeId, count: impl Fn(&mut Reception)) {
        if let Some(group) = group {
            count(&mut self.groups[group.at()].seen.reception);
        }
        self.update_peer(sender, |peer| count(&mut peer.seen.reception));
    }

    /// Counts an event for a peer, if there is room for it.
    fn update_peer(&mut self, id: NodeId, count: impl FnOnce(&mut Peer)) {
        let slot = match self.by_id.get(&id) {
            Some(&slot) => slot as usize,
            None => match self.insert_peer(id) {
                Some(slot) => slot,
                None => return self.unrecorded += 1,
            },
        };
        if self.quiet.last() != Some(slot) {
            self.links.remove(&mut self.quiet, slot);
            self.links.push_last(&mut self.quiet, slot);
        }
        let peer = &mut self.peers[slot];
        peer.last_us = self.now_us;
        count(peer);
    }

    /// Finds a slot for a new peer. In a full table it takes the slot of the quietest, if that has been quiet
    /// for long.
    fn insert_peer(&mut self, id: NodeId) -> Option<usize> {
        let peer = Peer { seen: PeerFeedback::new(id), wanted: Recent::default(), last_us: self.now_us };
        let slot = if self.peers.len() < self.peers_max {
            self.peers.push(peer);
            self.peers.len() - 1
        } else {
            let quietest = self.quiet.first()?;
            if self.now_us.saturating_sub(self.peers[quietest].last_us) < QUIET_US {
                return None;
            }
            self.links.remove(&mut self.quiet, quietest);
            self.by_id.remove(&self.peers[quietest].seen.peer);
            self.peers[quietest] = peer;
            quietest
        };
        self.by_id.insert(id, slot as u32);
        self.links.push_last(&mut self.quiet, slot);
        Some(slot)
    }
}
