//! Counts of a node's life.

use crate::counters::{MalformedCounts, UnsoundCounts};

/// Counts since the start of a node. "Packets" means data packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Packets sent.
    pub sent: u64,
    /// Packets delivered that came by themselves.
    pub delivered: u64,
    /// Packets delivered that were recovered from repairs.
    pub repaired: u64,
    /// Packets delivered that came on request.
    pub requested: u64,
    /// Packets read from the history of other members.
    pub past: u64,
    /// Messages with keys that were left out because this node has read later ones from another member.
    pub outdated: u64,
    /// Packets that came again.
    pub duplicates: u64,
    /// Packets that came after they had been given up, or that precede the first packet known of their
    /// stream.
    pub too_old: u64,
    /// Packets of streams for which there was no room.
    pub no_room: u64,
    /// Packets and names that were not believed before their sender has confirmed them.
    pub doubtful: u64,
    /// Streams of which false sequence numbers were forgotten, because their sender contradicted them.
    pub retracted: u64,
    /// Datagrams that came from another address than that of the node that they name as their sender.
    pub impostors: u64,
    /// Repairs and retransmissions that came from no member.
    pub strangers: u64,
    /// Packets and names of groups that this node is not in.
    pub foreign: u64,
    /// Datagrams of this node that came back to it.
    pub own: u64,
    /// Packets longer than this node's datagrams may be.
    pub too_long: u64,
    /// Packets found missing.
    pub discovered: u64,
    /// Repairs sent.
    pub repairs_sent: u64,
    /// Packets that entered no repair, because the node was overloaded.
    pub repairs_yielded: u64,
    /// Repairs received.
    pub repairs: u64,
    /// Repairs of which no packet was missing.
    pub repairs_redundant: u64,
    /// Repairs that recovered packets at once.
    pub repairs_useful: u64,
    /// Repairs kept because more than one of their packets was missing.
    pub repairs_waiting: u64,
    /// Repairs of no use, because they name packets that this node does not know, has forgotten or has given
    /// up.
    pub repairs_unusable: u64,
    /// Solved packets that did not match their name, by reason.
    pub unsound: UnsoundCounts,
    /// Requests sent.
    pub requests_sent: u64,
    /// Packets requested.
    pub asked: u64,
    /// Packets requested again, not counting requests that digests led to.
    pub asked_again: u64,
    /// Requests of an interval put off because the maximum number of packets was in flight.
    pub put_off: u64,
    /// Packets not requested because the allowance of the other node was used up.
    pub withheld: u64,
    /// Packets retransmitted on request.
    pub answered: u64,
    /// Datagrams sent that tell which requested packets are not held here.
    pub denials_sent: u64,
    /// Requested packets that this node does not hold.
    pub not_held: u64,
    /// Requested packets beyond the limits of one node, in a second or in one request, or beyond what a node
    /// that is no member gets.
    pub refused: u64,
    /// Questions sent to senders about their newest packets.
    pub questions_sent: u64,
    /// Answers to questions that this node has not asked.
    pub unasked: u64,
    /// Reports of room sent.
    pub rooms_sent: u64,
    /// Requests for such reports sent, because packets had to wait.
    pub probes_sent: u64,
    /// Heartbeats sent.
    pub heartbeats_sent: u64,
    /// Datagrams refused, by reason.
    pub malformed: MalformedCounts,
}
