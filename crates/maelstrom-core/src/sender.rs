//! Turns repairs, names and answers into datagrams, within the caps of the operator.

use crate::caps::{Cap, Caps};
use crate::coder::CodedRepair;
use crate::config::Config;
use crate::counters::{Refused, RefusedCounts, UnansweredCounts, Unsent, UnsentCounts};
use crate::dscp::Marking;
use crate::outbox::{Envelope, Queue};
use crate::paths::{Load, PathSet, Paths};
use crate::repair_loss::RepairLoss;
use crate::session::Sealer;
use crate::symbol::SYMBOL_HEADER;
use crate::wire::{Bundle, Half, Lag, PACKET_HEADER, Recipe, SEALED_HEADER, TAG, write_half_header};
use foundation::Seq;

/// Length of the outer headers over IPv4 in bytes.
pub(crate) const OUTER_V4: usize = 20 + 8;

/// Counts of one peer's egress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressCounts {
    /// Packets protected.
    pub source_packets: u64,
    /// Bytes of the packets protected.
    pub source_bytes: u64,
    /// Of the packets protected, those that are too long: their repairs may have to be cut in two.
    pub long_packets: u64,
    /// Products of packets and coefficients in the repairs of a sliding window.
    pub products: u64,
    /// Repairs sent, each in one datagram or in two.
    pub repairs: u64,
    /// Repairs that left because packets could not wait for others: after a silence, or for a deadline.
    pub repairs_out_of_turn: u64,
    /// Datagrams sent with repairs.
    pub repair_packets: u64,
    /// Datagrams sent with names of packets alone.
    pub name_packets: u64,
    /// Bytes of all these datagrams on the link, outer IP and UDP headers included.
    pub repair_bytes: u64,
    /// Repairs, and datagrams with packets of a tunnel, too long for the WAN MTU that were sent as two
    /// datagrams.
    pub cut_in_two: u64,
    /// Packets of a tunnel sent.
    pub tunnel_packets: u64,
    /// Datagrams sent with packets of a tunnel.
    pub tunnel_datagrams: u64,
    /// Bytes of these datagrams on the link, outer IP and UDP headers included.
    pub tunnel_bytes: u64,
    /// Datagrams and repairs not sent, by reason.
    pub unsent: UnsentCounts,
    /// Repairs, names, answers and requests that the caps refused, by kind.
    pub refused: RefusedCounts,
    /// Requests of the peer for packets.
    pub requests: u64,
    /// Packets sent again in answer to them. Their datagrams count among the repairs too.
    pub answers: u64,
    /// Bytes of these datagrams on the link.
    pub answer_bytes: u64,
    /// Packets asked for and not sent again, by reason.
    pub unanswered: UnansweredCounts,
}

/// The way out of one call: the time, the session that seals datagrams, their paths, and the queue that takes
/// them.
pub(crate) struct Outlet<'a> {
    pub(crate) now_us: u64,
    pub(crate) sealer: &'a mut Sealer,
    pub(crate) paths: &'a mut Paths,
    pub(crate) datagrams: &'a mut Queue<Envelope>,
}

/// Shortest packet that is worth waiting for, in bytes.
const PACKET_MIN: usize = 20;

/// The end of one body among several.
#[derive(Clone, Copy)]
struct End {
    envelope: Envelope,
    at: usize,
    is_names: bool,
}

/// Bodies of repairs that follow the packets of a tunnel that wait.
#[derive(Default)]
struct Behind {
    bytes: Vec<u8>,
    ends: Vec<End>,
    /// Number of those that are more than names.
    repairs: u64,
}

impl Behind {
    /// Appends a repair, and returns the length of its body.
    fn push(&mut self, envelope: Envelope, repair: &CodedRepair<'_>, lag: Lag) -> usize {
        let start = self.bytes.len();
        self.bytes.resize(start + repair.recipe.wire_len() + repair.symbol.len(), 0);
        write_body(repair, lag, &mut self.bytes[start..]);
        let is_names = repair.symbol.is_empty();
        self.ends.push(End { envelope, at: self.bytes.len(), is_names });
        self.repairs += u64::from(!is_names);
        self.bytes.len() - start
    }

    fn bodies(&self) -> impl Iterator<Item = (End, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|end| end.at));
        starts.zip(&self.ends).map(|(start, &end)| (end, &self.bytes[start..end.at]))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.repairs = 0;
    }
}

