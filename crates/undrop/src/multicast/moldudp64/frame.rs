//! The place of a Ricochet message in a feed, as its headers state it (`docs/wire.md`).

use super::packet::{SessionId, is_number};

const MAGIC: [u8; 4] = *b"MU64";

/// The place of a message in a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The payload is this message.
    Message { session: SessionId, number: u64 },
    /// These messages are lost. The payload is empty.
    Lost { session: SessionId, first: u64, last: u64 },
    /// The session has ended, and this would be the number of its next message. The payload is empty.
    End { session: SessionId, next: u64 },
}

impl Frame {
    /// Writes the headers into a buffer, which is emptied first.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let (session, number) = self.place();
        let kind = match self {
            Self::Message { .. } => 0,
            Self::Lost { .. } => 1,
            Self::End { .. } => 2,
        };
        to.clear();
        to.extend(MAGIC);
        to.push(kind);
        to.extend(session.0);
        to.extend(number.to_be_bytes());
        if let Self::Lost { last, .. } = self {
            to.extend(last.to_be_bytes());
        }
    }

    /// Reads headers. `None` if they are something else.
    pub(super) fn read(headers: &[u8]) -> Option<Self> {
        let rest = headers.strip_prefix(&MAGIC)?;
        let (&[kind], rest) = rest.split_first_chunk()?;
        let (&session, rest) = rest.split_first_chunk()?;
        let (&number, rest) = rest.split_first_chunk()?;
        let (session, number) = (SessionId(session), u64::from_be_bytes(number));
        match (kind, rest.len()) {
            _ if !is_number(number) => None,
            (0, 0) => Some(Self::Message { session, number }),
            (1, 8) => {
                let last = u64::from_be_bytes(rest.try_into().ok()?);
                (number <= last && is_number(last)).then_some(Self::Lost { session, first: number, last })
            }
            (2, 0) => Some(Self::End { session, next: number }),
            _ => None,
        }
    }

    /// Returns the session, and the number of the first message that this tells of.
    pub(super) fn place(&self) -> (SessionId, u64) {
        match *self {
            Self::Message { session, number } => (session, number),
            Self::Lost { session, first, .. } => (session, first),
            Self::End { session, next } => (session, next),
        }
    }

    /// Returns the session, and the number of the message that follows.
    pub(super) fn after(&self) -> (SessionId, u64) {
        match *self {
            Self::Message { session, number } => (session, number + 1),
            Self::Lost { session, last, .. } => (session, last + 1),
            Self::End { session, next } => (session, next),
        }
    }
}
