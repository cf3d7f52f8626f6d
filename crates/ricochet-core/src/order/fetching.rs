//! Numbers and messages that a member misses.
//!
//! The requests of the node bring most messages back. A member asks the sequencer for the others, and the
//! sequencer asks the other members in turn. A member that denies a message no longer takes it from
//! elsewhere in this epoch. So if all members deny it, none has delivered it nor will, and the sequencer
//! declares it lost.
//!
//! A member that has delivered a message and dropped it says so, and from which number on it keeps messages.
//! If no other member keeps it, the member that asks leaves it out: the others have
//! delivered it, so that it must not be declared lost.

use std::collections::BTreeMap;

use foundation::Seq;

use super::epoch::Epoch;
use super::log::Run;
use super::numbering::NUMBER_MAX;
use super::report::Begin;
use super::total::{OrderNews, Total};
use super::wire::{Body, Form};
use crate::ids::NodeId;
use crate::message::Message;

/// Longest interval between requests for a message, in microseconds.
const PAUSE_US_MAX: u64 = 500_000;
/// Shortest interval between answers, in microseconds.
const ANSWER_US: u64 = 5_000;
/// Maximum number of packets of numbers in an answer.
const PACKETS_MAX: usize = 16;
/// Maximum number of ranges that this node denies.
const DENIED_MAX: usize = 4_096;
/// Number of requests without an answer after which members that do not answer are put out.
const ASKED_MAX: usize = 64;
/// Maximum number of messages that a member requests at once.
const WAVE_MAX: usize = 32;
/// Numbers among which a member looks for messages to request at once.
const WAVE_NUMBERS: u64 = 1_024;

/// The first message that this member misses.
#[derive(Debug)]
pub(super) struct Want {
    number: u64,
    /// Number up to which messages were requested together.
    until: u64,
    pub(super) due_us: u64,
    pause_us: u64,
    asked: usize,
    /// Member that sent the message before this one.
    helper: Option<NodeId>,
    /// Members that deny the message, and how many numbers from it on.
    denials: BTreeMap<NodeId, u32>,
    /// Members that have dropped the message, and the number from which on they keep messages.
    gone: BTreeMap<NodeId, u64>,
}

impl Want {
    fn has_answered(&self, member: NodeId) -> bool {
        self.denials.contains_key(&member) || self.gone.contains_key(&member)
    }
}

impl Total {
    /// Returns whether numbers of an epoch come from its sequencer, and belong to the present epoch. Takes
    /// part in the epoch if this node has agreed to it.
    pub(super) fn on_epoch_of(&mut self, now_us: u64, from: NodeId, epoch: Epoch) -> bool {
        if epoch.sequencer != from {
            self.counts.unauthorized += 1;
            return false;
        }
        let present = self.council.as_ref().and(self.log.epoch());
        if present == Some(epoch) {
            return self.is_open();
        }
        if present > Some(epoch) {
            // Its sequencer does not know that it is over.
            self.announce(now_us);
            return false;
        }
        if self.promised > Some(epoch) {
            return false;
        }
        let is_agreed = |begin: &Begin| begin.epoch == epoch && begin.council.contains(self.config.me);
        match self.pending.take_if(|begin| is_agreed(begin)) {
            Some(begin) => {
                self.follow(now_us, *begin);
                true
            }
            None if self.pending.as_ref().is_some_and(|begin| begin.epoch == epoch) => {
                // The others went on without this member, which still knows what it has agreed to.
                self.founding.is_out = true;
                false
            }
            None => {
                if self.may_answer(now_us) {
                    let (promised, next) = (self.promised, self.log.next);
                    self.send(&Body::Pull { epoch: present, promised, next });
                }
                false
            }
        }
    }