/// Turns repairs, and packets of a tunnel, into datagrams.
pub(crate) struct RepairSender {
    pub(crate) counts: EgressCounts,
    pub(crate) loss: RepairLoss,
    pub(crate) marking: Marking,
    pub(crate) caps: Caps,
    pub(crate) peer: usize,
    /// Longest UDP payload that crosses the WAN in one piece.
    pub(crate) datagram_max: usize,
    /// Length of the outer IP and UDP headers in bytes.
    pub(crate) outer: usize,
    /// Number of bytes by which a repair is longer than its longest packet, at most.
    overhead: usize,
    is_tunnel: bool,
    /// Time at which the newest protected packet left.
    newest_left_us: u64,
    next_serial: u32,
    /// Packets of a tunnel that wait for others, and repairs that follow them.
    bundle: Bundle,
    behind: Behind,
    /// Longest time for which they wait, the time at which it is up, and the length of the latest packet.
    aggregate_us: u64,
    bundle_due_us: u64,
    latest_len: usize,
    /// Buffer for a repair that must be cut in two.
    scratch: Vec<u8>,
    /// Longest datagram since the last report of the peer, and in the two intervals before it.
    pub(crate) longest: [usize; 3],
}

impl RepairSender {
    pub(crate) fn new(config: &Config, peer: usize, outer: usize) -> Self {
        Self {
            counts: EgressCounts::default(),
            loss: RepairLoss::default(),
            marking: Marking::new(config.repair_dscp),
            caps: Caps::new(&config.targets),
            peer,
            datagram_max: config.wan_mtu - outer,
            outer,
            overhead: config.schedule.overhead_toward(config.peers[peer].is_tunnel, outer > OUTER_V4),
            is_tunnel: config.peers[peer].is_tunnel,
            newest_left_us: 0,
            next_serial: 0,
            bundle: Bundle::default(),
            behind: Behind::default(),
            aggregate_us: config.peers[peer].tunnel.aggregate_us,
            bundle_due_us: 0,
            latest_len: 0,
            scratch: vec![0; config.symbol_max() + 1024],
            longest: [0; 3],
        }
    }

    /// Adopts another configuration, apart from the MTU.
    pub(crate) fn reconfigure(&mut self, config: &Config) {
        self.marking.reconfigure(config.repair_dscp);
        self.caps.reconfigure(&config.targets);
        self.overhead = config.schedule.overhead_toward(self.is_tunnel, self.outer > OUTER_V4);
    }

    /// Longest packet whose repairs cross the WAN in one piece, whatever the rate of the code.
    pub(crate) fn packet_max(&self) -> usize {
        (self.datagram_max + self.outer).saturating_sub(self.overhead)
    }

    /// Notes that a packet is about to be coded that left at `left_us`.
    pub(crate) fn on_left(&mut self, left_us: u64) {
        self.newest_left_us = left_us;
    }

    /// Counts a packet that is protected.
    pub(crate) fn on_source(&mut self, len: usize) {
        self.counts.source_packets += 1;
        self.counts.source_bytes += len as u64;
        self.counts.long_packets += u64::from(len > self.packet_max());
        self.caps.on_packet();
    }

    /// Decides whether output of this kind leaves.
    ///
    /// # Errors
    /// The cap that refuses it.
    pub(crate) fn admit(&mut self, now_us: u64, kind: Refused) -> Result<(), Cap> {
        self.caps.admit(now_us, kind).inspect_err(|&cap| {
            self.counts.refused.add(kind);
            self.counts.unsent.add(cap.into());
        })
    }

    /// Sends a repair of this kind, or names alone, as far as the caps allow.
    pub(crate) fn send(&mut self, repair: &CodedRepair<'_>, kind: Refused, outlet: &mut Outlet<'_>) {
        if let Recipe::Window { window, stripes, .. } = repair.recipe {
            self.counts.products += window.len().div_ceil(usize::from(stripes)) as u64;
        }
        let kind = if repair.symbol.is_empty() { Refused::Names } else { kind };
        if self.admit(outlet.now_us, kind).is_ok() {
            let lag = Lag::of(outlet.now_us.saturating_sub(self.newest_left_us));
            self.transmit(repair, lag, outlet);
        }
    }

    /// Number of repairs sent, and of those that wait for packets in front of them.
    pub(crate) fn repairs_begun(&self) -> u64 {
        self.counts.repairs + self.behind.repairs
    }

