//! Announcements of the shares of flows that this gateway protects and recovers.

use super::Peer;
use crate::counters::Unsent;
use crate::outbox::{Envelope, Outbox};
use crate::paths::Load;
use crate::wire::{Announcement, SEALED_HEADER, TAG};

impl Peer {
    /// Thins the protection of outgoing packets as the egress decides, once the peer knows, and takes what
    /// the peer has announced.
    pub(super) fn update_thinning(&mut self, now_us: u64) {
        let is_wanted = self.session.is_some() && self.egress.wants_thin(now_us);
        self.sharing.set_thin(now_us, is_wanted);
        self.is_plan_news |= self.egress.set_thin(self.sharing.is_thin());
        self.ingress.set_far_thin(self.sharing.is_far_thin());
    }

    /// Sends the announcement that is due, if there is one and there is a session.
    pub(super) fn announce_shares(&mut self, now_us: u64, out: &mut Outbox) {
        let Some(session) = &mut self.session else { return };
        if self.sharing.next_us().is_none_or(|due_us| due_us > now_us) {
            return;
        }
        let announcement = self.sharing.announcement(now_us);
        let len = SEALED_HEADER + Announcement::LEN + TAG;
        let Some(datagram) = out.datagrams.reserve(len) else {
            return self.egress.on_unsent(Unsent::QueueFull);
        };
        announcement.write(&mut datagram[SEALED_HEADER..len - TAG]);
        session.sealer.seal(now_us, datagram);
        let paths = self.paths.on_sent(Load::Control, len + self.egress.outer());
        out.datagrams.commit(Envelope::to(self.index).by(paths), len);
    }
}
