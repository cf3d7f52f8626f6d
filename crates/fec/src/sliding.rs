//! A sliding window of random linear combinations, the schedule of RFC 8681.
//!
//! A repair is a sum of the last W source packets with random coefficients of GF(256). As many repairs as packets are
//! missing bring all of them back, whichever those are, with a probability of some 0.996: nothing has to be aligned
//! with a block or a layer, and a single loss is mended by the very next repair.

use crate::layered::{DEADLINE_US_MAX, MEMORY_MAX, SYMBOL_MAX, SymbolTooLong};
use crate::rate::{Credit, RepairRate};
use crate::{TinyMt32, gf256, symbol_length};
use thiserror::Error;

/// Most packets in a window, and so in a repair.
pub const WINDOW_MAX: u16 = 1_024;
/// So many symbols are added to a repair in one pass.
const BATCH: usize = 32;
/// Symbols begin at multiples of so many bytes, where vector instructions read them fastest.
const ALIGNMENT: usize = 64;
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
        if let Some(deadline_us) = self.deadline_us
            && !(1..=DEADLINE_US_MAX).contains(&deadline_us)
        {
            return Err(SlidingConfigError::Deadline(deadline_us));
        }
        if !(1..=SYMBOL_MAX).contains(&self.symbol_max) {
            return Err(SlidingConfigError::SymbolMax(self.symbol_max));
        }
        Ok(())
    }

    /// Repairs sent for each source packet in the long run.
    pub fn overhead(&self) -> f64 {
        self.rate.as_f64()
    }
}

/// Fills in the coefficients of the repair with this seed, for the packets of its window from the oldest on
/// (RFC 8681 §3.6, over GF(256)).
///
/// The receiver of a repair calls it to learn what the sender did.
///
/// # Panics
/// If `density` is above [`DENSITY_FULL`].
pub fn coding_coefficients(seed: u16, density: u8, coefficients: &mut [u8]) {
    assert!(density <= DENSITY_FULL, "density threshold: expected 0 to {DENSITY_FULL}, saw {density}");
    let mut numbers = TinyMt32::new(u32::from(seed));
    for coefficient in coefficients {
        *coefficient = 0;
        // With the full density no number is spent on the choice.
        if density == DENSITY_FULL || numbers.below_16() <= density {
            while *coefficient == 0 {
                *coefficient = numbers.below_256();
            }
        }
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
    /// Packet n lies at place n modulo the window: so many times `stride` behind `start`.
    symbols: Box<[u8]>,
    /// Where the memory is aligned.
    start: usize,
    /// `symbol_max`, rounded up.
    stride: usize,
    lengths: Box<[usize]>,
    packets: u64,
    coefficients: Box<[u8]>,
    payload: Box<[u8]>,
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
        let stride = config.symbol_max.next_multiple_of(ALIGNMENT);
        let symbols = vec![0; window * stride + ALIGNMENT].into_boxed_slice();
        Ok(Self {
            window,
            density: config.density,
            seed: config.seed,
            deadline_us: config.deadline_us,
            symbol_max: config.symbol_max,
            credit: Credit::new(config.rate),
            names: Vec::with_capacity(2 * window),
            start: symbols.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT),
            symbols,
            stride,
            lengths: vec![0; window].into_boxed_slice(),
            packets: 0,
            coefficients: vec![0; window].into_boxed_slice(),
            payload: vec![0; config.symbol_max].into_boxed_slice(),
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
        let length = symbol_length(symbol, self.symbol_max)?;
        self.now_us = self.now_us.max(now_us);
        self.bare_since_us.get_or_insert(self.now_us);
        self.keep(name, symbol, length);
        for _ in 0..self.credit.source() {
            self.fire(emit);
        }
        Ok(())
    }

    /// Changes the rate from the next packet on.
    pub fn set_rate(&mut self, rate: RepairRate) {
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
            self.credit.clear();
            self.fire(emit);
        }
    }

    /// Emits one repair if a packet is in none.
    pub fn flush(&mut self, emit: &mut impl FnMut(SlidingRepair<'_, N>)) {
        if self.bare_since_us.is_some() {
            self.credit.clear();
            self.fire(emit);
        }
    }

    /// Forgets all packets: the next one begins a new window. Rate and seeds go on.
    pub fn clear(&mut self) {
        self.names.clear();
        self.packets = 0;
        self.credit.clear();
        self.bare_since_us = None;
    }

    /// Leaves all but the newest `packets` out of the repairs from now on, for the window may be shorter than it can be.
    pub fn keep_newest(&mut self, packets: usize) {
        self.names.drain(..self.names.len().saturating_sub(packets));
    }

    /// Memory held, from construction on.
    pub fn memory_bytes(&self) -> usize {
        Self::bytes(self.window, self.symbol_max)
    }

    fn bytes(window: usize, symbol_max: usize) -> usize {
        window * symbol_max.next_multiple_of(ALIGNMENT)
            + ALIGNMENT
            + symbol_max
            + window * (2 * size_of::<N>() + size_of::<usize>() + 1)
    }

    fn keep(&mut self, name: N, symbol: &[&[u8]], length: usize) {
        if self.names.len() == 2 * self.window {
            // Once in a window: the rest of the older half goes.
            self.names.copy_within(self.window.., 0);
            self.names.truncate(self.window);
        }
        self.names.push(name);
        let at = (self.packets % self.window as u64) as usize;
        let mut place = &mut self.symbols[self.start + at * self.stride..][..length];
        for piece in symbol {
            let (head, rest) = place.split_at_mut(piece.len());
            head.copy_from_slice(piece);
            place = rest;
        }
        self.lengths[at] = length;
        self.packets += 1;
    }

    fn fire(&mut self, emit: &mut impl FnMut(SlidingRepair<'_, N>)) {
        let names = &self.names[self.names.len().saturating_sub(self.window)..];
        let coefficients = &mut self.coefficients[..names.len()];
        let mut seed = self.seed;
        coding_coefficients(seed, self.density, coefficients);
        // A sparse repair of a short window may be empty: it takes the next seed that gives one that is not.
        while coefficients.iter().all(|&coefficient| coefficient == 0) {
            seed = seed.wrapping_add(1);
            coding_coefficients(seed, self.density, coefficients);
        }
        let window = self.window;
        let first = ((self.packets - names.len() as u64) % window as u64) as usize;
        // Once round at most: no division for each packet.
        let place = |k: usize| if first + k < window { first + k } else { first + k - window };
        let summands =
            || (0..names.len()).filter(|&k| coefficients[k] != 0).map(|k| (coefficients[k], place(k)));
        let length = summands().map(|(_, at)| self.lengths[at]).max().unwrap_or(0);
        let payload = &mut self.payload[..length];
        payload.fill(0);
        let mut batch: [(u8, &[u8]); BATCH] = [(0, &[]); BATCH];
        let mut used = 0;
        for (coefficient, at) in summands() {
            batch[used] = (coefficient, &self.symbols[self.start + at * self.stride..][..self.lengths[at]]);
            used += 1;
            if used == BATCH {
                gf256::mul_add_many(payload, &batch);
                used = 0;
            }
        }
        gf256::mul_add_many(payload, &batch[..used]);
        emit(SlidingRepair { seed, density: self.density, names, coefficients, payload });
        self.seed = seed.wrapping_add(1);
        self.bare_since_us = None;
    }
}
