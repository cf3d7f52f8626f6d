//! Every drop is counted by its reason, and these are the reasons.

use foundation::bytes::ReadError;
use foundation::reasons;

reasons! {
    /// Why a datagram was refused unread.
    Malformed, MalformedCounts {
        /// It ends before its fields do.
        TooShort = "too short",
        /// Its first byte is not that of the membership.
        Protocol = "another protocol",
        /// Of a kind that this version does not know.
        Kind = "unknown kind",
        /// A reserved bit is set, or a field has a value without meaning.
        Reserved = "reserved value",
        /// It counts none or too many of what follows.
        Count = "count out of range",
        /// Bytes follow that nothing accounts for.
        TooLong = "too long",
        /// It names an address that nobody can have.
        Address = "impossible address",
    }
}

reasons! {
    /// Why something well-formed came to nothing. Counted in datagrams, or in the entries of one.
    Dropped, DroppedCounts {
        /// From an address that is no member's.
        Stranger = "from no member",
        /// It says that it comes from another address than it came from.
        Spoofed = "sender and source differ",
        /// It came from this node's own address.
        Own = "from this node's own address",
        /// Of a kind that this provider of membership has no use for.
        Unused = "not used by this provider",
        /// As many members are known as there is room for.
        MembersFull = "too many members",
        /// Another member has the same id.
        Twin = "id taken by another member",
        /// About a node that is no member.
        Unknown = "about no member",
        /// Older than what is known, or known already.
        Stale = "old news",
        /// Nobody asked for it.
        Unasked = "not asked for",
        /// A member is in more groups than one may be.
        GroupsMax = "too many groups of one member",
        /// All members together are in more groups than there is room for.
        TotalFull = "too many groups in all",
        /// A list of groups is not in order, or its check does not fit.
        Unsound = "list does not fit its check",
        /// The peer, or all peers together, asked for more bytes in a second than they get.
        Budget = "bytes per second used up",
        /// There was no room for one more timer; the oldest went.
        TimersFull = "too many timers",
        /// The failure detector would not have it.
        Swim = "refused by the failure detector",
    }
}

/// What a provider of membership has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
    /// Datagrams that came.
    pub received: u64,
    /// Of these, datagrams that were refused unread.
    pub malformed: MalformedCounts,
    /// What came to nothing for another reason.
    pub dropped: DroppedCounts,
    /// Lists of groups that came whole.
    pub lists: u64,
    /// Changes of lists that were applied.
    pub steps: u64,
    /// How often this node heard that it is taken for dead, and came back.
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
