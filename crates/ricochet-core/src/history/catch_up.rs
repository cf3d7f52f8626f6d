//! A node that joins a group reads the history from a member.
//!
//! The node asks the members one after the other where the wanted part of their logs begins. It takes the
//! first log that has everything, else the one that has most. It then requests the bytes of that log in a
//! window that grows, until it has reached the end. If the member falls silent, or has forgotten the next
//! bytes, the node goes on with another one, a little before the time that it had reached. Packets that it
//! has are recognized as duplicates.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use rand_chacha::ChaCha8Rng;

use super::{HistoryNews, Wish};
use crate::chance;
use crate::ids::{GroupId, NodeId};
use crate::wire::{Ask, History, HistoryBody};

/// Time in which a member must be found that keeps history, in microseconds.
const PATIENCE_US: u64 = 2_000_000;
/// Time for which the node looks for a member that has everything, in microseconds.
const CHOICE_US: u64 = 200_000;
/// First time-out of an answer, in microseconds. It doubles with each time-out in a row.
const ANSWER_US: u64 = 20_000;
/// Number of time-outs in a row after which the node goes on with another member.
const STRIKES_MAX: u32 = 5;
/// Number of times that one member is asked where its log begins.
const TRIES_MAX: u8 = 3;
/// Interval at which a reader without room is looked at again, in microseconds.
const FULL_US: u64 = 1_000;
/// Bytes requested at first, and at most.
const WINDOW: u64 = 8 << 10;
const WINDOW_MAX: u64 = 128 << 10;
/// Number of bytes not processed yet with which the node requests no more.
const CARRY_MAX: usize = 256 << 10;
/// Maximum number of parts kept that arrived too early.
const PARKED_MAX: usize = 256;
/// Time by which the node goes back when it goes on with another member, in microseconds.
const MARGIN_US: u64 = 2_000_000;
/// Time after the first end of the log after which the rest is left to the recovery of losses, in
/// microseconds.
const CHASE_US: u64 = 100_000;
/// Maximum number of senders whose packets are noted during the reading.
const SENDERS_MAX: usize = 1 << 14;

/// Packets of a sender that came or were announced during the reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    /// The first that came; `None` if none did.
    pub(crate) first: Option<u32>,
    pub(crate) last: u32,
}

/// An offer of a member.
#[derive(Clone, Copy, Debug)]
struct Offer {
    server: NodeId,
    start: u64,
    end: u64,
    skip: u16,
    messages: u64,
    is_complete: bool,
    clock_us: u64,
    at_us: u64,
}

/// The log that is read.
#[derive(Debug)]
struct Reading {
    offer: Offer,
    /// Offset of the first byte that has not come.
    next: u64,
    /// Offset after the last byte that came.
    highest: u64,
    /// Offset after the last byte requested.
    requested: u64,
    /// End of the log, as last heard.
    end: u64,
    /// Time at which the end of the offer was reached.
    reached_us: Option<u64>,
    window: u64,
    /// Bytes between those that came, to be requested at once.
    gap: Option<(u64, u64)>,
    /// Parts that arrived too early.
    parked: BTreeMap<u64, Vec<u8>>,
    /// Bytes that came and are not processed.
    carry: Vec<u8>,
    progress_us: u64,
    strikes: u32,
}

#[derive(Debug)]
enum Phase {
    Asking,
    Reading(Box<Reading>),
    Ended,
}

/// Next step of a node that reads history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Send(NodeId, Ask),
    Notify(HistoryNews),
    Wait,
    /// The node has all that it gets.
    End,
}

/// The history of one group that this node reads.
#[derive(Debug)]
pub(crate) struct CatchUp {
    pub(crate) group: GroupId,
    pub(crate) token: u64,
    wish: Wish,
    phase: Phase,
    /// Time at which the wish was made.
    begun_us: u64,
    /// Time at which the search for a member began.
    searched_us: u64,
    due_us: u64,
    asked: HashMap<NodeId, u8>,
    best: Option<Offer>,
    is_announced: bool,
    /// Time of the oldest and of the newest record processed, by this node's clock.
    cut_us: Option<u64>,
    reached_us: Option<u64>,
    noted: HashMap<NodeId, Noted>,
    /// Streams that members know, and the next packet of each when they were asked.
    streams: HashMap<NodeId, u32>,
}

