//! A node that joins a group reads the history from a member.
//!
//! The node asks the members one after the other where the wanted part of their logs begins. It takes the
//! first log that has everything, else the one that has most. It then requests the bytes of that log in a
//! window that grows, until it has reached the end. If the member falls silent, or has forgotten the next
//! bytes, the node goes on with another one, a little before the time that it had reached. Packets that it
//! has are recognized as duplicates.
//!
//! A node that wants the last message of each key reads a copy of them, and then the log of the same member
//! from where it ended when the copy was made.

use hashbrown::HashMap;
use rand_chacha::ChaCha8Rng;

use super::keyed::read_front;
use super::reading::{ANSWER_US, Offer, Reading, STRIKES_MAX};
use super::{HistoryNews, Wish};
use crate::chance;
use crate::counters::Malformed;
use crate::ids::{GroupId, NodeId};
use crate::wire::{Ask, History, HistoryBody};

/// Time in which a member must be found that keeps history, in microseconds.
const PATIENCE_US: u64 = 2_000_000;
/// Time for which the node looks for a member that has everything, in microseconds.
const CHOICE_US: u64 = 200_000;
/// Number of times that one member is asked where its log begins.
const TRIES_MAX: u8 = 3;
/// Time by which the node goes back when it goes on with another member, in microseconds.
const MARGIN_US: u64 = 2_000_000;
/// Maximum number of senders whose packets are noted during the reading.
const SENDERS_MAX: usize = 1 << 14;
/// Number of copies in a row that members may drop before this node has read anything new of them.
const COPIES_MAX: u8 = 8;

