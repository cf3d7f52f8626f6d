//! Partners: the members of a group that a node makes repairs for (Slingshot §3.3).
//!
//! In a large group a node repairs for a random part of the members, its *partners* there. Each member has
//! its own, so every member is the partner of about as many others, and gets as many repairs as before. But a
//! packet meets the bins of few partners instead of those of hundreds, and two nodes that are partners in
//! several groups fill their common bins sooner.
//!
//! Partners are those members that have the lowest *ranks* in the group. A rank is a hash of both nodes, so
//! it is the same in all groups, and members that come or go change little. A random choice may serve a
//! member badly, so it should not last: with each *turn* one member in [`TURNS`] gets another rank.

use crate::groups::Groups;
use crate::ids::{GroupId, NodeId};
use crate::view::{Member, View};

/// Number of turns in which each member gets another rank once.
const TURNS: u64 = 16;

/// Returns the part of a view that node `me` makes repairs for, with at most `partners_max` members in each
/// of its groups; `None` if that is all of it.
pub(crate) fn part_of(
    me: NodeId,
    groups: &Groups,
    view: &View,
    partners_max: usize,
    turn: u64,
) -> Option<View> {
    let others = || view.members().iter().filter(|member| member.id() != me);
    let mut sizes = vec![0_usize; groups.len()];
    for member in others() {
        for group in member.groups().iter().filter_map(|&id| groups.index(id)) {
            sizes[group.at()] += 1;
        }
    }
    if sizes.iter().all(|&size| size <= partners_max) {
        return None;
    }
    let mut ranked: Vec<(u64, &Member)> =
        others().map(|member| (rank(me, member.id(), turn), member)).collect();
    ranked.sort_unstable_by_key(|&(rank, member)| (rank, member.id()));
    let mut taken = vec![0_usize; groups.len()];
    let mut take = |id: GroupId| {
        let taken = &mut taken[groups.index(id)?.at()];
        *taken += 1;
        (*taken <= partners_max).then_some(id)
    };
    let of_member = |(_, member): (u64, &Member)| {
        let shared: Vec<GroupId> = member.groups().iter().filter_map(|&id| take(id)).collect();
        (!shared.is_empty()).then(|| Member::new(member.id(), shared))
    };
    Some(View::new(ranked.into_iter().filter_map(of_member)))
}

/// Returns the rank that a member has for node `me`.
fn rank(me: NodeId, member: NodeId, turn: u64) -> u64 {
    let pair = mixed(u64::from(me.0) << 32 | u64::from(member.0));
    // The members change at different turns.
    mixed(pair ^ ((turn + pair % TURNS) / TURNS))
}

/// Mixes the bits of a number (the finalizer of SplitMix64).
pub(crate) fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::groups::GroupConfig;

    fn groups(ids: &[u64]) -> Groups {
        Groups::new(ids.iter().map(|&id| GroupConfig { id: GroupId(id), c: 5 }).collect::<Vec<_>>()).unwrap()
    }

    /// Returns the members of a group in a view.
    fn members(view: &View, group: u64) -> BTreeSet<u32> {
        let of_group = |member: &&Member| member.groups().contains(&GroupId(group));
        view.members().iter().filter(of_group).map(|member| member.id().0).collect()
    }

    /// 1,000 nodes in group 1, a hundred of them also in group 2, and all in group 3, which node 0 is not in.
    fn crowd() -> View {
        let of = |id: u32| if id.is_multiple_of(10) { vec![1, 2, 3] } else { vec![1, 3] };
        let groups = |id| of(id).into_iter().map(GroupId).collect::<Vec<_>>();
        View::new((0..1_000).map(|id| Member::new(NodeId(id), groups(id))))
    }

    #[test]
    fn a_node_has_partners_in_a_large_group_and_all_members_of_a_small_one() {
        let part = part_of(NodeId(0), &groups(&[1, 2]), &crowd(), 64, 0).unwrap();
        let (large, small) = (members(&part, 1), members(&part, 2));
        assert_eq!((large.len(), small.len(), members(&part, 3).len()), (64, 64, 0));
        assert!(!large.contains(&0));
        // Ranks are the same in both groups: whoever is a partner in the large one is in the small one too.
        assert!(large.iter().filter(|id| id.is_multiple_of(10)).all(|id| small.contains(id)));
        let part = part_of(NodeId(0), &groups(&[1, 2]), &crowd(), 99, 0).unwrap();
        assert_eq!((members(&part, 1).len(), members(&part, 2).len()), (99, 99));
        assert_eq!(part_of(NodeId(0), &groups(&[1, 2]), &crowd(), 999, 0), None);
        assert_eq!(part_of(NodeId(0), &groups(&[2]), &crowd(), 99, 0), None, "the large group is another's");
    }

    #[test]
    fn every_member_is_a_partner_of_about_as_many() {
        let mut times = vec![0; 1_000];
        for me in 0..1_000 {
            let part = part_of(NodeId(me), &groups(&[1]), &crowd(), 64, 0).unwrap();
            members(&part, 1).into_iter().for_each(|id| times[id as usize] += 1);
        }
        // Five standard deviations are 39.
        assert!(times.iter().all(|times| (25..=103).contains(times)), "{times:?}");
    }

    #[test]
    fn partners_change_slowly_and_all_of_them_in_time() {
        let at = |turn| members(&part_of(NodeId(7), &groups(&[1]), &crowd(), 64, turn).unwrap(), 1);
        for turn in 0..2 * TURNS {
            let stay = at(turn).intersection(&at(turn + 1)).count();
            assert!((48..64).contains(&stay), "turn {turn}: {stay} of 64 stay");
        }
        let stay = at(0).intersection(&at(TURNS)).count();
        assert!(stay < 16, "{stay} of 64 are partners again");
    }

    #[test]
    fn a_member_that_leaves_takes_no_other_partner_with_it() {
        let (groups, mut view) = (groups(&[1]), crowd());
        let before = members(&part_of(NodeId(7), &groups, &view, 64, 3).unwrap(), 1);
        let left = *before.first().unwrap();
        view.remove(NodeId(left));
        let after = members(&part_of(NodeId(7), &groups, &view, 64, 3).unwrap(), 1);
        assert_eq!((after.len(), before.difference(&after).collect::<Vec<_>>()), (64, vec![&left]));
    }
}
