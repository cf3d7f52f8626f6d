//! Sealed datagrams: repairs, reports, requests and announcements of the peer.

use std::net::SocketAddr;

use super::Peer;
use crate::counters::Rejected;
use crate::outbox::Outbox;
use crate::wire::{Announcement, BodyKind, Report, SealedHeader};

impl Peer {
    /// Takes a datagram sealed in this peer's session. `from`: its source, if the peer may be there and its
    /// address is not stated.
    pub(crate) fn handle_sealed(
        &mut self,
        now_us: u64,
        from: Option<SocketAddr>,
        header: &SealedHeader,
        datagram: &mut [u8],
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let len = datagram.len();
        let told_at = self.told_at(header);
        let body = self.open(now_us, header, datagram)?;
        if let Some(from) = from {
            self.on_source(now_us, from, told_at, header);
        }
        let kind = BodyKind::read(body)?;
        self.ingress.on_sealed(now_us, header);
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
        if matches!(kind, BodyKind::Packets | BodyKind::Aside) {
            return self.on_packets(now_us, body, out);
        }
        if self.awaits_stream() {
            self.ingress.on_blind_repair();
            return Ok(());
        }
        let (ingress, mut cx) = self.ingress_and_cx(now_us, &mut out.recovered);
        cx.repair = Some(header.counter as u32);
        match kind {
            BodyKind::Half => ingress.handle_half(&mut cx, body),
            _ => ingress.handle_repair(&mut cx, body),
        }
    }
}
