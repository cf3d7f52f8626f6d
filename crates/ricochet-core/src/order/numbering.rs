//! Numbers, acknowledgements and deliveries.

use foundation::Seq;

use super::epoch::Epoch;
use super::hold::Ready;
use super::log::Run;
use super::total::{OrderNews, OrderOutput, Ordered, Patience, Total};
use super::wire::Body;
use crate::ids::NodeId;

/// Maximum number of runs in a packet of numbers.
const RUNS_MAX: usize = 90;
/// Maximum number of amended ranges in a packet of numbers.
const AMENDED_TOLD_MAX: usize = 16;
/// Greatest number. Sums of numbers are in range.
pub(super) const NUMBER_MAX: u64 = 1 << 62;
/// Numbers after which a member acknowledges at once.
const ACK_NUMBERS: u64 = 64;
/// Time without progress after which the application is told, in microseconds.
const STALLED_US: u64 = 2_000_000;
/// Longest interval between requests for numbers, in microseconds.
const PAUSE_US_MAX: u64 = 1_000_000;

/// Numbers in a packet: how far the sequencer holds the messages, up to which number all members do, and the
/// first number of the runs.
pub(super) type Extent = (u64, u64, u64);

impl Patience {
    /// Does not count a time in which this member heard nobody.
    fn postpone(&mut self, by_us: u64) {
        let Self { stuck, quiet, heard_us, pull_us, .. } = self;
        let times = stuck.iter_mut().map(|(at_us, _)| at_us);
        let times = times.chain(quiet.iter_mut().map(|(at_us, _)| at_us)).chain(heard_us).chain([pull_us]);
        times.for_each(|at_us| *at_us = at_us.saturating_add(by_us));
    }
}

impl Total {
    /// Sets whether packets that came are held back. Such a member hears nobody, and takes nobody for dead:
    /// it begins no epoch and no order, and puts no member out. The next flush has more to do afterwards.
    pub fn set_blocked(&mut self, now_us: u64, is_blocked: bool) {
        if is_blocked {
            self.blocked_since_us.get_or_insert(now_us);
        } else if let Some(since_us) = self.blocked_since_us.take() {
            let by_us = now_us.saturating_sub(since_us);
            self.patience.postpone(by_us);
            self.crowded_us = self.crowded_us.map(|since_us| since_us.saturating_add(by_us));
            // An attempt of another member, of which it may have heard just now, takes some round trips.
            let soon_us = now_us.saturating_add(self.config.silence_us / 2);
            self.campaign_us = self.campaign_us.map(|due_us| due_us.max(soon_us));
        }
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked_since_us.is_some()
    }

    /// Returns whether this node may number messages.
    pub(super) fn is_active(&self) -> bool {
        self.is_sequencer() && self.is_open() && self.candidacy.is_none()
    }

    /// Numbers what is ready, if this node is the sequencer. Returns the first number, if there is any.
    pub(super) fn number(&mut self, now_us: u64) -> Option<u64> {
        if !self.is_active() {
            self.crowded_us = None;
            return None;
        }
        self.stable = self.stable.max(self.held_by_all());
        self.forget_stable();
        // Another member's epoch may be among the packets that are held back, after the messages.
        if self.is_blocked() || !self.may_number(now_us) {
            return None;
        }
        let first = self.log.next;
        while self.log.next.saturating_sub(self.stable) < self.config.window
            && let Some(&sender) = self.dirty.first()
        {
            match self.hold.ready(sender, self.log.position(sender)) {
                Some(Ready { seq, count, lost }) => {
                    self.counts.numbered += u64::from(count);
                    self.log.append(Run { sender, seq, count, lost });
                }
                None => {
                    self.dirty.remove(&sender);
                }
            }
        }
        (self.log.next > first).then_some(first)
    }

    /// Returns whether the sequencer may give further numbers: not too many are unacknowledged, and a
    /// majority was heard not long ago.
    fn may_number(&mut self, now_us: u64) -> bool {
        let heard = self.majority_holds();
        if self.is_window_full() {
            self.patience.heard_us = Some(now_us).filter(|_| heard >= self.log.next);
            self.hold_up(now_us);
            return false;
        }
        self.crowded_us = None;
        if heard >= self.log.next {
            self.unheard = None;
            return true;
        }
        match self.unheard {
            Some((since_us, then)) if then == heard => {
                now_us.saturating_sub(since_us) < self.config.unheard_us
            }
            _ => {
                self.unheard = Some((now_us, heard));
                true
            }
        }
    }

    /// Returns whether no further number may be given until the slowest member has acknowledged more.
    fn is_window_full(&self) -> bool {
        self.log.next.saturating_sub(self.stable) >= self.config.window
    }

