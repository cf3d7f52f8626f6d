//! How much may be requested of each node at once: as much as it has shown that it answers.
//!
//! A request may lie somewhere for long and still be answered. A kernel, for example, holds datagrams back
//! until it has resolved the link-layer address of their receiver, and then sends them all at once. So a node
//! that answers nothing, and sends no repairs or requests either, is asked for less and less.

use hashbrown::HashMap;

use crate::ids::NodeId;

/// Packets requested of a node that has not answered yet.
const START: u32 = 64;
/// A node whose quota was halved to less than this is considered silent; NAKs go to another.
const SILENT: u32 = START >> 3;
/// Longest pause between requests to a silent node, in microseconds.
const PAUSE_US_MAX: u64 = 100_000;
/// Maximum number of nodes with an account. One more finds room when another has nothing left to answer.
const HOLDERS_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Holder {
    /// Packets that may be requested of it at once.
    quota: u32,
    /// Packets that were requested of it and have not come.
    outstanding: u32,
    /// Time of the last request.
    requested_us: u64,
    /// Whether any of the outstanding packets came, or anything else that it sent to this node.
    has_answered: bool,
    /// Length of the last pause, and its end.
    pause_us: u64,
    paused_until_us: u64,
}

/// How much may be requested of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Packets that may be requested at once, less those outstanding.
    pub(super) packets: u32,
    /// Packets that may be requested if none are outstanding.
    pub(super) quota: u32,
    /// Time to look again if `packets` is too few.
    pub(super) again_us: u64,
}

/// The nodes that packets were requested of.
#[derive(Debug)]
pub(super) struct Holders {
    quota_max: u32,
    by_id: HashMap<NodeId, Holder>,
}

impl Holders {
    pub(super) fn new(quota_max: u32) -> Self {
        Self { quota_max, by_id: HashMap::with_capacity(2 * HOLDERS_MAX) }
    }

    /// Closes a node's last request if it has waited for `patience_us`: without an answer, the quota is
    /// halved.
    pub(super) fn settle(&mut self, now_us: u64, id: NodeId, patience_us: u64) {
        if let Some(holder) = self.by_id.get_mut(&id) {
            holder.settle(now_us, patience_us);
        }
    }

    /// Returns how much may be requested of a [settled](Self::settle) node, where an answer is awaited for
    /// `patience_us`.
    pub(super) fn room(&self, now_us: u64, id: NodeId, patience_us: u64) -> Room {
        let Some(&Holder { quota, outstanding, requested_us, paused_until_us, .. }) = self.by_id.get(&id)
        else {
            let quota = if self.by_id.len() < HOLDERS_MAX { START.min(self.quota_max) } else { 0 };
            return Room { packets: quota, quota, again_us: now_us + patience_us };
        };
        if now_us < paused_until_us {
            return Room { packets: 0, quota, again_us: paused_until_us };
        }
        Room { packets: quota.saturating_sub(outstanding), quota, again_us: requested_us + patience_us }
    }

    /// Returns whether a [settled](Self::settle) node has left several requests in a row unanswered.
    pub(super) fn is_silent(&self, id: NodeId) -> bool {
        self.by_id.get(&id).is_some_and(|holder| holder.quota < SILENT.min(self.quota_max))
    }

    /// Notes that packets were requested of a node.
    pub(super) fn on_requested(&mut self, now_us: u64, id: NodeId, packets: u32) {
        if self.by_id.len() == HOLDERS_MAX && !self.by_id.contains_key(&id) {
            return;
        }
        let new = Holder {
            quota: START.min(self.quota_max),
            outstanding: 0,
            requested_us: now_us,
            has_answered: false,
            pause_us: 0,
            paused_until_us: 0,
        };
        let holder = self.by_id.entry(id).or_insert(new);
        holder.outstanding += packets;
        holder.requested_us = now_us;
    }

    /// Notes that a packet came that was requested of a node.
    pub(super) fn on_answer(&mut self, id: NodeId) {
        if let Some(holder) = self.by_id.get_mut(&id) {
            holder.outstanding = holder.outstanding.saturating_sub(1);
            holder.has_answered = true;
            holder.quota = (holder.quota + 1).max(START).min(self.quota_max);
            (holder.pause_us, holder.paused_until_us) = (0, 0);
        }
    }

    /// Notes that a node does not hold packets that were requested of it.
    pub(super) fn on_denied(&mut self, id: NodeId, packets: u64) {
        if let Some(holder) = self.by_id.get_mut(&id) {
            let packets = u32::try_from(packets).unwrap_or(u32::MAX);
            holder.outstanding = holder.outstanding.saturating_sub(packets);
        }
    }

