//! What may be asked of each peer at once: as much as it shows that it answers.
//!
//! A request may lie somewhere for long and still be answered: a kernel, for one, keeps datagrams back until it has found the
//! address of their interface, and sends them all at once then.
//! So a peer that answers nothing, and sends no repairs or requests either, is asked for ever less.

use hashbrown::HashMap;

use crate::ids::NodeId;

/// Packets that a peer is asked for before it has answered.
const START: u32 = 64;
/// Who has left so many halvings unanswered is silent: rather another one is asked.
const SILENT: u32 = START >> 3;
/// A silent peer is tried so seldom in the end, in microseconds.
const PAUSE_US_MAX: u64 = 100_000;
/// Peers that are kept account of; one more is asked when another has nothing to answer.
const PEERS_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Peer {
    /// Packets that may be asked of it at once.
    window: u32,
    /// Packets that it was asked for and that have not come.
    left: u32,
    /// When it was asked last.
    asked_us: u64,
    /// Whether any of them came, or anything else that it sent to this node.
    answers: bool,
    /// How long it was let alone last, and until when it is.
    pause_us: u64,
    free_us: u64,
}

/// How much may be asked of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Packets, now.
    pub(super) packets: u32,
    /// Packets, if none were under way.
    pub(super) window: u32,
    /// When to look again, if that is too little.
    pub(super) again_us: u64,
}

/// The peers that were asked.
#[derive(Debug)]
pub(super) struct Peers {
    window_max: u32,
    by_id: HashMap<NodeId, Peer>,
}

impl Peers {
    pub(super) fn new(window_max: u32) -> Self {
        Self { window_max, by_id: HashMap::with_capacity(2 * PEERS_MAX) }
    }

    /// What may be asked of a peer, where an answer is awaited for so long.
    pub(super) fn room(&mut self, now_us: u64, id: NodeId, patience_us: u64) -> Room {
        let Some(peer) = self.by_id.get_mut(&id) else {
            let window = if self.by_id.len() < PEERS_MAX { START.min(self.window_max) } else { 0 };
            return Room { packets: window, window, again_us: now_us + patience_us };
        };
        peer.settle(now_us, patience_us);
        let Peer { window, left, asked_us, free_us, .. } = *peer;
        if now_us < free_us {
            return Room { packets: 0, window, again_us: free_us };
        }
        Room { packets: window.saturating_sub(left), window, again_us: asked_us + patience_us }
    }

    /// Whether a peer has left several requests in a row unanswered.
    pub(super) fn is_silent(&mut self, now_us: u64, id: NodeId, patience_us: u64) -> bool {
        self.by_id.get_mut(&id).is_some_and(|peer| {
            peer.settle(now_us, patience_us);
            peer.window < SILENT.min(self.window_max)
        })
    }

    /// A peer is asked for packets.
    pub(super) fn asked(&mut self, now_us: u64, id: NodeId, packets: u32) {
        if self.by_id.len() == PEERS_MAX && !self.by_id.contains_key(&id) {
            return;
        }
        let window = START.min(self.window_max);
        let new = Peer { window, left: 0, asked_us: now_us, answers: false, pause_us: 0, free_us: 0 };
        let peer = self.by_id.entry(id).or_insert(new);
        peer.left += packets;
        peer.asked_us = now_us;
    }

    /// A packet came that a peer was asked for.
    pub(super) fn answered(&mut self, id: NodeId) {
        if let Some(peer) = self.by_id.get_mut(&id) {
            peer.left = peer.left.saturating_sub(1);
            peer.answers = true;
            peer.window = (peer.window + 1).max(START).min(self.window_max);
            (peer.pause_us, peer.free_us) = (0, 0);
        }
    }

    /// A peer has sent something of its own to this node: it is there, if it does not hold what it was asked for.
    pub(super) fn heard(&mut self, id: NodeId) {
        if let Some(peer) = self.by_id.get_mut(&id) {
            peer.answers = true;
            peer.window = peer.window.max(START).min(self.window_max);
            (peer.pause_us, peer.free_us) = (0, 0);
        }
    }

