//! The reasons by which drops are counted, and a provider's counters.

use foundation::bytes::ReadError;
use foundation::reasons;

reasons! {
    /// Reason why a datagram could not be read.
    Malformed, MalformedCounts {
        /// The datagram ends before its fields do.
        TooShort = "too short",
        /// The first byte is not that of the membership protocol.
        Protocol = "another protocol",
        /// This version does not know the kind.
        Kind = "unknown kind",
        /// A reserved bit is set, or a field has a value without meaning.
        Reserved = "reserved value",
        /// The number of entries is zero or too large.
        Count = "count out of range",
        /// Bytes follow the last field.
        TooLong = "too long",
        /// The datagram contains an address that no node can have.
        Address = "impossible address",
    }
}

reasons! {
    /// Reason why a well-formed datagram, or one entry of it, was dropped.
    Dropped, DroppedCounts {
        /// The address that the datagram came from is not a member's.
        NotMember = "from no member",
        /// The datagram names another source address than the one it came from.
        Spoofed = "sender and source differ",
        /// The datagram came from this node's own address.
        Own = "from this node's own address",
        /// This provider of membership does not use the kind.
        Unused = "not used by this provider",
        /// The maximum number of members is known already.
        MembersFull = "too many members",
        /// Another member has the same id.
        DuplicateId = "id taken by another member",
        /// The entry is about a node that is not a member.
        Unknown = "about no member",
        /// The entry is older than the version held, or the same.
        Stale = "old news",
        /// This node did not request it.
        Unrequested = "not asked for",
        /// A member is in more groups than one member may be.
        GroupsMax = "too many groups of one member",
        /// All members together are in more groups than there is room for.
        TotalFull = "too many groups in all",
        /// A list of groups is not in order, or does not match its check.
        CheckMismatch = "list does not fit its check",
        /// The member, or all members together, requested more bytes per second than they get.
        RateLimit = "bytes per second used up",
        /// There was no room for one more timer; the oldest was dropped.
        TimersFull = "too many timers",
        /// It says that a life began later than tomorrow.
        Future = "life later than tomorrow",
        /// The node at the source address has not answered which life it is.
        Unproven = "from an unproven node",
        /// It is about a node that has not answered, or that it contradicts.
        Hearsay = "unproven news",
        /// The failure detector refused it.
        Swim = "refused by the failure detector",
    }
}

/// Counters of a provider of membership since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Datagrams received.
    pub received: u64,
    /// Received datagrams that could not be read.
    pub malformed: MalformedCounts,
    /// Well-formed datagrams and entries that were dropped.
    pub dropped: DroppedCounts,
    /// Lists of groups received whole.
    pub lists: u64,
    /// Steps of lists applied.
    pub steps: u64,
    /// Times that this node learnt that others had declared it down, and rejoined.
    pub rejoined: u64,
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
