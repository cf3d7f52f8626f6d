//! Puts the messages of a feed in order: finds gaps, requests them, and gives up what nobody sends. It reads
//! no clock and opens no socket.
//!
//! A feed has one session at a time. Messages of another one wait until the present session has ended, or
//! has been silent for a while, so that a stray packet ends no session. Messages of a session that is over
//! are dropped. Messages of two sessions therefore never mix.

use std::collections::VecDeque;

use super::packet::{Content, Packet, Request, SessionId, is_number};
use super::sequence::{Origin, ReaderCounts, Sequence, Step, Times};

/// Maximum number of sessions that are over and remembered.
const PAST_MAX: usize = 16;

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Reader {
    times: Times,
    /// The only session that is read, if the user has named one.
    only: Option<SessionId>,
    /// Whether the first session is read from its first message on.
    from_first: bool,
    present: Option<Sequence>,
    /// A session that begins when the present one is over.
    next: Option<Sequence>,
    past: VecDeque<SessionId>,
    counts: ReaderCounts,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Present,
    Next,
}

impl Reader {
    pub(super) fn new(times: Times, only: Option<SessionId>, from_first: bool) -> Self {
        let (past, counts) = (VecDeque::new(), ReaderCounts::default());
        Self { times, only, from_first, present: None, next: None, past, counts }
    }

    /// Continues a session with message `next`.
    pub(super) fn resume(&mut self, now_us: u64, session: SessionId, next: u64) {
        if self.only.is_none_or(|only| only == session) {
            self.present = Some(Sequence::new(session, now_us, next));
            self.counts.sessions += 1;
        }
    }

    /// Begins a session at once with message `next`, unless it is the present one or over. In the past of a
    /// feed nothing can be waited for: a session is over where another one begins, and its gaps stay.
    pub(super) fn enter(&mut self, now_us: u64, session: SessionId, next: u64, out: &mut Vec<Step>) {
        let is_present = self.position().is_some_and(|(present, _)| present == session);
        if is_present || self.past.contains(&session) {
            return;
        }
        if let Some(present) = &mut self.present {
            present.hand_on(u64::MAX, &mut self.counts, out);
        }
        self.end_present(out);
        (self.present, self.next) = (Some(Sequence::new(session, now_us, next)), None);
        self.counts.sessions += 1;
    }

    pub(super) fn counts(&self) -> ReaderCounts {
        self.counts
    }

    /// Returns the present session and the number of the next message.
    pub(super) fn position(&self) -> Option<(SessionId, u64)> {
        self.present.as_ref().map(|present| (present.session, present.next))
    }

    /// Returns the present session and the first number whose message is not known to exist.
    pub(super) fn known(&self) -> Option<(SessionId, u64)> {
        self.present.as_ref().map(|present| (present.session, present.known()))
    }

    /// Returns the number of messages of the present session that are missing and may still come.
    pub(super) fn missing(&self) -> u64 {
        self.present.as_ref().map_or(0, Sequence::missing)
    }

    /// Takes a packet.
    pub(super) fn handle_packet(
        &mut self,
        now_us: u64,
        packet: &Packet<'_>,
        origin: Origin,
        out: &mut Vec<Step>,
    ) {
        let Packet { session, number, content } = *packet;
        match content {
            Content::Messages(all) => self.handle_messages(now_us, session, number, all, origin, out),
            Content::Heartbeat => {
                self.handle_messages(now_us, session, number, std::iter::empty(), origin, out);
            }
            Content::End => self.handle_end(now_us, session, number, out),
        }
    }

