//! The messages that a direction gets from the history of its group when it starts. `in` learns from them how
//! far the feed has come; `out` keeps them, so that handlers can request them.
//!
//! A handler that heard an earlier run of `out` has most of these messages, so they are not sent again. The
//! heartbeat that follows them tells each handler what it lacks, and the handler requests that.

use std::collections::VecDeque;

use ricochet::Start;

use super::frame::Frame;
use super::packet::SessionId;
use crate::multicast::node::NodeArgs;

/// Maximum number of sessions that are over and remembered.
const OVER_MAX: usize = 16;

/// The place in a feed that its group has reached, as the history of the group states it.
#[derive(Debug, Default)]
pub(super) struct Reached {
    place: Option<(SessionId, u64)>,
    /// Sessions that other ones have followed.
    over: VecDeque<SessionId>,
}

impl Reached {
    /// Takes what the headers of a message state. Of several bridges, the one that is ahead counts.
    pub(super) fn take(&mut self, frame: Frame) {
        let (session, next) = frame.after();
        match &mut self.place {
            Some((present, reached)) if *present == session => *reached = next.max(*reached),
            _ if self.over.contains(&session) => {}
            place => {
                if self.over.len() == OVER_MAX {
                    self.over.pop_front();
                }
                self.over.extend(place.replace((session, next)).map(|(before, _)| before));
            }
        }
    }

    /// Returns the session, and the number of the message that follows.
    pub(super) fn place(&self) -> Option<(SessionId, u64)> {
        self.place
    }
}

/// The messages of the past.
#[derive(Debug, Default)]
pub(super) struct Past {
    is_reading: bool,
    /// Session that the history ends with, and the first number that it does not know.
    end: Option<(SessionId, u64)>,
}

impl Past {
    /// Returns what a feed begins with, and the part of the history that this takes.
    ///
    /// Only requests fetch messages of the past, and only numbers that are those of the feed tell a handler
    /// which messages these are.
    pub(super) fn of(
        node: &NodeArgs,
        can_request: bool,
        keeps_session: bool,
    ) -> anyhow::Result<(Self, Start)> {
        if !can_request || !keeps_session {
            return Ok((Self::default(), Start::Live));
        }
        // Members that have the configuration of this node keep nothing that is older.
        let start = Start::Since(node.config()?.history.age_ms);
        Ok((Self { is_reading: true, end: None }, start))
    }

    /// Returns whether the history is being read. Until it has been, nothing is sent.
    pub(super) fn is_reading(&self) -> bool {
        self.is_reading
    }

    /// Returns whether a message is one of the past.
    pub(super) fn holds(&self, session: SessionId, number: u64) -> bool {
        self.is_reading || self.end.is_some_and(|(last, end)| session == last && number < end)
    }

    /// Notes that the history has been read up to this place. Messages behind a gap in it may follow.
    pub(super) fn end(&mut self, known: Option<(SessionId, u64)>) {
        *self = Self { is_reading: false, end: known };
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::Feed;
    use super::super::packet::Request;
    use super::super::reader::Reader;
    use super::super::sequence::{Origin, Step, Times};
    use super::*;

    const A: SessionId = SessionId(*b"SESSION001");
    const B: SessionId = SessionId(*b"SESSION002");
    const TIMES: Times =
        Times { reorder_us: None, retry_us: 0, give_up_us: 1_000, reported_us: 200, silence_us: 3_000 };

    #[test]
    fn a_feed_has_come_as_far_as_the_bridge_that_is_ahead() {
        let mut reached = Reached::default();
        assert_eq!(reached.place(), None);
        let message = |session, number| Frame::Message { session, number };
        for (frame, place) in [
            (message(A, 7), (A, 8)),
            (message(A, 3), (A, 8)),
            (Frame::Lost { session: A, first: 8, last: 11 }, (A, 12)),
            (Frame::End { session: A, next: 12 }, (A, 12)),
            (message(B, 1), (B, 2)),
            (message(A, 12), (B, 2)),
            (message(B, 2), (B, 3)),
        ] {
            reached.take(frame);
            assert_eq!(reached.place(), Some(place), "{frame:?}");
        }
    }

    #[test]
    fn a_session_of_the_past_is_over_where_another_one_begins() {
        let (mut reader, mut steps) = (Reader::new(TIMES, None, false), Vec::new());
        for (session, number) in [(A, 7), (A, 9), (B, 4), (A, 8), (B, 5)] {
            reader.enter(1, session, number, &mut steps);
            reader.handle_messages(1, session, number, std::iter::once(&b""[..]), Origin::Feed, &mut steps);
        }
        let message = |session, number| Step::Message { session, number, payload: Vec::new() };
        assert_eq!(
            steps,
            [
                Step::Begin { session: A, next: 7 },
                message(A, 7),
                Step::Lost { session: A, first: 8, last: 8 },
                message(A, 9),
                Step::End { session: A, next: 10 },
                Step::Begin { session: B, next: 4 },
                message(B, 4),
                message(B, 5),
            ]
        );
        assert_eq!(reader.known(), Some((B, 6)));
    }

    #[test]
    fn messages_of_the_past_are_kept_for_requests_and_not_sent() {
        let (mut feed, mut packet) = (Feed::new(A, 1_400, 1 << 20), Vec::new());
        feed.begin(B, 40);
        (0..3).for_each(|_| feed.push(b"past"));
        feed.leave_to_requests();
        assert_eq!(feed.pack(&mut packet), 0);
        feed.push(b"live");
        assert_eq!(feed.pack(&mut packet), 1);
        assert_eq!(feed.answer(&mut packet, &Request { session: B, number: 40, count: 9 }), 4);
    }

    #[test]
    fn messages_behind_a_gap_in_the_history_are_of_the_past_too() {
        let mut past = Past { is_reading: true, end: None };
        assert!(past.holds(A, 7));
        past.end(Some((B, 6)));
        assert_eq!([past.holds(B, 5), past.holds(B, 6), past.holds(A, 7)], [true, false, false]);
        past.end(None);
        assert!(!past.holds(B, 5));
    }
}