impl CatchUp {
    pub(crate) fn new(now_us: u64, group: GroupId, wish: Wish, token: u64) -> Self {
        Self {
            group,
            token,
            wish,
            phase: Phase::Asking,
            begun_us: now_us,
            searched_us: now_us,
            due_us: now_us,
            asked: HashMap::new(),
            best: None,
            is_announced: false,
            cut_us: None,
            reached_us: None,
            noted: HashMap::new(),
            streams: HashMap::new(),
        }
    }

    pub(crate) fn due_us(&self) -> u64 {
        self.due_us
    }

    /// Returns the packets that came or were announced meanwhile.
    pub(crate) fn noted(&self) -> impl Iterator<Item = (NodeId, Noted)> + '_ {
        self.noted.iter().map(|(&sender, &noted)| (sender, noted))
    }

    /// Returns the streams that members know, and the next packet of each.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (NodeId, u32)> + '_ {
        self.streams.iter().map(|(&sender, &next)| (sender, next))
    }

    /// Returns the time from which on the history is complete, if it is.
    pub(crate) fn complete_since_us(&self) -> Option<u64> {
        let cut_us = match self.wish {
            Wish::Last(_) => self.cut_us?,
            Wish::Since(age_us) => self.begun_us.saturating_sub(age_us),
        };
        self.best.is_some_and(|offer| offer.is_complete).then_some(cut_us)
    }

    /// Notes that a packet of the group came, or was `announced` as its sender's newest.
    pub(crate) fn note(&mut self, sender: NodeId, seq: u32, announced: bool) {
        if self.noted.len() >= SENDERS_MAX && !self.noted.contains_key(&sender) {
            return;
        }
        let is_later = |a: u32, b: u32| a.wrapping_sub(b) as i32 > 0;
        let first = (!announced).then_some(seq);
        let noted = self.noted.entry(sender).or_insert(Noted { first, last: seq });
        if is_later(seq, noted.last) {
            noted.last = seq;
        }
        if !announced && noted.first.is_none_or(|first| is_later(first, seq)) {
            noted.first = Some(seq);
        }
    }

    /// Handles the answer of a member.
    pub(crate) fn on_answer(&mut self, now_us: u64, answer: &History<'_>) {
        match (&mut self.phase, answer.body) {
            (Phase::Asking, HistoryBody::Offer { skip, messages, is_complete, clock_us }) => {
                let History { sender: server, offset: start, end, .. } = *answer;
                if !self.asked.contains_key(&server) || start > end {
                    return;
                }
                self.asked.insert(server, u8::MAX);
                self.due_us = now_us;
                let offer =
                    Offer { server, start, end, skip, messages, is_complete, clock_us, at_us: now_us };
                let is_better = |best: &Offer| {
                    (is_complete, messages, end - start)
                        > (best.is_complete, best.messages, best.end - best.start)
                };
                if self.best.as_ref().is_none_or(is_better) {
                    self.best = Some(offer);
                }
            }
            (_, HistoryBody::Streams(streams)) if self.asked.contains_key(&answer.sender) => {
                for (sender, next) in streams.iter() {
                    if self.streams.len() < SENDERS_MAX {
                        self.streams.entry(sender).or_insert(next);
                    }
                }
            }
            (Phase::Reading(reading), HistoryBody::Part(bytes)) if reading.offer.server == answer.sender => {
                reading.on_part(now_us, answer, bytes);
                self.due_us = now_us;
            }
            (Phase::Reading(reading), HistoryBody::Gone) if reading.offer.server == answer.sender => {
                reading.strikes = STRIKES_MAX;
                self.due_us = now_us;
            }
            _ => {}
        }
    }

    /// Returns what to do next.
    pub(crate) fn poll(&mut self, now_us: u64, members: &[NodeId], rng: &mut ChaCha8Rng) -> Step {
        match &mut self.phase {
            Phase::Asking if now_us < self.due_us => Step::Wait,
            Phase::Asking => self.ask(now_us, members, rng),
            Phase::Reading(reading) => {
                if reading.has_failed(now_us, members) {
                    let failed = reading.offer.server;
                    self.restart(now_us, failed);
                    return self.ask(now_us, members, rng);
                }
                let step = reading.poll(now_us);
                self.due_us = reading.due_us(now_us);
                if step == Step::End {
                    self.phase = Phase::Ended;
                    return Step::Notify(HistoryNews::Ends);
                }
                step
            }
            Phase::Ended => Step::End,
        }
    }

    /// Asks the next member, or chooses a log.
    fn ask(&mut self, now_us: u64, members: &[NodeId], rng: &mut ChaCha8Rng) -> Step {
        let waited_us = now_us.saturating_sub(self.searched_us);
        if self.best.is_some_and(|best| best.is_complete) {
            return self.read(now_us);
        }
        let tries = |node: &NodeId| self.asked.get(node).copied().unwrap_or(0);
        let fewest = members.iter().map(tries).min().filter(|&tries| tries < TRIES_MAX);
        if let Some(fewest) = fewest {
            let of_fewest: Vec<NodeId> =
                members.iter().copied().filter(|node| tries(node) == fewest).collect();
            let node = of_fewest[chance::below(rng, of_fewest.len())];
            self.asked.insert(node, fewest + 1);
            self.due_us = now_us + (ANSWER_US << fewest);
            return Step::Send(node, Ask::Offer(self.present_wish(now_us)));
        }
        if self.best.is_some() && waited_us >= CHOICE_US {
            return self.read(now_us);
        }
        if waited_us < PATIENCE_US {
            // Members may yet appear in the view, or answer.
            let silent = self.asked.values_mut().filter(|tries| **tries == TRIES_MAX);
            silent.for_each(|tries| *tries = TRIES_MAX - 1);
            self.due_us = now_us + ANSWER_US;
            return Step::Wait;
        }
        self.phase = Phase::Ended;
        if std::mem::replace(&mut self.is_announced, true) {
            return Step::Notify(HistoryNews::Ends);
        }
        Step::Notify(HistoryNews::Nothing { asked: self.asked.len() })
    }

    /// Returns what is wanted at this time, less what came already.
    fn present_wish(&self, now_us: u64) -> Wish {
        if let Some(reached_us) = self.reached_us {
            return Wish::Since(now_us.saturating_sub(reached_us) + MARGIN_US);
        }
        match self.wish {
            Wish::Last(count) => Wish::Last(count.saturating_add(self.sent_meanwhile())),
            Wish::Since(age_us) => Wish::Since(age_us.saturating_add(now_us.saturating_sub(self.begun_us))),
        }
    }

    /// Returns the number of packets that were sent since the wish was made, as far as this node knows.
    fn sent_meanwhile(&self) -> u64 {
        let of = |noted: &Noted| noted.first.map_or(0, |first| u64::from(noted.last.wrapping_sub(first)) + 1);
        self.noted.values().map(of).sum()
    }

    fn read(&mut self, now_us: u64) -> Step {
        let Some(offer) = self.best else { return Step::Wait };
        self.phase = Phase::Reading(Box::new(Reading::new(now_us, offer)));
        self.due_us = now_us;
        if std::mem::replace(&mut self.is_announced, true) {
            return Step::Wait;
        }
        Step::Notify(HistoryNews::Begins { messages: offer.messages, is_complete: offer.is_complete })
    }

    /// Goes on with another member.
    fn restart(&mut self, now_us: u64, failed: NodeId) {
        self.phase = Phase::Asking;
        self.asked.clear();
        self.asked.insert(failed, u8::MAX);
        self.best = None;
        self.due_us = now_us;
        self.searched_us = now_us;
    }

    /// Returns the bytes that came and are not processed.
    pub(crate) fn carry(&self) -> &[u8] {
        match &self.phase {
            Phase::Reading(reading) => &reading.carry,
            _ => &[],
        }
    }

    /// Forgets bytes that were processed. Notes the time of the last record in them.
    pub(crate) fn on_processed(&mut self, bytes: usize, at_us: Option<u64>) {
        if let Phase::Reading(reading) = &mut self.phase {
            reading.carry.drain(..bytes);
        }
        if let Some(at_us) = at_us {
            self.cut_us.get_or_insert(at_us);
            self.reached_us = self.reached_us.max(Some(at_us));
        }
    }

    /// Gives up the member that is read, because its log is no log.
    pub(crate) fn on_nonsense(&mut self) {
        if let Phase::Reading(reading) = &mut self.phase {
            reading.carry.clear();
            reading.strikes = STRIKES_MAX;
        }
    }

    /// Returns the number of messages of the next packet that are not wanted, once.
    pub(crate) fn take_skip(&mut self) -> u16 {
        match &mut self.phase {
            Phase::Reading(reading) => std::mem::take(&mut reading.offer.skip),
            _ => 0,
        }
    }

    /// Returns whether a record of this time precedes what is wanted. Another member's log may begin earlier.
    pub(crate) fn is_before(&self, at_us: u64) -> bool {
        self.cut_us.is_some_and(|cut_us| at_us < cut_us)
    }

    /// Returns a time of the member's clock by this node's.
    pub(crate) fn local_us(&self, now_us: u64, at_us: u64) -> u64 {
        match &self.phase {
            Phase::Reading(reading) => {
                let Offer { clock_us, at_us: offered_us, .. } = reading.offer;
                let later_us = at_us.saturating_sub(clock_us);
                offered_us.saturating_sub(clock_us.saturating_sub(at_us)).saturating_add(later_us).min(now_us)
            }
            _ => now_us,
        }
    }
}