    /// Answers a member that misses numbers, or the present epoch.
    pub(super) fn on_pull(
        &mut self,
        now_us: u64,
        from: NodeId,
        (epoch, promised): (Option<Epoch>, Option<Epoch>),
        next: u64,
    ) {
        self.note_count(promised.map_or(0, |epoch| epoch.count));
        if !self.is_active() {
            return;
        }
        let is_member = self.council.as_ref().is_some_and(|council| council.contains(from));
        if is_member && promised > self.log.epoch() {
            // It has promised itself to an attempt that came to nothing, and needs a later epoch.
            return self.start_candidacy(now_us);
        }
        if epoch != self.log.epoch() || next < self.log.start {
            return self.answer(now_us);
        }
        if self.may_answer(now_us) {
            self.send_numbers(next, PACKETS_MAX);
        }
    }

    /// Sends the present epoch with all its numbers.
    pub(super) fn answer(&mut self, now_us: u64) {
        let (Some(epoch), Some(council)) = (self.log.epoch(), self.council.clone()) else { return };
        if !self.is_active() || !self.may_answer(now_us) {
            return;
        }
        let (prompt, log) = (self.prompt, self.log.clone());
        self.send(&Body::Begin(Begin { epoch, settled: true, prompt, council, before: None, log }));
    }

    /// Lets other nodes know of this epoch.
    pub(super) fn announce(&mut self, now_us: u64) {
        if self.is_active() && self.may_answer(now_us) {
            self.announces = true;
        }
    }

    fn may_answer(&mut self, now_us: u64) -> bool {
        let is_soon = |at_us: u64| now_us.saturating_sub(at_us) < ANSWER_US;
        if self.answered_us.is_some_and(is_soon) {
            return false;
        }
        self.answered_us = Some(now_us);
        true
    }

    /// Returns whether this node has denied the message of a number.
    pub(super) fn is_denied(&self, number: u64) -> bool {
        self.denied.range(..=number).next_back().is_some_and(|(_, &end)| number < end)
    }

    /// Requests messages that this member misses, if it has waited long enough for the first one. Returns
    /// whether it goes on without messages that nobody keeps.
    pub(super) fn miss(&mut self, now_us: u64) -> bool {
        if self.held >= self.log.next {
            self.want = None;
            return false;
        }
        let before = self.want.take_if(|want| want.number != self.held);
        if self.want.is_none() {
            self.want = Some(self.next_want(now_us, before));
        }
        let (is_active, is_blocked) = (self.is_active(), self.is_blocked());
        // The message may be among the packets that are held back, and so may the answers.
        let is_due = |want: &&mut Want| want.due_us <= now_us && !is_blocked;
        let Some(want) = self.want.as_mut().filter(is_due) else { return false };
        want.due_us = now_us.saturating_add(want.pause_us);
        want.asked += 1;
        let asked = want.asked;
        if !is_active {
            want.pause_us = (2 * want.pause_us).min(PAUSE_US_MAX);
        }
        if self.is_gone() {
            return self.leave_out();
        }
        if is_active {
            self.ask_members(now_us, asked);
        } else if let Some(holder) = self.holder(asked) {
            self.ask_wave(holder);
        }
        false
    }

    /// Returns whether all other members have answered that they lack the first message that this one misses,
    /// and some of them have delivered it.
    fn is_gone(&self) -> bool {
        let Some(want) = &self.want else { return false };
        !want.gone.is_empty() && self.others().all(|member| want.has_answered(member))
    }

    /// Goes on with the next number whose message somebody keeps. Returns false if messages before it are
    /// still to be delivered.
    fn leave_out(&mut self) -> bool {
        let Some(want) = self.want.take_if(|_| self.delivered == self.held) else { return false };
        let (from, end) = (self.held, self.log.next);
        let own = self.next_kept(from.saturating_add(1));
        let kept = want.gone.values().copied().fold(own, u64::min);
        let continues = kept.clamp(from + 1, end);
        self.news.push_back(OrderNews::Missed { from, continues });
        (self.delivered, self.held) = (continues, continues);
        self.denied.retain(|_, &mut end| end > continues);
        true
    }

    /// Returns the first number from `number` on whose message this member keeps; the next number if there
    /// is none.
    fn next_kept(&self, number: u64) -> u64 {
        for (first, run) in self.log.runs_from(number) {
            let absent = self.hold.absent(run.sender, run.seq, run.count);
            if !run.lost && absent < run.count {
                return first + u64::from(absent);
            }
        }
        self.log.next
    }

