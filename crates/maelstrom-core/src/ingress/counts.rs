//! Counters of an ingress.

use crate::counters::{UninjectedCounts, UnusedCounts};
use crate::ecn::EcnCounts;

/// Counts of one peer's ingress beside the loss report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngressCounts {
    /// Packets that arrived from the peer's networks and that its gateway protects.
    pub source_packets: u64,
    /// Bytes of these packets.
    pub source_bytes: u64,
    /// Packets from the peer's networks that its gateway does not protect, because there is no session or
    /// because their destination is not among our networks. They are not kept.
    pub foreign_packets: u64,
    /// Recovered packets handed to the kernel.
    pub recovered_packets: u64,
    /// Of these, TCP segments that got a newer timestamp, without which their receiver would have discarded
    /// them.
    pub raised_timestamps: u64,
    /// Packets that arrived, whole or in fragments, after an equal one had been recovered: by reordering or
    /// because the sender repeats them. It falls if a repair shows that one was a packet of its own.
    pub after_recovery: u64,
    /// Highest value of `after_recovery` so far.
    pub duplicates: u64,
    /// Packets that arrived after an equal one had been solved but withheld.
    pub after_withholding: u64,
    /// Packets that arrived after a repair had named them.
    pub late: u64,
    /// Packets that had arrived, found by their hash after a sliding window's repairs had solved them. All
    /// repairs that name them were lost or are still to come.
    pub recognised: u64,
    /// Recovered packets that the driver could not inject, by reason; they stay lost.
    pub uninjected: UninjectedCounts,
    /// Recovered packets for which the outgoing queue had no room; they stay lost.
    pub undelivered: u64,
    /// Longer packets than the WAN MTU; they are not kept.
    pub too_long: u64,
    /// Repairs that recovered no packet at once, by reason.
    pub unused: UnusedCounts,
    /// Solved packets that were left to their senders, because a full queue had dropped them.
    pub left: u64,
    /// Recovered packets that were marked as having experienced congestion, because a full queue had dropped
    /// them and their senders understand marks.
    pub marked: u64,
    /// Marks of congestion that the path put on datagrams with packets of a tunnel.
    pub ecn: EcnCounts,
    /// Packets requested from the far egress.
    pub requests: RequestCounts,
}

impl IngressCounts {
    /// Counts packets that arrived after equal ones had been recovered.
    pub(super) fn on_duplicates(&mut self, count: u64) {
        self.after_recovery += count;
        self.duplicates = self.duplicates.max(self.after_recovery);
    }
}

/// Counts of packets that one peer's ingress requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Requests sent.
    pub requests: u64,
    /// Packets asked for, each time that they were.
    pub packets: u64,
    /// Packets recovered from an answer.
    pub answered: u64,
    /// Packets not asked for, because too many were lost at once.
    pub overflown: u64,
}