impl Reading {
    fn new(now_us: u64, offer: Offer) -> Self {
        Self {
            offer,
            next: offer.start,
            highest: offer.start,
            requested: offer.start,
            end: offer.end,
            reached_us: None,
            window: WINDOW,
            gap: None,
            parked: BTreeMap::new(),
            carry: Vec::new(),
            progress_us: now_us,
            strikes: 0,
        }
    }

    fn on_part(&mut self, now_us: u64, answer: &History<'_>, bytes: &[u8]) {
        let History { offset, end, .. } = *answer;
        let Some(last) = offset.checked_add(bytes.len() as u64) else { return };
        if last <= self.next || last > self.requested {
            return;
        }
        self.end = self.end.max(end);
        if offset > self.highest {
            self.gap = Some((self.highest, offset));
        }
        self.highest = self.highest.max(last);
        if offset > self.next {
            if self.parked.len() < PARKED_MAX {
                self.parked.insert(offset, bytes.to_vec());
            }
            return;
        }
        self.take(offset, bytes);
        while let Some(parked) = self.parked.first_entry() {
            if *parked.key() > self.next {
                break;
            }
            let (offset, bytes) = parked.remove_entry();
            self.take(offset, &bytes);
        }
        self.window = (self.window + bytes.len() as u64).min(WINDOW_MAX);
        (self.progress_us, self.strikes) = (now_us, 0);
    }

