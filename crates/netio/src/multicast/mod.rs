//! The sockets of a multicast node, for IPv4 and IPv6.
//!
//! | socket | traffic |
//! |---|---|
//! | [`GroupSocket`] | receives every multicast datagram to the port that all nodes share |
//! | [`OwnSocket`] | receives datagrams for this node alone; sends everything, by its [`Sending`] half |
//! | [`Joiner`] | none: its sockets hold the memberships |
//!
//! Two further sockets serve programs that know nothing of us: [`PlainListener`] receives one IP group at one
//! interface, and [`PlainTalker`] sends to it.
//!
//! The cost of a datagram grows with the number of memberships of the socket that receives it, so the group
//! socket has none: the kernel delivers to it what any process on this host has joined. Other processes may
//! have joined other IP groups; their datagrams to the same port arrive too.

mod counts;
mod error;
mod group;
mod joiner;
mod limits;
mod own;
mod plain;
mod version;
mod wireless;

pub use crate::batch::{Outbox, PIECES_MAX, Sending, UdpCounts};
pub use counts::ReceiveCounts;
pub use error::OpenError;
pub use group::GroupSocket;
pub use joiner::{JoinError, Joiner};
pub use limits::{BridgeFacts, BufferLimits, InterfaceFacts, Limits};
pub use own::{OwnConfig, OwnSocket};
pub use plain::{Heard, PlainListener, PlainTalker};
pub use version::IpVersion;

/// Maximum number of datagrams from one receive of a [`GroupSocket`] or [`OwnSocket`].
pub const RECEIVED_MAX: usize = crate::batch::receive::RECEIVED_MAX;
/// Maximum number of bytes from one receive.
pub const RECEIVED_BYTES_MAX: usize = crate::batch::receive::RECEIVED_BYTES_MAX;
