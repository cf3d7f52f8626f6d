//! The sessions that a process of a gateway leaves to the one that takes its place (docs/adr/0028).
//!
//! The sessions go on, so that neither end counts another one and no datagram of before is refused. Each peer
//! starts a new stream meanwhile: its packets are those of the next process, which has watched since before
//! the stream began. Nothing of the old stream needs to be handed over.

use std::net::SocketAddr;

use ipnet::IpNet;

use crate::exchange::Public;
use crate::key::{Secret, Token};

/// The session with one peer. It does not contain the peer key: the next process has that of its
/// configuration, and knows by the epochs whether it is the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHandover {
    /// Networks of the peer, by which the next process finds it in its configuration.
    pub networks: Vec<IpNet>,
    /// Whether packets travel inside datagrams.
    pub is_tunnel: bool,
    /// Present address of the peer.
    pub address: SocketAddr,
    /// Secret from which the names of packets follow.
    pub names: Secret,
    /// This gateway's present token, and that of the peer.
    pub tokens: [Token; 2],
    /// Secret half of the ephemeral key of this gateway's token.
    pub ephemeral: Secret,
    /// Public half of the ephemeral key of the peer's token.
    pub far_public: Public,
    /// Token with which this gateway has asked for a new stream, if the peer has not taken it over, and the
    /// secret half of its ephemeral key.
    pub next: Option<(Token, Secret)>,
    /// Earlier tokens of the peer, whose sessions must not come back.
    pub past: Vec<Token>,
    /// Epoch of the datagrams that this gateway seals, and the number of the next one.
    pub seals: (u32, u64),
    /// Epochs of the datagrams that this gateway opens, each with the lowest number that may still come.
    pub opens: Vec<(u32, u64)>,
    /// Keys that the peer accepts: each by the epoch in which this gateway would seal with it, and the part
    /// that it plays for the peer, as in a Hello.
    pub shown: Vec<(u32, u8)>,
    /// The peer's networks as this gateway has listed them with its token; a member of a rack lists those of
    /// its parts.
    pub listed: Vec<IpNet>,
    /// Networks of this site as the peer listed them.
    pub watched: Vec<IpNet>,
    /// Position of the next packet in the stream to the peer.
    pub position: u64,
    /// The latest report of the peer, as on the wire.
    pub report: Vec<u8>,
    /// Knowledge of the link, as the core's own numbers; a version that does not understand them begins
    /// without knowledge.
    pub link: Vec<u64>,
    /// Longest datagram that is known to cross the path, and the shortest one that does not, in bytes of UDP
    /// payload.
    pub lengths: (usize, Option<usize>),
    /// Packets of the new stream that have come to this process in datagrams, with their positions.
    pub arrived: Vec<(u64, Vec<u8>)>,
    /// Number of sessions and of renewals so far.
    pub counts: [u64; 2],
}
