//! LAN to WAN: codes the packets that leave and sends repairs beside them.
//!
//! The path of a packet: [`Egress::handle_packet`] → its symbol → the [`Coder`] → for each repair that
//! becomes due [`RepairSender::send`] → the caps (`caps.rs`) → sealed into the outbox.

mod choosing;
mod memory;
mod missing;
mod requests;
mod tunnel;

use std::borrow::Cow;

use crate::answers::Answers;
use crate::auto::Floor;
use crate::choice::Choice;
use crate::class::{CLASS_RATE_MAX, Care};
use crate::coder::{CodedRepair, Coder};
use crate::config::Config;
use crate::counters::{Refused, Unprotected, Unsent};
use crate::deadlines;
use crate::identity::Identity;
use crate::packet::Packet;
use crate::quiet::{Quiet, Tail};
use crate::sender::{EgressCounts, OUTER_V4, Outlet, RepairSender};
use crate::symbol::{SYMBOL_HEADER, Symbol};
use crate::thinning::{Thinning, is_sampled};
use crate::wire::{Entry, Recipe};
use fec::{Code, RepairRate, SlidingConfig};
use foundation::Seq;

/// Time for which packets of a class with a rate of its own count.
const RATED_US: u64 = 10_000_000;
/// Number of repairs of a sliding window beyond those of its rate at the end of a stream.
const LAST_REPAIRS: usize = 2;

/// One peer's egress.
pub(crate) struct Egress {
    coder: Coder,
    /// Choice of the rate; `None` if the configuration fixes the code.
    auto: Option<Choice>,
    /// Lowest rate whose repairs fit the path.
    floor: Floor,
    /// Times of repairs for packets that no regular repair covers soon.
    quiet: Quiet,
    /// Millionths of a repair that packets of classes have asked for beyond the rate.
    raised: u64,
    deadlines: deadlines::Watch,
    /// Time until which packets of a class with a deadline of its own wait for their first repair.
    hurry_us: Option<u64>,
    /// The class of the packet that set that time, and the repairs that left for it.
    hurry_class: Option<usize>,
    hurried: u64,
    /// Repairs that follow the one after a silence.
    tail: Tail,
    answers: Answers,
    thinning: Thinning,
    /// Time until which packets of a class with a rate of its own count.
    rated_until_us: u64,
    /// Longest symbol in bytes.
    symbol_max: usize,
    next: Seq,
    /// Share of our repairs that the link loses.
    repair_loss: f64,
    /// Whether packets travel inside datagrams of ours, with their positions.
    is_tunnel: bool,
    sender: RepairSender,
}

impl Egress {
    /// Creates the egress to peer number `peer`, which is reached with `outer` bytes of IP and UDP header.
    ///
    /// # Panics
    /// If the configuration is not valid: [`Config::check`] comes first.
    pub(crate) fn new(config: &Config, peer: usize, outer: usize) -> Self {
        let is_tunnel = config.peers[peer].is_tunnel;
        Self {
            coder: Coder::new(config.code(), config.window_max(), config.max_delay_us, is_tunnel),
            auto: Choice::of(config),
            floor: Floor::new(config.wan_mtu, outer > OUTER_V4).numbered(is_tunnel),
            quiet: Quiet::default(),
            raised: 0,
            deadlines: deadlines::Watch::default(),
            hurry_us: None,
            hurry_class: None,
            hurried: 0,
            tail: Tail::default(),
            answers: Answers::new(config.requests, config.cache_bytes(config.peers.len())),
            thinning: Thinning::default(),
            rated_until_us: 0,
            symbol_max: config.symbol_max(),
            next: Seq(0),
            repair_loss: 0.0,
            is_tunnel,
            sender: RepairSender::new(config, peer, outer),
        }
    }

