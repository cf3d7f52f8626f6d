//! Regions: the disjoint intersections of this node's groups (Ricochet §4.1.1).

use crate::groups::Groups;
use crate::ids::{GroupId, GroupIndex, NodeId, RegionIndex};
use crate::rows::Rows;
use crate::sets::Sets;
use crate::view::View;

/// The neighbours of this node, divided by the groups of this node that they are in.
///
/// A region is a set of this node's groups together with the nodes that are in exactly these. Only sets with
/// members are regions, so there are never more regions than neighbours, whatever the number of groups. This
/// node itself is in no region and counts in no size (Ricochet §4.2.3).
///
/// ```
/// use ricochet_core::{GroupConfig, GroupId, Groups, Member, NodeId, Regions, View};
/// let [a, b, foreign] = [1, 2, 3].map(GroupId);
/// let groups = Groups::new([a, b].map(|id| GroupConfig { id, c: 5 }))?;
/// let view = View::new([
///     Member::new(NodeId(1), [a, b, foreign]),
///     Member::new(NodeId(2), [b]),
///     Member::new(NodeId(3), [foreign]),
///     Member::new(NodeId(4), [a, b]),
/// ]);
/// let regions = Regions::new(NodeId(9), &groups, &view);
/// let members: Vec<_> = regions.iter().map(|region| regions.members(region)).collect();
/// assert_eq!(members, [&[NodeId(1), NodeId(4)][..], &[NodeId(2)]]);
/// # Ok::<(), ricochet_core::GroupsError>(())
/// ```
#[derive(Debug)]
pub struct Regions {
    sets: Sets<GroupIndex>,
    members: Rows<NodeId>,
    sizes: Box<[u32]>,
}

impl Regions {
    /// Divides the neighbours of node `me`, which is in `groups`. Nodes that share no group with it are in no
    /// region.
    ///
    /// Regions are numbered in the order of their first members. The cost is one merge of two sorted lists
    /// for each member.
    pub fn new(me: NodeId, groups: &Groups, view: &View) -> Self {
        let mut sets = Sets::new();
        let mut members = Vec::with_capacity(view.members().len());
        let mut sizes = vec![0u32; groups.len()].into_boxed_slice();
        let ours: Vec<GroupId> = groups.iter().map(|(_, group)| group.id).collect();
        let mut shared = Vec::with_capacity(groups.len());
        for member in view.members().iter().filter(|member| member.id() != me) {
            shared.clear();
            intersect(&ours, member.groups(), &mut shared);
            if shared.is_empty() {
                continue;
            }
            for group in &shared {
                sizes[group.at()] += 1;
            }
            members.push((sets.intern(&shared), member.id()));
        }
        Self { members: Rows::collect(sets.len(), &members), sets, sizes }
    }

    /// Returns no regions.
    pub(crate) fn empty() -> Self {
        Self { sets: Sets::new(), members: Rows::collect(0, &[]), sizes: Box::default() }
    }

    /// Returns the number of regions.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Returns whether this node shares no group with any other.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all regions.
    pub fn iter(&self) -> impl Iterator<Item = RegionIndex> + use<> {
        (0..self.len()).map(RegionIndex::new)
    }

    /// Returns the groups of this node that the members of a region are in, in order; never empty.
    ///
    /// # Panics
    /// If the index does not belong to these regions.
    pub fn groups(&self, region: RegionIndex) -> &[GroupIndex] {
        self.sets.set(region.at())
    }

    /// Returns the nodes in a region, in order; never empty.
    ///
    /// # Panics
    /// If the index does not belong to these regions.
    #[inline]
    pub fn members(&self, region: RegionIndex) -> &[NodeId] {
        self.members.row(region.at())
    }

    /// Returns the indices of a region's members among the members of all regions.
    pub(crate) fn member_range(&self, region: RegionIndex) -> std::ops::Range<usize> {
        self.members.range(region.at())
    }

    /// Returns the number of other nodes in a group.
    ///
    /// # Panics
    /// If the index does not belong to these groups.
    pub fn group_size(&self, group: GroupIndex) -> usize {
        self.sizes[group.at()] as usize
    }
}

/// Appends to `shared` the indices in `ours` of the groups that are also in `theirs`. Both lists are sorted.
fn intersect(ours: &[GroupId], theirs: &[GroupId], shared: &mut Vec<GroupIndex>) {
    // If their list is much shorter, looking up each of its groups is quicker than a merge.
    if theirs.len() * 16 < ours.len() {
        shared.extend(theirs.iter().filter_map(|id| ours.binary_search(id).ok()).map(GroupIndex::new));
        return;
    }
    let (mut our, mut their) = (0, 0);
    while our < ours.len() && their < theirs.len() {
        let (mine, other) = (ours[our], theirs[their]);
        if mine == other {
            shared.push(GroupIndex::new(our));
        }
        our += usize::from(mine <= other);
        their += usize::from(other <= mine);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::groups::GroupConfig;
    use crate::view::Member;

    proptest! {
        #[test]
        fn every_neighbour_is_in_the_one_region_of_the_groups_it_shares(
            mine in prop::collection::btree_set(0u64..40, 0..40),
            nodes in prop::collection::vec(prop::collection::btree_set(0u64..60, 0..50), 0..30),
        ) {
            let groups = Groups::new(
                mine.iter().map(|&id| GroupConfig { id: GroupId(id), c: 5 }).collect::<Vec<_>>()).unwrap();
            let member = |(id, groups): (usize, &BTreeSet<u64>)| {
                Member::new(NodeId(id as u32), groups.iter().map(|&id| GroupId(id)).collect::<Vec<_>>())
            };
            let view = View::new(nodes.iter().enumerate().map(member));
            let regions = Regions::new(NodeId(0), &groups, &view);

            let mut model: BTreeMap<BTreeSet<u64>, Vec<NodeId>> = BTreeMap::new();
            for (id, theirs) in nodes.iter().enumerate().skip(1) {
                let shared: BTreeSet<u64> = mine.intersection(theirs).copied().collect();
                if !shared.is_empty() {
                    model.entry(shared).or_default().push(NodeId(id as u32));
                }
            }
            let found: BTreeMap<BTreeSet<u64>, Vec<NodeId>> = regions.iter().map(|region| {
                let set = regions.groups(region).iter().map(|&group| groups.id(group).0).collect();
                (set, regions.members(region).to_vec())
            }).collect();
            prop_assert_eq!(regions.len(), model.len());
            prop_assert_eq!(found, model);
            for (index, group) in groups.iter() {
                let size = nodes.iter().skip(1).filter(|theirs| theirs.contains(&group.id.0)).count();
                prop_assert_eq!(regions.group_size(index), size);
            }
        }
    }

    #[test]
    fn looking_up_a_short_list_and_merging_a_long_one_give_the_same_result() {
        let ours: Vec<GroupId> = (0..500).map(|id| GroupId(id * 2)).collect();
        for length in [1u64, 20, 40, 400] {
            let theirs: Vec<GroupId> = (0..length).map(|id| GroupId(id * 3)).collect();
            let mut shared = Vec::new();
            intersect(&ours, &theirs, &mut shared);
            let expected: Vec<_> = theirs
                .iter()
                .filter(|id| id.0.is_multiple_of(2) && id.0 < 1_000)
                .map(|id| GroupIndex::new(id.0 as usize / 2))
                .collect();
            assert_eq!(shared, expected);
        }
    }
}
