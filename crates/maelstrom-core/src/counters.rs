//! Reasons by which drops are counted.

pub use foundation::Reason;
use foundation::bytes::ReadError;
use foundation::reasons;

reasons! {
    /// Reason why an outgoing packet gets no repair. The kernel forwards it all the same.
    Unprotected, UnprotectedCounts {
        /// Its IP version is neither 4 nor 6.
        NotIp = "not IP",
        /// It is shorter than its header states.
        Truncated = "truncated",
        /// It carries options that routers rewrite.
        MutableOptions = "options that routers rewrite",
        /// Its source lies outside the networks that the far gateway watches.
        ForeignSource = "source outside the networks the peer watches",
        /// Its source lies outside the stated networks of this site.
        NotLocal = "source outside local_networks",
        /// Its destination belongs to no peer.
        NoPeer = "destination of no peer",
        /// Its peer is reached by a tunnel, and it does not leave by that.
        BesideTunnel = "not by the tunnel",
        /// It is itself a datagram of the repair channel.
        RepairChannel = "repair channel",
        /// The peer is down.
        PeerDown = "peer down",
        /// The peer receives none of our datagrams.
        Unheard = "peer hears nothing of us",
        /// It is longer than the WAN MTU.
        TooLong = "longer than the WAN MTU",
        /// It is longer than the path to the peer carries in one piece.
        TooLongForPath = "longer than the MTU of the path",
        /// The next router drops it.
        Expiring = "time to live ends at the next router",
        /// It belongs to a class that is not protected.
        Class = "class with protect = off",
        /// Its flow is not in the share for which both gateways have time.
        Overload = "more traffic than the gateways can code",
        /// A queue of the path stands full, so that only a sample of the packets is named.
        Congestion = "queue of the path full",
        /// It is of a part that another gateway of this rack holds, or that this one has not taken yet.
        OtherPart = "part of another gateway of this rack",
        /// No gateway of the far rack says that it holds the part of its source.
        Unheld = "part that no gateway of the far rack holds",
    }
}

reasons! {
    /// Reason why a packet of an IP group does not cross to other sites, or not to the LAN.
    Unforwarded, UnforwardedCounts {
        /// It is no whole IP packet.
        Malformed = "malformed",
        /// It is of no group of the section on whose LAN it was heard.
        NoGroup = "group of no section for this LAN",
        /// Its source is at a far site: another gateway has sent it here.
        OfFarSite = "source at another site",
        /// Its time to live ends here.
        Expiring = "time to live ends here",
        /// No far site that is up wants the group.
        Unwanted = "no far site wants the group",
        /// Its source lies outside `local_networks`, or outside what the far sites that want the group watch.
        ForeignSource = "source outside the networks the far sites watch",
        /// The section sends more than its rate.
        OverRate = "more than the rate of the section leaves",
        /// The section gets more than its rate from far sites.
        OverRateHere = "more than the rate of the section arrives",
    }
}

reasons! {
    /// Reason why a datagram between the members of a rack counts for nothing.
    Unheeded, UnheededCounts {
        /// It is no heartbeat, or is cut short.
        Malformed = "malformed",
        /// It is a heartbeat of another version of the format.
        OtherVersion = "another protocol version",
        /// Its authentication failed.
        Forged = "forged",
        /// It comes from the address of no other member, or from that of another member than it names.
        Stranger = "from no member of the rack",
        /// It is for another member.
        Misdirected = "for another member",
        /// It was heard before, or is of an earlier start of its sender.
        Replayed = "replayed",
        /// The file of its sender has other members or parts.
        OtherRack = "other members or parts in the sender's file",
    }
}

reasons! {
    /// Reason why a datagram on the repair channel is refused.
    Rejected, RejectedCounts {
        /// It is not a datagram of this protocol, or is cut short.
        Malformed = "malformed",
        /// It is a datagram of another version of this protocol.
        OtherVersion = "another protocol version",
        /// Its source address belongs to no peer.
        UnknownSender = "unknown sender",
        /// It is one of too many Hellos from unknown addresses, and was not opened.
        Unopened = "too many hellos of unknown senders",
        /// It belongs to no present session.
        UnknownEpoch = "unknown epoch",
        /// Its authentication failed.
        Forged = "forged",
        /// It is a Hello under one of two keys of the peer, and this gateway has only the other one.
        OtherKey = "sealed with a further key of the peer",
        /// It is of a peer in tunnel mode, and the configuration says passive, or the reverse.
        OtherMode = "another mode",
        /// It was seen before, or is too old to tell.
        Replayed = "replayed",
        /// It is a Hello that echoes a token of an earlier start.
        StaleHello = "stale hello",
        /// It is authentic, but of an unknown FEC scheme.
        UnknownScheme = "unknown scheme",
        /// It is an authentic report of more packets than were sent.
        Impossible = "report of more packets than were sent",
    }
}

