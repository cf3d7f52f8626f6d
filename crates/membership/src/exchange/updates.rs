//! Dissemination of updates: a node that learns of a change sends it to a few members drawn
//! at random, for a few rounds.

use std::collections::BTreeMap;

use ricochet_core::NodeId;

use super::config::ListsConfig;
use super::directory::Directory;
use crate::wire::{
    DATAGRAM_MAX, Held, STEPS_HEADER, STEPS_MAX, SUMMARY_ENTRIES_MAX, StepParts, StepsView, write_summary,
};

/// Maximum number of datagrams in one round to one member; further updates wait for the next round.
const DATAGRAMS_MAX: usize = 4;
/// Maximum number of steps of one list that are sent together. A receiver that lacks more requests them.
const STEPS_SENT_MAX: u32 = 4;

/// A list that has changed recently.
#[derive(Clone, Copy, Debug)]
struct Update {
    /// Version whose successors are new to other nodes.
    since: u32,
    /// Number of rounds in which the update is still sent.
    rounds: u8,
}

/// The updates that this node disseminates.
#[derive(Debug)]
pub(super) struct Updates {
    config: ListsConfig,
    /// In order of the ids of their nodes.
    pending: BTreeMap<NodeId, Update>,
    next_round_us: u64,
}

impl Updates {
    pub(super) fn new(config: ListsConfig) -> Self {
        Self { config, pending: BTreeMap::new(), next_round_us: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Adds the change by which the list of `id` became `version`. Without other updates the first round
    /// begins after `delay_us`.
    pub(super) fn add(&mut self, now_us: u64, id: NodeId, version: u32, delay_us: u64) {
        if self.pending.is_empty() {
            self.next_round_us = self.next_round_us.max(now_us + delay_us);
        }
        let rounds = self.config.update_rounds;
        let since = version.saturating_sub(1);
        let update = self.pending.entry(id).or_insert(Update { since, rounds });
        update.rounds = rounds;
        update.since = update.since.max(version.saturating_sub(STEPS_SENT_MAX));
    }

    pub(super) fn remove(&mut self, id: NodeId) {
        self.pending.remove(&id);
    }

    pub(super) fn poll_timeout(&self) -> Option<u64> {
        (!self.pending.is_empty()).then_some(self.next_round_us)
    }

    /// Schedules the next round. Drops all updates if there is no member to send them to.
    pub(super) fn on_round(&mut self, now_us: u64, has_targets: bool) {
        self.next_round_us = now_us + self.config.update_period_us;
        if !has_targets {
            self.pending.clear();
        }
    }

    /// Counts a round for the updates of these nodes' lists.
    pub(super) fn on_sent(&mut self, ids: &[NodeId]) {
        for id in ids {
            let Some(update) = self.pending.get_mut(id) else { continue };
            update.rounds -= 1;
            if update.rounds == 0 {
                self.pending.remove(id);
            }
        }
    }

    /// Returns the datagrams of a round, and the nodes whose updates are in them. A change that does not
    /// travel as a step is announced by a summary, which names the new version.
    pub(super) fn write(&self, directory: &Directory) -> (Vec<Vec<u8>>, Vec<NodeId>) {
        let (mut datagrams, mut written, mut without_steps) = (Vec::new(), Vec::new(), Vec::new());
        let (mut steps, mut count) = (Vec::with_capacity(DATAGRAM_MAX), 0);
        for (&id, update) in &self.pending {
            let Some(list) = directory.list(id) else { continue };
            let Some(new_steps) = list.steps_since(id, update.since) else {
                if without_steps.len() < SUMMARY_ENTRIES_MAX {
                    without_steps.push(Held { id, version: list.version });
                    written.push(id);
                }
                continue;
            };
            let new_steps: Vec<_> = new_steps.collect();
            let length: usize = new_steps.iter().map(StepParts::wire_len).sum();
            if steps.len() + length > DATAGRAM_MAX - STEPS_HEADER || count + new_steps.len() > STEPS_MAX {
                finish(&mut datagrams, &mut steps, &mut count);
                if datagrams.len() == DATAGRAMS_MAX {
                    break;
                }
            }
            if length > DATAGRAM_MAX - STEPS_HEADER {
                without_steps.push(Held { id, version: list.version });
                written.push(id);
                continue;
            }
            for step in new_steps {
                let at = steps.len();
                steps.resize(at + step.wire_len(), 0);
                step.write(&mut steps[at..]);
                count += 1;
            }
            written.push(id);
        }
        finish(&mut datagrams, &mut steps, &mut count);
        without_steps.truncate(SUMMARY_ENTRIES_MAX);
        if !without_steps.is_empty() {
            let mut summary = vec![0; DATAGRAM_MAX];
            let length = write_summary(&without_steps, false, &mut summary);
            summary.truncate(length);
            datagrams.push(summary);
        }
        (datagrams, written)
    }
}

/// Completes a datagram of steps, if there are any.
fn finish(datagrams: &mut Vec<Vec<u8>>, steps: &mut Vec<u8>, count: &mut usize) {
    if *count > 0 {
        datagrams.push([&StepsView::header(*count as u8), steps.as_slice()].concat());
    }
    steps.clear();
    *count = 0;
}