    /// Sends a repair, or names alone, that the caps have admitted, and counts its datagrams.
    pub(crate) fn transmit(&mut self, repair: &CodedRepair<'_>, lag: Lag, outlet: &mut Outlet<'_>) {
        if !self.bundle.is_empty() {
            // No repair overtakes its packets, and none keeps further packets from sharing their datagram.
            let envelope = Envelope { dscp: self.marking.of(&repair.recipe), ..Envelope::to(self.peer) };
            let body = self.behind.push(envelope, repair, lag);
            return self.caps.hold(SEALED_HEADER + body + TAG + self.outer);
        }
        let before = self.counts.repair_packets;
        self.send_repair(repair, lag, outlet);
        self.note_repair(outlet.now_us, before, repair.symbol.is_empty());
    }

    /// Counts a repair, or names alone, if any of its datagrams left: those beyond number `before`.
    fn note_repair(&mut self, now_us: u64, before: u64, is_names: bool) {
        let datagrams = self.counts.repair_packets - before;
        if datagrams == 0 {
            return;
        }
        self.caps.on_repair();
        if is_names {
            self.counts.name_packets += datagrams;
            self.counts.repair_packets = before;
        } else {
            self.counts.repairs += 1;
            self.loss.on_sent(now_us);
        }
    }

    /// Sends a packet of a tunnel. It waits for further ones until [`RepairSender::flush_due_packets`] at the
    /// earliest, unless the datagram is full.
    pub(crate) fn send_packet(
        &mut self,
        packet: &[u8],
        tos: u8,
        position: Option<Seq>,
        outlet: &mut Outlet<'_>,
    ) {
        let body_max = self.body_max();
        if !self.bundle.takes(packet.len(), tos, position, body_max) {
            self.flush_packets(outlet);
        }
        if self.bundle.is_empty() {
            self.bundle_due_us = outlet.now_us + self.aggregate_us;
        }
        self.latest_len = packet.len();
        self.bundle.push(packet, tos, position);
        if self.bundle.body().len() + PACKET_HEADER + PACKET_MIN > body_max {
            self.flush_packets(outlet);
        }
    }

    /// Longest body that crosses the WAN in one piece.
    fn body_max(&self) -> usize {
        self.datagram_max.saturating_sub(SEALED_HEADER + TAG)
    }

    pub(crate) fn set_aggregate(&mut self, aggregate_us: u64) {
        self.bundle_due_us =
            self.bundle_due_us.saturating_sub(self.aggregate_us.saturating_sub(aggregate_us));
        self.aggregate_us = aggregate_us;
    }

    /// Time at which the packets that wait for others must leave; `None` if there are none.
    pub(crate) fn packets_due_us(&self) -> Option<u64> {
        (!self.bundle.is_empty()).then_some(self.bundle_due_us)
    }

    /// Sends the packets that wait for others, if their time is up or another one like the latest would not
    /// fit.
    pub(crate) fn flush_due_packets(&mut self, outlet: &mut Outlet<'_>) {
        let has_room = self.bundle.body().len() + PACKET_HEADER + self.latest_len <= self.body_max();
        if outlet.now_us >= self.bundle_due_us || !has_room {
            self.flush_packets(outlet);
        }
    }

    /// Sends the packets that wait for others.
    pub(crate) fn flush_packets(&mut self, outlet: &mut Outlet<'_>) {
        if self.bundle.is_empty() {
            return;
        }
        let mut bundle = std::mem::take(&mut self.bundle);
        // RFC 6040 §4.1, normal mode.
        let envelope = Envelope::to(self.peer).marked(bundle.tos());
        let body = bundle.body();
        if SEALED_HEADER + body.len() + TAG > self.datagram_max {
            self.send_halves(envelope, Load::Packets, body, outlet);
        } else {
            self.send_datagram(envelope, Load::Packets, body.len(), outlet, |to| to.copy_from_slice(body));
        }
        self.counts.tunnel_packets += bundle.len() as u64;
        bundle.clear();
        self.bundle = bundle;
        let mut behind = std::mem::take(&mut self.behind);
        self.caps.release();
        for (end, body) in behind.bodies() {
            // The peer may have another number since a reload.
            let envelope = Envelope { peer: self.peer, ..end.envelope };
            let before = self.counts.repair_packets;
            if SEALED_HEADER + body.len() + TAG > self.datagram_max {
                self.send_halves(envelope, Load::Repair, body, outlet);
            } else {
                self.send_datagram(envelope, Load::Repair, body.len(), outlet, |to| to.copy_from_slice(body));
            }
            self.note_repair(outlet.now_us, before, end.is_names);
        }
        behind.clear();
        self.behind = behind;
    }

