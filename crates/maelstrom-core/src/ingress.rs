//! WAN to LAN: keeps what arrives, and brings back what repairs prove lost.
//!
//! The path of a packet that arrives: [`Ingress::source`] → shelf. Of a repair: [`Ingress::repair`] → shelf (which of
//! its packets are here?) → held a moment if one is missing that was not missed before → [`Ingress::use_due`] → decoder →
//! verification → outbox.

mod sight;

use std::net::SocketAddr;

use fec::{Decoder, DecoderConfig, Outcome, SymbolId, SymbolStore, Term};
use hdrhistogram::Histogram;

use crate::counters::{Rejected, Unused, UnusedCounts};
use crate::held::{Held, Reach};
use crate::identity::{Identity, Name};
use crate::ledger::Ledger;
use crate::outbox::Queue;
use crate::packet::{MutableFields, Packet};
use crate::prefixes::PrefixTable;
use crate::shelf::{Arrived, Place, Shelf};
use crate::symbol::{SYMBOL_HEADER, Symbol, fields_of, may_inject, verify};
use crate::wire::{Half, LossReport, RecipeView, WINDOW_MAX};
use foundation::Seq;
use sight::{Sight, blind_margin};

pub(crate) use crate::ledger::TICK_US;

/// Halves that wait for their other half at a time.
const HALVES: usize = 16;
/// Repairs that one call uses: each may cost the sum of a window of packets.
const USED_MAX: usize = 32;
/// More than the longest recipe takes.
const RECIPE_MAX: usize = 512;
/// Recovery delays beyond this are counted as this, in microseconds.
const DELAY_MAX_US: u64 = 60_000_000;

/// Sizes of one peer's ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngressConfig {
    /// Packets kept to recover others with; a power of two.
    pub window: usize,
    /// Longest packet in bytes.
    pub packet_max: usize,
    /// Repairs kept that miss two packets or more.
    pub equations: usize,
    /// After how long a packet that is still missing is given up, in microseconds.
    pub give_up_us: u64,
}

/// Counts of one peer's ingress that the loss report does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngressCounts {
    /// Packets that arrived from the peer's networks, of those that its gateway protects.
    pub source_packets: u64,
    /// Their bytes.
    pub source_bytes: u64,
    /// Packets from the peer's networks that its gateway does not protect: for other destinations than those that it has
    /// for us, or while there is no session. They are not kept.
    pub foreign_packets: u64,
    /// Packets handed to the kernel.
    pub recovered_packets: u64,
    /// Packets that arrived after an equal one had been recovered: the link reorders, or the sender repeats itself.
    pub after_recovery: u64,
    /// Packets that arrived after a repair had named them.
    pub late: u64,
    /// Packets that had arrived, and were found so only when a sliding window's repairs had solved them: every repair that
    /// names them was lost, or is still to come.
    pub recognised: u64,
    /// Recovered packets for which the outgoing queue had no room: they stay lost.
    pub undelivered: u64,
    /// Why repairs brought nothing back.
    pub unused: UnusedCounts,
}

/// One peer's ingress.
pub(crate) struct Ingress {
    shelf: Shelf,
    ledger: Ledger,
    decoder: Decoder,
    counts: IngressCounts,
    delays_us: Histogram<u64>,
    held: Held,
    reach: Reach,
    sight: Sight,
    /// So many places beyond the newest one named may packets have arrived.
    blind_margin: u64,
    /// After so long every packet has been named that repairs still name.
    give_up_us: u64,
    /// The held repair in use.
    due: Vec<u8>,
    /// Longest symbol in bytes.
    symbol_max: usize,
    /// What the repair in use is the sum of.
    terms: Vec<Term>,
    halves: Box<[HalfSlot]>,
    next_half: usize,
    /// A repair put together from two halves.
    joined: Vec<u8>,
}

#[derive(Default)]
struct HalfSlot {
    serial: Option<u32>,
    second: bool,
    bytes: Vec<u8>,
}

/// What surrounds one call: shared by all peers or owned by the peer.
pub(crate) struct Surroundings<'a> {
    pub(crate) now_us: u64,
    pub(crate) identity: &'a Identity,
    /// The peer's networks: a recovered packet must come from one of them.
    pub(crate) networks: &'a PrefixTable<()>,
    /// Our end of the repair channel: never inject towards it.
    pub(crate) listen: SocketAddr,
    pub(crate) recovered: &'a mut Queue<()>,
}

