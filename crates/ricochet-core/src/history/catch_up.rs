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
use super::noted::Noted;
use super::reading::{ANSWER_US, FULL_US, Offer, Reading, STRIKES_MAX};
use super::{BYTES_MAX, HistoryNews, Wish};
use crate::chance;
use crate::counters::Malformed;
use crate::ids::{GroupId, NodeId};
use crate::wire::{Ask, History, HistoryBody};

/// Time in which a member must be found that keeps history, in microseconds; counted from the last answer of
/// a member that makes too many copies for others.
const PATIENCE_US: u64 = 2_000_000;
/// The same while members have no room for another copy. Messages of the present wait for it.
const BUSY_US: u64 = 60_000_000;
/// Time for which the node looks for a member that has everything, in microseconds.
const CHOICE_US: u64 = 200_000;
/// Number of times that one member is asked where its log begins.
const TRIES_MAX: u8 = 3;
/// Time by which the node goes back when it goes on with another member, in microseconds.
const MARGIN_US: u64 = 2_000_000;
/// Longest time of a catch-up in microseconds, not counting that in which its readers have no room. It bounds
/// the harm of members that answer for ever.
const CATCH_UP_US_MAX: u64 = 1_800_000_000;
/// Longest part of that time which counts of one step, in microseconds: this node itself may stand still.
const STEP_US_MAX: u64 = 1_000_000;
/// Maximum number of senders whose packets are noted during the reading.
const SENDERS_MAX: usize = 1 << 14;
/// Number of copies in a row that members may drop before this node has read anything new of them.
const COPIES_MAX: u8 = 8;

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
    /// The last messages of keys have been read. Their log follows; the request for its beginning tells the
    /// member that its copy is not needed any more.
    Copied(NodeId, Ask),
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
    /// Time at which the search for a member began, not counting that in which answers were held back.
    searched_us: u64,
    /// Whether that search is the first.
    is_first: bool,
    due_us: u64,
    /// Time of the last step.
    stepped_us: u64,
    /// Time that the catch-up has taken.
    taken_us: u64,
    asked: HashMap<NodeId, u8>,
    /// Time at which a member last answered that it makes too many copies for others.
    busy_us: Option<u64>,
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
            is_first: true,
            due_us: now_us,
            stepped_us: now_us,
            taken_us: 0,
            asked: HashMap::new(),
            busy_us: None,
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

    /// Returns whether the last messages of all keys have been read.
    pub(crate) fn is_whole(&self) -> bool {
        self.copied == Some(true)
    }

    /// Returns whether the last message of each key is wanted, and no member was there to ask.
    pub(crate) fn was_alone(&self) -> bool {
        self.wants_copy() && self.is_first && self.asked.is_empty()
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

    /// Returns the packet with which a stream begins of which nothing was read.
    pub(crate) fn begin_of(&self, sender: NodeId, noted: &Noted) -> u32 {
        noted.begin(self.streams.get(&sender).copied())
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
        self.noted.entry(sender).or_insert_with(|| Noted::new(seq, announced)).add(seq, announced);
    }

    /// Handles the answer of a member.
    pub(crate) fn on_answer(&mut self, now_us: u64, answer: &History<'_>) {
        match (&mut self.phase, answer.body) {
            (Phase::Asking, HistoryBody::Offer { skip, messages, is_complete, clock_us }) => {
                let History { sender: server, offset: start, end, .. } = *answer;
                let is_log = end.checked_sub(start).is_some_and(|length| length <= BYTES_MAX as u64);
                if !is_log || !self.asked.contains_key(&server) {
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
            (Phase::Asking, HistoryBody::Gone) if self.asked.contains_key(&answer.sender) => {
                self.busy_us = Some(now_us);
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
            (Phase::Reading(reading), HistoryBody::Gone) if reading.is_gone(answer) => {
                reading.strikes = STRIKES_MAX;
                reading.copy.iter_mut().for_each(|copy| copy.is_gone = true);
                self.due_us = now_us;
            }
            _ => {}
        }
    }

    /// Notes that records wait because their readers have no room.
    pub(crate) fn on_full(&mut self, now_us: u64) {
        self.stepped_us = now_us;
    }

    /// Keeps the members from being given up for the time since the last step, because this node holds back
    /// packets that arrived, and their answers may be among those. Looks again a little later.
    pub(crate) fn hold(&mut self, now_us: u64) {
        let held_us = now_us.saturating_sub(std::mem::replace(&mut self.stepped_us, now_us));
        self.searched_us = self.searched_us.saturating_add(held_us);
        self.busy_us = self.busy_us.map(|busy_us| busy_us.saturating_add(held_us));
        let wait_us = if self.carry().is_empty() { ANSWER_US } else { FULL_US };
        self.due_us = self.due_us.max(now_us.saturating_add(wait_us));
        let Phase::Reading(reading) = &mut self.phase else { return };
        reading.hold(held_us);
    }

    /// Returns the request by which a member learns that its copy is still read, if it is due.
    pub(crate) fn poll_still(&mut self, now_us: u64) -> Option<(NodeId, Ask)> {
        let Phase::Reading(reading) = &mut self.phase else { return None };
        reading.poll_still(now_us)
    }

    /// Returns what to do next.
    pub(crate) fn poll(&mut self, now_us: u64, members: &[NodeId], rng: &mut ChaCha8Rng) -> Step {
        let since_us = std::mem::replace(&mut self.stepped_us, now_us);
        let step_us = now_us.saturating_sub(since_us).min(STEP_US_MAX);
        self.taken_us += step_us;
        match &mut self.phase {
            Phase::Asking | Phase::Reading(_) if self.taken_us >= CATCH_UP_US_MAX => self.end(),
            Phase::Asking if now_us < self.due_us => Step::Wait,
            Phase::Asking => self.ask(now_us, members, rng),
            Phase::Reading(reading) => {
                reading.taken_us += step_us;
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
        let Offer { server, is_complete, at_us, .. } = reading.offer;
        let has_front = reading.copy.is_some_and(|copy| copy.has_front);
        let Some(log) = reading.of_log(now_us).filter(|_| has_front) else {
            // It ended before it said anything.
            reading.strikes = STRIKES_MAX;
            return Step::Wait;
        };
        let ask = Ask::Read { offset: log.offer.start, length: 0 };
        **reading = log;
        for (sender, next) in self.unplaced.drain() {
            self.streams.entry(sender).or_insert(next);
        }
        self.copied = Some(is_complete);
        (self.cut_us, self.reached_us, self.due_us) = (None, Some(at_us), now_us);
        Step::Copied(server, ask)
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
        let is_busy =
            waited_us < BUSY_US && self.busy_us.is_some_and(|busy_us| now_us < busy_us + PATIENCE_US);
        if waited_us < PATIENCE_US || is_busy {
            // Members may yet appear in the view, answer, or have room for another copy.
            let silent = self.asked.values_mut().filter(|tries| **tries == TRIES_MAX);
            silent.for_each(|tries| *tries = TRIES_MAX - 1);
            self.due_us = now_us + ANSWER_US;
            return Step::Wait;
        }
        self.end()
    }

    /// Ends the catch-up with what has come.
    fn end(&mut self) -> Step {
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
        self.noted.values().map(Noted::count).sum()
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
        (self.searched_us, self.is_first) = (now_us, false);
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
        let Phase::Reading(reading) = &self.phase else { return now_us };
        reading.offer.local_us(at_us).min(now_us)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;

    const SECOND_US: u64 = 1_000_000;
    const SERVER: NodeId = NodeId(1);
    const HOUR_US: u64 = 3_600 * SECOND_US;

    fn answer<'a>(offset: u64, end: u64, body: HistoryBody<'a>) -> History<'a> {
        History { sender: SERVER, token: 1, group: GroupId(7), offset, end, body }
    }

    /// Reads from one member, which offers `end` bytes and answers each request after `late_us` with `bytes`
    /// bytes. Returns the time at which the catch-up ends, at most a day.
    fn read(end: u64, late_us: u64, bytes: usize, is_full: impl Fn(u64) -> bool) -> u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut catch_up = CatchUp::new(0, GroupId(7), Wish::Last(9), 1);
        let (mut now_us, mut answers) = (0, std::collections::VecDeque::new());
        while now_us < 24 * HOUR_US {
            let length = catch_up.carry().len();
            if length > 0 && is_full(now_us) {
                catch_up.on_full(now_us);
            } else {
                catch_up.on_processed(length, None);
            }
            loop {
                match catch_up.poll(now_us, &[SERVER], &mut rng) {
                    Step::Send(_, ask) => answers.push_back((now_us + late_us, ask)),
                    Step::Wait => break,
                    Step::End => return now_us,
                    _ => {}
                }
            }
            let at_us = answers.front().map_or(u64::MAX, |&(at_us, _)| at_us);
            now_us = at_us.min(catch_up.due_us()).max(now_us + 1);
            if now_us < at_us {
                continue;
            }
            let body = vec![7; bytes];
            match answers.pop_front() {
                Some((_, Ask::Offer(_))) => {
                    let offer = HistoryBody::Offer { skip: 0, messages: 9, is_complete: true, clock_us: 0 };
                    catch_up.on_answer(now_us, &answer(0, end, offer));
                }
                Some((_, Ask::Read { offset, length })) => {
                    let body = &body[..bytes.min(length as usize)];
                    catch_up.on_answer(now_us, &answer(offset, end, HistoryBody::Part(body)));
                }
                _ => {}
            }
        }
        now_us
    }

    #[test]
    fn a_member_that_answers_for_ever_does_not_keep_a_node_from_its_group() {
        let never = |_| false;
        // A few bytes from time to time, and as many as a member sends.
        assert!(read(1 << 36, 300_000, 1, never) < 20 * SECOND_US);
        let end_us = read(1 << 36, 10_000, 1_000, never);
        assert!((CATCH_UP_US_MAX..CATCH_UP_US_MAX + SECOND_US).contains(&end_us), "{end_us}");
        // A log longer than any is no offer.
        assert!(read(u64::MAX, 10_000, 1_000, never) < 5 * SECOND_US);
    }

    #[test]
    fn a_member_on_a_slow_path_is_read_to_its_end_however_slow_the_readers_are() {
        // 10 kB in a second.
        let end_us = read(1_000_000, 100_000, 1_000, |_| false);
        assert!((90 * SECOND_US..110 * SECOND_US).contains(&end_us), "{end_us}");
        let end_us = read(1_000_000, 10_000, 1_000, |now_us| now_us < 2 * HOUR_US);
        assert!((2 * HOUR_US..2 * HOUR_US + 60 * SECOND_US).contains(&end_us), "{end_us}");
    }
}