    /// Forgets those of whom nothing is awaited, if there is little room for others.
    pub(super) fn sweep(&mut self, now_us: u64, patience_us: u64) {
        if self.by_id.len() == PEERS_MAX {
            self.by_id.retain(|_, peer| now_us < peer.free_us.max(peer.asked_us + patience_us));
        }
    }
}

impl Peer {
    /// Takes note that the last request has waited for long enough.
    fn settle(&mut self, now_us: u64, patience_us: u64) {
        if self.left == 0 || now_us < self.asked_us + patience_us {
            return;
        }
        if !self.answers {
            if self.window == 1 {
                self.pause_us = (2 * self.pause_us).clamp(patience_us.min(PAUSE_US_MAX), PAUSE_US_MAX);
                self.free_us = now_us + self.pause_us;
            }
            self.window = (self.window / 2).max(1);
        }
        (self.left, self.answers) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE_US: u64 = 2_000;
    const PEER: NodeId = NodeId(7);

    /// What is asked of a peer within a second, if all is asked for that may be.
    fn asked_in_a_second(answers: bool) -> u32 {
        let mut peers = Peers::new(512);
        let mut asked = 0;
        for now_us in (0..1_000_000).step_by(1_000) {
            let room = peers.room(now_us, PEER, PATIENCE_US);
            if room.packets > 0 {
                asked += room.packets;
                peers.asked(now_us, PEER, room.packets);
            }
            if answers {
                (0..room.packets).for_each(|_| peers.answered(PEER));
            }
        }
        asked
    }

    #[test]
    fn who_answers_is_asked_for_more_and_who_does_not_for_ever_less() {
        assert!(asked_in_a_second(true) > 400_000);
        let in_vain = asked_in_a_second(false);
        assert!((128..160).contains(&in_vain), "{in_vain}");
    }

    #[test]
    fn one_answer_ends_the_silence() {
        let mut peers = Peers::new(512);
        for now_us in (0..100_000).step_by(1_000) {
            let room = peers.room(now_us, PEER, PATIENCE_US);
            if room.packets > 0 {
                peers.asked(now_us, PEER, room.packets);
            }
        }
        assert!(peers.is_silent(100_000, PEER, PATIENCE_US));
        peers.answered(PEER);
        assert!(!peers.is_silent(100_000, PEER, PATIENCE_US));
        assert_eq!(peers.room(100_000, PEER, PATIENCE_US).window, START);
    }

    #[test]
    fn who_is_there_and_does_not_hold_what_it_is_asked_for_is_asked_for_other_packets() {
        let mut peers = Peers::new(512);
        for now_us in (0..100_000).step_by(5_000) {
            assert_eq!(peers.room(now_us, PEER, PATIENCE_US).packets, START);
            peers.asked(now_us, PEER, START);
            peers.heard(PEER);
        }
    }

    #[test]
    fn where_some_requests_are_answered_nothing_is_held_back() {
        let mut peers = Peers::new(512);
        for turn in 0..1_000u64 {
            let now_us = turn * 3_000;
            assert!(peers.room(now_us, PEER, PATIENCE_US).packets >= 8, "turn {turn}");
            peers.asked(now_us, PEER, 1);
            if turn % 4 == 0 {
                peers.answered(PEER);
            }
        }
    }

    #[test]
    fn a_flood_of_peers_is_bounded() {
        let mut peers = Peers::new(512);
        for id in 0..10_000 {
            let room = peers.room(0, NodeId(id), PATIENCE_US);
            assert_eq!(room.packets > 0, id < PEERS_MAX as u32);
            peers.asked(0, NodeId(id), room.packets);
        }
        peers.sweep(PATIENCE_US, PATIENCE_US);
        assert!(peers.room(PATIENCE_US, NodeId(99_999), PATIENCE_US).packets > 0);
    }
}
