//! The path of a solved symbol: verification, the decision whether to inject its packet, and the outbox.

use fec::{Decoder, SymbolId, SymbolStore, Term};
use hdrhistogram::Histogram;

use super::bring::bring_here;
use super::numbered::may_arrive;
use super::path::{Path, Solved};
use super::{Ingress, IngressCounts, IngressCx};
use crate::arrivals::{Arrivals, Place, Treatment};
use crate::congestion::{Congestion, Verdict};
use crate::counters::Withheld;
use crate::doubt::Doubtful;
use crate::flow::Traits;
use crate::identity::Name;
use crate::outbox::Origin;
use crate::packet::{MutableFields, Packet, mark_congestion};
use crate::symbol::{SYMBOL_HEADER, fields_of, may_inject, verify, whole_packet};
use foundation::Seq;

/// The decoder's view of the arrivals, and the path of solved symbols.
pub(super) struct Recovering<'a, 'b> {
    pub(super) arrivals: &'a mut Arrivals,
    pub(super) path: &'a mut Path,
    pub(super) doubtful: &'a Doubtful,
    pub(super) congestion: &'a mut Congestion,
    pub(super) counts: &'a mut IngressCounts,
    pub(super) delays_us: &'a mut Histogram<u64>,
    pub(super) cx: &'a mut IngressCx<'b>,
    /// Whether the packets come from a tunnel.
    pub(super) is_tunnel: bool,
}

impl Ingress {
    /// Returns the decoder, the terms of the repair in use, and what becomes of the symbols that it solves.
    pub(super) fn recovering<'a, 'b>(
        &'a mut self,
        cx: &'a mut IngressCx<'b>,
    ) -> (&'a mut Decoder, &'a [Term], Recovering<'a, 'b>) {
        let is_tunnel = self.is_tunnel();
        let recovering = Recovering {
            arrivals: &mut self.arrivals,
            path: &mut self.path,
            doubtful: &self.doubtful,
            congestion: &mut self.congestion,
            counts: &mut self.counts,
            delays_us: &mut self.delays_us,
            cx,
            is_tunnel,
        };
        (&mut self.decoder, &self.terms, recovering)
    }
}

impl SymbolStore for Recovering<'_, '_> {
    fn known(&self, id: SymbolId) -> Option<&[u8]> {
        self.arrivals.symbol(Seq(id.0))
    }

    fn on_recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool {
        let seq = Seq(id.0);
        match self.arrivals.place(seq) {
            Place::Missing { .. } | Place::Unnamed if self.is_tunnel => self.deliver_whole(seq, symbol),
            Place::Missing { name, fields, .. } => self.deliver(seq, Some((name, fields)), symbol),
            Place::Unnamed => self.deliver(seq, None, symbol),
            // The packet was known, and its symbol had left the history.
            Place::Arrived { .. } | Place::Recovered { .. } => self.put_back(seq, symbol),
        }
    }
}

impl Recovering<'_, '_> {
    /// Restores the symbol of a known packet that was solved again. Injects nothing.
    fn put_back(&mut self, seq: Seq, symbol: &[u8]) -> bool {
        if self.is_tunnel {
            let Some(packet) = whole_packet(symbol) else { return false };
            self.arrivals.restore(seq, &symbol[..SYMBOL_HEADER + packet.as_slice().len()]);
            return true;
        }
        let Some(room) = self.cx.recovered.reserve(symbol.len()) else { return false };
        let Some((_, packet)) = verify(symbol, self.cx.identity, room) else { return false };
        self.arrivals.restore(seq, &symbol[..SYMBOL_HEADER + packet.len()]);
        true
    }

