//! Feedback: a node's view of the network, for an application that wants to act on it. It says how much of
//! each group and of each peer was lost, what recovered it and how soon, what that cost, and which peers
//! cannot keep up.
//!
//! The node counts packets as they pass, and [`Node::feedback`](crate::Node::feedback) copies the counts.

mod latency;
mod recent;
mod report;
mod tally;

pub use latency::Latencies;
pub use report::{
    Feedback, GroupFeedback, PeerFeedback, Reception, SLOW_PACKETS_MIN, SLOW_PERCENT, Traffic, Volume,
};
pub(crate) use tally::Tally;
