//! Reading the log of one member, or its copy of the last messages of keys: which bytes are requested when,
//! and which have come.

use std::collections::BTreeMap;

use super::catch_up::Step;
use crate::ids::NodeId;
use crate::wire::{Ask, History};

/// First time-out of an answer, in microseconds. It doubles with each time-out in a row.
pub(super) const ANSWER_US: u64 = 20_000;
/// Number of time-outs in a row after which the node goes on with another member.
pub(super) const STRIKES_MAX: u32 = 5;
/// Interval at which a reader without room is looked at again, in microseconds.
pub(super) const FULL_US: u64 = 1_000;
/// Bytes requested at first, and at most.
const WINDOW: u64 = 8 << 10;
const WINDOW_MAX: u64 = 128 << 10;
/// Number of bytes not processed yet with which the node requests no more.
const CARRY_MAX: usize = 256 << 10;
/// Maximum number of parts kept that arrived too early.
const PARKED_MAX: usize = 256;
/// Time after the first end of the log after which the rest is left to the recovery of losses, in
/// microseconds.
const CHASE_US: u64 = 100_000;
/// Time and rate in which a member must answer, in microseconds and bytes per second. One that sends a few
/// bytes from time to time would keep the node from the group.
const SLOW_US: u64 = 10_000_000;
const RATE_MIN: u64 = 4 << 10;
/// Interval at which a member that keeps a copy for this node is told that the node still reads, in
/// microseconds.
const STILL_US: u64 = 1_000_000;

/// An offer of a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) server: NodeId,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) skip: u16,
    pub(super) messages: u64,
    pub(super) is_complete: bool,
    pub(super) clock_us: u64,
    pub(super) at_us: u64,
}

impl Offer {
    /// Returns a time of the member's clock by this node's.
    pub(super) fn local_us(&self, at_us: u64) -> u64 {
        let (earlier_us, later_us) =
            (self.clock_us.saturating_sub(at_us), at_us.saturating_sub(self.clock_us));
        self.at_us.saturating_sub(earlier_us).saturating_add(later_us)
    }
}

/// A copy that is read, and what follows it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CopyState {
    /// Whether the front of the copy was read.
    pub(super) has_front: bool,
    /// Part of the log that follows the copy, as last heard.
    pub(super) log_start: u64,
    log_end: u64,
    /// Whether the member does not keep the copy any more. It may be asked for another one.
    pub(super) is_gone: bool,
}

/// The log or copy that is read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) offer: Offer,
    /// State of the copy; `None` if a log is read.
    pub(super) copy: Option<CopyState>,
    /// Offset of the first byte that has not come.
    next: u64,
    /// Offset after the last byte that came.
    highest: u64,
    /// Offset after the last byte requested.
    requested: u64,
    /// End of the log, as last heard.
    end: u64,
    /// Time at which the end of the offer was reached, not counting that in which answers were held back.
    reached_us: Option<u64>,
    window: u64,
    /// Bytes between those that came, to be requested at once.
    gap: Option<(u64, u64)>,
    /// Parts that arrived too early.
    parked: BTreeMap<u64, Vec<u8>>,
    /// Bytes that came and are not processed.
    pub(super) carry: Vec<u8>,
    progress_us: u64,
    /// Time that the reading has taken, not counting that in which its readers have no room.
    pub(super) taken_us: u64,
    /// Time of the last request.
    asked_us: u64,
    pub(super) strikes: u32,
}

impl Reading {
    pub(super) fn new(now_us: u64, offer: Offer, of_copy: bool) -> Self {
        Self {
            offer,
            copy: of_copy.then(CopyState::default),
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
            taken_us: 0,
            asked_us: now_us,
            strikes: 0,
        }
    }

    /// Returns the reading of the log that follows the copy.
    pub(super) fn of_log(&self, now_us: u64) -> Option<Self> {
        let CopyState { log_start, log_end, .. } = self.copy?;
        let offer = Offer { start: log_start, end: log_end.max(log_start), skip: 0, ..self.offer };
        Some(Self::new(now_us, offer, false))
    }

