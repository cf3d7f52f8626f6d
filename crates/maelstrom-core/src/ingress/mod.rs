//! WAN to LAN: keeps the packets that arrive, and recovers those that repairs prove lost.
//!
//! The path of a packet: [`Ingress::handle_packet`] → [`Arrivals`]. The path of a repair:
//! [`Ingress::handle_repair`] → [`Arrivals`] (which of its packets arrived?) → [`Held`] for a moment, if a
//! packet is newly missing → [`Ingress::use_due`] → [`Decoder`] → verification → outbox.

mod arriving;
mod bring;
mod context;
mod counts;
mod forecasting;
mod halves;
mod numbered;
mod path;
mod recovering;
mod rung;
mod sight;
mod state;
mod strangers;

use fec::{Decoder, DecoderConfig, Outcome, SymbolId, Term};
use hdrhistogram::Histogram;

use crate::arrivals::{Arrivals, Bound, Place, names_beside};
use crate::config::{IngressConfig, Requests};
use crate::congestion::{Congestion, OnCongestion};
use crate::counters::{Rejected, Unused};
use crate::doubt::Doubtful;
use crate::flow::Flow;
use crate::forecast::Forecaster;
use crate::held::{Held, Reach};
use crate::identity::Identity;
use crate::ledger::Ledger;
use crate::packet::Packet;
use crate::symbol::SYMBOL_HEADER;
use crate::wire::{LossReport, RecipeView, Request, WINDOW_MAX};
pub(crate) use context::IngressCx;
pub use counts::{IngressCounts, RequestCounts};
use foundation::Seq;
use halves::{HALVES, HalfSlot};
pub(crate) use numbered::Road;
use path::Path;
use rung::{Rung, Scene};
use sight::{Sight, Verdict};

/// Maximum number of held repairs that one call uses. Each may cost the sum of a window of packets.
const USED_MAX: usize = 32;
/// Number of missing packets up to which any repair is worth its computation.
const CHEAP: u64 = 64;
/// Upper bound of a recipe's length in bytes.
const RECIPE_MAX: usize = 1_024;
/// Number of places of a tunnel of which three quarters stay open, unless the history is longer or answers to
/// requests are on the way.
const TUNNEL_PLACES: usize = 16_384;
/// Longest recovery delay that the histogram distinguishes, in microseconds.
const DELAY_MAX_US: u64 = 60_000_000;

/// One peer's ingress.
pub(crate) struct Ingress {
    arrivals: Arrivals,
    ledger: Ledger,
    /// Losses of earlier sessions.
    earlier: LossReport,
    forecaster: Forecaster,
    congestion: Congestion,
    decoder: Decoder,
    counts: IngressCounts,
    delays_us: Histogram<u64>,
    held: Held,
    reach: Reach,
    sight: Sight,
    path: Path,
    doubtful: Doubtful,
    rung: Rung,
    give_up_us: u64,
    road: Road,
    /// Buffer of the held repair in use.
    due: Vec<u8>,
    /// Longest symbol in bytes.
    symbol_max: usize,
    /// Terms of the repair in use.
    terms: Vec<Term>,
    halves: Box<[HalfSlot]>,
    next_half: usize,
    /// Buffer of a repair joined from two halves.
    joined: Vec<u8>,
}

impl Ingress {
    /// Creates an ingress that requests these packets, which arrive by this road.
    pub(crate) fn new(
        config: &IngressConfig,
        road: Road,
        requests: Requests,
        on_congestion: OnCongestion,
    ) -> Self {
        let symbol_max = config.packet_max + SYMBOL_HEADER;
        let terms_max = usize::from(WINDOW_MAX);
        let decoder = DecoderConfig { equations: config.equations, payload_max: symbol_max, terms_max };
        let slots =
            (0..HALVES).map(|_| HalfSlot { bytes: Vec::with_capacity(symbol_max), ..HalfSlot::default() });
        let history = config.history as u64;
        // A quarter of the history is left for packets that arrive before their place is named. Those of a
        // tunnel come with their place.
        let told_apart = match road {
            // Were more of them open, losses would be counted later for no use.
            Road::Tunnel => config.places.min(TUNNEL_PLACES.max(2 * config.history)) as u64,
            Road::Checked | Road::Trusted => history,
        };
        Self {
            arrivals: Arrivals::new(config.history, config.places, symbol_max),
            ledger: Ledger::new(told_apart - told_apart / 4, config.give_up_us),
            earlier: LossReport::NONE,
            forecaster: Forecaster::new(),
            congestion: Congestion::new(on_congestion),
            decoder: Decoder::new(decoder),
            counts: IngressCounts::default(),
            delays_us: Histogram::new_with_bounds(1, DELAY_MAX_US, 2).expect("constant bounds are valid"),
            held: Held::new(symbol_max + RECIPE_MAX),
            reach: Reach::default(),
            sight: Sight::new(history, config.give_up_us),
            path: Path::new(road != Road::Checked, names_beside(config.history)),
            doubtful: Doubtful::default(),
            rung: Rung::new(requests),
            give_up_us: config.give_up_us,
            road,
            due: Vec::with_capacity(symbol_max + RECIPE_MAX),
            symbol_max,
            terms: Vec::with_capacity(terms_max),
            halves: slots.collect(),
            next_half: 0,
            joined: Vec::with_capacity(2 * symbol_max),
        }
    }

