//! LAN to WAN: codes what leaves and sends repairs beside it.
//!
//! The path of a packet: [`Egress::source`] → its symbol → the encoder's bins → for each bin that fires
//! [`RepairWriter::write`] → sealed into the outbox.

use fec::{Code, Encoder, Repair, RepairRate, Scheme, SlidingConfig};

use crate::counters::{Unsent, UnsentCounts};
use crate::gateway::Config;
use crate::identity::Identity;
use crate::outbox::Queue;
use crate::packet::Packet;
use crate::session::Sealer;
use crate::symbol::{SYMBOL_HEADER, Symbol};
use crate::window::Naming;
use crate::wire::{Entry, Half, Recipe, SEALED_HEADER, TAG, write_half_header};
use foundation::Seq;

/// Counts of one peer's egress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressCounts {
    /// Packets protected.
    pub source_packets: u64,
    /// Their bytes.
    pub source_bytes: u64,
    /// Datagrams sent to protect them.
    pub repair_packets: u64,
    /// Their bytes on the link, outer IP and UDP headers included.
    pub repair_bytes: u64,
    /// Repairs that would not fit the WAN MTU and went as two datagrams.
    pub cut_in_two: u64,
    /// Why something was not sent.
    pub unsent: UnsentCounts,
}

/// One peer's egress.
pub(crate) struct Egress {
    /// What the encoder was made from.
    code: Code,
    /// How long a packet may wait for its first repair.
    max_delay_us: u64,
    encoder: Encoder<Entry>,
    next: Seq,
    writer: RepairWriter,
}

/// Turns what the encoder emits into datagrams.
struct RepairWriter {
    counts: EgressCounts,
    scheme: Scheme,
    /// Of a sliding window.
    naming: Option<Naming>,
    peer: usize,
    /// Longest UDP payload that crosses the WAN whole.
    datagram_max: usize,
    /// Outer IP and UDP header in bytes.
    outer: usize,
    next_serial: u32,
    /// A repair that must be cut in two.
    scratch: Vec<u8>,
}

impl Egress {
    /// For peer number `peer`, reached with `outer` bytes of IP and UDP header.
    pub(crate) fn new(gateway: &Config, peer: usize, outer: usize) -> Result<Self, fec::ConfigError> {
        let writer = RepairWriter {
            counts: EgressCounts::default(),
            scheme: gateway.schedule.scheme(),
            naming: naming(&gateway.code(), gateway.max_delay_us, Seq(0)),
            peer,
            datagram_max: gateway.wan_mtu - outer,
            outer,
            next_serial: 0,
            scratch: vec![0; gateway.symbol_max() + 1024],
        };
        let code = gateway.code();
        Ok(Self {
            encoder: Encoder::new(&code)?,
            code,
            max_delay_us: gateway.max_delay_us,
            next: Seq(0),
            writer,
        })
    }

    /// Goes on with what `gateway` says of the code. Another code gives up part-filled bins, but for another rate of the
    /// same window; the stream's numbers go on.
    pub(crate) fn reconfigure(&mut self, gateway: &Config) -> Result<(), fec::ConfigError> {
        let code = gateway.code();
        if code == self.code {
            return Ok(());
        }
        if let (Encoder::Sliding(encoder), Some(naming)) = (&mut self.encoder, &mut self.writer.naming)
            && let Some(rate) = changed_rate(&self.code, &code)
        {
            encoder.set_rate(rate);
            naming.set_rate(rate);
        } else {
            self.encoder = Encoder::new(&code)?;
            self.writer.scheme = gateway.schedule.scheme();
            self.writer.naming = naming(&code, gateway.max_delay_us, self.next);
        }
        self.code = code;
        self.max_delay_us = gateway.max_delay_us;
        Ok(())
    }

    /// Starts a new stream for a new session: nothing coded so far may mix with what follows.
    pub(crate) fn restart(&mut self) {
        self.next = Seq(0);
        self.empty_bins();
    }

    /// Gives up part-filled bins; the stream's numbers go on.
    pub(crate) fn empty_bins(&mut self) {
        self.encoder = Encoder::new(&self.code).expect("a code that was accepted once is valid");
        self.writer.naming = naming(&self.code, self.max_delay_us, self.next);
    }

    /// A packet leaves for the peer's site. False if it is too long for the code.
    pub(crate) fn source(
        &mut self,
        now_us: u64,
        packet: &Packet<'_>,
        identity: &Identity,
        sealer: &mut Sealer,
        out: &mut Queue<usize>,
    ) -> bool {
        let hash = identity.hash(packet);
        let fields = packet.mutable_fields();
        let symbol = Symbol::new(packet, hash, fields);
        let entry = Entry { seq: self.next, name: identity.name(hash), fields };
        let writer = &mut self.writer;
        if let (Encoder::Sliding(encoder), Some(naming)) = (&mut self.encoder, &mut writer.naming)
            && let Some(young) = naming.young(now_us)
        {
            encoder.keep_newest(young);
        }
        let pushed = self
            .encoder
            .push(now_us, entry, &symbol.pieces(), &mut |repair| writer.write(&repair, sealer, out));
        if pushed.is_err() {
            return false;
        }
        if let Some(naming) = &mut self.writer.naming {
            naming.source(now_us);
        }
        self.next = self.next.plus(1);
        self.writer.counts.source_packets += 1;
        self.writer.counts.source_bytes += packet.as_slice().len() as u64;
        true
    }