    pub(super) fn on_part(&mut self, now_us: u64, answer: &History<'_>, bytes: &[u8]) {
        let History { offset, end, .. } = *answer;
        let Some(last) = offset.checked_add(bytes.len() as u64) else { return };
        if last <= self.next || last > self.requested {
            return;
        }
        match &mut self.copy {
            Some(copy) => copy.log_end = copy.log_end.max(end),
            None => self.end = self.end.max(end),
        }
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

    /// Returns whether the member has forgotten bytes that have not come. Once a copy has been read, the
    /// answer to an earlier request for bytes of it tells nothing of the log.
    pub(super) fn is_gone(&self, answer: &History<'_>) -> bool {
        answer.sender == self.offer.server && (self.copy.is_some() || answer.offset > self.next)
    }

    fn take(&mut self, offset: u64, bytes: &[u8]) {
        let known = (self.next - offset) as usize;
        if let Some(new) = bytes.get(known..) {
            self.carry.extend_from_slice(new);
            self.next += new.len() as u64;
        }
    }

    /// Returns whether all bytes have come up to the end as last heard.
    pub(super) fn is_at_end(&self) -> bool {
        self.next >= self.end
    }

    pub(super) fn has_failed(&self, now_us: u64, members: &[NodeId]) -> bool {
        let is_late = now_us >= self.progress_us + (ANSWER_US << self.strikes);
        let is_gone = is_late && !members.contains(&self.offer.server);
        self.strikes >= STRIKES_MAX || is_gone || self.is_slow()
    }

    fn is_slow(&self) -> bool {
        let bytes = self.next - self.offer.start;
        self.taken_us > SLOW_US + bytes.saturating_mul(1_000_000) / RATE_MIN
    }

    pub(super) fn due_us(&self, now_us: u64) -> u64 {
        if self.requested > self.next {
            self.progress_us + (ANSWER_US << self.strikes)
        } else {
            now_us + FULL_US
        }
    }

    pub(super) fn poll(&mut self, now_us: u64) -> Step {
        match self.next_step(now_us) {
            Step::Wait => self.poll_still(now_us).map_or(Step::Wait, |(to, ask)| Step::Send(to, ask)),
            step => {
                if matches!(step, Step::Send(..)) {
                    self.asked_us = now_us;
                }
                step
            }
        }
    }

    /// Returns the request by which the member learns that its copy is still read, if it is due.
    pub(super) fn poll_still(&mut self, now_us: u64) -> Option<(NodeId, Ask)> {
        if self.copy.is_none() || now_us < self.asked_us + STILL_US {
            return None;
        }
        self.asked_us = now_us;
        Some(self.request(self.next, self.next))
    }

    /// Keeps the member from being given up for a time in which its answers were held back.
    pub(super) fn hold(&mut self, held_us: u64) {
        self.progress_us = self.progress_us.saturating_add(held_us);
        self.reached_us = self.reached_us.map(|reached_us| reached_us.saturating_add(held_us));
    }

    fn next_step(&mut self, now_us: u64) -> Step {
        if self.next >= self.offer.end {
            self.reached_us.get_or_insert(now_us);
        }
        let is_late = self.reached_us.is_some_and(|reached_us| now_us >= reached_us + CHASE_US);
        if self.carry.is_empty() && (self.next >= self.end || is_late) {
            return Step::End;
        }
        if let Some((from, to)) = self.gap.take() {
            return self.read(from, to);
        }
        if self.requested > self.next && now_us >= self.progress_us + (ANSWER_US << self.strikes) {
            self.strikes += 1;
            self.progress_us = now_us;
            self.window = (self.window / 2).max(WINDOW / 2);
            let to = self.parked.first_key_value().map_or(self.requested, |(&offset, _)| offset);
            return self.read(self.next, to.min(self.next + self.window));
        }
        let to = (self.next + self.window).min(self.end);
        let is_worth =
            to >= self.requested + self.window / 2 || self.requested == self.next || to == self.end;
        if self.carry.len() < CARRY_MAX && to > self.requested && is_worth {
            if self.requested == self.next {
                self.progress_us = now_us;
            }
            let from = std::mem::replace(&mut self.requested, to);
            return self.read(from, to);
        }
        Step::Wait
    }

    fn read(&self, from: u64, to: u64) -> Step {
        let (member, ask) = self.request(from, to);
        Step::Send(member, ask)
    }

    fn request(&self, from: u64, to: u64) -> (NodeId, Ask) {
        let length = u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX);
        let ask = match self.copy {
            Some(_) => Ask::Copy { offset: from, length },
            None => Ask::Read { offset: from, length },
        };
        (self.offer.server, ask)
    }
}