impl Ingress {
    pub(crate) fn new(config: &IngressConfig) -> Self {
        let symbol_max = config.packet_max + SYMBOL_HEADER;
        let terms_max = usize::from(WINDOW_MAX);
        let decoder = DecoderConfig { equations: config.equations, payload_max: symbol_max, terms_max };
        let slots =
            (0..HALVES).map(|_| HalfSlot { bytes: Vec::with_capacity(symbol_max), ..HalfSlot::default() });
        let window = config.window as u64;
        Self {
            shelf: Shelf::new(config.window, symbol_max),
            // A quarter of the window is left for packets that arrive before their place is named.
            ledger: Ledger::new(window - window / 4, config.give_up_us),
            decoder: Decoder::new(decoder),
            counts: IngressCounts::default(),
            delays_us: Histogram::new_with_bounds(1, DELAY_MAX_US, 2).expect("constant bounds are valid"),
            held: Held::new(symbol_max + RECIPE_MAX),
            reach: Reach::default(),
            sight: Sight::Clear,
            blind_margin: blind_margin(window),
            give_up_us: config.give_up_us,
            due: Vec::with_capacity(symbol_max + RECIPE_MAX),
            symbol_max,
            terms: Vec::with_capacity(terms_max),
            halves: slots.collect(),
            next_half: 0,
            joined: Vec::with_capacity(2 * symbol_max),
        }
    }

    /// Forgets the stream so far, for a new session; the counts of the gateway's life go on.
    pub(crate) fn restart(&mut self, config: &IngressConfig) {
        let fresh = Self::new(config);
        let (counts, delays_us) =
            (self.counts, std::mem::replace(&mut self.delays_us, fresh.delays_us.clone()));
        *self = Self { counts, delays_us, ..fresh };
    }

    /// A packet arrived from the peer's site that its gateway does not protect.
    pub(crate) fn foreign(&mut self) {
        self.counts.foreign_packets += 1;
    }

    /// A packet arrived from the peer's site.
    pub(crate) fn source(&mut self, around: &mut Surroundings<'_>, packet: &Packet<'_>) {
        self.counts.source_packets += 1;
        self.counts.source_bytes += packet.as_slice().len() as u64;
        if packet.as_slice().len() + SYMBOL_HEADER > self.symbol_max {
            return;
        }
        let hash = around.identity.hash(packet);
        let symbol = Symbol::new(packet, hash, MutableFields::default());
        self.held.count_arrival();
        match self.shelf.arrive(around.now_us, around.identity.name(hash), &symbol) {
            Arrived::Kept => {}
            Arrived::LikeRecovered { late_us, is_repeated } => {
                self.counts.after_recovery += 1;
                // One of many equal packets says nothing of the one that was lost.
                if !is_repeated {
                    self.held.learn(late_us);
                }
            }
            Arrived::Late { seq, late_us, .. } => {
                self.counts.late += 1;
                self.held.learn(late_us);
                self.tell_decoder(around, seq);
            }
        }
    }

    /// An authentic repair arrived. If it misses a packet that may still come it waits a moment for it.
    pub(crate) fn repair(&mut self, around: &mut Surroundings<'_>, body: &[u8]) -> Result<(), Rejected> {
        let view = RecipeView::read(body, self.ledger.newest())?;
        if view.symbol.len() > self.symbol_max {
            return Err(Rejected::Malformed);
        }
        self.ledger.count_repair();
        if self.ledger.reach(&mut self.shelf, view.last()) {
            self.expire();
        }
        self.reach.note(around.now_us, self.held.wait_us(), self.ledger.newest());
        if self.is_blind(around, &view) {
            self.counts.unused.add(Unused::Blind);
            return Ok(());
        }
        match self.bind(around, &view) {
            Ok(()) => self.hold(around, &view, body),
            Err(unused) => self.counts.unused.add(unused),
        }
        Ok(())
    }

    /// Keeps a repair until what it misses has been missing for the present wait: that may be already.
    fn hold(&mut self, around: &mut Surroundings<'_>, view: &RecipeView<'_>, body: &[u8]) {
        if self.held.is_full() {
            let mut oldest = std::mem::take(&mut self.due);
            self.held.pop(&mut oldest);
            self.use_held(around, &oldest);
            self.due = oldest;
        }
        let now_us = around.now_us;
        let missing_since_us = view.packets().filter_map(|seq| match self.shelf.place(seq) {
            Place::Missing { since_us, .. } => Some(since_us),
            Place::Unnamed => Some(self.reach.since_us(now_us, seq)),
            Place::Arrived { .. } | Place::Recovered { .. } => None,
        });
        let due_us = missing_since_us.max().map_or(now_us, |since_us| since_us + self.held.wait_us());
        self.held.push(due_us.max(now_us), body);
    }

