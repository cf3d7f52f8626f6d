//! Requests for the history of a group, and what a member of it answers.

use foundation::bytes::{Reader, Writer};

use super::kind::Kind;
use crate::counters::Malformed;
use crate::history::Wish;
use crate::ids::{GroupId, NodeId};

/// Length of a request: kind, what is asked, node that asks (4), token (8), group (8), value (8), length (4).
pub const HISTORY_REQUEST: usize = 34;
/// Length of an answer before its body: kind, flags, node that answers (4), token (8), group (8), offset (8),
/// end (8).
pub const HISTORY_HEADER: usize = 38;
/// Length of the body of an offer: messages to skip (2), messages (8), clock (8).
pub const OFFER: usize = 18;

const IS_OFFER: u8 = 1;
const IS_GONE: u8 = 2;
const IS_COMPLETE: u8 = 4;
const ARE_STREAMS: u8 = 8;
/// Length of a stream: sender (4), sequence number of its next packet (4).
pub const STREAM: usize = 8;

/// Question of a joining node to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Where the wanted part of its log begins.
    Offer(Wish),
    /// Bytes of its log.
    Read {
        /// Offset of the first.
        offset: u64,
        /// Number of bytes. The node that answers bounds the cost of this claim.
        length: u32,
    },
    /// Bytes of the copy that it has made for this node of the last messages of keys. With a length of 0, the
    /// node that asks says that it still reads.
    Copy {
        /// Offset of the first.
        offset: u64,
        /// Number of bytes.
        length: u32,
    },
}

/// A request for the history of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryRequest {
    /// Node that asks.
    pub from: NodeId,
    /// Random number that the answers must repeat.
    pub token: u64,
    /// The group.
    pub group: GroupId,
    /// The question.
    pub ask: Ask,
}

impl HistoryRequest {
    /// Writes the request to the front of `to`; returns the number of bytes written.
    ///
    /// # Panics
    /// If `to` is shorter than [`HISTORY_REQUEST`].
    pub fn write(&self, to: &mut [u8]) -> usize {
        let (what, value, length) = match self.ask {
            Ask::Offer(Wish::Last(messages)) => (0, messages, 0),
            Ask::Offer(Wish::Since(age_us)) => (1, age_us, 0),
            Ask::Offer(Wish::LastPerKey) => (3, 0, 0),
            Ask::Read { offset, length } => (2, offset, length),
            Ask::Copy { offset, length } => (4, offset, length),
        };
        let mut writer = Writer::new(to);
        writer.put(&[Kind::HistoryRequest.to_wire(), what]);
        writer.put(&self.from.0.to_be_bytes());
        writer.put(&self.token.to_be_bytes());
        writer.put(&self.group.0.to_be_bytes());
        writer.put(&value.to_be_bytes());
        writer.put(&u32::to_be_bytes(length));
        writer.written()
    }

    pub(super) fn read(mut body: Reader<'_>) -> Result<Self, Malformed> {
        let what = body.u8()?;
        let (from, token, group) = (NodeId(body.u32()?), body.u64()?, GroupId(body.u64()?));
        let (value, length) = (body.u64()?, body.u32()?);
        body.end()?;
        let ask = match what {
            0 | 1 if length != 0 => return Err(Malformed::Reserved),
            3 if (value, length) != (0, 0) => return Err(Malformed::Reserved),
            3 => Ask::Offer(Wish::LastPerKey),
            0 => Ask::Offer(Wish::Last(value)),
            1 => Ask::Offer(Wish::Since(value)),
            2 => Ask::Read { offset: value, length },
            4 => Ask::Copy { offset: value, length },
            _ => return Err(Malformed::Reserved),
        };
        Ok(Self { from, token, group, ask })
    }
}

