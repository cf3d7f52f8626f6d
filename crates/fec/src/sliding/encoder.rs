//! The encoder of a sliding window.

use super::bare::Bare;
use super::config::{STRIPES_MAX, SlidingConfig};
use super::rows::{Finished, Rows, Stripe, TOGETHER};
use super::strings::Strings;
use crate::error::{ConfigError, check_memory};
use crate::limits::{SymbolTooLong, symbol_length};
use crate::rate::{Credit, RepairRate};
use crate::repair::{Draw, Repair};
use std::ops::Range;

/// Most packets in which all stripes have their turn. When a flight of packets ends, only repairs out of turn
/// follow for those whose stripe has not had its turn, so they must be few.
const ROUND_MAX: u64 = 64;

/// Most stripes that can take turns at this rate, at least 1.
pub fn stripes_max(rate: RepairRate) -> u8 {
    let stripes = ROUND_MAX * u64::from(rate.repairs()) / u64::from(rate.sources());
    stripes.clamp(1, u64::from(STRIPES_MAX)) as u8
}

/// Makes the repairs of a sliding window code from a stream of source packets.
///
/// `P` is what the owner keeps of each packet in the window. All memory is allocated at construction. The
/// rate can change at any time, and holds exactly: after n packets at a / b, ⌊n · a / b⌋ repairs have left,
/// besides those that a deadline fired. The window can change at any time too, up to the configured number of
/// packets, and every packet still enters a repair.
///
/// ```
/// use fec::{Repair, SlidingConfig, SlidingEncoder, coding_coefficients, gf256::product};
/// let config = SlidingConfig { rate: "1/2".parse().unwrap(), window: 3, ..SlidingConfig::default() };
/// let mut encoder = SlidingEncoder::new(&config).unwrap();
/// let mut sent = Vec::new();
/// let mut emit = |repair: Repair<'_, u32>| sent.push((repair.draw.seed, repair.packets.to_vec(), repair.payload.to_vec()));
/// for n in 0..4 {
///     encoder.push(0, n, &[&[n as u8 + 5]], &mut emit).unwrap();
/// }
/// let mut coefficients = [0; 3];
/// coding_coefficients(1, config.density, &mut coefficients);
/// let sum = (0..3).fold(0, |sum, k| sum ^ product(coefficients[k], k as u8 + 6));
/// assert_eq!(sent[1], (1, vec![1, 2, 3], vec![sum]));
/// ```
#[derive(Debug)]
pub struct SlidingEncoder<P> {
    /// Maximum number of packets that a repair reaches back, and number of packets kept.
    window: usize,
    /// Number of packets that a repair reaches back at present.
    reach: usize,
    /// Number of stripes that those packets have.
    stripes: usize,
    /// Number of plans begun, which take the stripes in turn.
    turn: usize,
    density: u8,
    seed: u16,
    deadline_us: Option<u64>,
    symbol_max: usize,
    credit: Credit,
    /// The last packets, up to twice the window, so that the window's packets are one slice.
    kept: Vec<P>,
    /// Symbols of the window; packet n lies at position n modulo the window.
    symbols: Strings,
    /// Number of packets pushed.
    packets: u64,
    /// Oldest packet that repairs may contain.
    oldest: u64,
    /// Repairs that leave next.
    leaving: Box<Rows>,
    /// Repairs after `leaving`, whose sums grow with each packet.
    coming: Box<Rows>,
    /// Value of `packets` when `coming` was begun.
    coming_since: u64,
    bare: Bare,
    /// Latest time seen.
    now_us: u64,
}