    /// Returns whom to ask: the sequencer first, and then the members that hold the message by their
    /// acknowledgements in turn, because the sequencer may lack it itself. Once all of these have answered
    /// that they have dropped it, the others.
    fn holder(&self, asked: usize) -> Option<NodeId> {
        let sequencer = self.log.epoch()?.sequencer;
        let is_open = |member: &NodeId| self.want.as_ref().is_none_or(|want| !want.has_answered(*member));
        let holds = |member: &NodeId| *member == sequencer || self.acked_by(*member) > self.held;
        let mut turn: Vec<NodeId> = self.others().filter(is_open).collect();
        if turn.iter().any(holds) {
            turn.retain(holds);
        }
        turn.sort_by_key(|&member| member != sequencer);
        turn.get((asked.max(1) - 1) % turn.len().max(1)).copied()
    }

    /// Returns what this member misses behind a message that came. If that one had to be requested, the
    /// requests of the node bring this one back no more than that one, and it is requested at once.
    fn next_want(&self, now_us: u64, before: Option<Want>) -> Want {
        let (number, pause_us) = (self.held, self.config.want_us);
        let (denials, gone) = (BTreeMap::new(), BTreeMap::new());
        let new = Want { number, until: 0, due_us: 0, pause_us, asked: 0, helper: None, denials, gone };
        match before.filter(|before| before.asked > 0 && before.number < number) {
            Some(Want { until, helper, .. }) if number < until => {
                Want { until, due_us: now_us.saturating_add(pause_us), asked: 1, helper, ..new }
            }
            Some(Want { helper, .. }) => Want { due_us: now_us, helper, ..new },
            None => Want { due_us: now_us.saturating_add(pause_us), ..new },
        }
    }

    /// Asks a member for the next messages that this one misses.
    fn ask_wave(&mut self, to: NodeId) {
        let end = self.log.next.min(self.held.saturating_add(WAVE_NUMBERS));
        let mut number = self.held;
        let mut left = WAVE_MAX;
        while number < end && left > 0 {
            number = match (self.log.amended_until(number), self.log.run_at(number)) {
                (Some(end), _) => end,
                (None, None) => break,
                (None, Some(run)) if run.lost => number + u64::from(run.count),
                (None, Some(run)) => match self.hold.unit(run.sender, run.seq) {
                    Some(unit) if !self.is_denied(number) => {
                        number + u64::from(unit.packets().min(run.count))
                    }
                    _ => {
                        self.ask(to, number);
                        left -= 1;
                        number + 1
                    }
                },
            };
        }
        if let Some(want) = &mut self.want {
            want.until = number;
        }
    }

    fn ask(&mut self, to: NodeId, number: u64) {
        let Some((sender, seq, _)) = self.named(number) else { return };
        let Some(epoch) = self.log.epoch() else { return };
        self.counts.wanted += 1;
        self.send(&Body::Want { epoch, to, number, sender, seq });
    }

    /// Asks the next member for a message that the sequencer misses. If all have denied it, it is lost.
    fn ask_members(&mut self, now_us: u64, asked: usize) {
        let Some((sender, seq, count)) = self.named(self.held) else { return };
        let Some(want) = &self.want else { return };
        let open: Vec<NodeId> = self.others().filter(|&other| !want.has_answered(other)).collect();
        if open.is_empty() {
            let absent = self.hold.absent(sender, seq, count).max(1);
            let count = want.denials.values().copied().fold(absent, u32::min).max(1);
            self.log.amend(self.held, self.held + u64::from(count));
            self.counts.amended += u64::from(count);
            self.announces = true;
            self.want = None;
            return;
        }
        if asked > ASKED_MAX {
            self.evicted.extend(open);
            return self.reform_soon(now_us);
        }
        let helper = want.helper.filter(|helper| asked == 1 && open.contains(helper));
        self.ask(helper.unwrap_or(open[asked % open.len()]), self.held);
    }