    /// Takes consecutive messages. If there are none, `number` is that of the next message of the feed.
    pub(super) fn handle_messages<'m>(
        &mut self,
        now_us: u64,
        session: SessionId,
        number: u64,
        messages: impl Iterator<Item = &'m [u8]>,
        origin: Origin,
        out: &mut Vec<Step>,
    ) {
        let times = self.times;
        if let Some((sequence, counts)) = self.sequence(now_us, session, number, origin) {
            if origin == Origin::Feed {
                sequence.heard_us = now_us;
            }
            if sequence.note_number(number) {
                let mut all = messages.zip(number..).peekable();
                if all.peek().is_none() {
                    sequence.raise(now_us, &times, number);
                }
                for (message, number) in all {
                    sequence.insert(now_us, &times, number, message, origin, counts);
                }
            } else {
                counts.implausible += 1;
            }
        }
        self.hand_on(now_us, out);
    }

    /// Takes the end of a session, whose next message would have this number.
    pub(super) fn handle_end(&mut self, now_us: u64, session: SessionId, number: u64, out: &mut Vec<Step>) {
        let times = self.times;
        if let Some((sequence, counts)) = self.sequence(now_us, session, number, Origin::Feed) {
            sequence.heard_us = now_us;
            if sequence.note_number(number) {
                sequence.end_at(now_us, &times, number);
            } else {
                counts.implausible += 1;
            }
        }
        self.hand_on(now_us, out);
    }

    /// Takes the report that messages are lost. Another source may still have them.
    pub(super) fn handle_lost(
        &mut self,
        now_us: u64,
        session: SessionId,
        first: u64,
        last: u64,
        out: &mut Vec<Step>,
    ) {
        let times = self.times;
        let is_range = first <= last && is_number(last);
        if is_range && let Some((sequence, counts)) = self.sequence(now_us, session, first, Origin::Feed) {
            sequence.heard_us = now_us;
            if sequence.note_number(last) {
                sequence.raise(now_us, &times, first);
                sequence.raise(now_us, &times, last + 1);
                sequence.on_reported(now_us + times.reported_us, first, last);
            } else {
                counts.implausible += 1;
            }
        }
        self.hand_on(now_us, out);
    }

    /// Gives up what is due, and begins the next session if the present one is over.
    pub(super) fn handle_timeout(&mut self, now_us: u64, out: &mut Vec<Step>) {
        self.hand_on(now_us, out);
    }

    /// Returns the time of the next timeout or request.
    pub(super) fn next_timeout(&self) -> Option<u64> {
        let sequences = [&self.present, &self.next].into_iter().flatten();
        let request = sequences.filter_map(Sequence::next_request).min();
        // A session that waits gives up nothing.
        let deadline = self.present.as_ref().and_then(Sequence::deadline);
        let silent = self.next.as_ref().and(self.present.as_ref());
        let silence = silent.map(|present| present.heard_us + self.times.silence_us);
        request.into_iter().chain(deadline).chain(silence).min()
    }

    /// Returns the next request that is due.
    pub(super) fn poll_request(&mut self, now_us: u64) -> Option<Request> {
        let Self { present, next, times, counts, .. } = self;
        let request = [present, next]
            .into_iter()
            .filter_map(Option::as_mut)
            .find_map(|sequence| sequence.poll_request(now_us, times.retry_us));
        counts.requests += u64::from(request.is_some());
        request
    }

    /// Returns the session to which a packet belongs; `None` if it must be dropped.
    fn sequence(
        &mut self,
        now_us: u64,
        session: SessionId,
        number: u64,
        origin: Origin,
    ) -> Option<(&mut Sequence, &mut ReaderCounts)> {
        if !is_number(number) {
            self.counts.implausible += 1;
            return None;
        }
        let place = self.place(now_us, session, number, origin)?;
        let Self { present, next, counts, .. } = self;
        let sequence = match place {
            Place::Present => present,
            Place::Next => next,
        };
        Some((sequence.as_mut()?, counts))
    }

    fn place(&mut self, now_us: u64, session: SessionId, number: u64, origin: Origin) -> Option<Place> {
        let is =
            |sequence: &Option<Sequence>| sequence.as_ref().is_some_and(|known| known.session == session);
        if is(&self.present) {
            return Some(Place::Present);
        }
        if is(&self.next) {
            return Some(Place::Next);
        }
        if self.past.contains(&session) {
            self.counts.of_past_sessions += 1;
            return None;
        }
        let is_waiting = |next: &Sequence| now_us < next.heard_us + self.times.silence_us;
        if self.only.is_some_and(|only| only != session)
            || origin == Origin::Answer
            || self.next.as_ref().is_some_and(is_waiting)
        {
            self.counts.of_other_sessions += 1;
            return None;
        }
        if self.present.is_some() {
            // It began while this reader was listening, so its first messages are wanted too.
            self.next = Some(Sequence::new(session, now_us, 1));
            return Some(Place::Next);
        }
        let first = if self.from_first { 1 } else { number };
        self.present = Some(Sequence::new(session, now_us, first));
        self.counts.sessions += 1;
        Some(Place::Present)
    }

    fn hand_on(&mut self, now_us: u64, out: &mut Vec<Step>) {
        while let Some(present) = &mut self.present {
            present.hand_on(now_us, &mut self.counts, out);
            if self.next.is_none() || !present.may_end(now_us, self.times.silence_us) {
                return;
            }
            self.end_present(out);
            self.present = self.next.take();
            self.counts.sessions += 1;
        }
    }

    fn end_present(&mut self, out: &mut Vec<Step>) {
        let Some(mut present) = self.present.take() else { return };
        present.finish(out);
        if self.past.len() == PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back(present.session);
    }
}
