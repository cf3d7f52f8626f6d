//! The protocol of a Ricochet multicast node, without socket, clock or thread.
//!
//! Receivers of multicast send each other repairs that mix packets of all the groups they share (Ricochet §4,
//! Slingshot §3, Thesis §4). Time and randomness are arguments.
//!
//! | module | content |
//! |---|---|
//! | [`node`] | the node, which puts the other parts together and talks to a driver |
//! | [`message`] | messages, and the seam between a node and its driver |
//! | [`groups`], [`view`] | the groups of this node, and which nodes are in which groups |
//! | [`regions`] | the disjoint intersections of this node's groups that have members (Ricochet §4.1.1) |
//! | [`targets`] | to how many nodes of which regions the repairs of each group go (Thesis §4.4) |
//! | [`bins`] | the repair bins, where received packets become repairs (Ricochet §4.2.1) |
//! | [`flow`], [`outgoing`] | how much a sender may send, and the messages that wait |
//! | [`history`] | what members keep for those who join later |
//! | [`tracker`] | which packets came, and which are known to be missing (Thesis §4.3) |
//! | [`wire`] | the datagrams, byte for byte |
//! | [`delivery`] | the stage between a node and its application: messages in the order of their stream |
//! | [`order`] | the same sequence of messages at all members of a group |
//! | [`feedback`] | what a node has seen of the network, for its application |
#![forbid(unsafe_code)]

mod announce;
pub mod bins;
mod buffer;
mod chance;
pub mod counters;
pub mod delivery;
pub mod feedback;
pub mod flow;
pub mod groups;
pub mod history;
mod ids;
mod limits;
mod links;
pub mod message;
pub mod node;
pub mod order;
pub mod outgoing;
mod partners;
pub mod regions;
mod rows;
mod sent_packets;
mod sets;
pub mod targets;
pub mod tracker;
pub mod view;
pub mod wire;

pub use bins::{Bins, BinsConfig};
pub use delivery::{Fifo, FifoConfig};
pub use feedback::Feedback;
pub use flow::{FlowConfig, Follow};
pub use foundation::Seq;
pub use groups::{GroupConfig, Groups, GroupsError};
pub use history::{HistoryConfig, HistoryNews, KEYED_MAX, KeyedConfig, Wish};
pub use ids::{GroupId, GroupIndex, GroupTag, NodeId, RegionIndex, StreamKey};
pub use node::{Node, NodeConfig, Planned, Planner};
pub use outgoing::Outgoing;
pub use regions::Regions;
pub use targets::{Plan, Share};
pub use tracker::{Tracker, TrackerConfig};
pub use view::{Member, View};
