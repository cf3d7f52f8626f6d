//! A list of groups, its version, and the steps that led to it.

use std::collections::VecDeque;
use std::sync::Arc;

use ricochet_core::{GroupId, NodeId};

use crate::counters::Dropped;
use crate::wire::{STEP_GROUPS_MAX, StepParts, StepView, list_check};

/// Maximum number of steps kept of one list: a node that is a few versions behind
/// gets these, not the whole list.
const STEPS_KEPT: usize = 32;
/// Maximum number of groups in the kept steps together.
const STEPS_GROUPS_KEPT: usize = 256;

/// The groups of one node at one version.
#[derive(Clone, Debug)]
pub(crate) struct List {
    /// Rises by one with each change; 0 if nothing is known.
    pub(crate) version: u32,
    pub(crate) check: u32,
    /// In ascending order, each once.
    pub(crate) groups: Arc<[GroupId]>,
    /// Consecutive steps, of which the last leads to `version`.
    steps: VecDeque<Step>,
    /// Number of groups in the steps.
    step_groups: usize,
}

/// The change from one version to the next.
#[derive(Clone, Debug)]
struct Step {
    version: u32,
    check: u32,
    added: Box<[GroupId]>,
    removed: Box<[GroupId]>,
}

impl Step {
    fn len(&self) -> usize {
        self.added.len() + self.removed.len()
    }
}

impl List {
    /// Returns an empty list; `version` is 0 if the groups are unknown.
    pub(super) fn empty(version: u32) -> Self {
        let groups: Arc<[GroupId]> = [].into();
        Self { version, check: list_check(&groups), groups, steps: VecDeque::new(), step_groups: 0 }
    }

    /// Makes `groups` the next version.
    pub(super) fn advance(&mut self, groups: Arc<[GroupId]>) {
        let added: Box<[GroupId]> = missing_from(&groups, &self.groups);
        let removed: Box<[GroupId]> = missing_from(&self.groups, &groups);
        self.version += 1;
        self.check = list_check(&groups);
        self.groups = groups;
        self.remember(Step { version: self.version, check: self.check, added, removed });
    }

    /// Applies a step that leads from this version to the next.
    ///
    /// # Errors
    /// [`Dropped::Stale`] for any other step, [`Dropped::GroupsMax`], [`Dropped::CheckMismatch`].
    pub(super) fn apply(&mut self, step: &StepView<'_>, groups_max: usize) -> Result<(), Dropped> {
        if Some(step.version) != self.version.checked_add(1) || self.version == 0 {
            return Err(Dropped::Stale);
        }
        let mut removed: Box<[GroupId]> = step.removed().collect();
        removed.sort_unstable();
        let mut groups = Vec::with_capacity(self.groups.len() + step.added().len());
        groups.extend(self.groups.iter().filter(|group| removed.binary_search(group).is_err()));
        groups.extend(step.added());
        groups.sort_unstable();
        if groups.len() > groups_max {
            return Err(Dropped::GroupsMax);
        }
        if !is_sound(&groups, step.check) {
            return Err(Dropped::CheckMismatch);
        }
        self.groups = groups.into();
        (self.version, self.check) = (step.version, step.check);
        self.remember(Step {
            version: step.version,
            check: step.check,
            added: step.added().collect(),
            removed,
        });
        Ok(())
    }

    /// Replaces the list by a whole one; forgets all steps.
    pub(super) fn replace(&mut self, version: u32, check: u32, groups: Arc<[GroupId]>) {
        *self = Self { version, check, groups, steps: VecDeque::new(), step_groups: 0 };
    }

    fn remember(&mut self, step: Step) {
        if step.len() > STEP_GROUPS_MAX {
            self.steps.clear();
            self.step_groups = 0;
            return;
        }
        self.step_groups += step.len();
        self.steps.push_back(step);
        while self.steps.len() > STEPS_KEPT || self.step_groups > STEPS_GROUPS_KEPT {
            let Some(oldest) = self.steps.pop_front() else { break };
            self.step_groups -= oldest.len();
        }
    }

    /// Returns the steps from version `have` to this one, if they are still kept.
    pub(super) fn steps_since(&self, id: NodeId, have: u32) -> Option<impl Iterator<Item = StepParts<'_>>> {
        let count = self.version.checked_sub(have)? as usize;
        let skipped = self.steps.len().checked_sub(count)?;
        (count > 0).then(|| {
            self.steps.iter().skip(skipped).map(move |step| StepParts {
                id,
                version: step.version,
                check: step.check,
                added: &step.added,
                removed: &step.removed,
            })
        })
    }

    /// Returns the bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        (self.groups.len() + self.step_groups) * size_of::<GroupId>() + self.steps.len() * size_of::<Step>()
    }
}

/// Returns whether the groups are in ascending order, each once, and match the check.
pub(super) fn is_sound(groups: &[GroupId], check: u32) -> bool {
    groups.is_sorted_by(|a, b| a < b) && list_check(groups) == check
}

/// Returns the groups that are in `these` and not in `those`; both are in ascending order.
fn missing_from(these: &[GroupId], those: &[GroupId]) -> Box<[GroupId]> {
    these.iter().filter(|group| those.binary_search(group).is_err()).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Datagram, StepsView};

    fn groups(ids: impl IntoIterator<Item = u64>) -> Arc<[GroupId]> {
        ids.into_iter().map(GroupId).collect()
    }

    /// Carries steps from one list to another in wire format.
    fn carry(from: &List, to: &mut List) -> Result<(), Dropped> {
        let Some(steps) = from.steps_since(NodeId(1), to.version) else { return Err(Dropped::Unknown) };
        for step in steps {
            let mut datagram = vec![0; 3 + step.wire_len()];
            datagram[..3].copy_from_slice(&StepsView::header(1));
            step.write(&mut datagram[3..]);
            let Ok(Datagram::Steps(view)) = Datagram::read(&datagram) else { panic!("a step was written") };
            for step in view.steps() {
                to.apply(&step, 10)?;
            }
        }
        Ok(())
    }

    #[test]
    fn steps_lead_to_the_version_of_their_sender() {
        let mut ours = List::empty(1);
        let mut theirs = List::empty(1);
        for list in [groups([3, 5]), groups([5, 9]), groups([]), groups([1, 2, 3])] {
            ours.advance(list);
        }
        carry(&ours, &mut theirs).unwrap();
        assert_eq!((theirs.version, &theirs.groups), (5, &ours.groups));
        assert_eq!(theirs.check, ours.check);
        assert!(ours.steps_since(NodeId(1), 5).is_none(), "no step leads from the newest version");
    }

    #[test]
    fn a_list_changed_by_a_forger_refuses_steps() {
        let (mut ours, mut theirs) = (List::empty(1), List::empty(1));
        theirs.replace(1, list_check(&groups([7])), groups([7]));
        ours.advance(groups([3]));
        assert_eq!(carry(&ours, &mut theirs), Err(Dropped::CheckMismatch));
        assert_eq!(theirs.groups, groups([7]));
    }

    #[test]
    fn few_steps_are_kept_and_none_across_a_large_change() {
        let mut list = List::empty(1);
        for round in 0..100 {
            list.advance(groups([round]));
        }
        assert!(list.steps_since(NodeId(1), 101 - STEPS_KEPT as u32).is_some());
        assert!(list.steps_since(NodeId(1), 100 - STEPS_KEPT as u32).is_none());
        list.advance(groups(0..200));
        assert!(list.steps_since(NodeId(1), 101).is_none());
    }
}
