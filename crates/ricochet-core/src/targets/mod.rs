//! Targets: to how many nodes of which regions the repairs of each group go (Thesis §4.4, Algorithm 2).
//!
//! Repairs should carry every packet of a group A with rate (r, c) to c nodes of the group, drawn from the
//! regions in proportion to their size: c·|x|/|A| from region x. Groups that share a region want different
//! numbers. So the first bin of a region takes packets of all its groups, and goes to the smallest number of
//! nodes that any of them wants. A second bin takes packets of the groups that want more, and goes to the
//! smallest remainder among these, and so on. These bins are the *levels* of a region. A packet enters the
//! first levels up to the one that completes its group's number, and the numbers of these levels add up to
//! what its group wants.

use crate::groups::{GroupConfig, Groups};
use crate::ids::{GroupIndex, RegionIndex};
use crate::regions::Regions;
use crate::rows::Rows;

/// Share of a group in a region: its packets enter the first `levels` levels there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The region.
    pub region: RegionIndex,
    /// Number of levels, at least one.
    pub levels: u32,
}

/// The levels of all regions and the groups that enter them, for one view.
///
/// A region has a level for each distinct number that its groups want.
///
/// ```
/// use ricochet_core::{GroupConfig, GroupId, Groups, Member, NodeId, Plan, Regions, View};
/// // Two nodes are in both groups, two more in the first. The first group is twice the size, and so wants
/// // half as many nodes of the shared region.
/// let groups = Groups::new([1, 2].map(|id| GroupConfig { id: GroupId(id), c: 1 }))?;
/// let both = [GroupId(1), GroupId(2)];
/// let view = View::new([(1, &both[..]), (2, &both), (3, &both[..1]), (4, &both[..1])]
///     .map(|(id, groups)| Member::new(NodeId(id), groups)));
/// let regions = Regions::new(NodeId(0), &groups, &view);
/// let plan = Plan::new(&groups, &regions);
/// let means: Vec<&[f64]> = regions.iter().map(|region| plan.levels(region)).collect();
/// // The first region has a level for both groups, and one for the remainder of the second group alone.
/// assert_eq!(means, [&[0.5, 0.5][..], &[0.5]]);
/// # Ok::<(), ricochet_core::GroupsError>(())
/// ```
#[derive(Debug)]
pub struct Plan {
    levels: Rows<f64>,
    shares: Rows<Share>,
    /// For each group, the number of repairs that its packets enter.
    repairs: Box<[f64]>,
}

impl Plan {
    /// Runs Algorithm 2 over all regions.
    pub fn new(groups: &Groups, regions: &Regions) -> Self {
        Self::capped(groups, regions, u8::MAX)
    }

    /// Does the same with at most `c_max` repairs for each packet.
    pub fn capped(groups: &Groups, regions: &Regions, c_max: u8) -> Self {
        let (mut levels, mut shares) = (Vec::with_capacity(regions.len()), Vec::new());
        let (mut wanted, mut wishes) = (Vec::new(), Vec::new());
        for region in regions.iter() {
            let members = regions.members(region).len();
            let shared = regions.groups(region);
            wanted.clear();
            wanted.extend(
                shared
                    .iter()
                    .map(|&group| share(groups.c(group).min(c_max), members, regions.group_size(group))),
            );
            wishes.clear();
            wishes.extend(wanted.iter().copied().filter(|&want| want > 0.0));
            wishes.sort_unstable_by(f64::total_cmp);
            wishes.dedup();
            let mut given = 0.0;
            for &wish in &wishes {
                levels.push((region.at(), wish - given));
                given = wish;
            }
            for (group, want) in shared.iter().zip(&wanted) {
                let levels = wishes.partition_point(|wish| wish <= want) as u32;
                if levels > 0 {
                    shares.push((group.at(), Share { region, levels }));
                }
            }
        }
        let enter = |(group, config): (GroupIndex, GroupConfig)| {
            usize::from(config.c.min(c_max)).min(regions.group_size(group)) as f64
        };
        Self {
            levels: Rows::collect(regions.len(), &levels),
            shares: Rows::collect(groups.len(), &shares),
            repairs: groups.iter().map(enter).collect(),
        }
    }

    /// Returns the average number of repairs that each packet of a group enters: c, and at most one for each
    /// other member.
    ///
    /// # Panics
    /// If the index does not belong to the groups that this plan was made for.
    pub fn repairs(&self, group: GroupIndex) -> f64 {
        self.repairs[group.at()]
    }

    /// Returns the average number of nodes that each level of a region goes to. Each is above 0, and together
    /// they are at most the nodes of the region.
    ///
    /// # Panics
    /// If the index does not belong to the regions that this plan was made for.
    pub fn levels(&self, region: RegionIndex) -> &[f64] {
        self.levels.row(region.at())
    }

    /// Returns the group's shares: each region once, and none if its c is 0.
    ///
    /// # Panics
    /// If the index does not belong to the groups that this plan was made for.
    pub fn shares(&self, group: GroupIndex) -> &[Share] {
        self.shares.row(group.at())
    }

    /// Returns the number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.shares.len()
    }
}

/// Returns the number of nodes that a group with `c` wants of a region with `members` of its `size` nodes:
/// c·|x|/|A|, and at most all of them.
///
/// Equal fractions give equal floats, since numerator and denominator are whole numbers and division rounds
/// correctly. So groups that want the same number share a level.
fn share(c: u8, members: usize, size: usize) -> f64 {
    let wanted = (usize::from(c) * members) as f64 / size as f64;
    wanted.min(members as f64)
}

#[cfg(test)]
mod tests;
