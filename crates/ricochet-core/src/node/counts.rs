//! What a node has done.

use crate::counters::{MalformedCounts, UnsoundCounts};

/// Counts of a node's life. Packets are data packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Packets sent.
    pub sent: u64,
    /// Packets delivered that came by themselves.
    pub delivered: u64,
    /// Packets delivered that repairs brought back.
    pub repaired: u64,
    /// Packets delivered that came on request.
    pub requested: u64,
    /// Packets that came again.
    pub duplicates: u64,
    /// Packets that came after they had been given up, or from before this node knew their stream.
    pub too_old: u64,
    /// Packets of streams for which there was no room.
    pub no_room: u64,
    /// Packets and names too far ahead of their stream to be believed at once.
    pub doubtful: u64,
    /// Packets and names of groups that this node is not in.
    pub foreign: u64,
    /// Packets of its own that came back.
    pub own: u64,
    /// Packets longer than this node's datagrams may be.
    pub too_long: u64,
    /// Packets found missing.
    pub discovered: u64,
    /// Repairs sent.
    pub repairs_sent: u64,
    /// Repairs that came.
    pub repairs: u64,
    /// Of these, with nothing missing.
    pub repairs_redundant: u64,
    /// Of these, that brought packets back at once.
    pub repairs_useful: u64,
    /// Of these, kept since they miss more than one packet.
    pub repairs_waiting: u64,
    /// Of these, of no use: they name packets that this node cannot tell, has forgotten or has given up.
    pub repairs_unusable: u64,
    /// Solved packets that were not what the repair called them, by what was wrong.
    pub unsound: UnsoundCounts,
    /// Requests sent.
    pub requests_sent: u64,
    /// Packets asked for.
    pub asked: u64,
    /// Of these, packets that had been asked for before, by requests of this node's own accord.
    pub asked_again: u64,
    /// Times that an interval was not asked for yet since as many packets were under way as may be.
    pub put_off: u64,
    /// Packets not asked for since the peer's allowance was used up.
    pub withheld: u64,
    /// Packets sent again to who asked.
    pub answered: u64,
    /// Packets asked for that this node does not hold.
    pub not_held: u64,
    /// Packets asked for beyond what one peer may ask, in a second or in one request.
    pub refused: u64,
    /// Heartbeats sent.
    pub heartbeats_sent: u64,
    /// Datagrams refused, by reason.
    pub malformed: MalformedCounts,
}