    /// When a repair has waited long enough.
    pub(crate) fn next_due_us(&self) -> Option<u64> {
        self.held.due_us()
    }

    /// Uses the repairs that have waited long enough, as far as there is room for what they bring back, and no more than
    /// [`USED_MAX`]: the rest stays due.
    pub(crate) fn use_due(&mut self, around: &mut Surroundings<'_>) {
        let mut body = std::mem::take(&mut self.due);
        for _ in 0..USED_MAX {
            if around.recovered.is_nearly_full() || !self.held.pop_due(around.now_us, &mut body) {
                break;
            }
            self.use_held(around, &body);
        }
        self.due = body;
    }

    fn use_held(&mut self, around: &mut Surroundings<'_>, body: &[u8]) {
        // One that names packets which are still to come was read near another place when it came.
        if let Ok(view) = RecipeView::read(body, self.ledger.newest())
            && view.last() <= self.ledger.newest()
            && let Err(unused) = self.solve(around, &view)
        {
            self.counts.unused.add(unused);
        }
    }

    /// One half of an authentic repair arrived.
    pub(crate) fn half(&mut self, around: &mut Surroundings<'_>, body: &[u8]) -> Result<(), Rejected> {
        let half = Half::read(body)?;
        if half.bytes.len() > self.symbol_max + RECIPE_MAX {
            return Err(Rejected::Malformed);
        }
        let Some(slot) = self.halves.iter_mut().find(|slot| slot.serial == Some(half.serial)) else {
            self.keep_half(&half);
            return Ok(());
        };
        if slot.second == half.second {
            return Err(Rejected::Malformed);
        }
        slot.serial = None;
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        let (first, second) =
            if half.second { (&slot.bytes[..], half.bytes) } else { (half.bytes, &slot.bytes[..]) };
        joined.extend_from_slice(first);
        joined.extend_from_slice(second);
        let result = self.repair(around, &joined);
        self.joined = joined;
        result
    }

    fn keep_half(&mut self, half: &Half<'_>) {
        let slot = &mut self.halves[self.next_half];
        self.next_half = (self.next_half + 1) % HALVES;
        if slot.serial.replace(half.serial).is_some() {
            self.counts.unused.add(Unused::HalfLost);
        }
        slot.second = half.second;
        slot.bytes.clear();
        slot.bytes.extend_from_slice(half.bytes);
    }

    fn solve(&mut self, around: &mut Surroundings<'_>, view: &RecipeView<'_>) -> Result<(), Unused> {
        self.bind(around, view)?;
        view.terms(&mut self.terms);
        let undelivered = self.counts.undelivered;
        let mut window = Recovering {
            shelf: &mut self.shelf,
            counts: &mut self.counts,
            delays_us: &mut self.delays_us,
            around,
        };
        match self.decoder.handle_repair(&mut window, &self.terms, view.symbol) {
            Outcome::Solved(_) => Ok(()),
            Outcome::Stored => Err(Unused::Waiting),
            Outcome::Rejected if self.counts.undelivered > undelivered => Err(Unused::NoRoom),
            Outcome::Rejected => Err(Unused::WrongRecovery),
            Outcome::Redundant => Err(Unused::Redundant),
            _ => Err(Unused::Inconsistent),
        }
    }

    /// Finds the places that `view` names, and whether a packet of its sum is missing: else it is of no use.
    ///
    /// The newest comes first: where even its symbol has left the window, the names of the older ones may be forgotten,
    /// and must not be taken for packets that never arrived.
    fn bind(&mut self, around: &mut Surroundings<'_>, view: &RecipeView<'_>) -> Result<(), Unused> {
        let open = self.ledger.oldest_open();
        for entry in view.entries().rev().filter(|entry| entry.seq >= open) {
            let place = self.shelf.name(around.now_us, &entry);
            if self.shelf.is_gone(place) {
                return Err(Unused::TooOld);
            }
            // A packet of a window that arrived is an unknown until it is named.
            if matches!(place, Place::Arrived { .. }) {
                self.tell_decoder(around, entry.seq);
            }
        }
        if view.first() < open {
            return Err(Unused::TooOld);
        }
        if view.packets().all(|seq| self.shelf.is_known(seq)) { Err(Unused::Redundant) } else { Ok(()) }
    }