    /// Changes the code to that of `config`. The stream's numbers continue.
    ///
    /// # Panics
    /// As [`Egress::new`].
    pub(crate) fn reconfigure(&mut self, config: &Config) {
        self.sender.reconfigure(config);
        // Classes may have other numbers.
        self.hurry_class = None;
        self.answers.reconfigure(config.requests, config.cache_bytes(config.peers.len()));
        let mut code = config.code();
        let chosen = self.auto.take();
        let (counts, floor) = (&self.sender.counts, self.floor.rate());
        self.auto = Choice::of(config).map(|start| {
            chosen.map_or_else(|| start.continuing(counts, floor), |chosen| chosen.reconfigured(config))
        });
        if let (Some(decision), Code::Sliding(sliding)) = (self.decision(), &mut code) {
            (sliding.rate, sliding.window, sliding.stripes) =
                (decision.rate, decision.window, decision.stripes);
        }
        self.coder.reconfigure(code, config.window_max(), config.max_delay_us, self.next);
    }

    /// Length of the outer IP and UDP headers in bytes.
    pub(crate) fn outer(&self) -> usize {
        self.sender.outer
    }

    /// Thins protection, or ends that. Returns whether it changes.
    pub(crate) fn set_thin(&mut self, is_thin: bool) -> bool {
        let changes = is_thin != self.thinning.is_on();
        if changes {
            self.thinning.set(is_thin);
            // No repair contains packets of both times.
            self.clear_coder();
            self.forget_repair_loss();
            self.auto.iter_mut().for_each(|auto| auto.on_thinning(is_thin));
        }
        changes
    }

