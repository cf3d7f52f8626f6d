//! Stable delivery: waits until a number of members hold a message of this node.
//!
//! The reports of flow control tell how far the members have got. While somebody waits, this node asks for
//! reports, because a thin stream gets none by itself.

use super::Node;
use crate::ids::GroupId;
use crate::message::{Output, To};
use crate::wire::{Kind, Probe};

/// Time from the message to the first request for reports, and from it to the next, in microseconds; doubled
/// with each.
const ASK_US: u64 = 500;
const ASK_US_MAX: u64 = 100_000;
/// Maximum number of waits.
const WAITS_MAX: usize = 4_096;

#[derive(Clone, Copy, Debug)]
struct Wait {
    id: u64,
    group: GroupId,
    seq: u32,
    members: usize,
    due_us: u64,
    pause_us: u64,
}

/// Messages for whose holders somebody waits.
#[derive(Debug, Default)]
pub(super) struct Waits {
    waits: Vec<Wait>,
    next_id: u64,
}

impl Waits {
    pub(super) fn next_due_us(&self) -> Option<u64> {
        self.waits.iter().map(|wait| wait.due_us).min()
    }
}

impl Node {
    /// Waits until `members` members hold the packet `seq` of this node to a group: asks for reports until
    /// [`end_wait`](Self::end_wait), and calls [`Output::on_held`] when they do. Returns the number of the
    /// wait; `None` if there are too many.
    pub fn wait_for_holders(&mut self, now_us: u64, group: GroupId, seq: u32, members: usize) -> Option<u64> {
        if self.waits.waits.len() >= WAITS_MAX {
            return None;
        }
        let id = self.waits.next_id;
        self.waits.next_id += 1;
        let due_us = now_us + ASK_US;
        self.waits.waits.push(Wait { id, group, seq, members, due_us, pause_us: ASK_US });
        Some(id)
    }

    /// Ends a wait.
    pub fn end_wait(&mut self, id: u64) {
        self.waits.waits.retain(|wait| wait.id != id);
    }

    /// Returns the number of members that have reported that they hold the packet `seq` of this node to a
    /// group. Those that joined later do not count, and neither do those that had heard nothing of this node
    /// by then. A member that has given the packet up counts: it reports the same.
    pub fn holders_of(&self, group: GroupId, seq: u32) -> usize {
        self.flow.readers_of(group).map_or(0, |readers| readers.holders(seq))
    }

    /// Asks for the reports that somebody waits for.
    pub(super) fn handle_waits(&mut self, now_us: u64, out: &mut impl Output) {
        let Self { waits, flow, config, scratch, counts, tally, .. } = self;
        let mut asked: Option<GroupId> = None;
        for wait in waits.waits.iter_mut().filter(|wait| wait.due_us <= now_us) {
            wait.due_us = now_us + wait.pause_us;
            wait.pause_us = (2 * wait.pause_us).min(ASK_US_MAX);
            if asked.replace(wait.group) == Some(wait.group) {
                continue;
            }
            let Some(readers) = flow.readers_of(wait.group) else { continue };
            let probe = Probe { sender: config.id, group: wait.group, newest: readers.newest() };
            let length = probe.write(scratch);
            out.send(To::Group(wait.group), &scratch[..length]);
            counts.probes_sent += 1;
            tally.sent.add(Kind::Probe, length);
        }
    }

    /// Tells who waits that members of a group have got further.
    pub(super) fn on_progress(&self, group: GroupId, out: &mut impl Output) {
        let is_held = |wait: &&Wait| wait.group == group && self.holders_of(group, wait.seq) >= wait.members;
        if let Some(wait) = self.waits.waits.iter().find(is_held) {
            out.on_held(group, wait.seq);
        }
    }
}
