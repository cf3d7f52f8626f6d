//! The other members of this node's groups, and those of them that it makes repairs for.
//!
//! The plan for a view takes long where hundreds of nodes share a hundred groups. Nothing of the node is
//! needed for it but its groups, so a driver can let another thread make it ([`Node::planner`]), while the
//! node goes on with the plan that it has: repairs go to the members of the last view for some more
//! milliseconds.

use super::repair_sender::RepairSender;
use super::{Node, NodeConfig};
use crate::bins::Bins;
use crate::groups::Groups;
use crate::message::Output;
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

    /// Continues with other neighbours. Part-filled repairs are sent first, so that every packet is covered.
    ///
    /// It makes the plan for them at once. [`Self::planner`], [`Self::learn_view`] and [`Self::adopt`]
    /// together do the same in steps.
    pub fn change_view(&mut self, view: &View, out: &mut impl Output) {
        let planned = planned(&self.config, &self.groups, view, (self.turn, self.rate, self.regrouped));
        self.learn_view(view);
        self.adopt(planned, out);
    }

    /// Returns all that the plan for a view is made from.
    pub fn planner(&self, view: &View) -> Planner {
        let Self { config, groups, turn, rate, regrouped, .. } = self;
        Planner {
            config: *config,
            groups: groups.clone(),
            view: view.clone(),
            turn: *turn,
            rate: *rate,
            regrouped: *regrouped,
        }
    }

    /// Takes the members of a view for readers and for nodes that can be asked. Repairs go by the last plan.
    pub fn learn_view(&mut self, view: &View) {
        let returned = self.requester.change_view(view);
        self.request_of_returned(&returned);
        self.flow.change_view(self.config.id, view);
        self.keyed.on_view(self.config.id, view);
    }

    /// Continues with a plan. Part-filled repairs are sent first. Returns false if the node has got other
    /// groups since the plan was begun: then it is of no use, and nothing changes.
    pub fn adopt(&mut self, planned: Planned, out: &mut impl Output) -> bool {
        let Planned { regions, plan, members, rate, regrouped } = planned;
        if regrouped != self.regrouped {
            return false;
        }
        let plan = if rate == self.rate { plan } else { Plan::capped(&self.groups, &regions, self.rate) };
        self.members = members;
        let Self { bins, rng, scratch, config, counts, tally, .. } = self;
        let mut sender = RepairSender { me: config.id, scratch, counts, tally, out };
        bins.change(regions, plan, rng, &mut |repair| sender.send(&repair));
        true
    }
}

/// All that the plan for a view is made from.
///
/// ```
/// use ricochet_core::message::{Message, Output, To};
/// use ricochet_core::{GroupConfig, GroupId, Groups, Member, Node, NodeConfig, NodeId, View};
/// # struct Nowhere;
/// # impl Output for Nowhere {
/// #     fn send(&mut self, _: To, _: &[u8]) {}
/// #     fn deliver(&mut self, _: &Message<'_>) {}
/// #     fn on_lost(&mut self, _: &ricochet_core::tracker::Lost) {}
/// # }
/// let groups = Groups::new([GroupConfig { id: GroupId(7), c: 3 }])?;
/// let mut node = Node::new(NodeConfig::prompt(NodeId(1)), groups, &View::default(), 1)?;
/// let view = View::new((2..500).map(|id| Member::new(NodeId(id), [GroupId(7)])));
/// let planner = node.planner(&view);
/// let planning = std::thread::spawn(|| planner.plan());
/// node.learn_view(&view);
/// let planned = planning.join().expect("planning does not panic");
/// assert!(node.adopt(planned, &mut Nowhere), "the node is in the same groups");
/// assert!(node.has_partners());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Planner {
    config: NodeConfig,
    groups: Groups,
    view: View,
    turn: u64,
    rate: u8,
    regrouped: u64,
}

impl Planner {
    /// Makes the plan. It takes milliseconds for a thousand members with a hundred groups.
    pub fn plan(self) -> Planned {
        let Self { config, groups, view, turn, rate, regrouped } = self;
        planned(&config, &groups, &view, (turn, rate, regrouped))
    }
}

/// Regions and plan of a view.
#[derive(Debug)]
pub struct Planned {
    /// Those that this node makes repairs for.
    pub(super) regions: Regions,
    pub(super) plan: Plan,
    /// All, if these are more.
    pub(super) members: Option<Regions>,
    /// Maximum number of repairs that a packet enters by this plan.
    rate: u8,
    /// Number of times that the node had got other groups.
    regrouped: u64,
}

/// Plans for a view, at a turn of the partners, with a maximum number of repairs for each packet and the
/// number of times that the node has got other groups.
pub(super) fn planned(
    config: &NodeConfig,
    groups: &Groups,
    view: &View,
    (turn, rate, regrouped): (u64, u8, u64),
) -> Planned {
    let all = Regions::new(config.id, groups, view);
    let (regions, members) = match partners::part_of(config.id, groups, view, config.partners_max, turn) {
        Some(part) => (Regions::new(config.id, groups, &part), Some(all)),
        None => (all, None),
    };
    Planned { plan: Plan::capped(groups, &regions, rate), regions, members, rate, regrouped }
}

/// Returns all members of this node's groups.
pub(super) fn all_members<'a>(members: Option<&'a Regions>, bins: &'a Bins) -> &'a Regions {
    members.unwrap_or(bins.regions())
}
