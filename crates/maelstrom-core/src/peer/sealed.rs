//! Sealed datagrams: repairs, reports, requests and announcements of the peer.

use super::Peer;
use super::paths::{Arrival, Opened, load_of};
use crate::counters::Rejected;
use crate::outbox::Outbox;
use crate::paths::Load;
use crate::wire::{Announcement, BodyKind, Report, SealedHeader};

impl Peer {
    /// Takes a datagram sealed in this peer's session.
    pub(crate) fn handle_sealed(
        &mut self,
        now_us: u64,
        arrival: &Arrival,
        header: &SealedHeader,
        datagram: &mut [u8],
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let len = datagram.len();
        let told_at = self.told_at(header);
        let body = self.open(now_us, header, datagram)?;
        // Of several paths, probes show where the peer is.
        if let Some(from) = arrival.place.filter(|_| !self.paths.are_several()) {
            self.on_source(now_us, from, told_at, header);
        }
        let kind = BodyKind::read(body)?;
        let (load, path) = (load_of(kind), arrival.path);
        let bytes = self.on_link(len);
        // The time until this gateway reads a datagram is no delay of its path.
        let lead_us = self.paths.on_received(arrival.arrived_us, path, load, header.sent, bytes);
        self.ingress.set_overtaken(self.paths.overtaken_us());
        // Of several paths, the queue on that of the packets counts.
        let shows_queue = !self.paths.are_several() || load == Load::Packets;
        self.ingress.on_sealed(header, shows_queue.then_some((path, arrival.arrived_us)));
        if self.channel.on_sealed(now_us, header.sent, len) {
            // The peer protects packets once it knows that its datagrams arrive.
            self.next_report_us = now_us;
        }
        if kind == BodyKind::Share {
            self.sharing.on_announcement(now_us, Announcement::read(body)?);
            self.update_thinning(now_us);
            return Ok(());
        }
        if kind == BodyKind::Request {
            return self.on_request(now_us, body, out);
        }
        if kind == BodyKind::Report {
            return self.on_report(now_us, Report::read(body)?);
        }
        if kind == BodyKind::Probe {
            return self.on_probe(now_us, arrival, header.sent, body, out);
        }
        if kind == BodyKind::Wants {
            return self.on_wants(now_us, body);
        }
        if matches!(kind, BodyKind::Packets | BodyKind::Aside) {
            return self.on_packets(now_us, arrival.ecn, body, out);
        }
        if self.awaits_stream() {
            self.ingress.on_blind_repair();
            return Ok(());
        }
        let (number, sent) = (header.counter as u32, header.sent);
        let opened = Opened { kind, number, sent, lead_us, ecn: arrival.ecn };
        self.on_repair(now_us, opened, body, out)
    }
}
