//! A sliding window of random linear combinations, the schedule of RFC 8681.
//!
//! A repair is a sum of the last W source packets with random coefficients of GF(256). As many repairs as packets are
//! missing bring all of them back, whichever those are, with a probability of some 0.996: nothing has to be aligned
//! with a block or a layer, and a single loss is mended by the very next repair.
//!
//! The encoder knows in advance when its next repairs leave, which packets they have, and their coefficients. So it sums
//! them up before they are due, several together ([`Rows`]), some packets at each [`push`](SlidingEncoder::push): that
//! costs less, and the same with every packet. A change of the rate or a deadline upsets what was planned; then a repair
//! is summed up when it leaves.

mod coefficients;
mod rows;
mod strings;

pub use coefficients::coding_coefficients;

use crate::limits::{self, DEADLINE_US_MAX, MEMORY_MAX, SYMBOL_MAX, SymbolTooLong, symbol_length};
use crate::rate::{Credit, RepairRate};
use rows::{Finished, Rows, TOGETHER};
use strings::Strings;
use thiserror::Error;

/// Most packets in a window, and so in a repair.
pub const WINDOW_MAX: u16 = 1_024;
/// Density threshold at which no coefficient is 0 (RFC 8681 §3.6).
pub const DENSITY_FULL: u8 = 15;

/// Parameters of a sliding window code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlidingConfig {
    /// Repairs for each source packet.
    pub rate: RepairRate,
    /// Packets in the encoding window, 1 to [`WINDOW_MAX`].
    pub window: u16,
    /// RFC 8681's density threshold, 0 to [`DENSITY_FULL`]: of 16 coefficients, `density` + 1 are not 0 on average.
    /// Sparse repairs cost less to make and recover less.
    pub density: u8,
    /// Seed of the first repair's coefficients; every next repair takes the next number, modulo 65,536.
    pub seed: u16,
    /// How long a packet may stay in no repair, 1 to [`DEADLINE_US_MAX`]; then one repair leaves. `None`: for ever.
    pub deadline_us: Option<u64>,
    /// Longest symbol in bytes, 1 to [`SYMBOL_MAX`].
    pub symbol_max: usize,
}

impl Default for SlidingConfig {
    /// 3 repairs for every 8 packets over the last 160, no coefficient 0, 20 ms, symbols up to 1,536 bytes.
    fn default() -> Self {
        Self {
            rate: RepairRate::THREE_EIGHTHS,
            window: 160,
            density: DENSITY_FULL,
            seed: 0,
            deadline_us: Some(20_000),
            symbol_max: 1_536,
        }
    }
}

/// What is wrong with a [`SlidingConfig`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SlidingConfigError {
    /// The window out of range.
    #[error("window: expected 1 to {WINDOW_MAX}, saw {0}")]
    Window(u16),
    /// The density threshold out of range.
    #[error("density: expected 0 to {DENSITY_FULL}, saw {0}")]
    Density(u8),
    /// The deadline out of range.
    #[error("deadline_us: expected none or 1 to {DEADLINE_US_MAX}, saw {0}")]
    Deadline(u64),
    /// The symbol length out of range.
    #[error("symbol_max: expected 1 to {SYMBOL_MAX}, saw {0}")]
    SymbolMax(usize),
    /// The window would need too much memory.
    #[error("window and symbol_max: expected a window of at most {MEMORY_MAX} bytes, saw {0}")]
    Memory(usize),
}

impl SlidingConfig {
    /// Checks every range; the first mistake found is returned.
    pub fn check(&self) -> Result<(), SlidingConfigError> {
        if !(1..=WINDOW_MAX).contains(&self.window) {
            return Err(SlidingConfigError::Window(self.window));
        }
        if self.density > DENSITY_FULL {
            return Err(SlidingConfigError::Density(self.density));
        }
        limits::check_deadline(self.deadline_us).map_err(SlidingConfigError::Deadline)?;
        limits::check_symbol(self.symbol_max).map_err(SlidingConfigError::SymbolMax)
    }

    /// Repairs sent for each source packet in the long run.
    pub fn overhead(&self) -> f64 {
        self.rate.as_f64()
    }
}

/// A repair packet of a sliding window, to be sent.
#[derive(Debug, Clone, Copy)]
pub struct SlidingRepair<'a, N> {
    /// Seed of its [coefficients](coding_coefficients).
    pub seed: u16,
    /// Density threshold of its coefficients.
    pub density: u8,
    /// The packets in the window, oldest first; also those whose coefficient is 0.
    pub names: &'a [N],
    /// One for each of the names.
    pub coefficients: &'a [u8],
    /// The sum of the packets times their coefficients, as long as the longest symbol among them.
    pub payload: &'a [u8],
}

