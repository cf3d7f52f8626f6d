//! A solved packet, as far as its path is concerned.

use super::Path;
use super::services::Ends;
use crate::flow::{Content, Piece, Traits};
use crate::identity::Identity;
use crate::packet::Packet;
use crate::place::Counted;
use crate::tcp_time;

/// Evidence that a solved packet gives about its path.
pub(in super::super) struct Solved {
    pub(in super::super) traits: Traits,
    pub(super) piece: Option<Piece>,
    pub(super) content: Option<Content>,
    /// Services that it may belong to.
    pub(super) ends: Ends,
    pub(super) counted: Counted,
    /// Time since which it is missing.
    pub(super) since_us: u64,
}

impl Solved {
    /// Collects the evidence of a packet that is missing since `since_us`.
    pub(in super::super) fn new(
        packet: &Packet<'_>,
        identity: &Identity,
        counted: Counted,
        since_us: u64,
    ) -> Self {
        let traits = Traits::of(packet, identity);
        Self {
            counted,
            since_us,
            traits,
            ends: Ends::of(packet, identity, traits.flow),
            piece: Piece::of(packet, identity),
            content: Content::of(packet, identity),
        }
    }
}

impl Path {
    /// Notes a packet of a tunnel, which is authentic, by the timestamp of its TCP connection.
    pub(in super::super) fn note_timestamp(&mut self, traits: &Traits) {
        self.flows.on_named_timestamp(traits.flow, traits.timestamp);
    }

    /// Gives a packet that is injected the newest timestamp of its TCP connection, if that is newer than its
    /// own ([`tcp_time`]). Returns whether it did.
    pub(in super::super) fn raise_timestamp(&mut self, traits: &Traits, packet: &mut [u8]) -> bool {
        let Some(timestamp) = traits.timestamp else { return false };
        let newer = self.flows.newest_timestamp(traits.flow).newer_than(timestamp);
        self.flows.on_named_timestamp(traits.flow, Some(timestamp));
        newer.is_some_and(|newer| tcp_time::raise(packet, newer))
    }
}