    /// Gives up the packets that wait for others.
    pub(crate) fn forget_packets(&mut self) {
        self.bundle.clear();
        self.behind.clear();
        self.caps.release();
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.scratch.capacity() + self.bundle.memory_bytes() + self.behind.bytes.capacity()
    }

    fn send_repair(&mut self, repair: &CodedRepair<'_>, lag: Lag, outlet: &mut Outlet<'_>) {
        debug_assert!(repair.symbol.is_empty() || repair.symbol.len() > SYMBOL_HEADER);
        let body = repair.recipe.wire_len() + repair.symbol.len();
        let envelope = Envelope { dscp: self.marking.of(&repair.recipe), ..Envelope::to(self.peer) };
        if SEALED_HEADER + body + TAG <= self.datagram_max {
            return self
                .send_datagram(envelope, Load::Repair, body, outlet, |to| write_body(repair, lag, to));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        match scratch.get_mut(..body) {
            Some(whole) => {
                write_body(repair, lag, whole);
                self.send_halves(envelope, Load::Repair, whole, outlet);
            }
            None => self.counts.unsent.add(Unsent::TooLarge),
        }
        self.scratch = scratch;
    }

    /// Sends a body longer than the WAN MTU allows as two datagrams.
    #[cold]
    fn send_halves(&mut self, envelope: Envelope, load: Load, body: &[u8], outlet: &mut Outlet<'_>) {
        let (first, second) = body.split_at(body.len().div_ceil(2));
        if SEALED_HEADER + Half::HEADER + first.len() + TAG > self.datagram_max {
            return self.counts.unsent.add(Unsent::TooLarge);
        }
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        // The second one follows the first: on paths of different delays, further halves come between them.
        let mut paths = None;
        for (is_second, part) in [(false, first), (true, second)] {
            paths = self.send_datagram_by(paths, envelope, load, Half::HEADER + part.len(), outlet, |to| {
                write_half_header(to, is_second, serial);
                to[Half::HEADER..].copy_from_slice(part);
            });
        }
        self.counts.cut_in_two += 1;
    }

    fn send_datagram(
        &mut self,
        envelope: Envelope,
        load: Load,
        body: usize,
        outlet: &mut Outlet<'_>,
        write: impl FnOnce(&mut [u8]),
    ) {
        self.send_datagram_by(None, envelope, load, body, outlet, write);
    }

    /// Sends a datagram by these paths, or else by those whose turn it is; returns them.
    fn send_datagram_by(
        &mut self,
        paths: Option<PathSet>,
        envelope: Envelope,
        load: Load,
        body: usize,
        outlet: &mut Outlet<'_>,
        write: impl FnOnce(&mut [u8]),
    ) -> Option<PathSet> {
        let len = SEALED_HEADER + body + TAG;
        let Some(datagram) = outlet.datagrams.reserve(len) else {
            self.counts.unsent.add(Unsent::QueueFull);
            return paths;
        };
        write(&mut datagram[SEALED_HEADER..SEALED_HEADER + body]);
        outlet.sealer.seal(outlet.now_us, datagram);
        let paths = outlet.paths.on_sent_by(paths, load, len + self.outer);
        outlet.datagrams.commit(envelope.by(paths), len);
        self.longest[0] = self.longest[0].max(len);
        let on_link = (len + self.outer) as u64;
        match load {
            Load::Repair => {
                self.counts.repair_packets += 1;
                self.counts.repair_bytes += on_link;
                self.caps.on_datagram(len + self.outer);
            }
            Load::Packets => {
                self.counts.tunnel_datagrams += 1;
                self.counts.tunnel_bytes += on_link;
            }
            Load::Control => {}
        }
        Some(paths)
    }
}

/// Writes recipe and symbol into a buffer of exactly their length.
fn write_body(repair: &CodedRepair<'_>, lag: Lag, to: &mut [u8]) {
    let written = repair.recipe.write(lag, to);
    to[written..].copy_from_slice(repair.symbol);
}
