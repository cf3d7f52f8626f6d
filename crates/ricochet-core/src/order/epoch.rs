//! Epochs, and the members that agree on them.

use crate::ids::NodeId;

/// A time in which one member numbers the messages. Of two epochs, the greater one is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// Counts the epochs that were tried.
    pub count: u32,
    /// Member that numbers the messages.
    pub sequencer: NodeId,
}

/// Maximum number of members of a council.
pub(super) const COUNCIL_MAX: usize = 1_024;

/// The members that an epoch began with. A majority of them is needed to number messages, and to begin the
/// next epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Council {
    /// Each once. The first one decides between two halves.
    pub(super) members: Vec<NodeId>,
}

impl Council {
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.members.contains(&node)
    }

    /// Returns whether the members for which `has` returns true are a majority of those that have not left.
    /// Half of them are one if the first member is among them, so that no two majorities are disjoint. This
    /// holds between nodes that know of different leavers too: one that knows of fewer needs more of those
    /// who stay.
    pub(super) fn is_majority(&self, has: impl Fn(NodeId) -> bool, left: impl Fn(NodeId) -> bool) -> bool {
        let (mut all, mut with, mut first) = (0, 0, None);
        for &member in self.members.iter().filter(|&&member| !left(member)) {
            let has = has(member);
            all += 1;
            with += usize::from(has);
            first.get_or_insert(has);
        }
        2 * with > all || (2 * with == all && first == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_majorities_are_disjoint_whoever_knows_of_which_leavers() {
        for count in 1..=6u32 {
            let council = Council { members: (0..count).map(NodeId).collect() };
            let all = 1u32 << count;
            for (left_a, left_b) in (0..all).flat_map(|a| (0..all).map(move |b| (a, b))) {
                let gone = left_a | left_b;
                let stay = !gone & (all - 1);
                // Only those who stay can be heard; a leaver is heard by nobody.
                for one in (0..all).filter(|one| one & !stay == 0) {
                    let is = |set: u32, left: u32| {
                        council.is_majority(|node| set >> node.0 & 1 == 1, |node| left >> node.0 & 1 == 1)
                    };
                    let other = stay & !one;
                    assert!(!(is(one, left_a) && is(other, left_b)), "{count}: {one:b} {other:b}");
                }
            }
        }
    }

    #[test]
    fn in_a_council_of_two_the_first_goes_on_alone_and_the_second_does_not() {
        let council = Council { members: vec![NodeId(7), NodeId(3)] };
        assert!(council.is_majority(|node| node == NodeId(7), |_| false));
        assert!(!council.is_majority(|node| node == NodeId(3), |_| false));
        assert!(council.is_majority(|node| node == NodeId(3), |node| node == NodeId(7)), "the first left");
        assert!(!council.is_majority(|_| true, |_| true), "nobody is there");
    }
}