/// Makes the repairs of a sliding window code from a stream of source packets.
///
/// `N` is what the owner wants to remember of each packet in the window. All memory is taken at construction. The rate
/// can change at any time, and holds exactly: after n packets at a / b, ⌊n · a / b⌋ repairs have left, but for those a
/// deadline fired.
///
/// ```
/// use fec::{SlidingConfig, SlidingEncoder, SlidingRepair, coding_coefficients, gf256::product};
/// let config = SlidingConfig { rate: "1/2".parse().unwrap(), window: 3, ..SlidingConfig::default() };
/// let mut encoder = SlidingEncoder::new(&config).unwrap();
/// let mut sent = Vec::new();
/// let mut emit = |repair: SlidingRepair<'_, u32>| sent.push((repair.seed, repair.names.to_vec(), repair.payload.to_vec()));
/// for n in 0..4 {
///     encoder.push(0, n, &[&[n as u8 + 5]], &mut emit).unwrap();
/// }
/// let mut coefficients = [0; 3];
/// coding_coefficients(1, config.density, &mut coefficients);
/// let sum = (0..3).fold(0, |sum, k| sum ^ product(coefficients[k], k as u8 + 6));
/// assert_eq!(sent[1], (1, vec![1, 2, 3], vec![sum]));
/// ```
#[derive(Debug)]
pub struct SlidingEncoder<N> {
    window: usize,
    density: u8,
    seed: u16,
    deadline_us: Option<u64>,
    symbol_max: usize,
    credit: Credit,
    /// The last packets, up to twice the window, so that those of the window lie in one piece.
    names: Vec<N>,
    /// Packet n lies at place n modulo the window.
    symbols: Strings,
    packets: u64,
    /// No repair has a packet before this one.
    oldest: u64,
    /// The repairs that leave next.
    leaving: Box<Rows>,
    /// Those after them, of which the sums grow with each packet.
    coming: Box<Rows>,
    /// Packets there were when those were begun.
    coming_since: u64,
    /// When the oldest packet that is in no repair came.
    bare_since_us: Option<u64>,
    /// Latest time seen.
    now_us: u64,
}

impl<N: Copy> SlidingEncoder<N> {
    /// An encoder with an empty window.
    pub fn new(config: &SlidingConfig) -> Result<Self, SlidingConfigError> {
        config.check()?;
        let window = usize::from(config.window);
        let memory = Self::bytes(window, config.symbol_max);
        if memory > MEMORY_MAX {
            return Err(SlidingConfigError::Memory(memory));
        }
        Ok(Self {
            window,
            density: config.density,
            seed: config.seed,
            deadline_us: config.deadline_us,
            symbol_max: config.symbol_max,
            credit: Credit::new(config.rate),
            names: Vec::with_capacity(2 * window),
            symbols: Strings::new(window, config.symbol_max),
            packets: 0,
            oldest: 0,
            leaving: Box::new(Rows::new(window, config.symbol_max, config.density)),
            coming: Box::new(Rows::new(window, config.symbol_max, config.density)),
            coming_since: 0,
            bare_since_us: None,
            now_us: 0,
        })
    }

