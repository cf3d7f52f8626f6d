//! Several paths to the peer: probes, and repairs that come before their packets.

use super::Peer;
use crate::counters::{Rejected, Unsent};
use crate::ingress::IngressCx;
use crate::outbox::{Envelope, Outbox};
use crate::paths::{Load, PathSet};
use crate::wire::{BodyKind, Probe, RecipeView, SEALED_HEADER, SendTime, TAG};

/// Length of a sealed probe.
const PROBE: usize = SEALED_HEADER + Probe::LEN + TAG;

/// A sealed datagram that was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) kind: BodyKind,
    /// Low 32 bits of its number.
    pub(super) number: u32,
    /// Time for which a repair may wait for packets that take a slower path.
    pub(super) lead_us: u64,
}

/// Content of a datagram of a kind.
pub(super) fn load_of(kind: BodyKind) -> Load {
    match kind {
        BodyKind::Packets | BodyKind::Aside => Load::Packets,
        BodyKind::Repair | BodyKind::Half | BodyKind::Names => Load::Repair,
        BodyKind::Report | BodyKind::Share | BodyKind::Request | BodyKind::Probe => Load::Control,
    }
}

impl Peer {
    /// Length of a datagram of `len` bytes on the link.
    pub(super) fn on_link(&self, len: usize) -> usize {
        len + self.egress.outer()
    }

    /// Notes a datagram that has arrived by another path before.
    pub(crate) fn on_copy(&mut self, path: usize, len: usize) {
        let bytes = self.on_link(len);
        self.paths.on_copy(path, bytes);
    }

    /// Asks on each path whose question is due, and decides which paths live.
    pub(super) fn ask_paths(&mut self, now_us: u64, out: &mut Outbox) {
        if self.session.is_none() || !self.paths.are_several() {
            return;
        }
        self.paths.check(now_us);
        let bytes = self.on_link(PROBE);
        while let Some((path, question)) = self.paths.poll_question(now_us, bytes) {
            self.send_probe(now_us, path, &question, out);
        }
    }

    /// Time at which [`Peer::ask_paths`] or [`Peer::use_early`] is due.
    pub(super) fn paths_due_us(&self) -> Option<u64> {
        let paths = self.paths.next_due_us().filter(|_| self.session.is_some());
        [paths, self.early.due_us()].into_iter().flatten().min()
    }

    /// Takes a probe that arrived by `path` and was sent at `sent`.
    pub(super) fn on_probe(
        &mut self,
        now_us: u64,
        path: usize,
        sent: SendTime,
        body: &[u8],
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let probe = Probe::read(body)?;
        let bytes = self.on_link(PROBE);
        if let Some((path, answer)) = self.paths.on_probe(now_us, path, sent, &probe, bytes) {
            self.send_probe(now_us, path, &answer, out);
        }
        Ok(())
    }

    fn send_probe(&mut self, now_us: u64, path: PathSet, probe: &Probe, out: &mut Outbox) {
        let Some(session) = &mut self.session else { return };
        let Some(datagram) = out.datagrams.reserve(PROBE) else {
            return self.egress.on_unsent(Unsent::QueueFull);
        };
        probe.write(&mut datagram[SEALED_HEADER..PROBE - TAG]);
        session.sealer.seal(now_us, datagram);
        out.datagrams.commit(Envelope::to(self.index).by(path), PROBE);
    }

    /// Takes an authentic repair, or keeps it while its packets may be on a slower path.
    pub(super) fn on_repair(
        &mut self,
        now_us: u64,
        opened: Opened,
        body: &[u8],
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        if opened.lead_us > 0 && opened.kind != BodyKind::Half {
            let newest = self.ingress.newest();
            let last = RecipeView::read(body, newest)?.last();
            if last > newest {
                self.early.push(now_us + opened.lead_us, last, opened.number, body);
                self.use_early(now_us, out);
                return Ok(());
            }
        }
        let (ingress, mut cx) = self.ingress_and_cx(now_us, &mut out.recovered);
        cx.repair = Some(opened.number);
        match opened.kind {
            BodyKind::Half => ingress.handle_half(&mut cx, body),
            _ => ingress.handle_repair(&mut cx, body),
        }
    }

    /// Uses the repairs that have waited long enough for packets on a slower path.
    pub(super) fn use_early(&mut self, now_us: u64, out: &mut Outbox) {
        let mut body = std::mem::take(&mut self.early_body);
        while let Some(number) = self.early.pop(now_us, self.ingress.newest(), &mut body) {
            let (ingress, mut cx): (_, IngressCx<'_>) = self.ingress_and_cx(now_us, &mut out.recovered);
            cx.repair = Some(number);
            // A repair of positions that are not near the newest any more is not counted as malformed.
            let _ = ingress.handle_repair(&mut cx, &body);
        }
        self.early_body = body;
    }
}
