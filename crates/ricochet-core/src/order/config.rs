//! Settings and counts of a total order.

use crate::ids::NodeId;

/// Settings of a [`Total`](super::Total). Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TotalConfig {
    /// This node.
    pub me: NodeId,
    /// Whether a message is delivered only when a majority of the members has it.
    pub safe: bool,
    /// Number of members that the order begins with, at least.
    pub founders: usize,
    /// Maximum number of messages that are kept.
    pub messages_max: usize,
    /// Maximum number of bytes of messages that are kept.
    pub bytes_max: usize,
    /// Maximum number of numbers that not all members have acknowledged.
    pub window: u64,
    /// Number of messages that are kept for members that were cut off, although all members have them.
    pub keep: u64,
    /// Time for which a node looks for an order before it begins one.
    pub found_us: u64,
    /// Time for which changes of the members are gathered.
    pub gather_us: u64,
    /// Time for which promises of all members are awaited, although a majority has promised.
    pub promise_us: u64,
    /// Interval between attempts; twice as long each time, up to a second.
    pub retry_us: u64,
    /// Time without progress after which another member tries to become the sequencer.
    pub silence_us: u64,
    /// Longest delay of an acknowledgement that nobody waits for.
    pub ack_us: u64,
    /// Time for which a missing message is left to the requests of the node.
    pub want_us: u64,
    /// Time for which the sequencer numbers messages although no majority acknowledges them.
    pub unheard_us: u64,
    /// Time after which a member that holds up the others is put out.
    pub evict_us: u64,
}

impl TotalConfig {
    /// Returns the default settings of a member.
    pub fn new(me: NodeId) -> Self {
        Self {
            me,
            safe: false,
            founders: 1,
            messages_max: 16_384,
            bytes_max: 32 << 20,
            window: 8_192,
            keep: 1_024,
            found_us: 300_000,
            gather_us: 10_000,
            promise_us: 50_000,
            retry_us: 30_000,
            silence_us: 300_000,
            ack_us: 10_000,
            want_us: 30_000,
            unheard_us: 200_000,
            evict_us: 2_000_000,
        }
    }
}

/// Counts of a [`Total`](super::Total).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalCounts {
    /// Messages delivered.
    pub delivered: u64,
    /// Positions that were reported as lost.
    pub lost: u64,
    /// Numbers given by this node.
    pub numbered: u64,
    /// Epochs that this node has taken part in.
    pub epochs: u64,
    /// Attempts of this node to become the sequencer.
    pub campaigns: u64,
    /// Times that this node delivered otherwise than the others agreed.
    pub broken: u64,
    /// Messages for which there was no room before they were numbered.
    pub crowded: u64,
    /// Packets that could not be read.
    pub malformed: u64,
    /// Packets of nodes that have no right to send them.
    pub unauthorized: u64,
    /// Messages requested of a member by number.
    pub wanted: u64,
    /// Messages sent again.
    pub copied: u64,
    /// Numbers whose message no member held.
    pub amended: u64,
}
