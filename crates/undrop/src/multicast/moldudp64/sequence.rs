//! The messages of one session of a feed, in order: see `reader.rs`.

use std::collections::BTreeMap;

use super::packet::{COUNT_MAX, Request, SessionId};

/// Maximum number of gaps of a session. A message that would open another one is dropped, and found missing
/// later.
const GAPS_MAX: usize = 4_096;
/// Maximum number of gaps that are requested at a time.
const GAPS_REQUESTED: usize = 16;
/// Longest gap that is requested, in messages. A longer one is believed only after a second packet.
const GAP_MAX: u64 = 1 << 20;
/// Maximum number of messages of a session that wait for earlier ones.
const AHEAD_MAX: usize = 1 << 18;
/// Maximum number of their bytes.
const AHEAD_BYTES_MAX: usize = 64 << 20;
/// Longest interval between requests for the same messages.
const RETRY_US_MAX: u64 = 1_000_000;

/// Times that a reader keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Time after which a gap is requested, because its messages are not merely out of order; `None` if
    /// nothing is requested.
    pub(super) reorder_us: Option<u64>,
    /// Interval after which it is requested again at first. It doubles each time.
    pub(super) retry_us: u64,
    /// Time after which its messages are lost, from its discovery or from the last answer.
    pub(super) give_up_us: u64,
    /// The same from a report that they are lost.
    pub(super) reported_us: u64,
    /// Silence after which a session is over if there is another one.
    pub(super) silence_us: u64,
}

/// Where a message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Feed,
    /// The answer to a request.
    Answer,
}

/// A step of a feed, as a reader hands it on, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A session begins with this message.
    Begin { session: SessionId, next: u64 },
    /// A message.
    Message { session: SessionId, number: u64, payload: Vec<u8> },
    /// These messages will not come.
    Lost { session: SessionId, first: u64, last: u64 },
    /// The session has no message from this number on.
    End { session: SessionId, next: u64 },
}

/// Counters of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReaderCounts {
    /// Messages handed on.
    pub(super) messages: u64,
    /// Those of them that came as answers to requests.
    pub(super) answered: u64,
    /// Messages that came again.
    pub(super) duplicates: u64,
    /// Messages that did not come.
    pub(super) lost: u64,
    /// Requests.
    pub(super) requests: u64,
    /// Messages dropped for want of room, which are found missing later.
    pub(super) no_room: u64,
    /// Packets and messages of sessions that are over.
    pub(super) of_past_sessions: u64,
    /// Those of further sessions, beside the present and the next one.
    pub(super) of_other_sessions: u64,
    /// Packets with numbers far from those before, which no second packet has confirmed.
    pub(super) implausible: u64,
    /// Sessions begun.
    pub(super) sessions: u64,
}

/// Messages of one session. Each number from `next` up to `known` is in a gap or waits in `ahead`.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) session: SessionId,
    /// Number of the next message to be handed on.
    pub(super) next: u64,
    /// First number whose message is not known to exist.
    known: u64,
    /// Number after the last message, if the session has ended.
    end: Option<u64>,
    /// Whether the beginning was handed on.
    is_begun: bool,
    /// Whether the end was handed on.
    is_over: bool,
    /// Missing messages, by the number of the first.
    gaps: BTreeMap<u64, Gap>,
    /// Messages that wait for earlier ones.
    ahead: BTreeMap<u64, (Origin, Vec<u8>)>,
    ahead_bytes: usize,
    /// A number far from those before.
    suspect: Option<u64>,
    /// Time of the last packet of the feed.
    pub(super) heard_us: u64,
}

/// Consecutive messages that are missing.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// Number after the last one.
    end: u64,
    /// Time at which they are given up.
    deadline_us: u64,
    /// Time of the next request.
    request_us: u64,
    /// Requests so far.
    tries: u32,
}

impl Sequence {
    pub(super) fn new(session: SessionId, now_us: u64, next: u64) -> Self {
        Self {
            session,
            next,
            known: next,
            end: None,
            is_begun: false,
            is_over: false,
            gaps: BTreeMap::new(),
            ahead: BTreeMap::new(),
            ahead_bytes: 0,
            suspect: None,
            heard_us: now_us,
        }
    }

    /// Notes the number of a packet. Returns whether it is near those before, or confirms the one of an
    /// earlier packet.
    pub(super) fn note_number(&mut self, number: u64) -> bool {
        let is_near = number.saturating_sub(self.known) <= GAP_MAX;
        let confirms = |suspect: u64| number.checked_sub(suspect).is_some_and(|above| above <= GAP_MAX);
        if is_near || self.suspect.is_some_and(confirms) {
            self.suspect = None;
            return true;
        }
        self.suspect = Some(number);
        false
    }

    /// Notes that all messages below a number exist. Returns false if there is no room for the gap before it.
    pub(super) fn raise(&mut self, now_us: u64, times: &Times, number: u64) -> bool {
        if number <= self.known {
            return true;
        }
        if self.gaps.len() >= GAPS_MAX {
            return false;
        }
        let (deadline_us, request_us) = match times.reorder_us {
            _ if number - self.known > GAP_MAX => (now_us, u64::MAX),
            Some(reorder_us) => (now_us.saturating_add(times.give_up_us), now_us + reorder_us),
            None => (now_us.saturating_add(times.give_up_us), u64::MAX),
        };
        self.gaps.insert(self.known, Gap { end: number, deadline_us, request_us, tries: 0 });
        self.known = number;
        self.reopen();
        true
    }