reasons! {
    /// Reason why an authentic repair recovers no packet at once.
    Unused, UnusedCounts {
        /// All of its packets had arrived.
        Redundant = "nothing missing",
        /// Two or more of its packets are missing; it is stored.
        Waiting = "waiting for others",
        /// It names packets that have left the history.
        TooOld = "too old",
        /// The tap has missed packets, so the packets it misses may have arrived unseen.
        Blind = "tap behind",
        /// A solved packet was discarded, because it did not have the identity that left the far site.
        WrongRecovery = "wrong recovery",
        /// There was no room for it, or for the packets it recovered.
        NoRoom = "no room",
        /// Its numbers contradict each other.
        Inconsistent = "inconsistent",
        /// It is a half whose other half never arrived.
        HalfLost = "half lost",
        /// More of its packets are missing than all repairs together bring back, and the tap is behind.
        BeyondRepair = "more missing than repairs bring back",
    }
}

reasons! {
    /// Reason why a solved packet is not injected: it may have reached its site by another path or unseen, or
    /// would not have reached it.
    Withheld, WithheldCounts {
        /// No packet of the peer's site has arrived as it was sent.
        Unproven = "no packet has arrived as it was sent",
        /// It may begin a flow, and its service gets no such packets, or more of them are missing than the
        /// link loses.
        UnseenFlow = "flow never seen on this path",
        /// Its flow has stopped arriving, while repairs name more and more of its packets.
        LeftFlow = "flow takes another path",
        /// More packets of its flow are missing than the loss of repairs explains.
        LossyFlow = "flow with more losses than the link explains",
        /// More packets are missing than the loss of repairs explains.
        Unexplained = "more losses than the link explains",
        /// Too many packets arrived long after they had been recovered.
        SlowPath = "packets arrive by a slower path",
        /// It was fragmented on the way, and its first piece has arrived.
        Fragmented = "fragmented on the way",
        /// It opens a connection and was rewritten on the way.
        OpeningRewritten = "TCP SYN rewritten on the way",
        /// A router between the gateways dropped it, and has told its sender.
        Expired = "time to live ended on the way",
        /// It belongs to a flow of which packets may have arrived unseen.
        Doubtful = "flow with packets that the tap could not cut",
        /// Its destination lies outside the stated networks of this site, or its source inside.
        NotLocal = "not from elsewhere to local_networks",
    }
}

reasons! {
    /// Reason why the kernel did not get a recovered packet. The packet stays lost.
    Uninjected, UninjectedCounts {
        /// The kernel would send it back to the WAN.
        Returning = "its route leads back to the WAN",
        /// There is no way into the kernel at present, or the kernel refused the packet.
        Untaken = "the kernel did not take it",
        /// The process stood still after the recovery, so that the packet is old.
        Stalled = "old after a stall",
    }
}

reasons! {
    /// Reason why a datagram of ours is not sent.
    Unsent, UnsentCounts {
        /// The outgoing queue was full.
        QueueFull = "outgoing queue full",
        /// The repair does not fit even in two datagrams.
        TooLarge = "repair larger than two datagrams",
        /// The bit rate has reached its cap.
        BitRate = "more than max_repair_rate allows",
        /// The number of repairs for each packet has reached its cap.
        Overhead = "more than overhead_max allows",
    }
}

reasons! {
    /// Kind of output that a cap of the operator refuses.
    Refused, RefusedCounts {
        /// A repair that is due by the rate of the code.
        Regular = "repairs",
        /// A repair for packets that no regular repair covers soon.
        OutOfTurn = "repairs out of turn",
        /// A repair that the rate of a class adds.
        Class = "repairs of classes",
        /// Names of packets without a repair.
        Names = "names of packets",
        /// A packet that the peer has requested.
        Answer = "answers to requests",
        /// A request for packets.
        Request = "requests",
    }
}

reasons! {
    /// Reason why a packet that the peer requests is not sent again.
    Unanswered, UnansweredCounts {
        /// The configuration turns answers off.
        Off = "requests are off",
        /// It has left the cache, or is not of the session.
        Gone = "no longer kept",
        /// It was answered for already, as often as allowed.
        Often = "answered for twice already",
        /// Answers have taken their share of the bytes.
        Budget = "more than 5 % of the bytes",
        /// The operator allows no more repairs, names and answers.
        Capped = "more than max_repair_rate or overhead_max allows",
        /// Only packets of other protocols are answered for.
        Tcp = "TCP, which retransmits by itself",
    }
}

impl From<ReadError> for Rejected {
    fn from(_: ReadError) -> Self {
        Self::Malformed
    }
}
