//! Requests in the status.

use maelstrom_core::RequestCounts;
use serde::{Deserialize, Serialize};

/// Packets that a gateway requested, because repairs did not bring them back in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestStatus {
    /// Requests sent.
    pub sent: u64,
    /// Packets asked for, each time that they were.
    pub packets: u64,
    /// Packets recovered from an answer. With them, repairs may have recovered others.
    pub answered: u64,
    /// Packets not asked for, because too many were lost at once: a queue overflowed, or the link failed.
    pub overflown: u64,
}

impl RequestStatus {
    pub(super) fn of(counts: &RequestCounts) -> Self {
        let RequestCounts { requests: sent, packets, answered, overflown } = *counts;
        Self { sent, packets, answered, overflown }
    }
}
