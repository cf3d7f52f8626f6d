//! The numbers of messages: which message of which sender is the next one.
//!
//! A number stands for one position of a sender's stream. Consecutive positions of one stream form a run. The
//! log keeps the runs from the first number on that a member may still need.

use std::collections::BTreeMap;

use foundation::Seq;

use super::epoch::Epoch;
use crate::ids::NodeId;

/// Maximum number of runs that are kept beyond a gap.
const AHEAD_MAX: usize = 1_024;
/// Maximum number of amended ranges that are kept.
const AMENDED_MAX: usize = 1_024;
/// Maximum number of epochs whose beginnings are kept.
pub(super) const STARTS_MAX: usize = 64;
/// Maximum number of senders that are known although no number and no message of them is kept.
pub(super) const SENDERS_MAX: usize = 4_096;
/// Number of senders that are forgotten at once, so that they are rarely compared.
const SENDERS_STEP: usize = SENDERS_MAX / 8;

/// Consecutive positions of a sender's stream with consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) sender: NodeId,
    pub(super) seq: Seq,
    pub(super) count: u32,
    /// Whether these positions are lost: no member delivers them.
    pub(super) lost: bool,
}

impl Run {
    /// Returns the part of the run from `step` on.
    fn after(self, step: u64) -> Self {
        Self { seq: self.seq.plus(step), count: self.count.saturating_sub(step as u32), ..self }
    }
}

/// Where the numbers of a sender end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The position after the last numbered one.
    pub(super) seq: Seq,
    /// The number that follows the one of the sender's last position. Of a sender without a run, only its
    /// order among others counts: the sender with the smaller one was numbered earlier.
    pub(super) until: u64,
}

/// The numbers that a member knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    /// First number that is kept.
    pub(super) start: u64,
    /// First number that is not known.
    pub(super) next: u64,
    pub(super) runs: BTreeMap<u64, Run>,
    /// Runs beyond a gap.
    pub(super) ahead: BTreeMap<u64, Run>,
    /// Numbers whose messages no member holds: first, and the one after the last. No two ranges overlap.
    pub(super) amended: BTreeMap<u64, u64>,
    /// Epochs in order, and the first number of each, which is `next` at most.
    pub(super) starts: Vec<(Epoch, u64)>,
    /// Where the numbers of senders end. All that have a run are among them.
    pub(super) positions: BTreeMap<NodeId, Position>,
}