    /// Puts the slowest members out, if they have held up the others for too long, or if messages that wait
    /// behind them would soon be lost for all.
    fn hold_up(&mut self, now_us: u64) {
        if self.is_blocked() {
            // Acknowledgements of all may be among the packets that are held back.
            return;
        }
        let since_us = *self.crowded_us.get_or_insert(now_us);
        let waited_us = now_us.saturating_sub(since_us);
        // Acknowledgements belong to an epoch, at whose beginning there are none of members that keep up.
        let is_unheard = |member: NodeId| !self.acks.contains_key(&member);
        let is_new = waited_us < self.config.promise_us && self.others().any(is_unheard);
        let is_patient = waited_us < self.config.evict_us;
        if is_patient && (is_new || !self.hold.is_nearly_full()) {
            return;
        }
        self.crowded_us = None;
        let stable = self.stable;
        let slow: Vec<NodeId> = self.others().filter(|&member| self.acked_by(member) <= stable).collect();
        self.evicted.extend(slow);
        self.reform_soon(now_us);
    }

    /// Returns the members that have not left, without this one.
    pub(super) fn others(&self) -> impl Iterator<Item = NodeId> + '_ {
        let members = self.council.iter().flat_map(|council| council.members.iter().copied());
        members.filter(|member| *member != self.config.me && !self.byes.contains_key(member))
    }

    pub(super) fn acked_by(&self, member: NodeId) -> u64 {
        self.acks.get(&member).copied().unwrap_or(0).min(self.log.next)
    }

    /// Returns the number up to which all members hold the messages.
    fn held_by_all(&self) -> u64 {
        self.others().map(|member| self.acked_by(member)).fold(self.held, u64::min)
    }

    /// Returns the number up to which a majority of the members holds the messages.
    pub(super) fn majority_holds(&self) -> u64 {
        let (Some(council), Some(epoch)) = (&self.council, self.log.epoch()) else { return 0 };
        let mut acks: Vec<u64> = council.members.iter().map(|&member| self.acked_by(member)).collect();
        acks.sort_unstable_by(|a, b| b.cmp(a));
        let left = |node: NodeId| self.has_left(node, epoch);
        let is_held = |number: &u64| council.is_majority(|node| self.acked_by(node) >= *number, left);
        acks.into_iter().find(is_held).unwrap_or(0)
    }

    /// Forgets messages that all members hold, and senders of which nothing is kept. The newest messages are
    /// kept for members that were cut off, if there is room.
    fn forget_stable(&mut self) {
        let is_roomy = self.hold.bytes() < self.config.bytes_max / 2;
        let keep = if is_roomy { self.config.keep.min(self.config.messages_max as u64 / 4) } else { 0 };
        let number = self.stable.saturating_sub(keep).min(self.delivered).min(self.held);
        if number > self.log.start {
            let Self { log, hold, .. } = self;
            log.forget_before(number, |run| hold.forget(run.sender, run.seq, run.seq.plus(run.count.into())));
        }
        if self.log.positions.len() > self.senders_due {
            let Self { log, hold, .. } = self;
            log.forget_senders(|sender| hold.has_units(sender));
            self.senders_due = log.senders_due();
        }
    }

    /// Multicasts new numbers and other news of the sequencer.
    pub(super) fn tell(&mut self, numbered: Option<u64>) {
        let announces = std::mem::take(&mut self.announces);
        if !self.is_active() || (numbered.is_none() && !announces) {
            return;
        }
        self.send_numbers(numbered.unwrap_or(self.log.next), usize::MAX);
    }

    /// Multicasts the numbers from `first` on, in at most `packets` packets.
    pub(super) fn send_numbers(&mut self, first: u64, packets: usize) {
        let Some(epoch) = self.log.epoch() else { return };
        let (held, stable) = (self.held, self.stable);
        let newest = self.log.amended.iter().rev().map(|(&first, &end)| (first, end));
        let amended: Vec<(u64, u64)> = newest.take(AMENDED_TOLD_MAX).collect();
        let all: Vec<(u64, Run)> = self.log.runs_from(first).collect();
        if all.is_empty() {
            return self.send(&Body::Numbers { epoch, held, stable, first, runs: Vec::new(), amended });
        }
        for part in all.chunks(RUNS_MAX).take(packets) {
            let Some(&(first, _)) = part.first() else { continue };
            let runs = part.iter().map(|&(_, run)| run).collect();
            self.send(&Body::Numbers { epoch, held, stable, first, runs, amended: amended.clone() });
        }
    }

    /// Takes numbers of the sequencer.
    pub(super) fn on_numbers(
        &mut self,
        now_us: u64,
        from: NodeId,
        (held, stable, first): Extent,
        runs: &[Run],
        amended: &[(u64, u64)],
    ) {
        if first.max(held).max(stable) > NUMBER_MAX {
            return self.counts.malformed += 1;
        }
        self.patience.heard_us = Some(now_us);
        self.note_ack(from, held);
        if runs.is_empty() {
            // The sequencer has not heard of this member, or another member has not.
            self.acked = 0;
        }
        let mut number = first;
        for &run in runs {
            self.log.insert(number, run);
            number += u64::from(run.count);
        }
        for &(first, end) in amended {
            if end > self.log.start {
                self.log.amend(first, end);
            }
        }
        self.stable = self.stable.max(stable.min(self.log.next));
        self.forget_stable();
    }

    /// Takes an acknowledgement.
    pub(super) fn on_ack(&mut self, from: NodeId, epoch: Epoch, held: u64) {
        let is_member = self.council.as_ref().is_some_and(|council| council.contains(from));
        if Some(epoch) != self.log.epoch() || !is_member {
            return;
        }
        self.note_ack(from, held);
    }

    fn note_ack(&mut self, from: NodeId, held: u64) {
        let known = self.acks.entry(from).or_insert(held);
        *known = held.max(*known);
    }

    /// Moves the number up to which this node holds the messages.
    pub(super) fn advance(&mut self, now_us: u64) {
        if self.council.is_none() {
            return;
        }
        loop {
            self.pass_held();
            self.acks.insert(self.config.me, self.held);
            if !self.miss(now_us) {
                return;
            }
        }
    }

    fn pass_held(&mut self) {
        while self.held < self.log.next {
            if let Some(end) = self.log.amended_until(self.held) {
                self.held = end.min(self.log.next);
                continue;
            }
            let Some(run) = self.log.run_at(self.held) else { break };
            if run.lost {
                self.held += u64::from(run.count);
                continue;
            }
            let Some(unit) = self.hold.unit(run.sender, run.seq) else { break };
            if self.is_denied(self.held) {
                break;
            }
            let packets = unit.packets().min(run.count);
            self.tell_found(self.held, &run);
            self.held += u64::from(packets);
        }
    }

    /// Delivers what can be.
    pub(super) fn deliver(&mut self, out: &mut impl OrderOutput) {
        self.release_news(out);
        if self.council.is_none() {
            return;
        }
        let end = if self.config.safe { self.held.min(self.majority_holds()) } else { self.held };
        while self.delivered < end {
            let number = self.delivered;
            let Some(run) = self.log.run_at(number) else { return };
            self.has_delivered = true;
            let amended = self.log.amended_until(number);
            let count = if amended.is_some() || run.lost {
                let until = amended.unwrap_or(end).min(end);
                let count = (until - number).min(run.count.into());
                self.counts.lost += count;
                let lost = self.lost(run.sender, run.seq, count);
                out.release(Ordered::Lost { number, lost });
                count
            } else {
                let Some(unit) = self.hold.unit(run.sender, run.seq) else {
                    // Its stream was forgotten while it waited for the others.
                    self.held = number;
                    return;
                };
                self.counts.delivered += 1;
                out.release(Ordered::Message { number, message: unit.message() });
                unit.packets().min(run.count).into()
            };
            self.delivered += count;
        }
    }

    /// Tells the others how far this member holds the messages: at once if they wait for it, otherwise after
    /// some numbers or some time.
    pub(super) fn acknowledge(&mut self, now_us: u64) {
        if self.council.is_none() || !self.is_open() || self.held <= self.acked {
            self.ack_due_us = None;
            return;
        }
        if self.is_sequencer() && !self.prompt {
            self.acked = self.held;
            return;
        }
        let due_us = *self.ack_due_us.get_or_insert(now_us.saturating_add(self.config.ack_us));
        if !self.prompt && self.held - self.acked < ACK_NUMBERS && due_us > now_us {
            return;
        }
        self.ack_due_us = None;
        self.acked = self.held;
        if let Some(epoch) = self.log.epoch() {
            self.send(&Body::Ack { epoch, held: self.held });
        }
    }

    /// Asks for numbers if none come, and tries to become the sequencer if that does not help.
    pub(super) fn watch_progress(&mut self, now_us: u64) {
        let Self { dirty, hold, log, .. } = self;
        dirty.retain(|&sender| hold.ready(sender, log.position(sender)).is_some());
        if self.is_blocked() {
            // Signs of progress may be among the packets that are held back.
            return;
        }
        let epoch = self.council.as_ref().and(self.log.epoch());
        let is_member = self.council.is_some() || self.pending.is_some();
        if !is_member {
            return self.watch_beginning(now_us);
        }
        let is_unsafe = self.config.safe && self.delivered < self.held;
        let is_behind = self.held < self.log.next || is_unsafe;
        let is_unheard = self.is_active() && self.majority_holds() < self.log.next;
        let is_urgent =
            !self.dirty.is_empty() || self.pending.is_some() || self.promised > epoch || self.log.has_gap();
        if !(is_urgent || is_behind || is_unheard) {
            self.patience = Patience::default();
            return self.resume();
        }
        let delivered = if self.config.safe { self.delivered } else { 0 };
        let (stuck, mark) = (Some((self.log.next, delivered)), (self.log.next, self.promised));
        if self.patience.stuck.is_none_or(|(_, known)| known != stuck) {
            self.patience.stuck = Some((now_us, stuck));
            self.resume();
        }
        if self.patience.quiet.is_none_or(|(_, known)| known != mark) {
            let half_us = self.config.silence_us / 2;
            self.patience.quiet = Some((now_us, mark));
            (self.patience.pull_us, self.patience.pause_us) = (now_us.saturating_add(half_us), half_us);
        }
        if self.patience.pull_us <= now_us {
            self.patience.pull_us = now_us.saturating_add(self.patience.pause_us);
            self.patience.pause_us = (2 * self.patience.pause_us).min(PAUSE_US_MAX);
            if self.is_active() {
                // Members that have not heard the last numbers ask for them.
                self.announces = true;
                self.tell(None);
            } else {
                self.send(&Body::Pull { epoch, promised: self.promised, next: self.log.next });
            }
        }
        let since_us = |known: Option<u64>| known.unwrap_or(now_us);
        let quiet_us = since_us(self.patience.quiet.map(|(at_us, _)| at_us));
        let stuck_us = since_us(self.patience.stuck.map(|(at_us, _)| at_us));
        let stuck_us = stuck_us.saturating_add(self.held_up_us(stuck_us).saturating_add(STALLED_US));
        let campaign_us = self.campaign_after(quiet_us).filter(|_| is_urgent);
        if campaign_us.is_some_and(|due_us| due_us <= now_us) {
            self.start_candidacy(now_us);
        }
        if stuck_us <= now_us && (is_urgent || is_unsafe) {
            self.stall();
        }
        let later = [Some(self.patience.pull_us), campaign_us, Some(stuck_us)].into_iter().flatten();
        self.patience.due_us = later.filter(|&due_us| due_us > now_us).min();
    }

    /// Tells the application if messages wait for an order that does not begin.
    fn watch_beginning(&mut self, now_us: u64) {
        if self.dirty.is_empty() {
            self.patience = Patience::default();
            return self.resume();
        }
        if !matches!(self.patience.stuck, Some((_, None))) {
            self.patience = Patience { stuck: Some((now_us, None)), ..Patience::default() };
        }
        let since_us = self.patience.stuck.map_or(now_us, |(at_us, _)| at_us);
        let stuck_us = since_us.saturating_add(self.config.found_us.saturating_add(STALLED_US));
        self.patience.due_us = Some(stuck_us).filter(|&due_us| due_us > now_us);
        if stuck_us <= now_us {
            self.stall();
        }
    }

    fn stall(&mut self) {
        if !std::mem::replace(&mut self.stalled, true) {
            self.news.push_back(OrderNews::Stalled);
        }
    }

    /// Returns when this node tries to become the sequencer if nothing happens.
    fn campaign_after(&self, quiet_us: u64) -> Option<u64> {
        if self.candidacy.is_some() || (self.is_sequencer() && self.is_open()) {
            return None;
        }
        let rank = self.rank()? as u64;
        let silence_us = self.config.silence_us.saturating_mul(rank + 1);
        Some(quiet_us.saturating_add(silence_us.saturating_add(self.held_up_us(quiet_us))))
    }

    /// Returns the time in which a sequencer that was heard after `since_us` puts out a member that holds up
    /// the others; 0 if none does. An election would only delay that: the next sequencer waits as long.
    fn held_up_us(&self, since_us: u64) -> u64 {
        let is_held_up = self.is_window_full() && self.patience.heard_us > Some(since_us);
        if is_held_up { self.config.evict_us } else { 0 }
    }

    fn resume(&mut self) {
        if std::mem::take(&mut self.stalled) {
            self.news.push_back(OrderNews::Resumed);
        }
    }

    /// Returns the position of the message that a number stands for.
    pub(super) fn named(&self, number: u64) -> Option<(NodeId, Seq, u32)> {
        self.log.run_at(number).filter(|run| !run.lost).map(|run| (run.sender, run.seq, run.count))
    }
}
