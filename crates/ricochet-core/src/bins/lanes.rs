//! Lanes, at which the levels of a region take turns.
//!
//! Algorithm 2 leaves open how the levels of a region are drawn. If each were drawn independently, two levels
//! would often send a packet to the same node, and as often no level would send it. With nine levels of 1/9
//! each, for example, a third of all packets would be sent to no node. So the levels take turns at a *lane*,
//! which sends to one node at a time. A level of mean m has the lane for the share m of the time, and the
//! lane pauses for the share that is left. A packet that enters levels of sum w is then sent to exactly one
//! node with probability w, or to none. Where levels add up to more than 1, several lanes lie side by side
//! and hold different nodes. Whole lanes that one level has for itself are merged into one lane with several
//! nodes. Lanes also make packets cheap: a packet meets one or two lanes in each region, whatever the number
//! of levels.

use crate::ids::GroupIndex;
use crate::regions::Regions;
use crate::rows::Rows;
use crate::targets::Plan;

/// Level of a pause, a turn that no packet enters.
pub(super) const QUIET: u32 = u32::MAX;
/// Bound below which a mean is a rounding error.
const NOTHING: f64 = 1e-9;

/// A turn at a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    /// Number of levels that a group needs for its packets to enter.
    pub(super) level: u32,
    /// Number of nodes that its repairs go to.
    pub(super) targets: u32,
    /// Share of the packets of its region during which it has the lane. The shares of a lane add up to 1.
    pub(super) share: f64,
}

/// A lane of one region.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    /// Indices of its turns among those of all lanes.
    pub(super) turns: std::ops::Range<usize>,
    /// Indices of its region's levels among those of all regions.
    pub(super) levels: std::ops::Range<usize>,
    /// Its own slots among the members of all regions, one for each target of its widest turn.
    pub(super) slots: std::ops::Range<usize>,
    /// All slots of its region.
    pub(super) region: std::ops::Range<usize>,
}

impl Lane {
    /// Returns the turn that most packets enter: the first that is no pause. Turns are in the order of their
    /// levels.
    pub(super) fn widest(&self, lanes: &Lanes) -> usize {
        self.turns.start + usize::from(lanes.turn(self.turns.start).level == QUIET)
    }
}

/// The lanes and levels that a packet of a group enters in one region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) first_lane: u32,
    pub(super) lanes: u32,
    /// Number of levels that it enters.
    pub(super) levels: u32,
    /// Index of the last of these levels among those of all regions.
    pub(super) last_level: u32,
}

/// The lanes of one view.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    turns: Vec<Turn>,
    entries: Rows<Entry>,
    /// Lane that owns each slot.
    owners: Vec<Option<u32>>,
    /// For each level, the number of groups that enter it and none beyond it.
    groups: Vec<u32>,
}

impl Lanes {
    pub(super) fn new(regions: &Regions, plan: &Plan) -> Self {
        let members = regions.iter().map(|region| regions.members(region).len()).sum();
        let (mut lanes, mut turns) = (Vec::new(), Vec::new());
        let mut owners = vec![None; members];
        let mut of_region = Vec::with_capacity(regions.len());
        let mut first_level = 0;
        for region in regions.iter() {
            let (slots, means) = (regions.member_range(region), plan.levels(region));
            let levels = first_level..first_level + means.len();
            let (first_lane, mut first_slot) = (lanes.len(), slots.start);
            for lane in split(means) {
                let most = lane.iter().map(|turn| turn.targets).max().unwrap_or(0) as usize;
                let own = first_slot..first_slot + most;
                owners[own.clone()].fill(Some(lanes.len() as u32));
                let start = turns.len();
                turns.extend(lane);
                let (turns, levels) = (start..turns.len(), levels.clone());
                lanes.push(Lane { turns, levels, slots: own, region: slots.clone() });
                first_slot += most;
            }
            of_region.push((first_lane, lanes.len() - first_lane, first_level));
            first_level = levels.end;
        }
        let mut groups = vec![0; first_level];
        let mut entries = Vec::new();
        for group in 0..plan.groups() {
            for share in plan.shares(GroupIndex::new(group)) {
                let (first_lane, lanes, first_level) = of_region[share.region.at()];
                let last_level = first_level as u32 + share.levels - 1;
                let (first_lane, lanes) = (first_lane as u32, lanes as u32);
                groups[last_level as usize] += 1;
                entries.push((group, Entry { first_lane, lanes, levels: share.levels, last_level }));
            }
        }
        Self { entries: Rows::collect(plan.groups(), &entries), lanes, turns, owners, groups }
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    #[inline]
    pub(super) fn lane(&self, lane: usize) -> &Lane {
        &self.lanes[lane]
    }

    /// Returns the number of turns of all lanes together.
    pub(super) fn turns(&self) -> usize {
        self.turns.len()
    }

    /// Returns the largest number of turns of a lane.
    pub(super) fn turns_max(&self) -> usize {
        self.lanes.iter().map(|lane| lane.turns.len()).max().unwrap_or(0)
    }

    /// Returns for each level of all regions the number of groups that enter it and none beyond it.
    pub(super) fn groups(&self) -> &[u32] {
        &self.groups
    }

    #[inline]
    pub(super) fn turn(&self, turn: usize) -> &Turn {
        &self.turns[turn]
    }

    pub(super) fn owner(&self, slot: usize) -> Option<usize> {
        self.owners[slot].map(|lane| lane as usize)
    }

    /// Returns the indices of a group's entries, for a caller that changes instances while it iterates.
    #[inline]
    pub(super) fn entry_range(&self, group: GroupIndex) -> std::ops::Range<usize> {
        self.entries.range(group.at())
    }

    #[inline]
    pub(super) fn entry(&self, place: usize) -> Entry {
        self.entries.item(place)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lanes)
            + size_of_val(&*self.turns)
            + size_of_val(&*self.owners)
            + size_of_val(&*self.groups)
    }
}