impl Log {
    /// Returns the epoch that the numbers belong to.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.starts.last().map(|&(epoch, _)| epoch)
    }

    pub(super) fn has_gap(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Begins an epoch with the next number.
    pub(super) fn begin(&mut self, epoch: Epoch) {
        if self.starts.len() >= STARTS_MAX {
            self.starts.remove(0);
        }
        self.starts.push((epoch, self.next));
    }

    /// Gives the next numbers to a run.
    pub(super) fn append(&mut self, run: Run) {
        let Run { sender, seq, count, lost } = run;
        if count == 0 {
            return;
        }
        let next = self.next;
        self.next += u64::from(count);
        self.positions.insert(sender, Position { seq: seq.plus(count.into()), until: self.next });
        if let Some(mut last) = self.runs.last_entry() {
            let is_next = *last.key() + u64::from(last.get().count) == next;
            let run = last.get_mut();
            if is_next
                && run.sender == sender
                && run.lost == lost
                && run.seq.plus(run.count.into()) == seq
                && let Some(sum) = run.count.checked_add(count)
            {
                run.count = sum;
                return;
            }
        }
        self.runs.insert(next, run);
    }

    /// Adds a run that came with its number. One beyond a gap waits until the gap is closed.
    pub(super) fn insert(&mut self, number: u64, run: Run) {
        let end = number.saturating_add(run.count.into());
        if end <= self.next {
            return;
        }
        if number > self.next {
            if self.ahead.len() < AHEAD_MAX {
                self.ahead.insert(number, run);
            }
            return;
        }
        self.append(run.after(self.next - number));
        while let Some((&number, _)) = self.ahead.first_key_value()
            && number <= self.next
            && let Some(run) = self.ahead.remove(&number)
        {
            if number + u64::from(run.count) > self.next {
                self.append(run.after(self.next - number));
            }
        }
    }

    /// Notes that no member holds the messages of these numbers.
    pub(super) fn amend(&mut self, first: u64, end: u64) {
        let (mut first, mut end) = (first, end);
        while let Some((&at, &until)) = self.amended.range(..end).next_back()
            && until > first
        {
            self.amended.remove(&at);
            (first, end) = (first.min(at), end.max(until));
        }
        self.amended.insert(first, end);
        if self.amended.len() > AMENDED_MAX {
            self.amended.pop_first();
        }
    }

    /// Returns the first number from `begins` on, before `end`, that only one of the two logs has amended.
    pub(super) fn amended_apart(&self, other: &Log, begins: u64, end: u64) -> Option<u64> {
        let only = [self.amended_without(other, begins, end), other.amended_without(self, begins, end)];
        only.into_iter().flatten().min()
    }

    /// Returns the first number from `begins` on, before `end`, that this log has amended and `other` not.
    fn amended_without(&self, other: &Log, begins: u64, end: u64) -> Option<u64> {
        // A log that keeps as many ranges as it can has forgotten older ones.
        let is_full = other.amended.len() >= AMENDED_MAX;
        let oldest = other.amended.keys().next().filter(|_| is_full);
        let begins = oldest.map_or(begins, |&oldest| begins.max(oldest));
        for (&first, &last) in &self.amended {
            let mut number = first.max(begins);
            while number < last.min(end) {
                let Some(until) = other.amended_until(number) else { return Some(number) };
                number = until;
            }
        }
        None
    }

    /// Returns where the amended numbers end, if `number` is one of them.
    pub(super) fn amended_until(&self, number: u64) -> Option<u64> {
        let (_, &end) = self.amended.range(..=number).next_back()?;
        (number < end).then_some(end)
    }

    /// Returns the run that begins with `number`, or the part of a run that does.
    pub(super) fn run_at(&self, number: u64) -> Option<Run> {
        let (&first, &run) = self.runs.range(..=number).next_back()?;
        let step = number - first;
        (step < u64::from(run.count)).then(|| run.after(step))
    }

    /// Returns the runs from `number` on, in order.
    pub(super) fn runs_from(&self, number: u64) -> impl Iterator<Item = (u64, Run)> + '_ {
        let first = self.run_at(number).map(|run| (number, run));
        let after = self.runs.range(number.saturating_add(1)..).map(|(&number, &run)| (number, run));
        let rest = after.filter(move |(at, _)| first.is_none_or(|(number, _)| *at != number));
        first.into_iter().chain(rest)
    }

    /// Forgets the numbers before `number`, and passes their runs to `forgotten`.
    pub(super) fn forget_before(&mut self, number: u64, mut forgotten: impl FnMut(Run)) {
        while let Some(first) = self.runs.first_entry()
            && *first.key() < number
        {
            let (at, run) = (*first.key(), *first.get());
            first.remove();
            let step = (number - at).min(run.count.into());
            forgotten(Run { count: step as u32, ..run });
            if step < u64::from(run.count) {
                self.runs.insert(number, run.after(step));
            }
        }
        self.start = self.start.max(number);
    }

    /// Keeps the numbers from `number` on that another log keeps beside those of this one. Both must agree
    /// there.
    pub(super) fn reach_back(&mut self, other: &Self, number: u64) {
        let start = self.start;
        for (at, run) in other.runs_from(number).take_while(|&(at, _)| at < start) {
            let count = (start - at).min(run.count.into()) as u32;
            self.runs.insert(at, Run { count, ..run });
        }
        for (&first, &end) in other.amended.range(..start) {
            if end > number {
                self.amend(first.max(number), end.min(start));
            }
        }
        self.start = start.min(number);
    }

    /// Returns the position of a sender after the last numbered one.
    pub(super) fn position(&self, sender: NodeId) -> Option<Seq> {
        self.positions.get(&sender).map(|position| position.seq)
    }

    /// Returns senders and their positions, as many as a packet can tell: those numbered last, in that order.
    pub(super) fn newest_positions(&self) -> Vec<(NodeId, Seq)> {
        let mut all: Vec<(u64, NodeId, Seq)> =
            self.positions.iter().map(|(&sender, at)| (at.until, sender, at.seq)).collect();
        all.sort_unstable();
        all.drain(..all.len().saturating_sub(SENDERS_MAX));
        all.into_iter().map(|(_, sender, seq)| (sender, seq)).collect()
    }

    /// Forgets the senders that were numbered longest ago, if there are too many. It spares those with runs,
    /// and those of which messages are held. Without its position a sender counts as new, and what is kept of
    /// it would be numbered again.
    pub(super) fn forget_senders(&mut self, is_held: impl Fn(NodeId) -> bool) {
        let ages = self.positions.iter().map(|(&sender, at)| (at.until, sender));
        let is_old = |&(until, sender): &(u64, NodeId)| until <= self.start && !is_held(sender);
        let mut old: Vec<(u64, NodeId)> = ages.filter(is_old).collect();
        old.sort_unstable();
        let excess = self.positions.len().saturating_sub(SENDERS_MAX - SENDERS_STEP);
        for (_, sender) in old.into_iter().take(excess) {
            self.positions.remove(&sender);
        }
    }

    /// Returns the number of senders with which [`Self::forget_senders`] should be called next.
    pub(super) fn senders_due(&self) -> usize {
        SENDERS_MAX.max(self.positions.len() + SENDERS_STEP)
    }

    /// Returns up to which number this log and another one agree; `None` if they have no epoch in common.
    pub(super) fn agrees_until(&self, other: &Log) -> Option<u64> {
        for (at, (epoch, _)) in self.starts.iter().enumerate().rev() {
            let Some(there) = other.starts.iter().position(|(known, _)| known == epoch) else { continue };
            let end = self.starts.get(at + 1).map_or(u64::MAX, |&(_, start)| start);
            let end_there = other.starts.get(there + 1).map_or(other.next, |&(_, start)| start);
            return Some(end.min(end_there));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(sender: u32, seq: u64, count: u32) -> Run {
        Run { sender: NodeId(sender), seq: Seq(seq), count, lost: false }
    }

    #[test]
    fn runs_that_come_in_any_order_are_the_same_log() {
        let mut log = Log::default();
        [run(1, 0, 3), run(1, 3, 2), run(2, 9, 1)].into_iter().for_each(|run| log.append(run));
        assert_eq!((log.next, log.runs.len()), (6, 2), "runs of one stream are joined");
        let mut other = Log::default();
        for (number, part) in [(5, run(2, 9, 1)), (2, run(1, 2, 3)), (0, run(1, 0, 1)), (0, run(1, 0, 4))] {
            other.insert(number, part);
        }
        assert_eq!(other, log);
        assert_eq!(log.run_at(4), Some(run(1, 4, 1)));
        assert!(log.runs_from(3).eq([(3, run(1, 3, 2)), (5, run(2, 9, 1))]));
        assert!(log.runs_from(5).eq([(5, run(2, 9, 1))]));
        assert!(log.runs_from(6).next().is_none());
    }

    #[test]
    fn old_numbers_are_forgotten_in_the_middle_of_a_run() {
        let mut log = Log::default();
        [run(1, 0, 5), run(2, 7, 5)].into_iter().for_each(|run| log.append(run));
        let mut gone = Vec::new();
        log.forget_before(7, |run| gone.push(run));
        assert_eq!(gone, [run(1, 0, 5), run(2, 7, 2)]);
        assert_eq!((log.start, log.run_at(6), log.run_at(7)), (7, None, Some(run(2, 9, 3))));
    }

    #[test]
    fn numbers_that_another_log_keeps_are_kept_too() {
        let mut whole = Log::default();
        [run(1, 0, 5), run(2, 7, 5), run(1, 5, 3)].into_iter().for_each(|run| whole.append(run));
        whole.amend(1, 8);
        let mut log = whole.clone();
        log.amended.clear();
        log.forget_before(9, |_| {});
        log.reach_back(&whole, 3);
        assert_eq!((log.start, log.next), (3, 13));
        assert!(log.runs_from(3).map(|(at, run)| (at, run.sender, run.seq, run.count)).eq([
            (3, NodeId(1), Seq(3), 2),
            (5, NodeId(2), Seq(7), 4),
            (9, NodeId(2), Seq(11), 1),
            (10, NodeId(1), Seq(5), 3),
        ]));
        assert_eq!(log.amended, BTreeMap::from([(3, 8)]));
        log.reach_back(&whole, 11);
        assert_eq!(log.start, 3, "nothing is forgotten");
    }

    #[test]
    fn of_too_many_senders_those_are_forgotten_that_were_numbered_longest_ago() {
        let mut log = Log::default();
        // The lowest identifier is numbered last.
        let held = NodeId(SENDERS_MAX as u32);
        (0..=held.0).rev().for_each(|sender| log.append(run(sender, 0, 1)));
        log.forget_senders(|_| false);
        assert_eq!(log.positions.len(), SENDERS_MAX + 1, "all have runs");
        log.forget_before(log.next - 1, |_| {});
        log.forget_senders(|sender| sender == held);
        assert_eq!(log.positions.len(), SENDERS_MAX - SENDERS_STEP);
        let is_known = |sender| log.position(sender).is_some();
        assert!(is_known(NodeId(0)) && is_known(held) && !is_known(NodeId(held.0 - 1)));
    }

    #[test]
    fn amended_ranges_that_overlap_are_one() {
        let mut log = Log::default();
        for (first, end) in [(4, 9), (20, 25), (6, 7), (8, 12), (2, 3), (12, 13)] {
            log.amend(first, end);
        }
        assert_eq!(log.amended, BTreeMap::from([(2, 3), (4, 12), (12, 13), (20, 25)]));
        assert_eq!((log.amended_until(7), log.amended_until(3)), (Some(12), None));
    }

    #[test]
    fn amended_numbers_are_compared_in_both_directions() {
        let log = |ranges: &[(u64, u64)]| Log { amended: ranges.iter().copied().collect(), ..Log::default() };
        let (one, parts) = (log(&[(4, 9)]), log(&[(4, 6), (6, 9)]));
        assert_eq!((one.amended_apart(&parts, 0, 20), parts.amended_apart(&one, 0, 20)), (None, None));
        let other = log(&[(4, 6), (7, 9)]);
        assert_eq!((one.amended_apart(&other, 0, 20), other.amended_apart(&one, 0, 20)), (Some(6), Some(6)));
        assert_eq!(one.amended_apart(&other, 7, 20), None, "outside");
        assert_eq!(one.amended_apart(&other, 0, 6), None, "outside");
        let full =
            Log { amended: (0..AMENDED_MAX as u64).map(|at| (50 + 2 * at, 51 + 2 * at)).collect(), ..one };
        assert_eq!(full.amended_apart(&log(&[(4, 9)]), 0, 20), None, "it has forgotten older ranges");
    }

    #[test]
    fn logs_agree_until_their_epochs_part() {
        let epoch = |count| Epoch { count, sequencer: NodeId(count) };
        let log = |starts: &[(u32, u64)], next| Log {
            starts: starts.iter().map(|&(count, start)| (epoch(count), start)).collect(),
            next,
            ..Log::default()
        };
        let one = log(&[(1, 0), (2, 10)], 20);
        assert_eq!(one.agrees_until(&log(&[(1, 0), (2, 10), (4, 18)], 30)), Some(18));
        assert_eq!(one.agrees_until(&log(&[(1, 0), (3, 8)], 30)), Some(8));
        assert_eq!(one.agrees_until(&log(&[(1, 0), (3, 12)], 30)), Some(10));
        assert_eq!(one.agrees_until(&log(&[(5, 0)], 30)), None);
    }
}