    /// Forgets the stream for a new session. Counts since the gateway's start continue, and the path is the
    /// same.
    pub(crate) fn restart(&mut self, config: &IngressConfig) {
        let fresh = Self::new(config, self.road, Requests::Off, OnCongestion::default());
        let old = std::mem::replace(self, fresh);
        self.earlier = old.losses();
        (self.counts, self.delays_us, self.path) = (old.counts, old.delays_us, old.path);
        self.path.restart();
        self.rung = old.rung;
        self.rung.restart();
        self.forecaster.continue_record(old.forecaster);
        self.congestion = old.congestion;
        self.congestion.restart();
    }

    /// Changes the packets that are requested.
    pub(crate) fn set_requests(&mut self, mode: Requests) {
        self.rung.set_mode(mode);
    }

    /// Takes the round-trip time to the peer.
    pub(crate) fn set_rtt(&mut self, rtt_us: Option<u64>) {
        self.rung.set_rtt(rtt_us);
    }

    /// Counts a repair of a stream in which packets may have arrived unseen.
    pub(crate) fn on_blind_repair(&mut self) {
        self.counts.unused.add(Unused::Blind);
    }

    /// Counts a packet from the peer's site that its gateway does not protect.
    pub(crate) fn on_foreign_packet(&mut self) {
        self.counts.foreign_packets += 1;
    }

    /// Takes a packet that leaves for the peer's site.
    pub(crate) fn on_departure(&mut self, now_us: u64, packet: &Packet<'_>, identity: &Identity) {
        self.path.on_departure(now_us, packet, identity);
    }

    /// Takes an authentic repair. If it misses a packet that may still arrive, it waits a moment for that
    /// packet.
    pub(crate) fn handle_repair(&mut self, cx: &mut IngressCx<'_>, body: &[u8]) -> Result<(), Rejected> {
        let view = RecipeView::read(body, self.ledger.newest())?;
        if view.symbol.len() > self.symbol_max {
            return Err(Rejected::Malformed);
        }
        if !self.is_tunnel() {
            self.path.on_repair();
        }
        if !view.is_names_only() {
            self.ledger.on_repair();
        }
        let before = self.ledger.newest();
        if self.ledger.advance_to(&mut self.arrivals, view.last(), self.rung.pending()) {
            self.expire();
        }
        self.congestion.on_repair(self.ledger.newest(), cx.sent, view.lag);
        self.reach.on_repair(cx.now_us, self.held.wait_us(), self.ledger.newest());
        self.rung.on_repair(cx.now_us, &view, self.ledger.newest());
        if self.is_tunnel() {
            self.expect(cx.now_us, before, view.last().plus(1));
        }
        match self.sight.judge(cx.now_us, cx.sent, &mut self.arrivals, &self.ledger, &view) {
            Verdict::Use => {}
            Verdict::UseFrom(limit) => self.skip_before(limit),
            Verdict::Pass { limit, bind } => {
                self.skip_before(limit);
                if bind {
                    // Later repairs need the names of packets that are not given up.
                    let _ = self.bind(cx, &view);
                }
                self.counts.unused.add(Unused::Blind);
                return Ok(());
            }
        }
        match self.bind(cx, &view) {
            Ok(()) => self.hold(cx, &view, body),
            Err(_) if view.is_names_only() => {}
            Err(unused) => self.counts.unused.add(unused),
        }
        self.on_names(cx.now_us);
        Ok(())
    }

