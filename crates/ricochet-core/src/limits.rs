//! Rate limits by node: how much a node may cost in a second, and how much is asked of it.

use hashbrown::HashMap;

use crate::ids::NodeId;

/// Maximum number of nodes with an account. One more finds room when another has been quiet for a second.
const NODES_MAX: usize = 4096;
/// Shortest time between two searches for quiet accounts, in microseconds. A search looks at all accounts.
const SWEEP_US: u64 = 100_000;

#[derive(Clone, Copy, Debug)]
struct Account {
    credit: u32,
    last_us: u64,
    /// Time until which the credit is saved for a more urgent and larger claim.
    saved_until_us: u64,
}

/// Urgency of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// If nothing is granted, the allowance is saved for this claim, which is made again within `again_us`.
    First {
        /// In microseconds.
        again_us: u64,
    },
    /// The claim waits while the allowance is saved for another.
    Later,
}

/// A claim on a node's allowance, which is granted in part or not at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// Units wanted.
    pub(crate) wanted: u32,
    /// Smallest useful grant, unless `wanted` or a second's worth is less.
    pub(crate) least: u32,
    pub(crate) urgency: Urgency,
}

/// An allowance for each node: a number of units a second, of which a second's worth can be saved.
#[derive(Debug)]
pub(crate) struct Limits {
    per_second: u32,
    accounts: HashMap<NodeId, Account>,
    swept_us: Option<u64>,
}

impl Limits {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second, accounts: HashMap::with_capacity(2 * NODES_MAX), swept_us: None }
    }

    /// Takes up to `wanted` units of a node's allowance; returns the number granted.
    pub(crate) fn take(&mut self, now_us: u64, node: NodeId, wanted: u32) -> u32 {
        self.take_part(now_us, node, Claim { wanted, least: 1, urgency: Urgency::First { again_us: 0 } })
    }

    /// Takes as much of a claim as the node's allowance grants; returns the number of units, 0 if they are
    /// too few.
    pub(crate) fn take_part(&mut self, now_us: u64, node: NodeId, claim: Claim) -> u32 {
        let Claim { wanted, least, urgency } = claim;
        if self.accounts.len() == NODES_MAX && !self.accounts.contains_key(&node) {
            // In a flood of made-up nodes, those with an account keep it and others wait.
            if self.swept_us.is_none_or(|swept_us| now_us.saturating_sub(swept_us) >= SWEEP_US) {
                self.swept_us = Some(now_us);
                self.accounts.retain(|_, account| account.last_us + 1_000_000 > now_us);
            }
            if self.accounts.len() == NODES_MAX {
                return 0;
            }
        }
        let full = Account { credit: self.per_second, last_us: now_us, saved_until_us: 0 };
        let account = self.accounts.entry(node).or_insert(full);
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
            // Without saving, small claims would take the credit as it is earned, and no large claim would be
            // granted.
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
    fn an_allowance_is_earned_over_time_and_each_node_has_its_own() {
        let mut limits = Limits::new(100);
        assert_eq!(limits.take(0, NodeId(1), 150), 100);
        assert_eq!(limits.take(5_000, NodeId(1), 1), 0, "half the time of a unit earns nothing");
        assert_eq!(limits.take(100_000, NodeId(1), 50), 10, "and that half is not lost");
        assert_eq!(limits.take(100_000, NodeId(2), 50), 50);
        assert_eq!(limits.take(90_000_000, NodeId(1), 500), 100);
    }

    #[test]
    fn the_allowance_is_saved_for_a_claim_that_is_urgent_and_large() {
        let mut limits = Limits::new(100);
        let first = |wanted| Claim { wanted, least: 64, urgency: Urgency::First { again_us: 20_000 } };
        let later = Claim { wanted: 1, least: 64, urgency: Urgency::Later };
        assert_eq!(limits.take_part(0, NodeId(1), first(100)), 100);
        for at_us in (10_000..640_000).step_by(10_000) {
            assert_eq!(limits.take_part(at_us, NodeId(1), first(64)), 0);
            assert_eq!(limits.take_part(at_us, NodeId(1), later), 0);
        }
        assert_eq!(limits.take_part(640_000, NodeId(1), first(64)), 64);
        assert_eq!(limits.take_part(650_000, NodeId(1), later), 1, "nothing is saved any more");
    }

    #[test]
    fn a_flood_of_nodes_is_bounded() {
        let mut limits = Limits::new(10);
        let granted: u32 = (0..10_000).map(|node| limits.take(0, NodeId(node), 1)).sum();
        assert_eq!(granted as usize, NODES_MAX);
        assert_eq!(limits.take(2_000_000, NodeId(99_999), 1), 1);
    }
}