    /// Adds the next source packet to the window and emits the repairs that this makes due.
    ///
    /// `symbol` is given as pieces that follow each other. Does not look at deadlines.
    pub fn push(
        &mut self,
        now_us: u64,
        name: N,
        symbol: &[&[u8]],
        emit: &mut impl FnMut(SlidingRepair<'_, N>),
    ) -> Result<(), SymbolTooLong> {
        symbol_length(symbol, self.symbol_max)?;
        self.now_us = self.now_us.max(now_us);
        self.bare_since_us.get_or_insert(self.now_us);
        self.keep(name, symbol);
        self.prepare();
        let due = self.credit.source();
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

    /// The rate at present.
    pub fn rate(&self) -> RepairRate {
        self.credit.rate()
    }

    /// When [`fire_due`](Self::fire_due) next has something to do; `None` without deadline, at rate 0, or if every
    /// packet is in a repair.
    pub fn next_deadline_us(&self) -> Option<u64> {
        let deadline_us = self.deadline_us.filter(|_| self.rate().repairs() > 0)?;
        Some(self.bare_since_us?.saturating_add(deadline_us))
    }

    /// Emits one repair if a packet has been in none for as long as the deadline.
    ///
    /// What was saved towards the next repair is spent with it.
    pub fn fire_due(&mut self, now_us: u64, emit: &mut impl FnMut(SlidingRepair<'_, N>)) {
        self.now_us = self.now_us.max(now_us);
        if self.next_deadline_us().is_some_and(|due_us| due_us <= self.now_us) {
            self.fire_out_of_turn(emit);
        }
    }

    /// Emits one repair if a packet is in none.
    pub fn flush(&mut self, emit: &mut impl FnMut(SlidingRepair<'_, N>)) {
        if self.bare_since_us.is_some() {
            self.fire_out_of_turn(emit);
        }
    }

    /// Forgets all packets: the next one begins a new window. Rate and seeds go on.
    pub fn clear(&mut self) {
        self.names.clear();
        (self.packets, self.oldest) = (0, 0);
        self.credit.clear();
        self.forget_plans();
        self.bare_since_us = None;
    }

    /// Leaves all but the newest `packets` out of the repairs from now on, for the window may be shorter than it can be.
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
            self.bare_since_us = None;
        }
    }

    /// Memory held, from construction on.
    pub fn memory_bytes(&self) -> usize {
        Self::bytes(self.window, self.symbol_max)
    }

    fn bytes(window: usize, symbol_max: usize) -> usize {
        Strings::memory_bytes(window, symbol_max)
            + 2 * Rows::memory_bytes(window, symbol_max)
            + window * 2 * size_of::<N>()
    }

    fn keep(&mut self, name: N, symbol: &[&[u8]]) {
        if self.names.len() == 2 * self.window {
            // Once in a window: the rest of the older half goes.
            self.names.copy_within(self.window.., 0);
            self.names.truncate(self.window);
        }
        self.names.push(name);
        self.symbols.set((self.packets % self.window as u64) as usize, symbol);
        self.packets += 1;
    }

    /// Adds to the coming repairs the share of their packets that falls to this one.
    fn prepare(&mut self) {
        if self.coming.left() == 0 {
            return;
        }
        // In even steps from when they were begun until the first of them leaves.
        let window = self.coming.first_window();
        let (gone, all) = (self.packets - self.coming_since, window.end - self.coming_since);
        let share = (window.end - window.start) * gone / all.max(1);
        self.coming.add_before((window.start + share).min(self.packets), &self.symbols);
    }

    fn fire(&mut self, emit: &mut impl FnMut(SlidingRepair<'_, N>)) {
        if self.leaving.left() == 0 {
            std::mem::swap(&mut self.leaving, &mut self.coming);
            self.coming.clear();
        }
        if self.leaving.left() == 0 {
            // Nothing was planned.
            self.leaving.begin(std::iter::once(self.packets), self.oldest, self.seed);
        }
        self.leaving.add_before(self.packets, &self.symbols);
        let Finished { seed, coefficients, payload } = self.leaving.take(self.packets);
        let names = &self.names[self.names.len() - coefficients.len()..];
        emit(SlidingRepair { seed, density: self.density, names, coefficients, payload });
        self.seed = seed.wrapping_add(1);
        self.bare_since_us = None;
    }

    /// Fires a repair now that was not due.
    fn fire_out_of_turn(&mut self, emit: &mut impl FnMut(SlidingRepair<'_, N>)) {
        self.credit.clear();
        self.forget_plans();
        self.fire(emit);
    }

    fn forget_plans(&mut self) {
        self.leaving.clear();
        self.coming.clear();
    }

    /// Begins the repairs after those that leave next, unless they are begun; `due` more are due with this packet.
    fn plan(&mut self, due: u32) {
        if self.coming.left() > 0 {
            return;
        }
        let (repairs, sources) = (u64::from(self.rate().repairs()), u64::from(self.rate().sources()));
        // From one repair only to all in some steps, so that the work is spread where the plans are new.
        let mut count = TOGETHER.min(2 * self.leaving.count());
        // Windows that share less than half of their packets are not worth it.
        while (count as u64 - 1) * sources * 2 > self.window as u64 * repairs {
            count -= 1;
        }
        let before = self.leaving.left() as u64;
        let ends = (1..=count as u64).map(|k| self.packets + self.credit.packets_until(before + k, due));
        self.coming.begin(ends, self.oldest, self.leaving.next_seed().unwrap_or(self.seed));
        self.coming_since = self.packets;
    }
}
