//! The other members of this node's groups, and those of them that it makes repairs for.

use super::{Node, NodeConfig};
use crate::bins::Bins;
use crate::groups::Groups;
use crate::partners;
use crate::regions::Regions;
use crate::targets::Plan;
use crate::view::View;

impl Node {
    /// Returns whether this node makes repairs for a part of its large groups only.
    pub fn has_partners(&self) -> bool {
        self.members.is_some()
    }

    /// Lets some of the members that this node makes repairs for be others, from the next change of the view
    /// on. Of random partners, some members may have few, and that should not last.
    pub fn turn_partners(&mut self) {
        self.turn += 1;
    }
}

/// Regions and plan of a view.
pub(super) struct Planned {
    /// Those that this node makes repairs for.
    pub(super) regions: Regions,
    pub(super) plan: Plan,
    /// All, if these are more.
    pub(super) members: Option<Regions>,
}

/// Plans for a view, at a turn of the partners, with a maximum number of repairs for each packet.
pub(super) fn planned(config: &NodeConfig, groups: &Groups, view: &View, (turn, rate): (u64, u8)) -> Planned {
    let all = Regions::new(config.id, groups, view);
    let (regions, members) = match partners::part_of(config.id, groups, view, config.partners_max, turn) {
        Some(part) => (Regions::new(config.id, groups, &part), Some(all)),
        None => (all, None),
    };
    Planned { plan: Plan::capped(groups, &regions, rate), regions, members }
}

/// Returns all members of this node's groups.
pub(super) fn all_members<'a>(members: Option<&'a Regions>, bins: &'a Bins) -> &'a Regions {
    members.unwrap_or(bins.regions())
}