/// Content of a member's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryBody<'a> {
    /// The wanted part begins at the offset.
    Offer {
        /// Number of messages of the first packet that are not wanted.
        skip: u16,
        /// Number of messages wanted that the log holds.
        messages: u64,
        /// Whether these are all.
        is_complete: bool,
        /// Time of the member's clock in microseconds, to which the times in the log refer.
        clock_us: u64,
    },
    /// Bytes of the log, or of the copy, from the offset on, at least one.
    Part(&'a [u8]),
    /// Streams of the log. The next packet of each is not in it. They follow an offer.
    Streams(Streams<'a>),
    /// The bytes asked for are forgotten. The log begins at the offset.
    Gone,
}

/// Streams of a log, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams<'a>(&'a [u8]);

impl<'a> Streams<'a> {
    /// Returns the senders of the streams, and the low 32 bits of the number of the next packet of each.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, u32)> + use<'a> {
        let (streams, _) = self.0.as_chunks::<STREAM>();
        streams.iter().map(|&[a, b, c, d, e, f, g, h]| {
            (NodeId(u32::from_be_bytes([a, b, c, d])), u32::from_be_bytes([e, f, g, h]))
        })
    }

    /// Writes streams to `to`, as many as fit; returns the written ones.
    pub fn write(streams: &mut impl Iterator<Item = (NodeId, u32)>, to: &'a mut [u8]) -> Self {
        let mut written = 0;
        for (place, (sender, next)) in to.chunks_exact_mut(STREAM).zip(streams) {
            place[..4].copy_from_slice(&sender.0.to_be_bytes());
            place[4..].copy_from_slice(&next.to_be_bytes());
            written += STREAM;
        }
        Self(&to[..written])
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An answer to a request for history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History<'a> {
    /// Node that answers.
    pub sender: NodeId,
    /// Token of the request.
    pub token: u64,
    /// The group.
    pub group: GroupId,
    /// Offset in the log.
    pub offset: u64,
    /// Offset at which the log ends.
    pub end: u64,
    /// The rest.
    pub body: HistoryBody<'a>,
}

impl<'a> History<'a> {
    /// Writes the answer to the front of `to`; returns the number of bytes written.
    ///
    /// # Panics
    /// If `to` is too short.
    pub fn write(&self, to: &mut [u8]) -> usize {
        let flags = match self.body {
            HistoryBody::Offer { is_complete, .. } => IS_OFFER | if is_complete { IS_COMPLETE } else { 0 },
            HistoryBody::Part(_) => 0,
            HistoryBody::Gone => IS_GONE,
            HistoryBody::Streams(_) => ARE_STREAMS,
        };
        let mut writer = Writer::new(to);
        writer.put(&[Kind::History.to_wire(), flags]);
        writer.put(&self.sender.0.to_be_bytes());
        writer.put(&self.token.to_be_bytes());
        writer.put(&self.group.0.to_be_bytes());
        writer.put(&self.offset.to_be_bytes());
        writer.put(&self.end.to_be_bytes());
        match self.body {
            HistoryBody::Offer { skip, messages, clock_us, .. } => {
                writer.put(&skip.to_be_bytes());
                writer.put(&messages.to_be_bytes());
                writer.put(&clock_us.to_be_bytes());
            }
            HistoryBody::Part(bytes) | HistoryBody::Streams(Streams(bytes)) => writer.put(bytes),
            HistoryBody::Gone => {}
        }
        writer.written()
    }

    pub(super) fn read(mut body: Reader<'a>) -> Result<Self, Malformed> {
        let flags = body.u8()?;
        let (sender, token, group) = (NodeId(body.u32()?), body.u64()?, GroupId(body.u64()?));
        let (offset, end) = (body.u64()?, body.u64()?);
        let rest = match flags {
            0 if body.0.is_empty() => return Err(Malformed::TooShort),
            0 => HistoryBody::Part(body.take(body.0.len())?),
            IS_GONE => HistoryBody::Gone,
            ARE_STREAMS if body.0.is_empty() || !body.0.len().is_multiple_of(STREAM) => {
                return Err(Malformed::TooShort);
            }
            ARE_STREAMS => HistoryBody::Streams(Streams(body.take(body.0.len())?)),
            _ if flags & !IS_COMPLETE == IS_OFFER => HistoryBody::Offer {
                skip: body.u16()?,
                messages: body.u64()?,
                is_complete: flags & IS_COMPLETE != 0,
                clock_us: body.u64()?,
            },
            _ => return Err(Malformed::Reserved),
        };
        body.end()?;
        Ok(Self { sender, token, group, offset, end, body: rest })
    }
}