    /// When [`Egress::fire_due`] next has something to do.
    pub(crate) fn next_deadline_us(&self) -> Option<u64> {
        self.encoder.next_deadline_us()
    }

    /// Sends the bins that waited long enough.
    pub(crate) fn fire_due(&mut self, now_us: u64, sealer: &mut Sealer, out: &mut Queue<usize>) {
        let writer = &mut self.writer;
        self.encoder.fire_due(now_us, &mut |repair| writer.write(&repair, sealer, out));
    }

    /// The peer has another number from now on.
    pub(crate) fn renumber(&mut self, peer: usize) {
        self.writer.peer = peer;
    }

    pub(crate) fn counts(&self) -> &EgressCounts {
        &self.writer.counts
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let naming = self.writer.naming.as_ref().map_or(0, Naming::memory_bytes);
        self.encoder.memory_bytes() + naming + self.writer.scratch.capacity()
    }
}

impl RepairWriter {
    fn write(&mut self, repair: &Repair<'_, Entry>, sealer: &mut Sealer, out: &mut Queue<usize>) {
        debug_assert!(repair.payload.len() > SYMBOL_HEADER);
        let Some(recipe) = self.recipe(repair) else { return };
        let body = recipe.wire_len() + repair.payload.len();
        if SEALED_HEADER + body + TAG > self.datagram_max {
            return self.write_halves(&recipe, repair.payload, sealer, out);
        }
        self.send(body, sealer, out, |to| {
            let written = recipe.write(to);
            to[written..].copy_from_slice(repair.payload);
        });
    }

    /// What the repair says of its packets; `None` never, as long as the encoder is of the scheme.
    fn recipe<'r>(&mut self, repair: &Repair<'r, Entry>) -> Option<Recipe<'r>> {
        let entries = repair.packets;
        let row = match self.scheme {
            Scheme::Sliding => {
                let (first, last) = (entries.first()?.seq, entries.last()?.seq);
                let named = self.naming.as_mut()?.next(first, last);
                return Some(Recipe::Window { draw: repair.draw, window: entries, named });
            }
            // A layer is told by its stride.
            Scheme::Layered => 0,
            Scheme::ReedSolomon => repair.row as u8,
        };
        Some(Recipe::Named { scheme: self.scheme, row, stride: stride(entries), entries })
    }

    /// A repair longer than the WAN MTU allows, as two datagrams.
    #[cold]
    fn write_halves(
        &mut self,
        recipe: &Recipe<'_>,
        payload: &[u8],
        sealer: &mut Sealer,
        out: &mut Queue<usize>,
    ) {
        let body = recipe.wire_len() + payload.len();
        let half = body.div_ceil(2);
        if SEALED_HEADER + Half::HEADER + half + TAG > self.datagram_max || body > self.scratch.len() {
            return self.counts.unsent.add(Unsent::TooLarge);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let written = recipe.write(&mut scratch);
        scratch[written..body].copy_from_slice(payload);
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        for (second, part) in [(false, &scratch[..half]), (true, &scratch[half..body])] {
            self.send(Half::HEADER + part.len(), sealer, out, |to| {
                write_half_header(to, second, serial);
                to[Half::HEADER..].copy_from_slice(part);
            });
        }
        self.scratch = scratch;
        self.counts.cut_in_two += 1;
    }

    fn send(
        &mut self,
        body: usize,
        sealer: &mut Sealer,
        out: &mut Queue<usize>,
        write_body: impl FnOnce(&mut [u8]),
    ) {
        let len = SEALED_HEADER + body + TAG;
        let Some(datagram) = out.reserve(len) else { return self.counts.unsent.add(Unsent::QueueFull) };
        write_body(&mut datagram[SEALED_HEADER..SEALED_HEADER + body]);
        sealer.seal(datagram);
        out.commit(self.peer, len);
        self.counts.repair_packets += 1;
        self.counts.repair_bytes += (len + self.outer) as u64;
    }
}

/// How far apart packets lie that share a repair; 1 where there is but one.
fn stride(entries: &[Entry]) -> u16 {
    match entries {
        [first, second, ..] => (second.seq.0 - first.seq.0) as u16,
        _ => 1,
    }
}

fn naming(code: &Code, max_delay_us: u64, next: Seq) -> Option<Naming> {
    match code {
        Code::Sliding(config) => Some(Naming::new(config.rate, config.window, max_delay_us, next)),
        Code::Layered(_) | Code::ReedSolomon(_) => None,
    }
}

/// The new rate of a sliding window, if that is all that is new.
fn changed_rate(old: &Code, new: &Code) -> Option<RepairRate> {
    let (Code::Sliding(old), Code::Sliding(new)) = (old, new) else { return None };
    (*new == SlidingConfig { rate: new.rate, ..old.clone() }).then_some(new.rate)
}
