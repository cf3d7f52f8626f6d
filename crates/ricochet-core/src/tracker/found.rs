//! Results and reports of a tracker.

use foundation::Seq;

use crate::counters::GivenUp;
use crate::ids::StreamKey;

/// The tracker's judgment of a packet that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival<M> {
    /// It is new.
    New,
    /// It is new and was known to be missing; the mark is that of its interval.
    Missed(M),
    /// It came before.
    Duplicate,
    /// It was given up, or precedes the first packets known of the stream. Whether it came before is unknown.
    TooOld,
    /// There is no room for its stream. Whether it came before is unknown.
    NoRoom,
    /// It is believed only once its sender has confirmed that it exists.
    Doubtful,
}

impl<M> Arrival<M> {
    /// Returns whether the packet came for the first time.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New | Self::Missed(_))
    }
}

/// The tracker's judgment of a packet that another node named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mention<M> {
    /// It came.
    Held,
    /// It is missing and awaited; the mark is that of its interval.
    Missing(M),
    /// It was given up, or precedes the first packets known of the stream.
    TooOld,
    /// There is no room for its stream.
    NoRoom,
    /// It is believed only once its sender has confirmed that it exists.
    Doubtful,
}

/// The tracker's judgment of a packet, and what it shows of the packets before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// Position of the packet in its stream.
    pub seq: Seq,
    /// Judgment of the packet.
    pub what: T,
    /// Number of packets found missing, of which the tracker did not know before.
    pub discovered: u64,
}

/// An interval of consecutive missing packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval<M> {
    /// The first of them.
    pub first: Seq,
    /// The last of them.
    pub last: Seq,
    /// Mark set by the owner of the tracker. Parts of an interval keep the mark of the whole.
    pub mark: M,
}

/// An interval of packets that were given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Their stream.
    pub key: StreamKey,
    /// The first of them.
    pub first: Seq,
    /// The last of them.
    pub last: Seq,
    /// Reason.
    pub reason: GivenUp,
}

/// How far the past of a stream is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front {
    /// Every packet before this position has come or never will.
    pub settled: Seq,
    /// The first awaited packet, or the position after the newest known packet. Packets between `settled` and
    /// this that have not come precede the first one seen of the stream; they may have been overtaken, and
    /// are not awaited.
    pub awaited: Seq,
}

impl Front {
    /// Front of a stream of which nothing is awaited.
    pub const END: Self = Self { settled: Seq(u64::MAX), awaited: Seq(u64::MAX) };
}
