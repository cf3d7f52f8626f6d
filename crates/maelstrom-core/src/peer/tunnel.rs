//! Packets that travel between the sites inside datagrams of the two gateways.

use super::Peer;
use crate::channel::Trouble;
use crate::class::Care;
use crate::counters::{Rejected, Unprotected};
use crate::ecn::Ecn;
use crate::outbox::Outbox;
use crate::packet::Packet;
use crate::sender::Outlet;

impl Peer {
    /// Takes a packet for this peer's site, which leaves with [`Peer::flush_due_packets`] or later. `care`:
    /// what its class asks for; `None` if no repair is to contain it.
    ///
    /// # Errors
    /// The reason why it is not sent.
    pub(crate) fn handle_tunnelled(
        &mut self,
        now_us: u64,
        packet: &Packet<'_>,
        care: Option<Care>,
        out: &mut Outbox,
    ) -> Result<(), Unprotected> {
        // The tunnel's own datagrams would travel in it without end.
        if self.config.addresses().any(|address| packet.is_udp_to(address)) {
            return Err(Unprotected::RepairChannel);
        }
        // Routers on the way tell hosts which packets are too long, from addresses of their own.
        let is_error = packet.is_icmp_error();
        if !is_error && !self.local.may_send(packet.source()) {
            return Err(Unprotected::NotLocal);
        }
        let Some(session) = self.session.as_mut().filter(|_| self.is_up) else {
            let is_heard = self.channel.trouble() == Some(Trouble::Unheard);
            return Err(if is_heard { Unprotected::Unheard } else { Unprotected::PeerDown });
        };
        if !is_error && !session.listed.contains(packet.source()) {
            self.unwatched_source = Some((packet.source(), now_us));
            return Err(Unprotected::ForeignSource);
        }
        let (sealer, paths) = (&mut session.sealer, &mut self.paths);
        let mut outlet = Outlet { now_us, sealer, paths, datagrams: &mut out.datagrams };
        self.egress.handle_tunnelled(now_us, packet, care.is_none(), &mut outlet);
        if let Some(care) = care {
            self.egress.care(now_us, care, &mut outlet);
        }
        Ok(())
    }

    /// Sends the packets that wait for others, if they need not wait any longer.
    pub(crate) fn flush_due_packets(&mut self, now_us: u64, out: &mut Outbox) {
        if let Some(session) = &mut self.session {
            let (sealer, paths) = (&mut session.sealer, &mut self.paths);
            let mut outlet = Outlet { now_us, sealer, paths, datagrams: &mut out.datagrams };
            self.egress.flush_due_packets(&mut outlet);
        }
    }

    /// Takes authentic packets of the tunnel, whose datagram came with the mark `ecn`.
    ///
    /// # Errors
    /// [`Rejected::OtherMode`] if the configuration states that the peer is reached without a tunnel.
    pub(super) fn on_packets(
        &mut self,
        now_us: u64,
        ecn: Ecn,
        body: &[u8],
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        if !self.config.is_tunnel {
            return Err(Rejected::OtherMode);
        }
        let (ingress, mut cx) = self.ingress_and_cx(now_us, &mut out.recovered);
        cx.ecn = ecn;
        let result = ingress.handle_packets(&mut cx, body);
        self.use_early(now_us, out);
        self.put_in_order(now_us, out);
        result
    }
}
