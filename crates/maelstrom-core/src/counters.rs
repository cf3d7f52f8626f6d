//! Every drop is counted by its reason, and these are the reasons.

use foundation::bytes::ReadError;
use foundation::reasons;

reasons! {
    /// Why an outgoing packet gets no repair. It travels all the same.
    Unprotected, UnprotectedCounts {
        /// Neither version 4 nor 6.
        NotIp = "not IP",
        /// Shorter than its own header states.
        Truncated = "truncated",
        /// Carries options that routers rewrite.
        MutableOptions = "options that routers rewrite",
        /// Its source lies outside the networks that the far gateway watches.
        ForeignSource = "source outside the networks the peer watches",
        /// Its destination belongs to no peer.
        NoPeer = "destination of no peer",
        /// It is itself a repair.
        RepairChannel = "repair channel",
        /// The peer is not there.
        PeerDown = "peer down",
        /// Longer than the link's MTU allows.
        TooLong = "longer than the WAN MTU",
    }
}

reasons! {
    /// Why a datagram on the repair channel was refused.
    Rejected, RejectedCounts {
        /// Not a datagram of this protocol, or cut short.
        Malformed = "malformed",
        /// From an address of no peer.
        UnknownSender = "unknown sender",
        /// Of a session that is not, or no longer, ours.
        UnknownEpoch = "unknown epoch",
        /// Authentication failed.
        Forged = "forged",
        /// Seen before, or too old to tell.
        Replayed = "replayed",
        /// A Hello that echoes a token of an earlier start.
        StaleHello = "stale hello",
        /// Authentic, but of a scheme this version does not know.
        UnknownScheme = "unknown scheme",
    }
}

reasons! {
    /// Why an authentic repair brought nothing back at once.
    Unused, UnusedCounts {
        /// All its packets had arrived.
        Redundant = "nothing missing",
        /// Two or more of its packets are missing: kept.
        Waiting = "waiting for others",
        /// It names packets that have left the window.
        TooOld = "too old",
        /// The tap had missed packets: what it misses may have arrived unseen.
        Blind = "tap behind",
        /// A solved packet did not have the identity that left the far site; discarded.
        WrongRecovery = "wrong recovery",
        /// No room: to wait for packets, or to hand over what it brought back.
        NoRoom = "no room",
        /// Its numbers contradict each other.
        Inconsistent = "inconsistent",
        /// A half whose other half never came.
        HalfLost = "half lost",
    }
}

reasons! {
    /// Why something of ours was not sent.
    Unsent, UnsentCounts {
        /// The outgoing queue was full.
        QueueFull = "outgoing queue full",
        /// The repair would not fit even in two datagrams.
        TooLarge = "repair larger than two datagrams",
    }
}

impl From<ReadError> for Rejected {
    fn from(_: ReadError) -> Self {
        Self::Malformed
    }
}
