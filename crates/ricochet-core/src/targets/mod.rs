//! Targets: to how many nodes of which regions the repairs of each group go (Thesis §4.4, Algorithm 2).
//!
//! Every packet of a group A with rate (r, c) is to reach c nodes of the group in repairs, drawn from the regions in
//! proportion to their size: c·|x|/|A| from region x. Groups that share a region want different numbers. So the first
//! bin of a region takes packets of all its groups, and goes to as many nodes as the group with the least wish wants;
//! what the others still want is left to a second bin of those groups alone, again the least of it, and so on. These
//! are the *levels* of a region. A packet enters the first few of them, as many as its group has wishes for, and the
//! numbers add up to what its group wanted.

use crate::groups::Groups;
use crate::ids::{GroupIndex, RegionIndex};
use crate::regions::Regions;
use crate::rows::Rows;

/// What a group has in a region: its packets enter the first `levels` levels there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The region.
    pub region: RegionIndex,
    /// At least one.
    pub levels: u32,
}

/// The levels of all regions and who enters them, for one view.
///
/// A region has as many levels as its groups have different wishes.
///
/// ```
/// use ricochet_core::{GroupConfig, GroupId, Groups, Member, NodeId, Plan, Regions, View};
/// // two nodes in both groups, two more in the first: that one is twice the size, and wants half of each node
/// let groups = Groups::new([1, 2].map(|id| GroupConfig { id: GroupId(id), c: 1 }))?;
/// let both = [GroupId(1), GroupId(2)];
/// let view = View::new([(1, &both[..]), (2, &both), (3, &both[..1]), (4, &both[..1])]
///     .map(|(id, groups)| Member::new(NodeId(id), groups)));
/// let regions = Regions::new(NodeId(0), &groups, &view);
/// let plan = Plan::new(&groups, &regions);
/// let means: Vec<&[f64]> = regions.iter().map(|region| plan.levels(region)).collect();
/// // in the first region a level of both groups and one of the second alone, for its remainder
/// assert_eq!(means, [&[0.5, 0.5][..], &[0.5]]);
/// # Ok::<(), ricochet_core::GroupsError>(())
/// ```
#[derive(Debug)]
pub struct Plan {
    levels: Rows<f64>,
    shares: Rows<Share>,
}

impl Plan {
    /// Runs Algorithm 2 over all regions.
    pub fn new(groups: &Groups, regions: &Regions) -> Self {
        let (mut levels, mut shares) = (Vec::with_capacity(regions.len()), Vec::new());
        let (mut wanted, mut wishes) = (Vec::new(), Vec::new());
        for region in regions.iter() {
            let members = regions.members(region).len();
            let shared = regions.groups(region);
            wanted.clear();
            wanted.extend(
                shared.iter().map(|&group| share(groups.c(group), members, regions.group_size(group))),
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
        Self { levels: Rows::collect(regions.len(), &levels), shares: Rows::collect(groups.len(), &shares) }
    }

    /// To how many nodes of a region each of its levels goes, on average: all above 0, and together no more than the
    /// region has.
    ///
    /// # Panics
    /// If the index is not of the regions that this plan was made for.
    pub fn levels(&self, region: RegionIndex) -> &[f64] {
        self.levels.row(region.at())
    }

    /// Where the packets of a group go: each region once, and none where its c is 0.
    ///
    /// # Panics
    /// If the index is not of the groups that this plan was made for.
    pub fn shares(&self, group: GroupIndex) -> &[Share] {
        self.shares.row(group.at())
    }

    /// How many groups there are.
    pub(crate) fn groups(&self) -> usize {
        self.shares.len()
    }
}

/// What a group with `c` wants of a region with `members` of its `size` nodes: c·|x|/|A|, and no node twice.
///
/// Equal fractions give equal floats, since both sides are whole numbers and division rounds correctly; so groups that
/// want the same are satisfied in the same round.
fn share(c: u8, members: usize, size: usize) -> f64 {
    let wanted = (usize::from(c) * members) as f64 / size as f64;
    wanted.min(members as f64)
}

#[cfg(test)]
mod tests;
