//! A feed as it is handed out: numbers messages, packs them, and keeps them for requests, within a bound.

use std::collections::VecDeque;

use super::packet::{self, BLOCK, DATAGRAM_MAX, HEADER, Request, SessionId};

/// Longest message that a datagram carries, in bytes.
pub(super) const MESSAGE_MAX: usize = DATAGRAM_MAX - HEADER - BLOCK;
/// Bytes that each kept message takes besides its own.
const KEPT_OVERHEAD: usize = 32;

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Feed {
    present: Session,
    /// The session before, which can still be requested.
    past: Option<Session>,
    /// Maximum length of a packet with several messages.
    packet_max: usize,
    /// Maximum number of bytes kept.
    kept_max: usize,
    /// Number of the first message that has not been packed.
    unsent: u64,
}

#[derive(Debug)]
struct Session {
    id: SessionId,
    /// Number of the next message.
    next: u64,
    /// Messages with their numbers, which rise.
    kept: VecDeque<(u64, Box<[u8]>)>,
    bytes: usize,
}

impl Session {
    fn new(id: SessionId, next: u64) -> Self {
        Self { id, next, kept: VecDeque::new(), bytes: 0 }
    }

    fn forget_oldest(&mut self) -> bool {
        let oldest = self.kept.pop_front();
        self.bytes -= oldest.as_ref().map_or(0, |(_, message)| message.len() + KEPT_OVERHEAD);
        oldest.is_some()
    }

    /// Returns the kept messages with consecutive numbers from `number` on.
    fn from(&self, number: u64) -> impl Iterator<Item = &[u8]> {
        let at = self.kept.partition_point(|&(kept, _)| kept < number);
        let consecutive =
            self.kept.range(at..).zip(number..).take_while(|((kept, _), wanted)| kept == wanted);
        consecutive.map(|((_, message), _)| &**message)
    }
}

impl Feed {
    /// Begins a feed, which keeps up to `kept_max` bytes of messages.
    pub(super) fn new(session: SessionId, packet_max: usize, kept_max: usize) -> Self {
        Self { present: Session::new(session, 1), past: None, packet_max, kept_max, unsent: 1 }
    }

    pub(super) fn session(&self) -> SessionId {
        self.present.id
    }

    /// Returns the number of the next message.
    pub(super) fn next(&self) -> u64 {
        self.present.next
    }

    /// Returns the number of the oldest message that is kept of the session.
    pub(super) fn oldest(&self) -> u64 {
        self.present.kept.front().map_or(self.present.next, |&(number, _)| number)
    }

    /// Begins another session with message `next`. All messages must have been packed.
    pub(super) fn begin(&mut self, session: SessionId, next: u64) {
        self.past = Some(std::mem::replace(&mut self.present, Session::new(session, next)));
        self.unsent = next;
    }

    /// Leaves numbers out. All messages must have been packed.
    pub(super) fn skip_to(&mut self, next: u64) {
        self.present.next = self.present.next.max(next);
        self.unsent = self.present.next;
    }

    /// Takes the next message, of at most [`MESSAGE_MAX`] bytes.
    pub(super) fn push(&mut self, message: &[u8]) {
        assert!(message.len() <= MESSAGE_MAX, "a message fits a datagram");
        let Session { next, kept, bytes, .. } = &mut self.present;
        kept.push_back((*next, message.into()));
        *bytes += message.len() + KEPT_OVERHEAD;
        *next += 1;
        while self.bytes() > self.kept_max {
            let of_past = self.past.as_mut().is_some_and(Session::forget_oldest);
            // The messages that have not been packed stay.
            if !of_past && (self.oldest() >= self.unsent || !self.present.forget_oldest()) {
                break;
            }
        }
    }

    /// Sends no message so far by itself: handlers that lack one request it.
    pub(super) fn leave_to_requests(&mut self) {
        self.unsent = self.present.next;
    }

    fn bytes(&self) -> usize {
        self.present.bytes + self.past.as_ref().map_or(0, |past| past.bytes)
    }

    /// Writes the next packet of messages that have not been packed. Returns their number.
    pub(super) fn pack(&mut self, to: &mut Vec<u8>) -> u16 {
        let messages = self.present.from(self.unsent);
        let count = packet::write_messages(to, self.present.id, self.unsent, self.packet_max, messages);
        self.unsent += u64::from(count);
        count
    }

    /// Writes the answer to a request: the first messages wanted, as many as fit a packet. Returns their
    /// number, which is 0 if the first one is not kept.
    pub(super) fn answer(&self, to: &mut Vec<u8>, request: &Request) -> u16 {
        let sessions = [Some(&self.present), self.past.as_ref()];
        let mut sessions = sessions.into_iter().flatten();
        let Some(session) = sessions.find(|session| session.id == request.session) else { return 0 };
        let wanted = session.from(request.number).take(request.count.into());
        packet::write_messages(to, session.id, request.number, self.packet_max, wanted)
    }

    pub(super) fn write_heartbeat(&self, to: &mut Vec<u8>) {
        packet::write_heartbeat(to, self.present.id, self.present.next);
    }

    pub(super) fn write_end(&self, to: &mut Vec<u8>) {
        packet::write_end(to, self.present.id, self.present.next);
    }
}
