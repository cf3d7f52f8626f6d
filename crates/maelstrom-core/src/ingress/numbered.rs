//! Packets of a tunnel: they carry their positions, so that a loss is known with the next packet, and nothing
//! else can be taken for one.

use super::{Ingress, IngressCx};
use crate::arrivals::Placed;
use crate::counters::Rejected;
use crate::ecn::Ecn;
use crate::flow::Traits;
use crate::identity::Identity;
use crate::outbox::Origin;
use crate::packet::{MutableFields, Packet, restore};
use crate::place::Counted;
use crate::symbol::{SYMBOL_HEADER, Symbol, whole_packet};
use crate::wire::{PacketsView, RecipeView};
use foundation::Seq;

/// How the packets of the far site arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Road {
    /// Beside the repairs. Losses need proof.
    Checked,
    /// Beside the repairs, by the operator's word.
    Trusted,
    /// In datagrams of the far gateway, with their positions.
    Tunnel,
}

/// Maximum number of packets that one process leaves to the next one: twice those of a window.
const LEFT_MAX: u64 = 2_048;

impl Ingress {
    /// Returns the newest packets of the stream that have been handed on, with their positions, for
    /// [`Ingress::continue_stream`].
    pub(crate) fn stream(&self) -> Vec<(u64, Vec<u8>)> {
        let newest = self.ledger.newest();
        let first = self.ledger.oldest_open().max(newest.minus(LEFT_MAX));
        let packet = |place: u64| {
            let packet = whole_packet(self.arrivals.symbol(Seq(place))?)?;
            Some((place, packet.as_slice().to_vec()))
        };
        (first.0..=newest.0).filter_map(packet).collect()
    }

    /// Takes the packets of a stream that another process has handed on. Those between them are missing.
    pub(crate) fn continue_stream(&mut self, now_us: u64, packets: &[(u64, Vec<u8>)]) {
        let Some(&(first, _)) = packets.first().filter(|_| self.is_tunnel()) else { return };
        self.ledger.skip_before(&mut self.arrivals, Seq(first));
        for (place, packet) in packets {
            if packet.len() + SYMBOL_HEADER <= self.symbol_max {
                self.advance(now_us, Seq(*place));
                self.arrivals.put(now_us, Seq(*place), &Symbol::whole(packet));
            }
        }
    }

    /// Whether packets arrive with their positions.
    pub(super) fn is_tunnel(&self) -> bool {
        self.road == Road::Tunnel
    }

    /// Takes authentic packets of the tunnel, and hands them on.
    pub(crate) fn handle_packets(&mut self, cx: &mut IngressCx<'_>, body: &[u8]) -> Result<(), Rejected> {
        let packets = PacketsView::read(body, self.ledger.newest())?;
        self.congestion.on_packets(packets.clone().count());
        for (position, bytes) in packets {
            self.counts.source_packets += 1;
            self.counts.source_bytes += bytes.len() as u64;
            if bytes.len() + SYMBOL_HEADER > self.symbol_max {
                self.counts.too_long += 1;
            } else if position.is_none_or(|seq| self.place(cx, seq, bytes)) {
                self.hand_on(cx, position, bytes);
            }
        }
        self.on_names(cx.now_us);
        self.rung.wake(cx.now_us, &self.decoder);
        Ok(())
    }

    /// Keeps a packet at its place; returns whether it has not been handed on yet.
    fn place(&mut self, cx: &mut IngressCx<'_>, seq: Seq, bytes: &[u8]) -> bool {
        if seq < self.ledger.oldest_open() {
            // Its fate is settled, and perhaps it was recovered.
            self.counts.late += 1;
            return false;
        }
        self.advance(cx.now_us, seq);
        self.held.on_arrival();
        match self.arrivals.put(cx.now_us, seq, &Symbol::whole(bytes)) {
            Placed::New => true,
            Placed::Late { late_us } => {
                self.counts.late += 1;
                self.held.on_late_packet(late_us);
                self.report_to_decoder(cx, seq);
                true
            }
            Placed::Solved { late_us, is_injected } => {
                self.counts.late += 1;
                self.held.on_late_packet(late_us);
                !is_injected
            }
            Placed::Double => false,
        }
    }

    /// Notes that the far egress has sent the packet at a place, and all before it.
    fn advance(&mut self, now_us: u64, seq: Seq) {
        let before = self.ledger.newest();
        if self.ledger.advance_to(&mut self.arrivals, seq, self.rung.pending()) {
            self.expire();
        }
        self.congestion.on_packet(self.ledger.newest());
        self.reach.on_repair(now_us, self.held.wait_us(), self.ledger.newest());
        self.expect(now_us, before, seq);
    }

    /// Notes that the packets before `limit` have been sent, of which those before `from` are known to have
    /// been. Of a gap that is too wide, only the end is told apart.
    pub(super) fn expect(&mut self, now_us: u64, from: Seq, limit: Seq) {
        let first = from.max(self.ledger.oldest_open()).max(limit.minus(self.arrivals.places() / 2));
        self.arrivals.expect(now_us, first, limit);
    }

