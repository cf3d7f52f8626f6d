//! A solved packet, as far as its path is concerned.

use super::services::Ends;
use crate::flow::{Content, Piece, Traits};
use crate::identity::Identity;
use crate::packet::Packet;

/// Evidence that a solved packet gives about its path.
pub(in super::super) struct Solved {
    pub(in super::super) traits: Traits,
    pub(super) piece: Option<Piece>,
    pub(super) content: Option<Content>,
    /// Services that it may belong to.
    pub(super) ends: Ends,
    /// Whether it counts as missing.
    pub(super) is_counted: bool,
    /// Time since which it is missing.
    pub(super) since_us: u64,
}

impl Solved {
    /// Collects the evidence of a packet that is missing since `since_us`.
    pub(in super::super) fn new(
        packet: &Packet<'_>,
        identity: &Identity,
        is_counted: bool,
        since_us: u64,
    ) -> Self {
        let traits = Traits::of(packet, identity);
        Self {
            is_counted,
            since_us,
            traits,
            ends: Ends::of(packet, identity, traits.flow),
            piece: Piece::of(packet, identity),
            content: Content::of(packet, identity),
        }
    }
}