/// Packets of a sender that came or were announced during the reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    /// The first that came; `None` if none did.
    pub(crate) first: Option<u32>,
    pub(crate) last: u32,
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
    /// The last messages of keys have been read. Their log follows.
    Copied,
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
    /// Whether the copy that was read had the last messages of all keys; `None` if none was read.
    copied: Option<bool>,
    /// Number of copies that were dropped since anything new was read.
    dropped: u8,
    /// Time of the oldest and of the newest record processed, by this node's clock.
    cut_us: Option<u64>,
    reached_us: Option<u64>,
    noted: HashMap<NodeId, Noted>,
    /// Streams that members know, and the next packet of each when they were asked.
    streams: HashMap<NodeId, u32>,
    /// Next packet after those in a copy, of streams that the copy tells no position of.
    unplaced: HashMap<NodeId, u32>,
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
            copied: None,
            dropped: 0,
            cut_us: None,
            reached_us: None,
            noted: HashMap::new(),
            streams: HashMap::new(),
            unplaced: HashMap::new(),
        }
    }

    /// Returns whether the last message of each key is wanted.
    pub(crate) fn is_keyed(&self) -> bool {
        self.wish == Wish::LastPerKey
    }

    /// Returns whether the next thing to read is a copy, and no log.
    fn wants_copy(&self) -> bool {
        self.is_keyed() && self.copied.is_none()
    }

    /// Returns whether a copy is read.
    pub(crate) fn is_copying(&self) -> bool {
        matches!(&self.phase, Phase::Reading(reading) if reading.copy.is_some())
    }

    /// Returns whether the last messages of all keys have been read, or the group had no members.
    pub(crate) fn is_whole(&self) -> bool {
        let was_alone = || self.searched_us == self.begun_us && self.asked.is_empty();
        self.is_keyed() && self.copied.unwrap_or_else(was_alone)
    }

    /// Reads the front of a copy. Returns whether it is read.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(crate) fn take_front(&mut self) -> Result<bool, Malformed> {
        let Self { phase: Phase::Reading(reading), streams, unplaced, .. } = self else { return Ok(false) };
        let Some(copy) = &mut reading.copy else { return Ok(false) };
        if copy.has_front {
            return Ok(true);
        }
        let mut read = HashMap::new();
        let mut note = |sender, next| {
            read.insert(sender, next);
        };
        let front = read_front(&reading.carry, &mut note)?;
        let Some((log_start, length)) = front else { return Ok(false) };
        // Positions of a copy that was not read to its end count no more.
        *streams = read;
        unplaced.clear();
        reading.carry.drain(..length);
        (copy.has_front, copy.log_start) = (true, log_start);
        Ok(true)
    }

    /// Returns whether the front of the copy that is read has not come.
    pub(crate) fn lacks_front(&self) -> bool {
        let Phase::Reading(reading) = &self.phase else { return false };
        reading.copy.is_some_and(|copy| !copy.has_front)
    }

    /// Notes that a message of a copy was new to this node.
    pub(crate) fn on_fresh(&mut self) {
        self.dropped = 0;
    }

    /// Returns whether a message of a copy precedes the position of its stream. One that does not comes by
    /// the log, in its order.
    pub(crate) fn precedes(&mut self, sender: NodeId, seq: u32) -> bool {
        if let Some(&next) = self.streams.get(&sender) {
            return (seq.wrapping_sub(next) as i32) < 0;
        }
        if self.unplaced.len() >= SENDERS_MAX && !self.unplaced.contains_key(&sender) {
            return false;
        }
        let next = self.unplaced.entry(sender).or_insert(seq);
        if seq.wrapping_sub(*next) as i32 >= 0 {
            *next = seq.wrapping_add(1);
        }
        true
    }

    /// Returns a number near those of a stream.
    pub(crate) fn near(&self, sender: NodeId) -> Option<u32> {
        self.streams.get(&sender).or_else(|| self.unplaced.get(&sender)).copied()
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
            Wish::LastPerKey => return None,
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
                reading.copy.iter_mut().for_each(|copy| copy.is_gone = true);
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
                    let is_dropped = reading.copy.is_some_and(|copy| copy.is_gone);
                    let failed = reading.offer.server;
                    self.dropped = self.dropped.saturating_add(is_dropped.into());
                    let is_stubborn = self.dropped >= COPIES_MAX;
                    self.restart(now_us, is_stubborn);
                    if !is_dropped || is_stubborn {
                        self.asked.insert(failed, u8::MAX);
                    }
                    return self.ask(now_us, members, rng);
                }
                let step = reading.poll(now_us);
                self.due_us = reading.due_us(now_us);
                match step {
                    Step::End if reading.copy.is_some() => self.on_copied(now_us),
                    Step::End => {
                        self.phase = Phase::Ended;
                        Step::Notify(HistoryNews::Ends)
                    }
                    step => step,
                }
            }
            Phase::Ended => Step::End,
        }
    }

    /// Goes on with the log that follows the copy.
    fn on_copied(&mut self, now_us: u64) -> Step {
        let Phase::Reading(reading) = &mut self.phase else { return Step::Wait };
        let Offer { is_complete, at_us, .. } = reading.offer;
        let has_front = reading.copy.is_some_and(|copy| copy.has_front);
        let Some(log) = reading.of_log(now_us).filter(|_| has_front) else {
            // It ended before it said anything.
            reading.strikes = STRIKES_MAX;
            return Step::Wait;
        };
        **reading = log;
        for (sender, next) in self.unplaced.drain() {
            self.streams.entry(sender).or_insert(next);
        }
        self.copied = Some(is_complete);
        (self.cut_us, self.reached_us, self.due_us) = (None, Some(at_us), now_us);
        Step::Copied
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
        if let Some(reached_us) = self.reached_us.filter(|_| !self.wants_copy()) {
            return Wish::Since(now_us.saturating_sub(reached_us) + MARGIN_US);
        }
        match self.wish {
            Wish::Last(count) => Wish::Last(count.saturating_add(self.sent_meanwhile())),
            Wish::Since(age_us) => Wish::Since(age_us.saturating_add(now_us.saturating_sub(self.begun_us))),
            Wish::LastPerKey => Wish::LastPerKey,
        }
    }

    /// Returns the number of packets that were sent since the wish was made, as far as this node knows.
    fn sent_meanwhile(&self) -> u64 {
        let of = |noted: &Noted| noted.first.map_or(0, |first| u64::from(noted.last.wrapping_sub(first)) + 1);
        self.noted.values().map(of).sum()
    }

    fn read(&mut self, now_us: u64) -> Step {
        let Some(offer) = self.best else { return Step::Wait };
        self.phase = Phase::Reading(Box::new(Reading::new(now_us, offer, self.wants_copy())));
        self.due_us = now_us;
        if std::mem::replace(&mut self.is_announced, true) {
            return Step::Wait;
        }
        Step::Notify(HistoryNews::Begins { messages: offer.messages, is_complete: offer.is_complete })
    }

    /// Looks for a member again, among all or among those not asked yet.
    fn restart(&mut self, now_us: u64, others_only: bool) {
        self.phase = Phase::Asking;
        self.asked.retain(|_, tries| others_only && *tries == u8::MAX);
        self.best = None;
        self.due_us = now_us;
        self.searched_us = now_us;
    }

    /// Returns whether all has come up to the end of the log or copy. It ends with a whole record.
    pub(crate) fn is_at_end(&self) -> bool {
        matches!(&self.phase, Phase::Reading(reading) if reading.is_at_end())
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