    /// The code in force.
    pub(crate) fn code(&self) -> Cow<'_, Code> {
        match (self.coder.code(), self.coder.alone()) {
            (Code::Sliding(config), Some(packets)) => {
                Cow::Owned(SlidingConfig { window: packets as u16, stripes: 1, ..config.clone() }.into())
            }
            (code, _) => Cow::Borrowed(code),
        }
    }

    /// Starts a new stream for a new session, and gives up the packets that wait for a repair.
    pub(crate) fn restart(&mut self) {
        self.next = Seq(0);
        self.sender.loss.restart();
        self.answers.restart();
        self.set_thin(false);
        self.forget_repair_loss();
        self.empty_bins();
    }

    /// Continues the stream of another process at this position, of which `arrived` repairs have arrived.
    pub(crate) fn continue_at(&mut self, next: Seq, arrived: u64) {
        self.next = next;
        self.sender.loss.continue_at(arrived);
        self.empty_bins();
    }

    /// Sends the last repairs of this process: of all packets that wait for one, and, of a sliding window,
    /// some more. Several of its latest packets may be lost.
    pub(crate) fn finish(&mut self, outlet: &mut Outlet<'_>) {
        // Packets that wait for others leave, and with them the repairs behind them.
        self.sender.flush_packets(outlet);
        let sender = &mut self.sender;
        let mut emit = |repair: &CodedRepair<'_>| sender.send(repair, Refused::OutOfTurn, outlet);
        if self.coder.has_waiting() {
            self.coder.flush(true, &mut emit);
        }
        (0..LAST_REPAIRS).for_each(|_| self.coder.fire_extra(&mut emit));
    }

    /// Gives up the packets that wait for a repair. The stream's numbers continue.
    pub(crate) fn empty_bins(&mut self) {
        self.thinning.clear();
        self.clear_coder();
    }

    fn clear_coder(&mut self) {
        self.sender.forget_packets();
        (self.hurry_us, self.tail) = (None, Tail::default());
        self.coder.clear(self.next);
    }

    /// Gives the latest packet what its class asks for.
    pub(crate) fn care(&mut self, now_us: u64, care: Care, outlet: &mut Outlet<'_>) {
        if let Some(rate) = care.rate {
            self.rated_until_us = now_us + RATED_US;
            self.raise(rate, outlet);
        }
        self.deadlines.on_packet(now_us, care.late_us);
        // The first repair leaves half of the time before it is too late. Others recover what it cannot.
        let due_us = care.late_us.map(|late_us| now_us + late_us / 2);
        if due_us.is_some_and(|due_us| self.hurry_us.is_none_or(|hurry_us| due_us < hurry_us)) {
            (self.hurry_us, self.hurry_class) = (due_us, care.class);
        }
        self.hurry_us = self.hurry_us.filter(|_| self.coder.has_waiting_first());
    }

    /// Sends the repairs by which the rate for the latest packet exceeds that of the code.
    fn raise(&mut self, rate: RepairRate, outlet: &mut Outlet<'_>) {
        /// Millionths of a repair in a repair.
        const REPAIR: u64 = 1_000_000;
        let millionths = |rate: RepairRate| u64::from(rate.repairs()) * REPAIR / u64::from(rate.sources());
        let Some(present) = self.coder.rate() else { return };
        self.sender.caps.on_class_rate(rate.min(CLASS_RATE_MAX));
        self.raised += millionths(rate.min(CLASS_RATE_MAX)).saturating_sub(millionths(present));
        if self.raised >= REPAIR {
            self.raised -= REPAIR;
            let sender = &mut self.sender;
            self.coder.fire_extra(&mut |repair| sender.send(repair, Refused::Class, outlet));
        }
    }

    /// Decides whether a packet is protected while protection is thinned.
    ///
    /// # Errors
    /// [`Unprotected::Congestion`] if it is not in the sample.
    pub(crate) fn admit(&mut self, packet: &Packet<'_>, identity: &Identity) -> Result<(), Unprotected> {
        if !self.thinning.is_on() {
            return Ok(());
        }
        self.thinning.on_packet();
        if is_sampled(identity.hash(packet)) { Ok(()) } else { Err(Unprotected::Congestion) }
    }

    /// Codes a packet that left for the peer's site at `left_us`, or names it while protection is thinned.
    pub(crate) fn handle_packet(
        &mut self,
        now_us: u64,
        left_us: u64,
        packet: &Packet<'_>,
        identity: &Identity,
        outlet: &mut Outlet<'_>,
    ) -> Result<(), Unprotected> {
        if self.floor.on_packet(now_us, packet.as_slice().len()) {
            self.on_floor(now_us);
        }
        self.sender.on_left(left_us);
        let hash = identity.hash(packet);
        let fields = packet.mutable_fields();
        let symbol = Symbol::new(packet, hash, fields);
        let entry = Entry { seq: self.next, name: identity.name(hash), fields };
        if self.thinning.is_on() {
            if packet.as_slice().len() + SYMBOL_HEADER > self.symbol_max {
                return Err(Unprotected::TooLong);
            }
            self.thinning.push(now_us, entry);
        } else {
            self.code_packet(now_us, entry, &symbol, outlet)?;
            self.tail.on_packet();
        }
        self.answers.keep(outlet.now_us, entry, packet, &symbol);
        self.next = self.next.plus(1);
        self.quiet.on_packet(now_us, packet.as_slice().len());
        self.sender.on_source(packet.as_slice().len());
        Ok(())
    }

    fn code_packet(
        &mut self,
        now_us: u64,
        entry: Entry,
        symbol: &Symbol<'_>,
        outlet: &mut Outlet<'_>,
    ) -> Result<(), Unprotected> {
        let sender = &mut self.sender;
        let marking = sender.marking;
        sender.marking.on_packet(&entry);
        let emit = &mut |repair: &CodedRepair<'_>| sender.send(repair, Refused::Regular, outlet);
        self.coder.push(now_us, entry, symbol, emit).map_err(|_| {
            self.sender.marking = marking;
            Unprotected::TooLong
        })
    }

    /// Time at which the next repair or datagram of names leaves that no packet completes, if packets wait
    /// for one.
    pub(crate) fn next_deadline_us(&self) -> Option<u64> {
        self.thinning.due_us().into_iter().chain(self.repair_due_us()).min()
    }

    fn repair_due_us(&self) -> Option<u64> {
        let acts_on_silence = self.flushes() || self.tail.is_open();
        let silent_us = acts_on_silence.then(|| self.quiet.silent_us());
        let due_us = [silent_us, self.hurry_us, self.coder.next_deadline_us()].into_iter().flatten().min();
        let paid_us = due_us.map(|due_us| self.quiet.paid_us(due_us));
        // The repairs that follow at the end of a flight have times of their own.
        let tail_us = self.tail.due_us().map(|due_us| self.quiet.afforded_us(due_us));
        let paid_us = paid_us.into_iter().chain(tail_us).min()?.max(self.sender.caps.free_us());
        Some(paid_us.min(self.coder.late_us().unwrap_or(u64::MAX)))
    }

    /// Whether a silence would cause repairs.
    fn flushes(&self) -> bool {
        self.coder.has_waiting_first() || self.coder.has_waiting() && self.quiet.is_rich()
    }

    /// Sends the repairs that are due at this time: of packets whose deadline has passed, or, after a
    /// silence, of those that wait. Single losses come first where the budget is short.
    pub(crate) fn fire_due(&mut self, now_us: u64, outlet: &mut Outlet<'_>) {
        let sender = &mut self.sender;
        self.thinning.take_due(now_us, |entries| {
            let names = CodedRepair { recipe: Recipe::Names { entries }, symbol: &[] };
            sender.send(&names, Refused::Names, outlet);
        });
        if self.repair_due_us().is_none_or(|due_us| now_us < due_us) {
            return;
        }
        // The repairs contain the packets that wait for others, and do not wait with them.
        self.sender.flush_packets(outlet);
        let is_hurry = self.hurry_us.take_if(|due_us| *due_us <= now_us).is_some();
        let is_silent = is_hurry || self.flushes() && self.quiet.silent_us() <= now_us;
        let ends_covered = !is_silent && self.tail.is_open() && self.quiet.silent_us() <= now_us;
        let (bytes, repairs) = (self.sender.counts.repair_bytes, self.sender.counts.repairs);
        let further = self.quiet.further(self.loss_to_repair());
        if ends_covered && further == 0 {
            self.tail.begin(now_us, &self.quiet, 0);
            return;
        }
        let sender = &mut self.sender;
        let mut emit = |repair: &CodedRepair<'_>| sender.send(repair, Refused::OutOfTurn, outlet);
        if is_silent {
            self.coder.flush(self.quiet.is_rich(), &mut emit);
            self.tail.begin(now_us, &self.quiet, further);
        } else if ends_covered {
            // The last packet of the flight has completed a repair.
            self.coder.fire_extra(&mut emit);
            self.tail.begin(now_us, &self.quiet, further - 1);
        } else if self.tail.take_due(now_us) {
            self.coder.fire_extra(&mut emit);
        } else {
            self.coder.fire_due(now_us, &mut emit);
        }
        let counts = &mut self.sender.counts;
        let repairs = counts.repairs - repairs;
        counts.repairs_out_of_turn += repairs;
        self.quiet.on_repairs(now_us, counts.repair_bytes - bytes);
        if is_hurry {
            self.hurried += repairs;
        }
        if !self.coder.has_waiting_first() {
            self.hurry_us = None;
        }
    }

    /// Share of the packets that the link loses and repairs may recover, as far as it is known.
    fn loss_to_repair(&self) -> f64 {
        self.decision().map_or(self.repair_loss, |decision| decision.limit.loss_to_repair(decision.loss))
    }

    /// Returns the class whose deadline caused repairs lately, and their number.
    pub(crate) fn take_hurried(&mut self) -> (Option<usize>, u64) {
        (self.hurry_class, std::mem::take(&mut self.hurried))
    }

    /// Position of the next packet in the stream.
    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    /// Limits the length of datagrams, in bytes of UDP payload. Longer repairs are cut in two.
    pub(crate) fn set_datagram_max(&mut self, now_us: u64, bytes: usize) {
        self.sender.datagram_max = bytes;
        if self.floor.set_mtu(bytes + self.sender.outer) {
            self.on_floor(now_us);
        }
    }

    /// Returns the longest datagram of the interval between reports before the last one, and starts another
    /// interval. Its arrival would have been reported.
    pub(crate) fn take_longest(&mut self) -> usize {
        let [now, last, before] = self.sender.longest;
        self.sender.longest = [0, now, last];
        before
    }

    /// Changes the number of the peer.
    pub(crate) fn renumber(&mut self, peer: usize) {
        self.sender.peer = peer;
    }

    /// Counts a datagram of this peer that was not sent.
    pub(crate) fn on_unsent(&mut self, reason: Unsent) {
        self.sender.counts.unsent.add(reason);
    }

    pub(crate) fn counts(&self) -> &EgressCounts {
        &self.sender.counts
    }

    /// Longest packet whose repairs cross the WAN in one piece.
    pub(crate) fn packet_max(&self) -> usize {
        self.sender.packet_max()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.coder.memory_bytes()
            + self.answers.memory_bytes()
            + self.thinning.memory_bytes()
            + self.sender.memory_bytes()
    }
}
