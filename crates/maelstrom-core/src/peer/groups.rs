//! IP groups: what the peer's site wants, and what it is told that this one wants.

use std::net::IpAddr;

use super::Peer;
use crate::counters::{Rejected, Unsent};
use crate::outbox::{Envelope, Outbox};
use crate::paths::Load;
use crate::wire::{SEALED_HEADER, TAG, Want};

impl Peer {
    /// Whether packets of a group go to the peer's site.
    pub(crate) fn wants_group(&self, now_us: u64, group: IpAddr) -> bool {
        self.config.is_tunnel && self.is_up && self.groups.include(now_us, group)
    }

    /// Whether packets from a source go to the peer's site: the source lies in a network of this site that
    /// the peer's file names. Notes one that lies in none.
    pub(crate) fn takes_source(&mut self, now_us: u64, source: IpAddr) -> bool {
        let Some(session) = self.session.as_ref().filter(|_| self.local.may_send(source)) else {
            return false;
        };
        let is_listed = session.listed.contains(source);
        if !is_listed {
            self.unwatched_source = Some((source, now_us));
        }
        is_listed
    }

    /// Takes an authentic announcement.
    ///
    /// # Errors
    /// [`Rejected::OtherMode`] if the peer is reached without a tunnel, or [`Rejected::Malformed`].
    pub(super) fn on_wants(&mut self, now_us: u64, body: &[u8]) -> Result<(), Rejected> {
        if !self.config.is_tunnel {
            return Err(Rejected::OtherMode);
        }
        Want::read_all(body)?.for_each(|want| self.groups.take(now_us, want));
        Ok(())
    }

    /// Tells the peer which groups this site wants, if that is due.
    pub(crate) fn announce_groups(&mut self, now_us: u64, wants: &[Want], out: &mut Outbox) {
        if !self.is_up || !self.groups.is_due(now_us) {
            return;
        }
        self.groups.on_told(now_us);
        self.groups.expire(now_us);
        let body_max = self.path_mtu().limit().saturating_sub(SEALED_HEADER + TAG);
        let mut rest = wants;
        while !rest.is_empty() {
            let mut len = Want::HEADER;
            let fits = |want: &&Want| {
                len += want.wire_len();
                len <= body_max
            };
            // Any path carries one entry.
            let count = rest.iter().take_while(fits).count().max(1);
            let (part, behind) = rest.split_at(count);
            rest = behind;
            self.send_wants(now_us, part, out);
        }
    }

    fn send_wants(&mut self, now_us: u64, wants: &[Want], out: &mut Outbox) {
        let Some(session) = &mut self.session else { return };
        let body = Want::HEADER + wants.iter().map(Want::wire_len).sum::<usize>();
        let len = SEALED_HEADER + body + TAG;
        let Some(datagram) = out.datagrams.reserve(len) else {
            return self.egress.on_unsent(Unsent::QueueFull);
        };
        Want::write_all(wants, &mut datagram[SEALED_HEADER..len - TAG]);
        session.sealer.seal(now_us, datagram);
        let paths = self.paths.on_sent(Load::Control, len + self.egress.outer());
        out.datagrams.commit(Envelope::to(self.index).by(paths), len);
    }
}
