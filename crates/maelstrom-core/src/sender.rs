//! Turns repairs, names and answers into datagrams, within the caps of the operator.

use crate::caps::{Cap, Caps};
use crate::coder::CodedRepair;
use crate::config::Config;
use crate::counters::{Refused, RefusedCounts, UnansweredCounts, Unsent, UnsentCounts};
use crate::dscp::Marking;
use crate::outbox::{Envelope, Queue};
use crate::repair_loss::RepairLoss;
use crate::session::Sealer;
use crate::symbol::SYMBOL_HEADER;
use crate::wire::{Half, Recipe, SEALED_HEADER, TAG, write_half_header};

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
    /// Datagrams sent with repairs.
    pub repair_packets: u64,
    /// Datagrams sent with names of packets alone.
    pub name_packets: u64,
    /// Bytes of all these datagrams on the link, outer IP and UDP headers included.
    pub repair_bytes: u64,
    /// Repairs too long for the WAN MTU that were sent as two datagrams.
    pub cut_in_two: u64,
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

/// The way out of one call: the time, the session that seals datagrams, and the queue that takes them.
pub(crate) struct Outlet<'a> {
    pub(crate) now_us: u64,
    pub(crate) sealer: &'a mut Sealer,
    pub(crate) datagrams: &'a mut Queue<Envelope>,
}

/// Turns repairs into datagrams.
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
    next_serial: u32,
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
            overhead: config.schedule.repair_overhead(outer > OUTER_V4),
            next_serial: 0,
            scratch: vec![0; config.symbol_max() + 1024],
            longest: [0; 3],
        }
    }

    /// Adopts another configuration, apart from the MTU.
    pub(crate) fn reconfigure(&mut self, config: &Config) {
        self.marking.reconfigure(config.repair_dscp);
        self.caps.reconfigure(&config.targets);
        self.overhead = config.schedule.repair_overhead(self.outer > OUTER_V4);
    }

    /// Longest packet whose repairs cross the WAN in one piece, whatever the rate of the code.
    pub(crate) fn packet_max(&self) -> usize {
        (self.datagram_max + self.outer).saturating_sub(self.overhead)
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
        if let Recipe::Window { window, .. } = repair.recipe {
            self.counts.products += window.len() as u64;
        }
        let kind = if repair.symbol.is_empty() { Refused::Names } else { kind };
        if self.admit(outlet.now_us, kind).is_ok() {
            self.transmit(repair, outlet);
        }
    }

    /// Sends a repair, or names alone, that the caps have admitted, and counts its datagrams.
    pub(crate) fn transmit(&mut self, repair: &CodedRepair<'_>, outlet: &mut Outlet<'_>) {
        let before = self.counts.repair_packets;
        self.send_repair(repair, outlet);
        if self.counts.repair_packets > before {
            self.caps.on_repair();
        }
        if repair.symbol.is_empty() {
            self.counts.name_packets += self.counts.repair_packets - before;
            self.counts.repair_packets = before;
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.scratch.capacity()
    }

    fn send_repair(&mut self, repair: &CodedRepair<'_>, outlet: &mut Outlet<'_>) {
        debug_assert!(repair.symbol.is_empty() || repair.symbol.len() > SYMBOL_HEADER);
        if !repair.symbol.is_empty() {
            self.loss.on_sent(outlet.now_us);
        }
        let body = repair.recipe.wire_len() + repair.symbol.len();
        if SEALED_HEADER + body + TAG > self.datagram_max {
            return self.send_halves(repair, body, outlet);
        }
        let envelope = self.envelope(repair);
        self.send_datagram(envelope, body, outlet, |to| write_body(repair, to));
    }

    fn envelope(&self, repair: &CodedRepair<'_>) -> Envelope {
        Envelope { dscp: self.marking.of(&repair.recipe), ..Envelope::to(self.peer) }
    }

    /// Sends a repair longer than the WAN MTU allows as two datagrams.
    #[cold]
    fn send_halves(&mut self, repair: &CodedRepair<'_>, body: usize, outlet: &mut Outlet<'_>) {
        let half = body.div_ceil(2);
        if SEALED_HEADER + Half::HEADER + half + TAG > self.datagram_max || body > self.scratch.len() {
            return self.counts.unsent.add(Unsent::TooLarge);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        write_body(repair, &mut scratch[..body]);
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        for (second, part) in [(false, &scratch[..half]), (true, &scratch[half..body])] {
            self.send_datagram(self.envelope(repair), Half::HEADER + part.len(), outlet, |to| {
                write_half_header(to, second, serial);
                to[Half::HEADER..].copy_from_slice(part);
            });
        }
        self.scratch = scratch;
        self.counts.cut_in_two += 1;
    }

    fn send_datagram(
        &mut self,
        envelope: Envelope,
        body: usize,
        outlet: &mut Outlet<'_>,
        write: impl FnOnce(&mut [u8]),
    ) {
        let len = SEALED_HEADER + body + TAG;
        let Some(datagram) = outlet.datagrams.reserve(len) else {
            return self.counts.unsent.add(Unsent::QueueFull);
        };
        write(&mut datagram[SEALED_HEADER..SEALED_HEADER + body]);
        outlet.sealer.seal(outlet.now_us, datagram);
        outlet.datagrams.commit(envelope, len);
        self.longest[0] = self.longest[0].max(len);
        self.counts.repair_packets += 1;
        self.counts.repair_bytes += (len + self.outer) as u64;
        self.caps.on_datagram(len + self.outer);
    }
}

/// Writes recipe and symbol into a buffer of exactly their length.
fn write_body(repair: &CodedRepair<'_>, to: &mut [u8]) {
    let written = repair.recipe.write(to);
    to[written..].copy_from_slice(repair.symbol);
}