    /// Hands a packet to the driver, if it is one of the far site for this one.
    fn hand_on(&mut self, cx: &mut IngressCx<'_>, position: Option<Seq>, bytes: &[u8]) {
        let Some(packet) = Packet::new_whole(bytes).ok().filter(|packet| may_arrive(packet, cx)) else {
            self.counts.foreign_packets += 1;
            return;
        };
        self.rung.on_packet(&packet, self.ledger.newest());
        let fields = packet.mutable_fields();
        if matches!(Ecn::of(fields.tos), Ecn::Ect0 | Ecn::Ce) {
            self.congestion.on_markable(self.ledger.newest());
        }
        let Some(ecn) = self.counts.ecn.leave_tunnel(Ecn::of(fields.tos), cx.ecn) else { return };
        if !cx.is_ordered {
            self.path.note_timestamp(&Traits::of(&packet, cx.identity));
        }
        let bytes = packet.as_slice();
        let Some(room) = cx.recovered.reserve(bytes.len()) else {
            self.counts.undelivered += 1;
            return;
        };
        room.copy_from_slice(bytes);
        let tos = ecn.set(fields.tos);
        if tos != fields.tos {
            // The code keeps the packet as it was sent.
            restore(room, MutableFields { tos, ..fields });
        }
        let (seq, repair, late_us) = (position, None, None);
        let origin = Origin { peer: cx.peer, seq, class: None, is_recovered: false, repair, late_us };
        cx.recovered.commit(origin, bytes.len());
    }

    /// Notes that a packet is handed to the driver, after it was put in order. A recovered TCP segment gets
    /// the timestamp of those that were handed on before.
    pub(crate) fn on_handed_on(&mut self, identity: &Identity, origin: &Origin, packet: &mut [u8]) {
        let Ok(checked) = Packet::new_checked(packet) else { return };
        let traits = Traits::of(&checked, identity);
        if origin.is_recovered {
            self.counts.raised_timestamps += u64::from(self.path.raise_timestamp(&traits, packet));
        } else {
            self.path.note_timestamp(&traits);
        }
    }

    /// Uses all held repairs, due or not, as far as there is room for recovered packets; returns whether
    /// there are more.
    pub(crate) fn use_all(&mut self, cx: &mut IngressCx<'_>) -> bool {
        let mut body = std::mem::take(&mut self.due);
        while !cx.recovered.is_nearly_full() {
            let Some(number) = self.held.pop(&mut body) else { break };
            self.use_held(cx, number, &body);
        }
        self.due = body;
        self.held.due_us().is_some()
    }

    /// First place of which nothing has come, behind all places that are known of.
    pub(crate) fn first_unheard(&self) -> Seq {
        let newest = self.ledger.newest();
        if self.arrivals.is_known(newest) { newest.plus(1) } else { newest }
    }

    /// Whether a packet that was not handed on never will be: its fate is settled, it was withheld, or it
    /// will be left to its sender. One that is marked instead must be recovered first.
    pub(crate) fn is_decided(&self, seq: Seq) -> bool {
        let is_over = seq < self.ledger.oldest_open() || self.arrivals.is_known(seq);
        let newest = self.ledger.newest();
        is_over || seq <= newest && self.congestion.would_drop(seq, newest)
    }

    /// Returns the last of the missing packets from `seq` on that nothing which is still to come can bring
    /// back but they themselves: the windows of repairs have left them all behind, and a whole window of
    /// packets after them is known, so that no equation joins them with others. Looks at each place.
    pub(crate) fn out_of_reach(&self, seq: Seq) -> Option<Seq> {
        if self.held.due_us().is_some() || self.rung.pending().is_some() {
            return None;
        }
        let newest = self.ledger.newest();
        let window = self.rung.window(newest);
        let mut last = seq;
        for place in (seq.0..=newest.0).map(Seq).take(self.arrivals.places() as usize) {
            if place.0 - last.0 > window {
                return Some(last);
            }
            if !self.arrivals.is_known(place) {
                last = place;
            }
        }
        None
    }

    /// Counts the packets that a repair has waited for in vain.
    pub(super) fn count_missing(&mut self, view: &RecipeView<'_>) {
        if self.is_excused() {
            return;
        }
        if self.is_tunnel() {
            view.packets().for_each(|seq| self.count_missing_at(seq));
        } else {
            view.entries().for_each(|entry| self.count_missing_at(entry.seq));
        }
    }

    fn count_missing_at(&mut self, seq: Seq) {
        let Some(since_us) = self.arrivals.uncounted_since_us(seq) else { return };
        self.rung.on_missing(seq);
        if self.congestion.is_of_link(seq) {
            let is_tunnel = self.is_tunnel();
            let counted = if is_tunnel { Counted::FIRST } else { self.path.on_missing(seq, since_us) };
            self.arrivals.count_missing(seq, counted);
        }
    }
}

/// Whether a packet of the tunnel may enter this site: it comes from the far one, or reports an error on the
/// way there, and goes to this one, or on to a third one by its tunnel.
pub(super) fn may_arrive(packet: &Packet<'_>, cx: &IngressCx<'_>) -> bool {
    let (source, destination) = (packet.source(), packet.destination());
    if destination.is_multicast() {
        return cx.networks.contains(source) && cx.local.hears(source, destination);
    }
    let is_of_site = cx.networks.contains(source) || packet.is_icmp_error();
    is_of_site && cx.local.may_receive(source, destination) && !packet.is_udp_to(cx.listen)
}