/// Distributes the levels of a region among lanes.
fn split(levels: &[f64]) -> Vec<Vec<Turn>> {
    let quiet = |share| Turn { level: QUIET, targets: 0, share };
    let turn = |at: usize, targets, share| Turn { level: at as u32 + 1, targets, share };
    if let &[mean] = levels {
        // A single level goes to the floor or the ceiling of its mean at random (Ricochet §4.2.1).
        let (floor, fraction) = (mean.floor(), mean.fract());
        let low = if floor > 0.0 { turn(0, floor as u32, 1.0 - fraction) } else { quiet(1.0 - fraction) };
        let high = turn(0, floor as u32 + 1, fraction);
        return vec![[low, high].into_iter().filter(|turn| turn.share > NOTHING).collect()];
    }
    let mut lanes: Vec<Vec<Turn>> = Vec::new();
    let (mut lane, mut room) = (Vec::new(), 1.0);
    for (at, &mean) in levels.iter().enumerate() {
        let mut left = mean;
        while left > NOTHING {
            let share = left.min(room);
            lane.push(turn(at, 1, share));
            left -= share;
            room -= share;
            if room <= NOTHING {
                close(&mut lanes, std::mem::take(&mut lane));
                room = 1.0;
            }
        }
    }
    if !lane.is_empty() {
        lane.push(quiet(room));
        lanes.push(lane);
    }
    lanes
}

/// Adds a full lane, or one more node to the last lane if the same level has both for itself.
fn close(lanes: &mut Vec<Vec<Turn>>, lane: Vec<Turn>) {
    if let ([turn], Some([last])) = (&lane[..], lanes.last_mut().map(|last| &mut last[..]))
        && turn.level == last.level
    {
        last.targets += 1;
        return;
    }
    lanes.push(lane);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(levels: &[f64]) -> Vec<Vec<(u32, u32, f64)>> {
        let lanes = split(levels);
        let rounded = |share: f64| (share * 1e6).round() / 1e6;
        let lane = |lane: &Vec<Turn>| {
            lane.iter().map(|turn| (turn.level, turn.targets, rounded(turn.share))).collect::<Vec<_>>()
        };
        lanes.iter().map(lane).collect()
    }

    #[test]
    fn one_level_alone_goes_to_the_floor_or_the_ceiling_of_its_mean() {
        assert_eq!(shape(&[0.3]), [[(QUIET, 0, 0.7), (1, 1, 0.3)]]);
        assert_eq!(shape(&[4.3]), [[(1, 4, 0.7), (1, 5, 0.3)]]);
        assert_eq!(shape(&[5.0]), [[(1, 5, 1.0)]]);
    }

    #[test]
    fn several_levels_share_lanes_of_one_node_each() {
        assert_eq!(shape(&[0.3, 0.2]), [[(1, 1, 0.3), (2, 1, 0.2), (QUIET, 0, 0.5)]]);
        assert_eq!(
            shape(&[2.3, 0.9]),
            [vec![(1, 2, 1.0)], vec![(1, 1, 0.3), (2, 1, 0.7)], vec![(2, 1, 0.2), (QUIET, 0, 0.8)]]
        );
        // A share that is left by rounding alone makes no turn.
        assert_eq!(shape(&[0.1; 10]).len(), 1);
        assert_eq!(shape(&[0.5, 0.5]), [[(1, 1, 0.5), (2, 1, 0.5)]]);
        assert_eq!(shape(&[]).len(), 0);
    }
}