    /// Holds a repair until the packets it misses have been missing for the present wait, which may have
    /// passed already.
    fn hold(&mut self, cx: &mut IngressCx<'_>, view: &RecipeView<'_>, body: &[u8]) {
        if self.held.is_full() {
            let mut oldest = std::mem::take(&mut self.due);
            match self.held.make_room(cx.now_us, &mut oldest) {
                Some(number) => self.use_held(cx, number, &oldest),
                None => self.counts.unused.add(Unused::NoRoom),
            }
            self.due = oldest;
        }
        let now_us = cx.now_us;
        let missing_since_us = view.packets().filter_map(|seq| match self.arrivals.place(seq) {
            Place::Missing { since_us, .. } => Some(since_us),
            Place::Unnamed => Some(self.reach.since_us(now_us, seq)),
            Place::Arrived { .. } | Place::Recovered { .. } => None,
        });
        let due_us = missing_since_us.max().map_or(now_us, |since_us| since_us + self.held.wait_us());
        self.held.push(due_us.max(now_us), cx.repair.unwrap_or_default(), body);
    }

    /// Time at which the next held repair is due, or [`Ingress::poll_request`].
    pub(crate) fn next_due_us(&self) -> Option<u64> {
        self.held.due_us().into_iter().chain(self.rung.next_look_us()).min()
    }

    /// Returns the request that is due, if there is one. There may be another one at once. `behind_us`: time
    /// by which `now_us` is behind the clock.
    pub(crate) fn poll_request(&mut self, now_us: u64, behind_us: u64) -> Option<Request> {
        if self.rung.next_look_us().is_none_or(|due_us| due_us > now_us) {
            return None;
        }
        // Answers would not be injected now.
        if !self.sight.is_clear() || !self.path.is_recovering() {
            self.rung.rest();
            return None;
        }
        let mut scene = Scene {
            arrivals: &self.arrivals,
            decoder: &self.decoder,
            newest: self.ledger.newest(),
            open: self.ledger.oldest_open(),
            congestion: &self.congestion,
            counts: &mut self.counts.requests,
        };
        self.rung.poll(now_us, behind_us, &mut scene)
    }

    /// Uses the held repairs that are due, as far as there is room for recovered packets, and at most
    /// [`USED_MAX`] of them. The rest stays due.
    pub(crate) fn use_due(&mut self, cx: &mut IngressCx<'_>) {
        let mut body = std::mem::take(&mut self.due);
        for _ in 0..USED_MAX {
            if cx.recovered.is_nearly_full() {
                break;
            }
            let Some(number) = self.held.pop_due(cx.now_us, &mut body) else { break };
            self.use_held(cx, number, &body);
        }
        self.due = body;
    }

    fn use_held(&mut self, cx: &mut IngressCx<'_>, number: u32, body: &[u8]) {
        let present = cx.repair.replace(number);
        // A repair of packets beyond the newest was read near another position when it arrived.
        if let Ok(view) = RecipeView::read(body, self.ledger.newest())
            && view.last() <= self.ledger.newest()
        {
            match self.solve(cx, &view) {
                Ok(()) => self.rung.on_solved(&view, &mut self.counts.requests),
                Err(_) if view.is_names_only() => {}
                Err(unused) => self.counts.unused.add(unused),
            }
            self.rung.wake(cx.now_us, &self.decoder);
        }
        cx.repair = present;
    }

    fn solve(&mut self, cx: &mut IngressCx<'_>, view: &RecipeView<'_>) -> Result<(), Unused> {
        self.bind(cx, view)?;
        self.count_missing(view);
        if view.is_names_only() {
            return Ok(());
        }
        if cx.behind_us > 0 && self.is_beyond_repair(view) {
            return Err(Unused::BeyondRepair);
        }
        view.terms(&mut self.terms);
        let undelivered = self.counts.undelivered;
        let (decoder, terms, mut recovering) = self.recovering(cx);
        match decoder.handle_repair(&mut recovering, terms, view.symbol) {
            Outcome::Solved(_) => Ok(()),
            Outcome::Stored => Err(Unused::Waiting),
            Outcome::Rejected if self.counts.undelivered > undelivered => Err(Unused::NoRoom),
            Outcome::Rejected => Err(Unused::WrongRecovery),
            Outcome::Redundant => Err(Unused::Redundant),
            _ => Err(Unused::Inconsistent),
        }
    }

