//! How much a peer may cost in a time: nobody can make this node talk without end, nor does it pester anybody.

use hashbrown::HashMap;

use crate::ids::NodeId;

/// Peers that are kept account of; one more finds room when another has been quiet for a second.
const PEERS_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Account {
    credit: u32,
    last_us: u64,
    /// Until then somebody more urgent waits for a larger amount.
    saved_until_us: u64,
}

/// How urgent a wish is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// What gets nothing now has the allowance saved for it, and asks again before this time is over.
    First {
        /// In microseconds.
        again_us: u64,
    },
    /// It waits while another one's is saved.
    Later,
}

/// Room is looked for so seldom, in microseconds: looking goes through all accounts.
const SWEEP_US: u64 = 100_000;

/// An allowance for each peer, so many units a second, of which a second's worth can be saved.
#[derive(Debug)]
pub(crate) struct Limits {
    per_second: u32,
    accounts: HashMap<NodeId, Account>,
    swept_us: Option<u64>,
}

impl Limits {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second, accounts: HashMap::with_capacity(2 * PEERS_MAX), swept_us: None }
    }

    /// Takes up to `wanted` units of a peer's allowance; returns how many it got.
    pub(crate) fn take(&mut self, now_us: u64, peer: NodeId, wanted: u32) -> u32 {
        self.take_most(now_us, peer, wanted, 1, Urgency::First { again_us: 0 })
    }

    /// The same, but nothing if it would get less than `least`, than it wants, and than a second's worth.
    pub(crate) fn take_most(
        &mut self,
        now_us: u64,
        peer: NodeId,
        wanted: u32,
        least: u32,
        urgency: Urgency,
    ) -> u32 {
        if self.accounts.len() == PEERS_MAX && !self.accounts.contains_key(&peer) {
            // A flood of made-up peers: those that have an account keep it, others wait.
            if self.swept_us.is_none_or(|swept_us| now_us.saturating_sub(swept_us) >= SWEEP_US) {
                self.swept_us = Some(now_us);
                self.accounts.retain(|_, account| account.last_us + 1_000_000 > now_us);
            }
            if self.accounts.len() == PEERS_MAX {
                return 0;
            }
        }
        let full = Account { credit: self.per_second, last_us: now_us, saved_until_us: 0 };
        let account = self.accounts.entry(peer).or_insert(full);
        let earned = u64::from(self.per_second) * now_us.saturating_sub(account.last_us) / 1_000_000;
        if earned > 0 {
            let credit = u64::from(account.credit).saturating_add(earned).min(u64::from(self.per_second));
            (account.credit, account.last_us) = (credit as u32, now_us);
        }
        if urgency == Urgency::Later && now_us < account.saved_until_us {
            return 0;
        }
        let taken = wanted.min(account.credit);
        if taken < least.min(wanted).min(self.per_second) {
            // Else those who want little would take it as it comes, and nothing large would ever be asked for.
            if let Urgency::First { again_us } = urgency {
                account.saved_until_us = account.saved_until_us.max(now_us + again_us);
            }
            return 0;
        }
        account.credit -= taken;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_earned_over_time_and_each_peer_has_its_own() {
        let mut limits = Limits::new(100);
        assert_eq!(limits.take(0, NodeId(1), 150), 100);
        assert_eq!(limits.take(5_000, NodeId(1), 1), 0, "nothing is earned in half the time that one takes");
        assert_eq!(limits.take(100_000, NodeId(1), 50), 10, "none of that half is lost");
        assert_eq!(limits.take(100_000, NodeId(2), 50), 50);
        assert_eq!(limits.take(90_000_000, NodeId(1), 500), 100);
    }

    #[test]
    fn what_is_urgent_and_large_has_the_allowance_saved_for_it() {
        let mut limits = Limits::new(100);
        let first = Urgency::First { again_us: 20_000 };
        assert_eq!(limits.take_most(0, NodeId(1), 100, 64, first), 100);
        for at_us in (10_000..640_000).step_by(10_000) {
            assert_eq!(limits.take_most(at_us, NodeId(1), 64, 64, first), 0);
            assert_eq!(limits.take_most(at_us, NodeId(1), 1, 64, Urgency::Later), 0);
        }
        assert_eq!(limits.take_most(640_000, NodeId(1), 64, 64, first), 64);
        // nobody waits any more
        assert_eq!(limits.take_most(650_000, NodeId(1), 1, 64, Urgency::Later), 1);
    }

    #[test]
    fn a_flood_of_peers_is_bounded() {
        let mut limits = Limits::new(10);
        let granted: u32 = (0..10_000).map(|peer| limits.take(0, NodeId(peer), 1)).sum();
        assert_eq!(granted as usize, PEERS_MAX);
        assert_eq!(limits.take(2_000_000, NodeId(99_999), 1), 1);
    }
}