impl<P: Copy> SlidingEncoder<P> {
    /// Checks every range and the memory that an encoder needs, without building one.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn check(config: &SlidingConfig) -> Result<(), ConfigError> {
        config.check()?;
        check_memory("window and symbol_max", Self::bytes(usize::from(config.window), config.symbol_max))
    }

    /// Creates an encoder with an empty window.
    ///
    /// # Errors
    /// As [`SlidingEncoder::check`].
    pub fn new(config: &SlidingConfig) -> Result<Self, ConfigError> {
        Self::check(config)?;
        let window = usize::from(config.window);
        Ok(Self {
            window,
            reach: window,
            stripes: usize::from(config.stripes),
            turn: 0,
            density: config.density,
            seed: config.seed,
            deadline_us: config.deadline_us,
            symbol_max: config.symbol_max,
            credit: Credit::new(config.rate),
            kept: Vec::with_capacity(2 * window),
            symbols: Strings::new(window, config.symbol_max),
            packets: 0,
            oldest: 0,
            leaving: Box::new(Rows::new(window, config.symbol_max, config.density)),
            coming: Box::new(Rows::new(window, config.symbol_max, config.density)),
            coming_since: 0,
            bare: Bare::new(usize::from(config.stripes)),
            now_us: 0,
        })
    }

    /// Adds the next source packet to the window and emits the repairs that become due.
    ///
    /// `symbol` is given as consecutive pieces. Deadlines are not checked here.
    ///
    /// # Errors
    /// If the symbol is too long; then nothing changes.
    pub fn push(
        &mut self,
        now_us: u64,
        packet: P,
        symbol: &[&[u8]],
        emit: &mut impl FnMut(Repair<'_, P>),
    ) -> Result<(), SymbolTooLong> {
        symbol_length(symbol, self.symbol_max)?;
        self.now_us = self.now_us.max(now_us);
        self.bare.on_packet(self.packets, self.now_us);
        self.keep(packet, symbol);
        self.prepare();
        let due = self.credit.on_source();
        for left in (0..due).rev() {
            self.fire(emit);
            self.plan(left);
        }
        Ok(())
    }

    /// Changes the rate from the next packet on.
    pub fn set_rate(&mut self, rate: RepairRate) {
        if rate != self.rate() {
            self.forget_plans();
        }
        self.credit.set_rate(rate);
    }

    /// Returns the present rate.
    pub fn rate(&self) -> RepairRate {
        self.credit.rate()
    }

    /// Changes the number of packets that later repairs reach back, at least 1 and at most the configured
    /// number. A longer window reaches back at once, because the packets are kept; a repair that is planned
    /// keeps its own.
    pub fn set_window(&mut self, packets: u16) {
        self.reach = usize::from(packets).clamp(1, self.window);
    }

    /// Changes the number of stripes of the window, at least 1 and at most [`STRIPES_MAX`]. With more than
    /// [`stripes_max`] of the rate, and with few packets, repairs contain packets of all stripes.
    pub fn set_stripes(&mut self, stripes: u8) {
        let stripes = usize::from(stripes.clamp(1, STRIPES_MAX));
        if stripes != self.stripes {
            self.stripes = stripes;
            self.bare.set_stripes(stripes);
            self.forget_plans();
        }
    }

    /// Number of packets that a repair reaches back at present.
    pub fn window(&self) -> u16 {
        self.reach as u16
    }

    /// Time of the next deadline; `None` without deadline, at rate 0, or if every packet is in a repair.
    pub fn next_deadline_us(&self) -> Option<u64> {
        let deadline_us = self.deadline_us.filter(|_| self.rate().repairs() > 0)?;
        let (_, since_us) = self.bare.oldest()?;
        Some(since_us.saturating_add(deadline_us))
    }

    /// Emits one repair if a packet has been in none for as long as the deadline.
    ///
    /// The repair uses up the credit saved towards the next one.
    pub fn fire_due(&mut self, now_us: u64, emit: &mut impl FnMut(Repair<'_, P>)) {
        self.now_us = self.now_us.max(now_us);
        if self.next_deadline_us().is_some_and(|due_us| due_us <= self.now_us) {
            self.fire_out_of_turn(emit);
        }
    }

    /// Whether a packet is in no repair.
    pub fn has_waiting(&self) -> bool {
        self.bare.oldest().is_some()
    }

    /// Emits one repair if a packet is in none.
    pub fn flush(&mut self, emit: &mut impl FnMut(Repair<'_, P>)) {
        if self.has_waiting() {
            self.fire_out_of_turn(emit);
        }
    }

    /// Emits one repair in addition to those of the rate, if there is a packet in the window.
    pub fn fire_extra(&mut self, emit: &mut impl FnMut(Repair<'_, P>)) {
        if self.packets > self.oldest {
            self.forget_plans();
            self.fire(emit);
        }
    }

    /// Forgets all packets. The rate stays, and seeds continue.
    pub fn clear(&mut self) {
        self.kept.clear();
        (self.packets, self.oldest) = (0, 0);
        self.credit.clear();
        self.forget_plans();
        self.bare.clear();
    }

    /// Shortens the present window to its newest `packets`: later repairs contain no older one.
    pub fn keep_newest(&mut self, packets: usize) {
        let oldest = self.packets.saturating_sub(packets as u64);
        if oldest <= self.oldest {
            return;
        }
        self.oldest = oldest;
        if packets < self.window {
            self.forget_plans();
        }
        if packets == 0 {
            self.bare.clear();
        }
    }

    /// Bytes of memory held, constant after construction.
    pub fn memory_bytes(&self) -> usize {
        Self::bytes(self.window, self.symbol_max)
    }

    fn bytes(window: usize, symbol_max: usize) -> usize {
        Strings::memory_bytes(window, symbol_max)
            + 2 * Rows::memory_bytes(window, symbol_max)
            + window * 2 * size_of::<P>()
    }

    fn keep(&mut self, packet: P, symbol: &[&[u8]]) {
        if self.kept.len() == 2 * self.window {
            // Happens once in a window: the older half is dropped.
            self.kept.copy_within(self.window.., 0);
            self.kept.truncate(self.window);
        }
        self.kept.push(packet);
        self.symbols.set((self.packets % self.window as u64) as usize, symbol);
        self.packets += 1;
    }

    /// Adds to the coming repairs the share of their packets that is due with this packet.
    fn prepare(&mut self) {
        if self.coming.left() == 0 {
            return;
        }
        // The work is spread evenly from the packet that began them to the one with which the first leaves.
        let window = self.coming.first_window();
        let (gone, all) = (self.packets - self.coming_since, window.end - self.coming_since);
        let share = (window.end - window.start) * gone / all.max(1);
        self.coming.add_before((window.start + share).min(self.packets), &self.symbols);
    }

    fn fire(&mut self, emit: &mut impl FnMut(Repair<'_, P>)) {
        if self.leaving.left() == 0 {
            std::mem::swap(&mut self.leaving, &mut self.coming);
            self.coming.clear();
        }
        if self.leaving.left() == 0 {
            // No repair was planned.
            let spans = std::iter::once(self.span(self.packets, self.oldest_bare(Stripe::ALL), Stripe::ALL));
            self.leaving.begin(Stripe::ALL, spans, self.seed);
        }
        self.leaving.add_before(self.packets, &self.symbols);
        let Finished { stripe, packets, seed, coefficients, payload } = self.leaving.take(self.packets);
        let back = |packet: u64| self.kept.len() - (self.packets - packet) as usize;
        let packets = &self.kept[back(packets.start)..back(packets.end)];
        let draw = Draw { seed, density: self.density };
        emit(Repair { row: 0, draw, packets, stripes: stripe.of, coefficients, payload });
        self.seed = seed.wrapping_add(1);
        self.bare.on_repair(stripe);
    }

    /// Fires a repair before the rate requires it.
    fn fire_out_of_turn(&mut self, emit: &mut impl FnMut(Repair<'_, P>)) {
        self.credit.clear();
        self.forget_plans();
        self.fire(emit);
    }

    /// Returns the packets that a repair of a stripe reaches, which leaves before packet `end`. Those from
    /// `bare` on are in no other repair, and enter it even if they are more than the window has.
    fn span(&self, end: u64, bare: u64, stripe: Stripe) -> Range<u64> {
        let first = end.saturating_sub(self.reach_of(stripe)).min(bare);
        first.max(end.saturating_sub(self.window as u64)).max(self.oldest)..end
    }

    /// Oldest packet of a stripe that is in no repair, or the next one.
    fn oldest_bare(&self, stripe: Stripe) -> u64 {
        self.bare.oldest_of(stripe).map_or(self.packets, |(packet, _)| packet)
    }

    /// Number of packets that a repair reaches back. One of all stripes has as many packets as one of them.
    fn reach_of(&self, stripe: Stripe) -> u64 {
        (self.reach * stripe.of).div_ceil(self.stripes) as u64
    }

    /// The stripe whose turn it is: all, unless the repairs of each reach back far enough for its next turn.
    fn next_stripe(&self) -> Stripe {
        let (repairs, sources) = (u64::from(self.rate().repairs()), u64::from(self.rate().sources()));
        let stripes = self.stripes as u64;
        let reach = (self.packets - self.oldest).min(self.reach as u64);
        let are_many = self.stripes > usize::from(stripes_max(self.rate()));
        // At rates above 1, a stripe has its turn before it has a packet.
        let are_short = 2 * stripes * sources > reach * repairs || 2 * stripes > reach;
        if self.stripes == 1 || are_many || are_short {
            return Stripe::ALL;
        }
        Stripe { own: self.turn % self.stripes, of: self.stripes }
    }

    fn forget_plans(&mut self) {
        self.leaving.clear();
        self.coming.clear();
    }

    /// Begins the repairs after `leaving`, unless they are begun. `due` more repairs leave with this packet.
    fn plan(&mut self, due: u32) {
        if self.coming.left() > 0 {
            return;
        }
        let (repairs, sources) = (u64::from(self.rate().repairs()), u64::from(self.rate().sources()));
        let stripe = self.next_stripe();
        // A new plan grows from one repair to all in a few steps, which spreads the work.
        let mut count = TOGETHER.min(2 * self.leaving.count());
        // Windows that share less than half of their packets do not gain from being computed together.
        while (count as u64 - 1) * sources * 2 > self.reach_of(stripe) * repairs {
            count -= 1;
        }
        // All stripes have their turn while the window reaches back.
        let round_max = ROUND_MAX.min(self.reach as u64 / 2) * repairs;
        while stripe != Stripe::ALL && count > 1 && (count * stripe.of) as u64 * sources > round_max {
            count -= 1;
        }
        let before = self.leaving.left() as u64;
        // Each of the repairs contains the packets since the one before it, whatever the window is.
        let mut bare = self.oldest_bare(stripe);
        let spans: [Range<u64>; TOGETHER] = std::array::from_fn(|k| {
            let end = self.packets + self.credit.packets_until(before + 1 + k as u64, due);
            let span = self.span(end, bare, stripe);
            bare = end;
            span
        });
        let seed = self.leaving.next_seed().unwrap_or(self.seed);
        self.coming.begin(stripe, spans.into_iter().take(count), seed);
        self.turn = self.turn.wrapping_add(1);
        self.coming_since = self.packets;
    }
}
