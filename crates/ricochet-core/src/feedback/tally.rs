//! What is counted as packets pass.

use hashbrown::HashMap;

use super::recent::Recent;
use super::{
    Feedback, GroupFeedback, PeerFeedback, Reception, SLOW_PACKETS_MIN, SLOW_PERCENT, Traffic, Volume,
};
use crate::groups::Groups;
use crate::ids::{GroupIndex, NodeId};
use crate::links::{Ends, Links};
use crate::node::How;
use crate::regions::Regions;
use crate::wire::Kind;

/// How long a peer must have been silent to make room for another, in microseconds.
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

/// The counts of a node, its groups and its peers. All memory is taken with the groups, and at construction.
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
    /// The one heard longest ago first.
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
            // Twice the room: then the table cleans itself in place and never grows.
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

    /// What is counted next happens now.
    pub(crate) fn at(&mut self, now_us: u64) {
        self.now_us = now_us.max(self.now_us);
    }

    /// Goes on with other groups; those that stay keep their counts.
    pub(crate) fn regroup(&mut self, groups: &Groups) {
        let before = std::mem::take(&mut self.groups);
        let kept =
            |id| before.binary_search_by_key(&id, |group| group.seen.group).ok().map(|at| before[at].clone());
        let new = |group| Group {
            seen: GroupFeedback { group, sent: Volume::default(), reception: Reception::default() },
            passed: Recent::default(),
        };
        self.groups =
            groups.iter().map(|(_, group)| kept(group.id).unwrap_or_else(|| new(group.id))).collect();
    }

    /// A data packet was sent to a group, of which this node may be a member.
    pub(crate) fn sent(&mut self, group: Option<GroupIndex>, bytes: usize) {
        self.sent.data.add(bytes);
        self.sent_lately.add(self.now_us, 1);
        if let Some(group) = group {
            let group = &mut self.groups[group.at()];
            group.seen.sent.add(bytes);
            group.passed.add(self.now_us, 1);
        }
    }

    /// A data packet was delivered.
    pub(crate) fn delivered(
        &mut self,
        group: GroupIndex,
        sender: NodeId,
        bytes: usize,
        how: How,
        missed_us: Option<u64>,
    ) {
        self.groups[group.at()].passed.add(self.now_us, 1);
        self.both(Some(group), sender, |reception| {
            match how {
                How::Multicast => return reception.data.add(bytes),
                How::Repaired => reception.repaired += 1,
                How::Requested => reception.requested += 1,
            }
            if let Some(missed_us) = missed_us {
                reception.latencies.add(missed_us);
            }
        });
    }

    pub(crate) fn duplicate(&mut self, group: GroupIndex, sender: NodeId) {
        self.both(Some(group), sender, |reception| reception.duplicates += 1);
    }

    pub(crate) fn discovered(&mut self, group: Option<GroupIndex>, sender: NodeId, packets: u64) {
        self.both(group, sender, |reception| reception.discovered += packets);
    }

    pub(crate) fn lost(&mut self, group: Option<GroupIndex>, sender: NodeId, packets: u64) {
        self.both(group, sender, |reception| reception.lost += packets);
    }

    pub(crate) fn repair_came(&mut self, peer: NodeId, bytes: usize) {
        self.with(peer, |peer| peer.seen.repairs.add(bytes));
    }

    pub(crate) fn repair_sent(&mut self, peer: NodeId, bytes: usize) {
        self.sent.add(Kind::Repair, bytes);
        self.with(peer, |peer| peer.seen.repairs_sent.add(bytes));
    }

    /// So many packets were asked of a peer, in one request.
    pub(crate) fn asked(&mut self, peer: NodeId, packets: u64, bytes: usize) {
        self.sent.add(Kind::Nak, bytes);
        self.with(peer, |peer| peer.seen.asked += packets);
    }

    /// A peer asked for a packet that is held here.
    pub(crate) fn wanted(&mut self, peer: NodeId) {
        let now_us = self.now_us;
        self.with(peer, |peer| {
            peer.seen.wanted += 1;
            peer.wanted.add(now_us, 1);
        });
    }

    pub(crate) fn answered(&mut self, peer: NodeId, bytes: usize) {
        self.sent.add(Kind::Retransmission, bytes);
        self.with(peer, |peer| peer.seen.answered.add(bytes));
    }

    /// A copy of it all.
    pub(crate) fn feedback(&self, now_us: u64, regions: &Regions) -> Feedback {
        let mut feedback = Feedback {
            sent: self.sent,
            received: self.received,
            groups: self.groups.iter().map(|group| group.seen).collect(),
            peers: self.peers.iter().map(|peer| peer.seen).collect(),
            unrecorded: self.unrecorded,
        };
        let sent_lately = u64::from(self.sent_lately.count(now_us));
        for (told, peer) in feedback.peers.iter_mut().zip(&self.peers) {
            told.wanted_lately = peer.wanted.count(now_us);
            told.passed_lately = sent_lately;
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

    /// Counts something for a group, if this node is in it, and for the sender.
    fn both(&mut self, group: Option<GroupIndex>, sender: NodeId, count: impl Fn(&mut Reception)) {
        if let Some(group) = group {
            count(&mut self.groups[group.at()].seen.reception);
        }
        self.with(sender, |peer| count(&mut peer.seen.reception));
    }

    /// Counts something for a peer, if there is room for it.
    fn with(&mut self, id: NodeId, count: impl FnOnce(&mut Peer)) {
        let slot = match self.by_id.get(&id) {
            Some(&slot) => slot as usize,
            None => match self.place(id) {
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

    /// A place for a peer that is new; that of the one heard longest ago, if that was long ago.
    fn place(&mut self, id: NodeId) -> Option<usize> {
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

impl PeerFeedback {
    fn new(peer: NodeId) -> Self {
        Self {
            peer,
            reception: Reception::default(),
            repairs: Volume::default(),
            repairs_sent: Volume::default(),
            asked: 0,
            wanted: 0,
            answered: Volume::default(),
            wanted_lately: 0,
            passed_lately: 0,
            slow: false,
        }
    }
}
