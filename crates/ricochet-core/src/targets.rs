//! Targets: which bins there are, whose packets enter them, and to how many nodes of which regions their repairs go
//! (Thesis §4.4, Algorithm 2).
//!
//! Every packet of a group A with rate (r, c) is to reach c nodes of the group in repairs, drawn from the regions in
//! proportion to their size: c·|x|/|A| from region x. Groups that share a region want different numbers. So the bin of
//! all groups of x takes the least of them; what the others still want is left to the bin of those groups alone, again
//! the least of it, and so on. A packet then enters each of these bins that its group belongs to, and the numbers add
//! up to what its group wanted.

use rand_chacha::rand_core::Rng;

use crate::chance;
use crate::groups::Groups;
use crate::ids::{BinIndex, GroupIndex, NodeId, RegionIndex};
use crate::regions::Regions;
use crate::rows::Rows;
use crate::sets::Sets;

/// Where the repairs of a bin go: to `mean` nodes of a region, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Feed {
    /// The region.
    pub region: RegionIndex,
    /// Above 0, and never above the region's size.
    pub mean: f64,
}

impl Feed {
    /// How many nodes one repair goes to: the floor or the ceiling of the mean, by chance (Ricochet §4.2.1).
    ///
    /// To be drawn before the bin begins to fill, so that a sum that nobody will get is never computed (§4.2.5).
    #[inline]
    pub fn draw(&self, rng: &mut impl Rng) -> u32 {
        chance::floor_or_ceiling(rng, self.mean)
    }
}

/// The bins of this node and their targets, for one view.
///
/// There is a bin for each occupied region, and one for each remainder that no region's own bin covers; the latter
/// are at most as many, for each region, as its groups want different numbers.
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
/// let means: Vec<(usize, Vec<f64>)> = plan.iter()
///     .map(|bin| (plan.groups(bin).len(), plan.feeds(bin).iter().map(|feed| feed.mean).collect()))
///     .collect();
/// // the bin of both groups, that of the second alone for its remainder, and that of the first alone
/// assert_eq!(means, [(2, vec![0.5]), (1, vec![0.5]), (1, vec![0.5])]);
/// # Ok::<(), ricochet_core::GroupsError>(())
/// ```
#[derive(Debug)]
pub struct Plan {
    sets: Sets<GroupIndex>,
    feeds: Rows<Feed>,
    by_group: Rows<BinIndex>,
}

impl Plan {
    /// Runs Algorithm 2 over all regions.
    pub fn new(groups: &Groups, regions: &Regions) -> Self {
        let mut sets = Sets::new();
        let mut feeds = Vec::with_capacity(regions.len());
        let (mut wanted, mut rest) = (Vec::new(), Vec::new());
        for region in regions.iter() {
            let members = regions.members(region).len();
            let shared = regions.groups(region);
            wanted.clear();
            wanted.extend(
                shared.iter().map(|&group| share(groups.c(group), members, regions.group_size(group))),
            );
            let mut given = 0.0;
            // What all groups want beyond `given` is left; each round satisfies the groups that want the least of it.
            while let Some(least) = wanted.iter().copied().filter(|&want| want > given).reduce(f64::min) {
                rest.clear();
                rest.extend(
                    shared.iter().zip(&wanted).filter(|&(_, &want)| want > given).map(|(&group, _)| group),
                );
                feeds.push((sets.intern(&rest), Feed { region, mean: least - given }));
                given = least;
            }
        }
        let mut by_group = Vec::new();
        for bin in 0..sets.len() {
            by_group.extend(sets.set(bin).iter().map(|group| (group.at(), BinIndex::new(bin))));
        }
        Self {
            feeds: Rows::collect(sets.len(), &feeds),
            by_group: Rows::collect(groups.len(), &by_group),
            sets,
        }
    }

    /// How many bins there are.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether there is no bin: nobody to repair for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bins.
    pub fn iter(&self) -> impl Iterator<Item = BinIndex> + use<> {
        (0..self.len()).map(BinIndex::new)
    }

    /// The bins that a packet of a group enters.
    ///
    /// # Panics
    /// If the index is not of the groups that this plan was made for.
    #[inline]
    pub fn bins(&self, group: GroupIndex) -> &[BinIndex] {
        self.by_group.row(group.at())
    }

    /// Where the bins of a group lie among those of all groups, for those who change bins while they go through them.
    #[inline]
    pub(crate) fn bin_range(&self, group: GroupIndex) -> std::ops::Range<usize> {
        self.by_group.range(group.at())
    }

    /// The bin at a place within a [`bin_range`](Self::bin_range).
    #[inline]
    pub(crate) fn bin_at(&self, place: usize) -> BinIndex {
        self.by_group.item(place)
    }

    /// The groups whose packets enter a bin, in order; never empty.
    ///
    /// # Panics
    /// If the index is not of this plan.
    pub fn groups(&self, bin: BinIndex) -> &[GroupIndex] {
        self.sets.set(bin.at())
    }

    /// The regions that a bin's repairs go to, each once; never empty.
    ///
    /// # Panics
    /// If the index is not of this plan.
    #[inline]
    pub fn feeds(&self, bin: BinIndex) -> &[Feed] {
        self.feeds.row(bin.at())
    }

    /// Where a bin's feeds lie among those of all bins.
    #[inline]
    pub(crate) fn feed_range(&self, bin: BinIndex) -> std::ops::Range<usize> {
        self.feeds.range(bin.at())
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

/// Appends `count` distinct nodes of a region, each as likely as the others.
pub fn choose_targets(
    rng: &mut impl Rng,
    regions: &Regions,
    region: RegionIndex,
    count: u32,
    to: &mut Vec<NodeId>,
) {
    chance::choose(rng, regions.members(region), count as usize, to);
}

#[cfg(test)]
mod tests;
