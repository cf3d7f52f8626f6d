//! Requests for packets that the code does not bring back in time: ours, and those of the peer.

use super::Peer;
use crate::counters::{Rejected, Unsent};
use crate::outbox::{Envelope, Outbox};
use crate::paths::Load;
use crate::sender::Outlet;
use crate::wire::{Request, SEALED_HEADER, TAG};

/// Maximum number of requests sent at a time. The rest stays due.
const REQUESTS_MAX: usize = 4;

impl Peer {
    /// Sends the requests that are due.
    pub(super) fn send_requests(&mut self, now_us: u64, out: &mut Outbox) {
        let shown_us = self.shown_until_us(now_us);
        for _ in 0..REQUESTS_MAX {
            let Some(request) = self.ingress.poll_request(shown_us, now_us - shown_us) else { return };
            let Some(session) = &mut self.session else { return };
            let len = SEALED_HEADER + request.wire_len() + TAG;
            if !self.egress.admit_request(now_us, len) {
                // The ingress asks a second time.
                continue;
            }
            let Some(datagram) = out.datagrams.reserve(len) else {
                return self.egress.on_unsent(Unsent::QueueFull);
            };
            request.write(&mut datagram[SEALED_HEADER..len - TAG]);
            session.sealer.seal(now_us, datagram);
            let paths = self.paths.on_sent(Load::Control, len + self.egress.outer());
            out.datagrams.commit(Envelope::to(self.index).by(paths), len);
        }
    }

    /// Answers a request of the peer.
    pub(super) fn on_request(&mut self, now_us: u64, body: &[u8], out: &mut Outbox) -> Result<(), Rejected> {
        let request = Request::read(body, self.egress.next())?;
        if let Some(session) = self.session.as_mut().filter(|_| self.is_up) {
            let (sealer, paths) = (&mut session.sealer, &mut self.paths);
            let mut outlet = Outlet { now_us, sealer, paths, datagrams: &mut out.datagrams };
            self.egress.handle_request(&request, &mut outlet);
        }
        Ok(())
    }
}
