//! Packets of hosts that arrive from the peer's site.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Peer;
use crate::ecn::Ecn;
use crate::flow::Traits;
use crate::ingress::{Ingress, IngressCx};
use crate::outbox::{Origin, Outbox, Queue};
use crate::packet::Packet;

impl Peer {
    /// Takes a packet that arrived from this peer's site at `now_us`.
    pub(crate) fn handle_incoming(&mut self, now_us: u64, packet: &Packet<'_>, out: &mut Outbox) {
        self.handle_present(now_us, packet, false, out);
    }

    /// Takes a packet from this peer's site that another gateway of its rack has recovered.
    pub(crate) fn handle_recovered_copy(&mut self, now_us: u64, packet: &Packet<'_>, out: &mut Outbox) {
        self.handle_present(now_us, packet, true, out);
    }

    fn handle_present(&mut self, now_us: u64, packet: &Packet<'_>, is_copy: bool, out: &mut Outbox) {
        // The far gateway's own datagrams to us are never coded.
        if packet.is_udp_to(self.listen) {
            return;
        }
        // The far gateway protects nothing without a session, and never packets to other destinations. No
        // repair will name such a packet, and it would displace arrivals that repairs need. Nor will one name
        // a packet of a part that another gateway of this rack holds.
        let is_protected =
            self.shows(now_us, packet.destination()) && self.networks.contains(packet.source());
        // Nor does it protect other flows than it announced, which a tap may show all the same.
        let bound = self.sharing.far_bound();
        if is_protected && !bound.contains(packet) && bound.shows(packet) {
            self.ingress.handle_first_fragment(now_us, packet, &self.identity);
        }
        if !is_protected || !bound.contains(packet) {
            return self.ingress.on_foreign_packet();
        }
        let (ingress, mut cx) = self.ingress_and_cx(now_us, &mut out.recovered);
        cx.is_copy = is_copy;
        ingress.handle_packet(&mut cx, packet);
    }

    /// Takes a super-packet from this peer's site that could not be cut.
    pub(crate) fn handle_unseen(&mut self, now_us: u64, packet: &Packet<'_>) {
        if self.shows(now_us, packet.destination()) {
            self.ingress.on_unseen(now_us, Traits::of(packet, &self.identity).flow);
        }
    }

    /// Source of a packet of the last minutes that the peer would not watch.
    pub(crate) fn unwatched_source(&self) -> Option<IpAddr> {
        self.unwatched_source.map(|(source, _)| source)
    }

    /// Networks of our site as the peer lists them.
    pub(crate) fn watched(&self) -> &[IpNet] {
        self.session.as_ref().map_or(&[], |session| session.listed.networks())
    }

    /// Takes a packet that arrived from a network that belongs to no peer.
    pub(crate) fn handle_stranger(&mut self, now_us: u64, packet: &Packet<'_>) {
        self.ingress.handle_stranger(now_us, &self.identity, packet);
    }

    /// Takes the time until which the tap has shown what arrived; `None` while it shows all.
    pub(crate) fn set_shown(&mut self, shown_us: Option<u64>) {
        if !self.config.is_tunnel {
            self.shown_us = shown_us;
        }
    }

    /// Time by which repairs and requests wait for packets: a packet that arrived later may be in the tap.
    pub(super) fn shown_until_us(&self, now_us: u64) -> u64 {
        self.shown_us.map_or(now_us, |shown_us| shown_us.min(now_us))
    }

    /// Returns the ingress, and its context for repairs, which wait by what the tap has shown.
    pub(super) fn ingress_for_repairs<'a>(
        &'a mut self,
        now_us: u64,
        recovered: &'a mut Queue<Origin>,
    ) -> (&'a mut Ingress, IngressCx<'a>) {
        let shown_us = self.shown_until_us(now_us);
        let (ingress, cx) = self.ingress_and_cx(shown_us, recovered);
        (ingress, IngressCx { behind_us: now_us - shown_us, ..cx })
    }

    pub(super) fn ingress_and_cx<'a>(
        &'a mut self,
        now_us: u64,
        recovered: &'a mut Queue<Origin>,
    ) -> (&'a mut Ingress, IngressCx<'a>) {
        let is_ordered = self.order.is_some();
        let cx = IngressCx {
            now_us,
            behind_us: 0,
            identity: &self.identity,
            networks: &self.networks,
            local: &self.local,
            listen: self.listen,
            peer: self.index,
            repair: None,
            sent: None,
            ecn: Ecn::NotEct,
            is_copy: false,
            is_ordered,
            recovered: self.order.as_mut().map_or(recovered, |order| &mut order.incoming),
        };
        (&mut self.ingress, cx)
    }
}