    /// Verifies a solved symbol, which must match the name and fields that a repair stated, if any. Queues
    /// the packet for the kernel unless it had arrived, and keeps its symbol.
    fn deliver(&mut self, seq: Seq, named: Option<(Name, MutableFields)>, symbol: &[u8]) -> bool {
        let IngressCx { now_us, behind_us, identity, networks, local, listen, .. } = *self.cx;
        let Some(room) = self.cx.recovered.reserve(symbol.len()) else {
            self.counts.undelivered += 1;
            return false;
        };
        let Some((hash, packet)) = verify(symbol, identity, room) else { return false };
        let name = identity.name(hash);
        let symbol = &symbol[..SYMBOL_HEADER + packet.len()];
        if named.is_none()
            && let Some(bound) = self.arrivals.recognize(seq, name, hash, symbol)
        {
            self.counts.recognised += 1;
            self.counts.after_recovery -= u64::from(bound.was_double);
            if bound.was_slow {
                self.path.off_slow(bound.trace.flow);
            }
            self.path.on_named_arrival(bound.trace, seq);
            return true;
        }
        // The hash covers everything but the fields.
        let Some(fields) = fields_of(symbol) else { return false };
        if !named.is_none_or(|named| named == (name, fields)) || !may_inject(packet, networks, listen) {
            return false;
        }
        let Ok(checked) = Packet::new_checked(packet) else { return false };
        let since_us = self.arrivals.missing_since_us(seq).unwrap_or(now_us);
        let solved = Solved::new(&checked, identity, self.arrivals.counted(seq), since_us);
        if !local.may_receive(checked.source(), checked.destination()) {
            self.path.on_withheld(Withheld::NotLocal, &solved);
            self.arrivals.recover(now_us, seq, name, symbol, Treatment::Withheld);
            return true;
        }
        let is_doubtful = self.doubtful.contains(now_us, solved.traits.flow);
        if let Err(reason) = bring_here(packet, fields, self.arrivals.hops(), is_doubtful) {
            self.path.on_withheld(reason, &solved);
            self.arrivals.presume(now_us, seq, symbol);
            return true;
        }
        let treatment = if !self.path.admit(now_us, &solved, seq) {
            Treatment::Withheld
        } else {
            treat_congestion(self.congestion, self.counts, seq, packet)
        };
        if treatment == Treatment::Injected {
            self.counts.raised_timestamps += u64::from(self.path.raise_timestamp(&solved.traits, packet));
            let expected_us = self.arrivals.expected_us(seq);
            let late_us = expected_us.map(|expected_us| (now_us + behind_us).saturating_sub(expected_us));
            let (len, peer, repair) = (packet.len(), self.cx.peer, self.cx.repair);
            let origin = Origin { peer, seq: Some(seq), class: None, is_recovered: true, repair, late_us };
            self.cx.recovered.commit(origin, len);
            self.on_injected(late_us);
        }
        self.arrivals.recover(now_us, seq, name, symbol, treatment);
        true
    }

    /// Queues a packet of the tunnel for the kernel, and keeps its symbol.
    fn deliver_whole(&mut self, seq: Seq, symbol: &[u8]) -> bool {
        let IngressCx { now_us, behind_us, .. } = *self.cx;
        let Some(checked) = whole_packet(symbol) else { return false };
        let packet = checked.as_slice();
        let symbol = &symbol[..SYMBOL_HEADER + packet.len()];
        let treatment = if may_arrive(&checked, self.cx) {
            let Some(room) = self.cx.recovered.reserve(packet.len()) else {
                self.counts.undelivered += 1;
                return false;
            };
            room.copy_from_slice(packet);
            let treatment = treat_congestion(self.congestion, self.counts, seq, room);
            if treatment == Treatment::Injected {
                if !self.cx.is_ordered {
                    let traits = Traits::of(&checked, self.cx.identity);
                    self.counts.raised_timestamps += u64::from(self.path.raise_timestamp(&traits, room));
                }
                let expected_us = self.arrivals.expected_us(seq);
                let late_us = expected_us.map(|expected_us| (now_us + behind_us).saturating_sub(expected_us));
                let (peer, repair) = (self.cx.peer, self.cx.repair);
                let origin =
                    Origin { peer, seq: Some(seq), class: None, is_recovered: true, repair, late_us };
                self.cx.recovered.commit(origin, packet.len());
                self.on_injected(late_us);
            }
            treatment
        } else {
            self.counts.foreign_packets += 1;
            Treatment::Withheld
        };
        self.arrivals.recover(now_us, seq, Name(0), symbol, treatment);
        true
    }

    fn on_injected(&mut self, late_us: Option<u64>) {
        self.counts.recovered_packets += 1;
        if let Some(late_us) = late_us {
            self.delays_us.saturating_record(late_us.max(1));
        }
    }
}

/// Leaves a packet that a full queue dropped to its sender, or marks it.
fn treat_congestion(
    congestion: &mut Congestion,
    counts: &mut IngressCounts,
    seq: Seq,
    packet: &mut [u8],
) -> Treatment {
    if congestion.judge(seq) == Verdict::Recover {
        Treatment::Injected
    } else if mark_congestion(packet) {
        counts.marked += 1;
        Treatment::Injected
    } else {
        counts.left += 1;
        Treatment::Left
    }
}