    /// Notes that the session ends before a number, unless later messages are known.
    pub(super) fn end_at(&mut self, now_us: u64, times: &Times, number: u64) {
        if self.raise(now_us, times, number) && number == self.known {
            self.end = Some(number);
        }
    }

    /// Lets the session go on if messages behind its end are known, because the end was false then.
    fn reopen(&mut self) {
        if self.end.is_some_and(|end| self.known > end) {
            self.end = None;
            self.is_begun &= !self.is_over;
            self.is_over = false;
        }
    }

    /// Takes a message.
    pub(super) fn insert(
        &mut self,
        now_us: u64,
        times: &Times,
        number: u64,
        message: &[u8],
        origin: Origin,
        counts: &mut ReaderCounts,
    ) {
        let gap = self.gaps.range(..=number).next_back().map(|(&start, &gap)| (start, gap));
        let gap = gap.filter(|(_, gap)| number < gap.end);
        if number < self.known && gap.is_none() {
            counts.duplicates += 1;
            return;
        }
        let is_full = self.ahead.len() >= AHEAD_MAX || self.ahead_bytes + message.len() > AHEAD_BYTES_MAX;
        let splits = gap.is_some_and(|(start, gap)| start < number && number + 1 < gap.end);
        if (is_full && number != self.next)
            || (splits && self.gaps.len() >= GAPS_MAX)
            || !self.raise(now_us, times, number)
        {
            counts.no_room += 1;
            return;
        }
        match gap {
            Some((start, gap)) => self.split(now_us, times, start, gap, number, origin),
            None => {
                self.known = number + 1;
                self.reopen();
            }
        }
        self.ahead_bytes += message.len();
        self.ahead.insert(number, (origin, message.to_vec()));
    }

    /// Takes a number out of a gap.
    fn split(&mut self, now_us: u64, times: &Times, start: u64, gap: Gap, number: u64, origin: Origin) {
        if start < number {
            self.gaps.insert(start, Gap { end: number, ..gap });
        } else {
            self.gaps.remove(&start);
        }
        if number + 1 < gap.end {
            let rest = match origin {
                Origin::Feed => gap,
                // A server answers with one packet, and the next request is for what did not fit.
                Origin::Answer => {
                    let deadline_us = now_us.saturating_add(times.give_up_us);
                    Gap { request_us: now_us, tries: 0, deadline_us, ..gap }
                }
            };
            self.gaps.insert(number + 1, rest);
        }
    }

    /// Notes the report that messages are lost: gaps within them are given up at `deadline_us` or earlier.
    pub(super) fn on_reported(&mut self, deadline_us: u64, first: u64, last: u64) {
        for (_, gap) in self.gaps.range_mut(first..=last).filter(|(_, gap)| gap.end <= last + 1) {
            gap.deadline_us = gap.deadline_us.min(deadline_us);
        }
    }

    pub(super) fn hand_on(&mut self, now_us: u64, counts: &mut ReaderCounts, out: &mut Vec<Step>) {
        let session = self.session;
        if !self.is_begun {
            self.is_begun = true;
            out.push(Step::Begin { session, next: self.next });
        }
        loop {
            while let Some(entry) = self.ahead.first_entry().filter(|entry| *entry.key() == self.next) {
                let (number, (origin, payload)) = entry.remove_entry();
                self.ahead_bytes -= payload.len();
                self.next = number + 1;
                counts.messages += 1;
                counts.answered += u64::from(origin == Origin::Answer);
                out.push(Step::Message { session, number, payload });
            }
            let Some(entry) = self.gaps.first_entry().filter(|entry| entry.get().deadline_us <= now_us)
            else {
                break;
            };
            let (first, gap) = entry.remove_entry();
            assert!(first == self.next, "a message below a gap is handed on before it");
            counts.lost += gap.end - first;
            out.push(Step::Lost { session, first, last: gap.end - 1 });
            self.next = gap.end;
        }
        if self.end == Some(self.next) && !self.is_over {
            self.is_over = true;
            out.push(Step::End { session, next: self.next });
        }
    }

    /// Returns the first number whose message is not known to exist.
    pub(super) fn known(&self) -> u64 {
        self.known
    }

    /// Returns the number of messages that are missing and may still come.
    pub(super) fn missing(&self) -> u64 {
        self.gaps.iter().map(|(start, gap)| gap.end - start).sum()
    }

    /// Returns whether another session may begin: this one has no gaps, and has ended or is silent.
    pub(super) fn may_end(&self, now_us: u64, silence_us: u64) -> bool {
        self.gaps.is_empty() && (self.is_over || now_us >= self.heard_us + silence_us)
    }

    pub(super) fn finish(&mut self, out: &mut Vec<Step>) {
        if !self.is_over {
            out.push(Step::End { session: self.session, next: self.next });
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.gaps.first_key_value().map(|(_, gap)| gap.deadline_us)
    }

    pub(super) fn next_request(&self) -> Option<u64> {
        self.gaps.values().take(GAPS_REQUESTED).map(|gap| gap.request_us).min()
    }

    pub(super) fn poll_request(&mut self, now_us: u64, retry_us: u64) -> Option<Request> {
        let mut gaps = self.gaps.iter_mut().take(GAPS_REQUESTED);
        let (&number, gap) = gaps.find(|(_, gap)| gap.request_us <= now_us)?;
        let wait_us = retry_us.saturating_mul(1 << gap.tries.min(20)).min(RETRY_US_MAX);
        gap.request_us = now_us + wait_us;
        gap.tries += 1;
        let count = u16::try_from(gap.end - number).unwrap_or(COUNT_MAX).min(COUNT_MAX);
        Some(Request { session: self.session, number, count })
    }
}
