//! Reasons of drops. Every drop is counted by its reason.

use foundation::bytes::ReadError;
use foundation::reasons;

reasons! {
    /// Reason why a missing packet was given up. Counted in packets.
    GivenUp, GivenUpCounts {
        /// Its stream has moved on by the tracker's `lag_max`, or before this node heard of it.
        Behind = "behind the window",
        /// Its stream reached the maximum number of gaps for one stream.
        StreamFull = "too many gaps in its stream",
        /// All streams together reached the maximum number of gaps; the oldest makes room.
        PoolFull = "too many gaps in all",
        /// Its stream was silent for long and made room for another.
        Idle = "stream silent",
        /// Requests for it were in vain.
        Unanswered = "asked for in vain",
        /// [`Fifo`](crate::delivery::Fifo) skipped it for want of room for its successors.
        Skipped = "no room to wait for it",
        /// It is a fragment that fits no message.
        Unfit = "unfit fragment",
        /// Its message was incomplete and made room for others.
        Crowded = "no room to put it together",
        /// Its message was incomplete for too long.
        Aged = "not whole for too long",
        /// No node of its group holds it any more.
        Gone = "not held by anyone",
        /// Its deadline passed before it came, or before it was read.
        Expired = "its deadline passed",
        /// It came, and left the queue of its subscription unread because the queue was full.
        Unread = "the reader was too slow",
    }
}

reasons! {
    /// Reason why a datagram was refused.
    Malformed, MalformedCounts {
        /// It ends before its fields do.
        TooShort = "too short",
        /// It belongs to another version of the protocol, or to another protocol.
        Version = "another version",
        /// This version does not know its kind.
        Kind = "unknown kind",
        /// A reserved bit is set.
        Reserved = "reserved bit set",
        /// A count of entries is zero or too large.
        Count = "count out of range",
        /// More bytes follow than its fields account for.
        TooLong = "too long",
        /// A repair names a packet twice.
        Repeated = "name repeated",
    }
}

reasons! {
    /// Reason why a fragment was refused.
    Unfit, UnfitCounts {
        /// It ends before its fields do.
        TooShort = "too short",
        /// Its length does not match its place, or its place lies outside of its message.
        Length = "length and place do not agree",
        /// Its message is longer than this node reassembles.
        TooLarge = "message too large",
        /// It contradicts another fragment of its message.
        Differs = "fragments of one message differ",
    }
}

reasons! {
    /// Reason why a solved symbol is not the packet that a repair named.
    Unsound, UnsoundCounts {
        /// Its length field is wrong, or its padding is not zero.
        Length = "length and padding do not agree",
        /// It belongs to another group.
        Group = "of another group",
        /// A reserved bit is set.
        Reserved = "reserved bit set",
        /// Its check does not match its content.
        Check = "check does not fit",
    }
}

impl From<ReadError> for Malformed {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::TooShort => Self::TooShort,
            ReadError::Count => Self::Count,
            ReadError::Reserved => Self::Reserved,
            ReadError::TooLong => Self::TooLong,
        }
    }
}
