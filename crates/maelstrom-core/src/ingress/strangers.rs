//! Packets from networks that belong to no peer, which may be rewritten packets of the far site.

use super::Ingress;
use crate::flow::Content;
use crate::identity::Identity;
use crate::packet::Packet;

impl Ingress {
    /// Whether it would help to see all packets that arrive ([`Ingress::handle_stranger`]).
    pub(crate) fn wants_strangers(&self) -> bool {
        self.path.has_doubt()
    }

    /// Takes a packet that arrived from a network that belongs to no peer.
    pub(crate) fn handle_stranger(&mut self, now_us: u64, identity: &Identity, packet: &Packet<'_>) {
        if let Some(content) = Content::of(packet, identity).filter(|_| self.path.has_doubt()) {
            self.path.on_stranger(now_us, content);
        }
    }
}
