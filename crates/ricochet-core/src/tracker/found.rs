//! What a tracker tells.

use crate::counters::GivenUp;
use crate::ids::StreamKey;
use foundation::Seq;

/// What an arrival is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival<M> {
    /// Not known before.
    New,
    /// New, and known to be missing since it was marked so.
    Missed(M),
    /// It came before.
    Duplicate,
    /// It was given up, or belongs to a time before this node knew the stream; whether it came before is unknown.
    TooOld,
    /// There is no room for its stream: whether it came before is unknown.
    NoRoom,
    /// It is too far ahead of its stream to be believed before another mention bears it out.
    Doubtful,
}

impl<M> Arrival<M> {
    /// Whether it came for the first time.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New | Self::Missed(_))
    }
}

/// The state of a packet that somebody named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mention<M> {
    /// It came.
    Held,
    /// It did not come, and is waited for since it was marked.
    Missing(M),
    /// It was given up, or belongs to a time before this node knew the stream.
    TooOld,
    /// There is no room for its stream.
    NoRoom,
    /// It is too far ahead of its stream to be believed before another mention bears it out.
    Doubtful,
}

/// What the tracker found: about the packet, and about others before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// The packet's place in its stream.
    pub seq: Seq,
    /// What it is.
    pub what: T,
    /// How many packets are now waited for that were not known to exist before.
    pub discovered: u64,
}

/// Packets that are missing, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval<M> {
    /// The first of them.
    pub first: Seq,
    /// The last of them.
    pub last: Seq,
    /// The owner's mark. Parts of an interval keep the mark of the whole.
    pub mark: M,
}

/// Packets that were given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Their stream.
    pub key: StreamKey,
    /// The first of them.
    pub first: Seq,
    /// The last of them.
    pub last: Seq,
    /// Why.
    pub reason: GivenUp,
}

/// How far the past of a stream is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front {
    /// Everything before this has come, or never will.
    pub settled: Seq,
    /// Nothing before this is waited for, and this is, or is behind all that is known to exist. What lies between the
    /// two and has not come belongs to a time before this node knew the stream, and may have been overtaken.
    pub awaited: Seq,
}

impl Front {
    /// Of a stream of which nothing is waited for any more.
    pub const END: Self = Self { settled: Seq(u64::MAX), awaited: Seq(u64::MAX) };
}