    /// Notes that a node sent something of its own to this node. So it is alive, even if it does not hold the
    /// packets that were requested of it.
    pub(super) fn on_heard(&mut self, id: NodeId) {
        if let Some(holder) = self.by_id.get_mut(&id) {
            holder.has_answered = true;
            holder.quota = holder.quota.max(START).min(self.quota_max);
            (holder.pause_us, holder.paused_until_us) = (0, 0);
        }
    }

    /// When the table is full, forgets the nodes from which no answer is awaited.
    pub(super) fn sweep(&mut self, now_us: u64, patience_us: u64) {
        if self.by_id.len() == HOLDERS_MAX {
            self.by_id
                .retain(|_, holder| now_us < holder.paused_until_us.max(holder.requested_us + patience_us));
        }
    }
}

impl Holder {
    fn settle(&mut self, now_us: u64, patience_us: u64) {
        if self.outstanding == 0 || now_us < self.requested_us + patience_us {
            return;
        }
        if !self.has_answered {
            if self.quota == 1 {
                self.pause_us = (2 * self.pause_us).clamp(patience_us.min(PAUSE_US_MAX), PAUSE_US_MAX);
                self.paused_until_us = now_us + self.pause_us;
            }
            self.quota = (self.quota / 2).max(1);
        }
        (self.outstanding, self.has_answered) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE_US: u64 = 2_000;
    const NODE: NodeId = NodeId(7);

    fn room(holders: &mut Holders, now_us: u64, id: NodeId) -> Room {
        holders.settle(now_us, id, PATIENCE_US);
        holders.room(now_us, id, PATIENCE_US)
    }

    /// Packets requested of a node within a second, if each request is as large as allowed.
    fn requested_in_a_second(answers: bool) -> u32 {
        let mut holders = Holders::new(512);
        let mut requested = 0;
        for now_us in (0..1_000_000).step_by(1_000) {
            let room = room(&mut holders, now_us, NODE);
            if room.packets > 0 {
                requested += room.packets;
                holders.on_requested(now_us, NODE, room.packets);
            }
            if answers {
                (0..room.packets).for_each(|_| holders.on_answer(NODE));
            }
        }
        requested
    }

    #[test]
    fn a_node_that_answers_is_asked_for_more_and_one_that_does_not_for_less_and_less() {
        assert!(requested_in_a_second(true) > 400_000);
        let in_vain = requested_in_a_second(false);
        assert!((128..160).contains(&in_vain), "{in_vain}");
    }

    #[test]
    fn one_answer_ends_the_silence() {
        let mut holders = Holders::new(512);
        for now_us in (0..100_000).step_by(1_000) {
            let room = room(&mut holders, now_us, NODE);
            if room.packets > 0 {
                holders.on_requested(now_us, NODE, room.packets);
            }
        }
        holders.settle(100_000, NODE, PATIENCE_US);
        assert!(holders.is_silent(NODE));
        holders.on_answer(NODE);
        assert!(!holders.is_silent(NODE));
        assert_eq!(room(&mut holders, 100_000, NODE).quota, START);
    }

    #[test]
    fn a_node_that_is_alive_and_does_not_hold_the_packets_keeps_its_quota() {
        let mut holders = Holders::new(512);
        for now_us in (0..100_000).step_by(5_000) {
            assert_eq!(room(&mut holders, now_us, NODE).packets, START);
            holders.on_requested(now_us, NODE, START);
            holders.on_heard(NODE);
        }
    }

    #[test]
    fn a_node_that_answers_some_requests_is_not_held_back() {
        let mut holders = Holders::new(512);
        for turn in 0..1_000u64 {
            let now_us = turn * 3_000;
            assert!(room(&mut holders, now_us, NODE).packets >= 8, "turn {turn}");
            holders.on_requested(now_us, NODE, 1);
            if turn % 4 == 0 {
                holders.on_answer(NODE);
            }
        }
    }

    #[test]
    fn a_flood_of_nodes_is_bounded() {
        let mut holders = Holders::new(512);
        for id in 0..10_000 {
            let room = room(&mut holders, 0, NodeId(id));
            assert_eq!(room.packets > 0, id < HOLDERS_MAX as u32);
            holders.on_requested(0, NodeId(id), room.packets);
        }
        holders.sweep(PATIENCE_US, PATIENCE_US);
        assert!(room(&mut holders, PATIENCE_US, NodeId(99_999)).packets > 0);
    }
}
