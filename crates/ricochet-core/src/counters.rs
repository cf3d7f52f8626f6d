//! Every drop is counted by its reason, and these are the reasons.

use foundation::bytes::ReadError;
use foundation::reasons;

reasons! {
    /// Why a packet that is missing is no longer waited for. Counted in packets.
    GivenUp, GivenUpCounts {
        /// Its sender has sent a window's worth since.
        Behind = "behind the window",
        /// Its stream has as many gaps as one stream may have.
        StreamFull = "too many gaps in its stream",
        /// All streams together have as many gaps as there is room for; the oldest goes.
        PoolFull = "too many gaps in all",
        /// Its stream was silent for long, and its place was needed.
        Idle = "stream silent",
        /// Asked for in vain.
        Unanswered = "asked for in vain",
        /// Not waited for by [`Fifo`](crate::delivery::Fifo), which had no room for what came after it.
        Skipped = "no room to wait for it",
        /// A fragment that fits no message.
        Unfit = "unfit fragment",
        /// A message that was not whole, and made room for others.
        Crowded = "no room to put it together",
        /// A message that was not whole for too long.
        Aged = "not whole for too long",
    }
}

reasons! {
    /// Why a datagram was refused.
    Malformed, MalformedCounts {
        /// It ends before its fields do.
        TooShort = "too short",
        /// Of another version of the protocol, or of another protocol.
        Version = "another version",
        /// Of a kind that this version does not know.
        Kind = "unknown kind",
        /// A reserved bit is set.
        Reserved = "reserved bit set",
        /// It counts none or too many of what follows.
        Count = "count out of range",
        /// Bytes follow that nothing accounts for.
        TooLong = "too long",
        /// A repair names a packet twice.
        Repeated = "name repeated",
    }
}

reasons! {
    /// Why a fragment was refused.
    Unfit, UnfitCounts {
        /// It ends before its fields do.
        TooShort = "too short",
        /// Its bytes are not as many as belong in its place, or it has no place in its message.
        Length = "length and place do not agree",
        /// Its message is longer than may be put together here.
        TooLarge = "message too large",
        /// It says of its message what others do not say.
        Differs = "fragments of one message differ",
    }
}

reasons! {
    /// Why a solved symbol is not the packet that a repair named.
    Unsound, UnsoundCounts {
        /// Its length is not what it says, or what should be padding is not zero.
        Length = "length and padding do not agree",
        /// It says that it belongs to another group.
        Group = "of another group",
        /// A reserved bit is set.
        Reserved = "reserved bit set",
        /// Its check does not fit its content.
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