    /// A packet that equations may wait for has its place.
    fn tell_decoder(&mut self, around: &mut Surroundings<'_>, seq: Seq) {
        let mut window = Recovering {
            shelf: &mut self.shelf,
            counts: &mut self.counts,
            delays_us: &mut self.delays_us,
            around,
        };
        self.decoder.handle_source(&mut window, SymbolId(seq.0));
    }

    fn skip_before(&mut self, limit: Seq) {
        self.ledger.skip_before(&mut self.shelf, limit);
        self.expire();
    }

    /// To be called every [`TICK_US`].
    pub(crate) fn tick(&mut self) {
        self.held.tick();
        if self.ledger.tick(&mut self.shelf) {
            self.expire();
        }
    }

    fn expire(&mut self) {
        let oldest = SymbolId(self.ledger.oldest_open().0);
        self.decoder.expire_before(oldest);
    }

    pub(crate) fn report(&self) -> &LossReport {
        self.ledger.report()
    }

    pub(crate) fn counts(&self) -> &IngressCounts {
        &self.counts
    }

    pub(crate) fn delays_us(&self) -> &Histogram<u64> {
        &self.delays_us
    }

    /// How long a repair waits at present for packets that it misses.
    pub(crate) fn wait_us(&self) -> u64 {
        self.held.wait_us()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.shelf.memory_bytes()
            + self.decoder.memory_bytes()
            + self.held.memory_bytes()
            + self.terms.capacity() * size_of::<Term>()
            + self.symbol_max * (2 + HALVES)
    }
}

/// The decoder's view of the shelf: it asks for known symbols and hands over solved ones.
struct Recovering<'a, 'b> {
    shelf: &'a mut Shelf,
    counts: &'a mut IngressCounts,
    delays_us: &'a mut Histogram<u64>,
    around: &'a mut Surroundings<'b>,
}

impl SymbolStore for Recovering<'_, '_> {
    fn known(&self, id: SymbolId) -> Option<&[u8]> {
        self.shelf.symbol(Seq(id.0))
    }

    fn on_recovered(&mut self, id: SymbolId, symbol: &[u8]) -> bool {
        let seq = Seq(id.0);
        match self.shelf.place(seq) {
            Place::Missing { name, fields, .. } => self.deliver(seq, Some((name, fields)), symbol),
            Place::Unnamed => self.deliver(seq, None, symbol),
            // It was known, and its symbol had left the window.
            Place::Arrived { .. } | Place::Recovered { .. } => self.put_back(seq, symbol),
        }
    }
}

impl Recovering<'_, '_> {
    /// A packet that is known already was solved again: nothing is to be injected.
    fn put_back(&mut self, seq: Seq, symbol: &[u8]) -> bool {
        let Some(room) = self.around.recovered.reserve(symbol.len()) else { return false };
        let Some((_, packet)) = verify(symbol, self.around.identity, room) else { return false };
        self.shelf.restore(seq, &symbol[..SYMBOL_HEADER + packet.len()]);
        true
    }

    /// Verifies a solved symbol, which must be as a repair has named it if one has, queues its packet for the kernel unless it
    /// had arrived, and puts it on the shelf.
    fn deliver(&mut self, seq: Seq, named: Option<(Name, MutableFields)>, symbol: &[u8]) -> bool {
        let Surroundings { now_us, identity, networks, listen, .. } = *self.around;
        let Some(room) = self.around.recovered.reserve(symbol.len()) else {
            self.counts.undelivered += 1;
            return false;
        };
        let Some((hash, packet)) = verify(symbol, identity, room) else { return false };
        let name = identity.name(hash);
        let symbol = &symbol[..SYMBOL_HEADER + packet.len()];
        if named.is_none() && self.shelf.recognise(seq, name, hash, symbol) {
            self.counts.recognised += 1;
            return true;
        }
        // The hash vouches for all but the fields.
        let is_as_named = |named| Some(named) == fields_of(symbol).map(|fields| (name, fields));
        if !named.is_none_or(is_as_named) || !may_inject(packet, networks, listen) {
            return false;
        }
        let len = packet.len();
        self.around.recovered.commit((), len);
        self.counts.recovered_packets += 1;
        if let Some(expected_us) = self.shelf.expected_us(seq) {
            self.delays_us.saturating_record(now_us.saturating_sub(expected_us).max(1));
        }
        self.shelf.recover(now_us, seq, name, symbol);
        true
    }
}
