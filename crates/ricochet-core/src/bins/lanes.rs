//! Lanes: where the levels of a region take turns.
//!
//! Algorithm 2 leaves open how the levels of a region are drawn. If each were drawn by itself, a packet would often
//! be sent twice to the same node by one level and another, and as often not at all: with nine levels of 1/9 each, to
//! none in a third of all cases. So the levels take turns at a *lane*, which sends to one node at a time: a level of
//! mean m has it for the share m of the time, the next level for its own, and for the rest nobody has. A packet
//! that enters levels of sum w is then sent to exactly one node with probability w, or to none. Where levels add
//! up to more than 1, several lanes lie side by side and hold different nodes; what a level has of a whole lane for
//! itself is one lane with several nodes. It also makes a packet cheap: it meets one lane or two in each region,
//! however many levels there are.

use crate::ids::GroupIndex;
use crate::regions::Regions;
use crate::rows::Rows;
use crate::targets::Plan;

/// The level of turns that no packet enters.
pub(super) const QUIET: u32 = u32::MAX;
/// Below this a mean is a rounding error.
const NOTHING: f64 = 1e-9;

/// Who may have a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    /// Packets enter whose groups have at least so many levels.
    pub(super) level: u32,
    /// Nodes that its repairs go to.
    pub(super) targets: u32,
    /// For which share of the packets of its region it has the lane; together 1.
    pub(super) share: f64,
}

/// A lane of one region.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    /// Where its turns lie among those of all lanes.
    pub(super) turns: std::ops::Range<usize>,
    /// Where the levels of its region lie among those of all regions.
    pub(super) levels: std::ops::Range<usize>,
    /// Which slots of all regions' members are its own: as many as the most targets it has.
    pub(super) slots: std::ops::Range<usize>,
    /// All slots of its region.
    pub(super) region: std::ops::Range<usize>,
}

impl Lane {
    /// The turn that most packets enter: the first that is no pause. After it they are in the order of their levels.
    pub(super) fn widest(&self, lanes: &Lanes) -> usize {
        self.turns.start + usize::from(lanes.turn(self.turns.start).level == QUIET)
    }
}

/// What a packet of a group meets in one region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) first_lane: u32,
    pub(super) lanes: u32,
    /// Levels that it enters.
    pub(super) levels: u32,
    /// The last of them, among the levels of all regions.
    pub(super) last_level: u32,
}

/// The lanes of one view.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    turns: Vec<Turn>,
    entries: Rows<Entry>,
    /// Of each slot, which lane owns it.
    owners: Vec<Option<u32>>,
    /// Of each level, how many groups enter it and none beyond it.
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

    /// How many turns all lanes have together.
    pub(super) fn turns(&self) -> usize {
        self.turns.len()
    }

    /// How many turns the lane with the most has.
    pub(super) fn turns_max(&self) -> usize {
        self.lanes.iter().map(|lane| lane.turns.len()).max().unwrap_or(0)
    }

    /// Of each level of all regions, how many groups enter it and none beyond it.
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

    /// Where the entries of a group lie, for those who change instances while they go through them.
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

/// Divides the levels of a region among lanes.
fn split(levels: &[f64]) -> Vec<Vec<Turn>> {
    let quiet = |share| Turn { level: QUIET, targets: 0, share };
    let turn = |at: usize, targets, share| Turn { level: at as u32 + 1, targets, share };
    if let &[mean] = levels {
        // One level alone: the floor or the ceiling of its mean, by chance (Ricochet §4.2.1).
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

/// Adds a full lane, or one more node to the last if the same level has both for itself.
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
        // what is whole but for rounding leaves no turn that never comes
        assert_eq!(shape(&[0.1; 10]).len(), 1);
        assert_eq!(shape(&[0.5, 0.5]), [[(1, 1, 0.5), (2, 1, 0.5)]]);
        assert_eq!(shape(&[]).len(), 0);
    }
}