    /// Whether more of a repair's packets are missing than repairs come for as many packets, as at a queue
    /// that overflows. Each such repair would cost the sum of its packets, and one with all equations, and
    /// together they would solve nothing. A gateway whose tap is behind has no time for that.
    fn is_beyond_repair(&self, view: &RecipeView<'_>) -> bool {
        let packets = view.packets().count() as u64;
        if packets <= CHEAP {
            return false;
        }
        let is_missing = |seq: &Seq| matches!(self.arrivals.place(*seq), Place::Missing { .. });
        let missing = view.packets().filter(is_missing).count() as u64;
        let repairs = self.rung.repairs_in(packets);
        missing > (repairs + repairs / 4 + CHEAP / 4).max(CHEAP)
    }

    /// Binds the places that `view` names to arrivals. Fails if no packet of the sum is missing, or if the
    /// repair is too old.
    ///
    /// The newest place is bound first. If even its symbol has left the history, the names of older arrivals
    /// may be forgotten, and those packets must not count as lost.
    fn bind(&mut self, cx: &mut IngressCx<'_>, view: &RecipeView<'_>) -> Result<(), Unused> {
        let (open, bindable) = (self.ledger.oldest_open(), self.ledger.oldest_bindable());
        for entry in view.entries().rev().filter(|entry| entry.seq >= bindable) {
            let (place, bound) = self.arrivals.bind(cx.now_us, &entry);
            if let Some(bound) = bound {
                self.on_bound(bound, entry.seq);
            }
            if self.arrivals.is_gone(place) {
                return Err(Unused::TooOld);
            }
            // A packet of a window that arrived is an unknown of the equations until it is named.
            if matches!(place, Place::Arrived { .. }) {
                self.report_to_decoder(cx, entry.seq);
            }
        }
        // An answer to a request comes later than other repairs.
        if view.first() < if self.rung.awaits(view) { open } else { bindable } {
            return Err(Unused::TooOld);
        }
        if view.packets().all(|seq| self.arrivals.is_known(seq)) { Err(Unused::Redundant) } else { Ok(()) }
    }

    /// Notes that an arrival has been named. A double that has a name of its own was none.
    fn on_bound(&mut self, bound: Bound, seq: Seq) {
        self.counts.after_recovery -= u64::from(bound.was_double);
        if bound.was_slow {
            self.path.off_slow(bound.trace.flow);
        }
        self.path.on_named_arrival(bound.trace, seq);
    }

    /// Reports to the decoder that the symbol of a place is known.
    fn report_to_decoder(&mut self, cx: &mut IngressCx<'_>, seq: Seq) {
        let (decoder, _, mut recovering) = self.recovering(cx);
        decoder.handle_source(&mut recovering, SymbolId(seq.0));
    }

    /// Takes the report that the tap has missed packets. Repairs recover nothing until
    /// [`Ingress::on_caught_up`].
    pub(crate) fn on_gap(&mut self) {
        self.sight.on_gap();
        self.skip_before(self.ledger.newest().plus(1));
    }

    /// Takes the report that packets of this flow arrived, and that it is not known which ones. Other flows
    /// are not affected.
    pub(crate) fn on_unseen(&mut self, now_us: u64, flow: Flow) {
        self.doubtful.add(now_us, flow, now_us + self.give_up_us);
    }

    /// Number of flows of which nothing is recovered, because packets of them may have arrived unseen.
    pub(crate) fn doubtful_flows(&self) -> usize {
        self.doubtful.len()
    }

    /// Whether recovery pauses because packets may have arrived unseen.
    pub(crate) fn is_paused(&self) -> bool {
        !self.sight.is_clear()
    }

    /// Takes the report that the tap sees every packet again, and that all repairs from before have been
    /// handled.
    pub(crate) fn on_caught_up(&mut self, now_us: u64) {
        self.sight.on_caught_up(now_us, self.arrivals.kept());
    }

    fn skip_before(&mut self, limit: Seq) {
        self.ledger.skip_before(&mut self.arrivals, limit);
        self.forecaster.skip_to(limit);
        self.expire();
    }

    /// Must be called every [`TICK_US`](crate::ledger::TICK_US).
    pub(crate) fn on_tick(&mut self, now_us: u64) {
        self.held.on_tick();
        if !self.is_tunnel() {
            self.path.on_tick(now_us);
        }
        self.doubtful.expire(now_us);
        self.forecaster.on_tick(now_us);
        self.congestion.on_tick(now_us);
        if self.congestion.take_news() {
            self.path.forgive();
        }
        if self.ledger.on_tick(&mut self.arrivals, self.rung.pending()) {
            self.expire();
        }
    }

    fn expire(&mut self) {
        let oldest = SymbolId(self.ledger.oldest_open().0);
        self.decoder.expire_before(oldest);
    }
}