    /// Answers a request for a message.
    pub(super) fn on_want(&mut self, from: NodeId, number: u64, sender: NodeId, seq: Seq) {
        if number > NUMBER_MAX {
            return self.counts.malformed += 1;
        }
        let known = self.named(number);
        if known.is_some_and(|(known, at, _)| (known, at) != (sender, seq)) {
            return;
        }
        let is_held = self.hold.unit(sender, seq).is_some() && !self.is_denied(number);
        if is_held {
            return self.copy(number, sender, seq);
        }
        let Some(epoch) = self.log.epoch().filter(|_| self.is_open()) else { return };
        let is_delivered = number < self.held && self.log.amended_until(number).is_none();
        if is_delivered || self.is_told_gone(number) {
            let until = self.next_kept(number.saturating_add(1));
            return self.send(&Body::Gone { epoch, number, until });
        }
        if epoch.sequencer != from || number < self.held {
            return;
        }
        let count = self.hold.absent(sender, seq, known.map_or(1, |(.., count)| count)).max(1);
        if self.denied.len() < DENIED_MAX {
            self.denied.insert(number, number + u64::from(count));
            self.send(&Body::Deny { epoch, number, count });
        }
    }

    fn copy(&mut self, number: u64, sender: NodeId, seq: Seq) {
        let Some(unit) = self.hold.unit(sender, seq) else { return };
        let Message { packets, joint, enveloped, sent, payload, .. } = unit.message();
        let form = Form { joint, enveloped, sent_us: sent.map(|sent| sent.at_us) };
        let payload = payload.to_vec();
        self.counts.copied += 1;
        self.send(&Body::Copy { number, sender, seq, packets, form, payload: &payload });
    }

    /// Takes a message that another member sent again.
    pub(super) fn on_copy(&mut self, from: NodeId, number: u64, message: &Message<'_>) {
        if !self.council.as_ref().is_some_and(|council| council.contains(from)) {
            return self.counts.unauthorized += 1;
        }
        let is_wanted = number >= self.held
            && self.named(number).is_some_and(|(sender, seq, count)| {
                (sender, seq) == (message.sender, message.seq) && (1..=count).contains(&message.packets)
            });
        if is_wanted {
            if let Some(want) = &mut self.want {
                want.helper = Some(from);
            }
            self.hold.put(message, true);
            self.denied.retain(|&first, &mut end| !(first <= number && number < end));
        }
    }

    /// Takes the news that a member does not hold a message.
    pub(super) fn on_deny(&mut self, from: NodeId, number: u64, count: u32) {
        if let Some(want) = self.want.as_mut().filter(|want| want.number == number) {
            want.denials.insert(from, count.max(1));
            // The next one is asked at once.
            want.due_us = 0;
        }
    }

    /// Whether this member misses the message itself, and the sequencer has dropped it.
    fn is_told_gone(&self, number: u64) -> bool {
        let Some(epoch) = self.log.epoch() else { return false };
        let is_told = |want: &Want| want.number == number && want.gone.contains_key(&epoch.sequencer);
        self.want.as_ref().is_some_and(is_told)
    }

    /// Takes the news that a member has delivered a message and dropped it.
    pub(super) fn on_gone(&mut self, from: NodeId, number: u64, until: u64) {
        if number.max(until) > NUMBER_MAX || until <= number {
            return self.counts.malformed += 1;
        }
        if !self.council.as_ref().is_some_and(|council| council.contains(from)) {
            return self.counts.unauthorized += 1;
        }
        if let Some(want) = self.want.as_mut().filter(|want| want.number == number) {
            want.gone.insert(from, until);
            // The next one is asked at once.
            want.due_us = 0;
        }
    }

    /// Sends a message that the sequencer has asked for and found elsewhere: members that have denied it wait
    /// for it.
    pub(super) fn tell_found(&mut self, number: u64, run: &Run) {
        let is_denied = |want: &Want| want.number == number && !want.denials.is_empty();
        if self.is_active() && self.want.as_ref().is_some_and(is_denied) {
            self.copy(number, run.sender, run.seq);
        }
    }
}