    fn take(&mut self, offset: u64, bytes: &[u8]) {
        let known = (self.next - offset) as usize;
        if let Some(new) = bytes.get(known..) {
            self.carry.extend_from_slice(new);
            self.next += new.len() as u64;
        }
    }

    fn has_failed(&self, now_us: u64, members: &[NodeId]) -> bool {
        let is_late = now_us >= self.progress_us + (ANSWER_US << self.strikes);
        let is_gone = is_late && !members.contains(&self.offer.server);
        self.strikes >= STRIKES_MAX || is_gone
    }

    fn due_us(&self, now_us: u64) -> u64 {
        if self.requested > self.next {
            self.progress_us + (ANSWER_US << self.strikes)
        } else {
            now_us + FULL_US
        }
    }

    fn poll(&mut self, now_us: u64) -> Step {
        let server = self.offer.server;
        if self.next >= self.offer.end {
            self.reached_us.get_or_insert(now_us);
        }
        let is_late = self.reached_us.is_some_and(|reached_us| now_us >= reached_us + CHASE_US);
        if self.carry.is_empty() && (self.next >= self.end || is_late) {
            return Step::End;
        }
        if let Some((from, to)) = self.gap.take() {
            return read(server, from, to);
        }
        if self.requested > self.next && now_us >= self.progress_us + (ANSWER_US << self.strikes) {
            self.strikes += 1;
            self.progress_us = now_us;
            self.window = (self.window / 2).max(WINDOW / 2);
            let to = self.parked.first_key_value().map_or(self.requested, |(&offset, _)| offset);
            return read(server, self.next, to.min(self.next + self.window));
        }
        let to = (self.next + self.window).min(self.end);
        let is_worth =
            to >= self.requested + self.window / 2 || self.requested == self.next || to == self.end;
        if self.carry.len() < CARRY_MAX && to > self.requested && is_worth {
            if self.requested == self.next {
                self.progress_us = now_us;
            }
            let from = std::mem::replace(&mut self.requested, to);
            return read(server, from, to);
        }
        Step::Wait
    }
}

fn read(server: NodeId, from: u64, to: u64) -> Step {
    Step::Send(
        server,
        Ask::Read { offset: from, length: u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX) },
    )
}
