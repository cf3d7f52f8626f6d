//! Several paths to the peer: probes, and repairs that come before their packets.

use std::net::SocketAddr;

use super::Peer;
use crate::config::Source;
use crate::counters::{Rejected, Unsent};
use crate::ecn::Ecn;
use crate::ingress::IngressCx;
use crate::outbox::{Envelope, Outbox};
use crate::paths::{Load, Reply};
use crate::wire::{BodyKind, Probe, RecipeView, SEALED_HEADER, SendTime, TAG};

/// Length of a sealed probe.
const PROBE: usize = SEALED_HEADER + Probe::LEN + TAG;

/// Where a datagram came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The path by which it came, as far as its source shows.
    pub(crate) path: usize,
    pub(crate) source: Source,
    /// Its source, if the peer may be there and an address on a path to this socket is not stated.
    pub(crate) place: Option<SocketAddr>,
    pub(crate) ecn: Ecn,
    /// Time at which this machine received it.
    pub(crate) arrived_us: u64,
}

/// A sealed datagram that was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) kind: BodyKind,
    /// Low 32 bits of its number.
    pub(super) number: u32,
    pub(super) sent: SendTime,
    /// Time for which a repair may wait for packets that take a slower path.
    pub(super) lead_us: u64,
    pub(super) ecn: Ecn,
}

/// Content of a datagram of a kind.
pub(super) fn load_of(kind: BodyKind) -> Load {
    match kind {
        BodyKind::Packets | BodyKind::Aside => Load::Packets,
        BodyKind::Repair | BodyKind::Half | BodyKind::Names => Load::Repair,
        BodyKind::Report | BodyKind::Share | BodyKind::Request | BodyKind::Probe | BodyKind::Wants => {
            Load::Control
        }
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

    /// Brings the rates and delays of paths up to date. Must be called each tick.
    pub(super) fn on_paths_tick(&mut self) {
        self.paths.on_tick();
        self.ingress.set_repair_lag(self.paths.repair_lag_us());
    }

    /// Asks on each path whose question is due, and decides which paths live.
    pub(super) fn ask_paths(&mut self, now_us: u64, out: &mut Outbox) {
        if self.session.is_none() || !self.paths.are_several() {
            return;
        }
        self.paths.check(now_us);
        let bytes = self.on_link(PROBE);
        while let Some((path, question)) = self.paths.poll_question(now_us, bytes) {
            self.send_probe(now_us, Envelope::to(self.index).by(path), &question, PROBE, out);
        }
    }

    /// Time at which [`Peer::ask_paths`] or [`Peer::use_early`] is due.
    pub(super) fn paths_due_us(&self) -> Option<u64> {
        let paths = self.paths.next_due_us().filter(|_| self.session.is_some());
        [paths, self.early.due_us()].into_iter().flatten().min()
    }

    /// Takes a probe that was sent at `sent`, and answers it where it came from. If the peer may be anywhere
    /// on its path, the probe may show another address of it.
    pub(super) fn on_probe(
        &mut self,
        now_us: u64,
        arrival: &Arrival,
        sent: SendTime,
        body: &[u8],
        out: &mut Outbox,
    ) -> Result<(), Rejected> {
        let probe = Probe::read(body)?;
        let (bytes, number, source) = (self.on_link(PROBE), usize::from(probe.path), arrival.source);
        let back = Envelope::to(self.index).back(source);
        let mut path = arrival.path;
        let may_be_there = self.config.may_move_on(number, source.door) && arrival.place.is_some();
        if may_be_there && self.config.path_of(source) != Some(number) {
            if self.paths.is_proof(number, source, &probe) {
                arrival.place.into_iter().for_each(|place| self.move_on_path(number, place));
                path = number;
            } else if probe.echo.is_none() {
                path = number;
                if let Some(question) = self.paths.try_elsewhere(now_us, number, source, bytes) {
                    self.send_probe(now_us, back, &question, PROBE, out);
                }
            }
        }
        match self.paths.on_probe(now_us, path, sent, &probe, bytes) {
            Reply::Answer(answer) => self.send_probe(now_us, back, &answer, PROBE, out),
            Reply::Passed(len) => {
                if let Some(width) = self.widths.of(path) {
                    width.on_report(now_us, len, true, 0);
                }
            }
            Reply::Nothing => {}
        }
        Ok(())
    }

    /// Sends a probe in a datagram of at least `len` bytes.
    pub(super) fn send_probe(
        &mut self,
        now_us: u64,
        to: Envelope,
        probe: &Probe,
        len: usize,
        out: &mut Outbox,
    ) {
        let len = len.max(PROBE);
        let Some(session) = &mut self.session else { return };
        let Some(datagram) = out.datagrams.reserve(len) else {
            return self.egress.on_unsent(Unsent::QueueFull);
        };
        probe.write(&mut datagram[SEALED_HEADER..len - TAG]);
        session.sealer.seal(now_us, datagram);
        out.datagrams.commit(to, len);
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
                self.put_in_order(now_us, out);
                return Ok(());
            }
        }
        let (ingress, mut cx) = self.ingress_for_repairs(now_us, &mut out.recovered);
        (cx.repair, cx.sent, cx.ecn) = (Some(opened.number), Some(opened.sent), opened.ecn);
        let result = match opened.kind {
            BodyKind::Half => ingress.handle_half(&mut cx, body),
            _ => ingress.handle_repair(&mut cx, body),
        };
        self.put_in_order(now_us, out);
        result
    }

    /// Uses the repairs that have waited long enough for packets on a slower path.
    pub(super) fn use_early(&mut self, now_us: u64, out: &mut Outbox) {
        self.use_early_until(now_us, now_us, out);
    }

    /// The same for those that are due by another time.
    fn use_early_until(&mut self, now_us: u64, due_us: u64, out: &mut Outbox) {
        let mut body = std::mem::take(&mut self.early_body);
        while let Some(number) = self.early.pop(due_us, self.ingress.newest(), &mut body) {
            let (ingress, mut cx): (_, IngressCx<'_>) = self.ingress_for_repairs(now_us, &mut out.recovered);
            cx.repair = Some(number);
            // A repair of positions that are not near the newest any more is not counted as malformed.
            let _ = ingress.handle_repair(&mut cx, &body);
        }
        self.early_body = body;
    }

    /// Uses all repairs that wait for packets, as far as the outbox has room; returns whether there are more.
    pub(super) fn use_waiting(&mut self, now_us: u64, out: &mut Outbox) -> bool {
        self.use_early_until(now_us, u64::MAX, out);
        let (ingress, mut cx) = self.ingress_for_repairs(now_us, &mut out.recovered);
        let has_more = ingress.use_all(&mut cx);
        self.put_in_order(now_us, out);
        has_more
    }
}
