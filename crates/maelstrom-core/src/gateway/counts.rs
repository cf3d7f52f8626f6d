//! Counts of a gateway, for status and metrics.

use super::Gateway;
use crate::class::{Class, ClassCounts};
use crate::counters::{RejectedCounts, UnprotectedCounts};
use crate::kept::{FlowEnds, Kept};

impl Gateway {
    /// The classes, with the counts of their packets that left for a peer's site.
    pub fn classes(&self) -> impl Iterator<Item = (&Class, ClassCounts)> {
        self.classes.iter()
    }

    /// Counts of outgoing packets that got no repair, by reason.
    pub fn unprotected(&self) -> &UnprotectedCounts {
        &self.unprotected
    }

    /// Counts of datagrams refused on the repair channel, by reason.
    pub fn rejected(&self) -> &RejectedCounts {
        &self.rejected
    }

    /// The packets for the site of a peer that are kept at `now_us` to answer requests, by flow; the peer is
    /// given by its number in the configuration. Looks at each packet, and lists the flows that `is_wanted`
    /// admits.
    pub fn kept(&self, now_us: u64, peer: usize, is_wanted: impl Fn(&FlowEnds) -> bool) -> Kept {
        self.peers[peer].egress.kept(now_us, is_wanted)
    }

    /// Counts of packets for tunnels that were dropped, by reason.
    pub fn refused(&self) -> &UnprotectedCounts {
        &self.refused
    }
}
