//! The knowledge of members, and the beginnings of epochs to which they agree.

use super::epoch::{Council, Epoch};
use super::log::Log;
use crate::ids::NodeId;

/// Knowledge of a member, for the next sequencer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// Members of the epoch that its log belongs to.
    pub(super) council: Council,
    pub(super) log: Log,
    /// The next epoch, if this member has agreed to it and does not know whether a majority has.
    pub(super) pending: Option<Box<Begin>>,
}

impl Report {
    /// Returns the last epoch to which the member has agreed.
    pub(super) fn agreed(&self) -> Option<Epoch> {
        self.log.epoch().max(self.pending.as_ref().map(|begin| begin.epoch))
    }

    /// Returns whether a node is in a council of which the member knows.
    pub(super) fn has_member(&self, node: NodeId) -> bool {
        let pending = self.pending.iter();
        let before = pending.clone().flat_map(|begin| &begin.before).map(|(_, council)| council);
        let mut councils = before.chain(pending.map(|begin| &begin.council)).chain([&self.council]);
        councils.any(|council| council.contains(node))
    }
}

/// The beginning of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    pub(super) epoch: Epoch,
    /// Whether a majority has agreed to it.
    pub(super) settled: bool,
    /// Whether members acknowledge every number at once.
    pub(super) prompt: bool,
    pub(super) council: Council,
    /// The last epoch before it to which a majority has agreed, and its members; none for the first.
    pub(super) before: Option<(Epoch, Council)>,
    /// The numbers of the epochs before it.
    pub(super) log: Log,
}
