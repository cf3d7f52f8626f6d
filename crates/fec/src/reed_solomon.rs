//! Reed–Solomon blocks as a schedule: r source packets, c repairs, any r of the r + c are enough.
//!
//! The code that Maelstrom §4.4 compares layered interleaving with. It is systematic, and its coefficients are a Cauchy
//! matrix, of which every square part can be inverted. With an interleave i, i blocks are fed in turn, so that the
//! packets of a block lie i apart: a *round* is i · r packets.

use crate::gf256;
use crate::layered::{INTERLEAVE_MAX, Sending};
use crate::limits::{self, DEADLINE_US_MAX, MEMORY_MAX, SYMBOL_MAX, SymbolTooLong, symbol_length};
use thiserror::Error;

/// Most source packets in a block.
pub const BLOCK_R_MAX: u8 = 128;
/// A packet is added to so many sums of a block in one pass.
const AT_ONCE: usize = 4;
/// Most repairs of a block.
pub const BLOCK_C_MAX: u8 = 64;

/// Parameters of a Reed–Solomon code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReedSolomonConfig {
    /// Source packets in a block, 1 to [`BLOCK_R_MAX`].
    pub r: u8,
    /// Repairs of a block, 1 to [`BLOCK_C_MAX`].
    pub c: u8,
    /// Blocks that are fed in turn, 1 to [`INTERLEAVE_MAX`].
    pub interleave: u16,
    /// Whether the c repairs leave as soon as their block is full, or with the packets of the next round, so that
    /// one burst does not take a block's packets and repairs: the first repairs of all blocks go out in turn, then the
    /// second ones, c / r (rounded up) with each packet.
    pub sending: Sending,
    /// How long a round may stay part-filled, 1 to [`DEADLINE_US_MAX`]; then all that it holds fires. `None`: for ever.
    pub deadline_us: Option<u64>,
    /// Longest symbol in bytes, 1 to [`SYMBOL_MAX`].
    pub symbol_max: usize,
}

impl Default for ReedSolomonConfig {
    /// (8, 3), blocks one after the other, sent at once, 20 ms, symbols up to 1,536 bytes.
    fn default() -> Self {
        Self {
            r: 8,
            c: 3,
            interleave: 1,
            sending: Sending::Immediate,
            deadline_us: Some(20_000),
            symbol_max: 1_536,
        }
    }
}

/// What is wrong with a [`ReedSolomonConfig`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReedSolomonConfigError {
    /// `r` out of range.
    #[error("r: expected 1 to {BLOCK_R_MAX}, saw {0}")]
    R(u8),
    /// `c` out of range.
    #[error("c: expected 1 to {BLOCK_C_MAX}, saw {0}")]
    C(u8),
    /// The interleave out of range.
    #[error("interleave: expected 1 to {INTERLEAVE_MAX}, saw {0}")]
    Interleave(u16),
    /// The deadline out of range.
    #[error("deadline_us: expected none or 1 to {DEADLINE_US_MAX}, saw {0}")]
    Deadline(u64),
    /// The symbol length out of range.
    #[error("symbol_max: expected 1 to {SYMBOL_MAX}, saw {0}")]
    SymbolMax(usize),
    /// The blocks would need too much memory.
    #[error("r, c, interleave and symbol_max: expected blocks of at most {MEMORY_MAX} bytes, saw {0}")]
    Memory(usize),
}

impl ReedSolomonConfig {
    /// Checks every range; the first mistake found is returned.
    pub fn check(&self) -> Result<(), ReedSolomonConfigError> {
        if !(1..=BLOCK_R_MAX).contains(&self.r) {
            return Err(ReedSolomonConfigError::R(self.r));
        }
        if !(1..=BLOCK_C_MAX).contains(&self.c) {
            return Err(ReedSolomonConfigError::C(self.c));
        }
        if !(1..=INTERLEAVE_MAX).contains(&self.interleave) {
            return Err(ReedSolomonConfigError::Interleave(self.interleave));
        }
        limits::check_deadline(self.deadline_us).map_err(ReedSolomonConfigError::Deadline)?;
        limits::check_symbol(self.symbol_max).map_err(ReedSolomonConfigError::SymbolMax)
    }

    /// Repairs sent for each source packet in the long run, where blocks fill.
    pub fn overhead(&self) -> f64 {
        f64::from(self.c) / f64::from(self.r)
    }

    /// Rounds kept at the same time.
    fn rounds(&self) -> usize {
        if self.sending == Sending::Delayed { 2 } else { 1 }
    }
}

/// The coefficient of the packet at `position` of a block, counted from 0, in the block's repair `row`.
///
/// The Cauchy matrix 1 / (x_row + y_position) with x_row = 128 + row and y_position = position, every column scaled so
/// that row 0 is all ones: the first repair of a block is a plain XOR, and a scaled Cauchy matrix is as invertible.
///
/// ```
/// assert_eq!(fec::cauchy(0, 7), 1);
/// assert_eq!(fec::cauchy(2, 7), fec::gf256::product(128 ^ 7, fec::gf256::inverse(130 ^ 7)));
/// ```
///
/// # Panics
/// If `row` is not below [`BLOCK_C_MAX`] or `position` not below [`BLOCK_R_MAX`].
pub const fn cauchy(row: u8, position: u8) -> u8 {
    assert!(row < BLOCK_C_MAX && position < BLOCK_R_MAX, "row or position beyond the largest block");
    gf256::product(128 ^ position, gf256::inverse((128 + row) ^ position))
}

/// A repair packet of a block, to be sent.
#[derive(Debug, Clone, Copy)]
pub struct ReedSolomonRepair<'a, N> {
    /// Which repair of its block, from 0.
    pub row: u8,
    /// The packets of the block, oldest first; fewer than r if a deadline fired it.
    pub names: &'a [N],
    /// [`cauchy`]`(row, position)` for each of the names.
    pub coefficients: &'a [u8],
    /// The sum of the packets times their coefficients, as long as the longest symbol among them.
    pub payload: &'a [u8],
}

/// Makes the repairs of a Reed–Solomon code from a stream of source packets.
///
/// `N` is what the owner wants to remember of each packet in a block. All memory is taken at construction. A part-filled
/// block of k packets fires with all its c repairs: any k of the k + c are enough.
///
/// ```
/// use fec::{ReedSolomonConfig, ReedSolomonEncoder, ReedSolomonRepair};
/// let config = ReedSolomonConfig { r: 2, c: 2, ..ReedSolomonConfig::default() };
/// let mut encoder = ReedSolomonEncoder::new(&config).unwrap();
/// let mut sent = Vec::new();
/// let mut emit = |repair: ReedSolomonRepair<'_, u32>| sent.push((repair.row, repair.names.to_vec(), repair.payload.to_vec()));
/// encoder.push(0, 1, &[b"ab"], &mut emit).unwrap();
/// encoder.push(0, 2, &[b"a", b"cd"], &mut emit).unwrap();
/// assert_eq!(sent[0], (0, vec![1, 2], vec![0, b'b' ^ b'c', b'd']));
/// assert_eq!((sent[1].0, sent.len()), (1, 2));
/// ```
#[derive(Debug)]
pub struct ReedSolomonEncoder<N> {
    r: usize,
    c: usize,
    sending: Sending,
    deadline_us: Option<u64>,
    symbol_max: usize,
    /// c rows of r coefficients.
    coefficients: Box<[u8]>,
    filling: Round<N>,
    /// The round before, of which some repairs have not left yet; only where they leave delayed.
    leaving: Option<Round<N>>,
    /// Latest time seen.
    now_us: u64,
}

/// `interleave` blocks that are fed in turn.
#[derive(Debug)]
struct Round<N> {
    blocks: Box<[Block<N>]>,
    /// c payloads of `symbol_max` bytes for each block.
    payloads: Box<[u8]>,
    packets: usize,
    /// When the first packet came.
    begun_us: u64,
    /// Turns of delayed sending that are over: the first of each block, then the second, …
    turns: usize,
}

#[derive(Debug)]
struct Block<N> {
    names: Vec<N>,
    /// Length of the longest symbol in it.
    length: usize,
}

impl<N: Copy> ReedSolomonEncoder<N> {
    /// An encoder with empty blocks.
    pub fn new(config: &ReedSolomonConfig) -> Result<Self, ReedSolomonConfigError> {
        config.check()?;
        let (r, c) = (usize::from(config.r), usize::from(config.c));
        let memory =
            config.rounds() * usize::from(config.interleave) * Self::block_bytes(r, c, config.symbol_max);
        if memory > MEMORY_MAX {
            return Err(ReedSolomonConfigError::Memory(memory));
        }
        let round = || Round::new(usize::from(config.interleave), r, c, config.symbol_max);
        Ok(Self {
            r,
            c,
            sending: config.sending,
            deadline_us: config.deadline_us,
            symbol_max: config.symbol_max,
            coefficients: (0..config.c)
                .flat_map(|row| (0..config.r).map(move |position| cauchy(row, position)))
                .collect(),
            filling: round(),
            leaving: (config.sending == Sending::Delayed).then(round),
            now_us: 0,
        })
    }

    /// Adds the next source packet to its block and emits the repairs that this makes due.
    ///
    /// `symbol` is given as pieces that follow each other. Does not look at deadlines.
    pub fn push(
        &mut self,
        now_us: u64,
        name: N,
        symbol: &[&[u8]],
        emit: &mut impl FnMut(ReedSolomonRepair<'_, N>),
    ) -> Result<(), SymbolTooLong> {
        let length = symbol_length(symbol, self.symbol_max)?;
        self.now_us = self.now_us.max(now_us);
        self.emit_delayed(self.c.div_ceil(self.r), emit);
        if self.filling.packets == 0 {
            self.filling.begun_us = self.now_us;
        }
        let blocks = self.filling.blocks.len();
        let block = self.filling.packets % blocks;
        self.add(block, name, symbol, length);
        self.filling.packets += 1;
        if self.sending == Sending::Immediate && self.filling.blocks[block].names.len() == self.r {
            self.fire_block(block, emit);
        }
        if self.filling.packets == blocks * self.r {
            self.end_round(emit);
        }
        Ok(())
    }

    /// When [`fire_due`](Self::fire_due) next has something to do; `None` without deadline or without a packet waiting.
    pub fn next_deadline_us(&self) -> Option<u64> {
        let leaving = self.leaving.as_ref().filter(|round| round.packets > 0);
        let oldest = leaving.or((self.filling.packets > 0).then_some(&self.filling))?;
        Some(oldest.begun_us.saturating_add(self.deadline_us?))
    }

    /// Emits what has reached its deadline: part-filled blocks, and delayed repairs not yet sent.
    pub fn fire_due(&mut self, now_us: u64, emit: &mut impl FnMut(ReedSolomonRepair<'_, N>)) {
        self.now_us = self.now_us.max(now_us);
        // Two rounds at most.
        while self.next_deadline_us().is_some_and(|due_us| due_us <= self.now_us) {
            if self.leaving.as_ref().is_some_and(|round| round.packets > 0) {
                self.emit_delayed(usize::MAX, emit);
            } else {
                self.fire_round(emit);
            }
        }
    }

    /// Emits everything that is in a block now.
    pub fn flush(&mut self, emit: &mut impl FnMut(ReedSolomonRepair<'_, N>)) {
        self.emit_delayed(usize::MAX, emit);
        self.fire_round(emit);
    }

    /// Memory held, from construction on.
    pub fn memory_bytes(&self) -> usize {
        let blocks = self.filling.blocks.len() * (1 + usize::from(self.leaving.is_some()));
        blocks * Self::block_bytes(self.r, self.c, self.symbol_max) + self.coefficients.len()
    }

    fn block_bytes(r: usize, c: usize, symbol_max: usize) -> usize {
        c * symbol_max + r * size_of::<N>() + size_of::<Block<N>>()
    }

    /// Adds a symbol to the c sums of a block.
    fn add(&mut self, at: usize, name: N, symbol: &[&[u8]], length: usize) {
        let Self { r, c, symbol_max, .. } = *self;
        let block = &mut self.filling.blocks[at];
        let position = block.names.len();
        block.names.push(name);
        let payloads = &mut self.filling.payloads[at * c * symbol_max..][..c * symbol_max];
        if length > block.length {
            // What lies beyond the longest symbol so far is left over from an earlier block.
            payloads.chunks_exact_mut(symbol_max).for_each(|sum| sum[block.length..length].fill(0));
            block.length = length;
        }
        let mut offset = 0;
        for piece in symbol {
            let mut sums = payloads.chunks_exact_mut(symbol_max).map(|sum| &mut sum[offset..]);
            // The first row is a plain sum.
            sums.next().into_iter().for_each(|sum| gf256::xor_into(sum, piece));
            let mut factors = self.coefficients[position..].iter().step_by(r).skip(1);
            for row in (1..c).step_by(AT_ONCE) {
                let mut both = || (*factors.next().unwrap_or(&0), sums.next().unwrap_or_default());
                let mut some: [(u8, &mut [u8]); AT_ONCE] = std::array::from_fn(|_| both());
                gf256::mul_add_each(&mut some[..AT_ONCE.min(c - row)], piece);
            }
            offset += piece.len();
        }
    }

    /// The round is full: it is empty again, or its repairs begin to leave.
    fn end_round(&mut self, emit: &mut impl FnMut(ReedSolomonRepair<'_, N>)) {
        // Nothing is left of the round before: its last turn came with this packet at the latest.
        self.emit_delayed(usize::MAX, emit);
        match &mut self.leaving {
            Some(leaving) => std::mem::swap(leaving, &mut self.filling),
            None => self.filling.clear(),
        }
    }

    /// Emits the next repairs of the round that is leaving, if there are any.
    fn emit_delayed(&mut self, turns: usize, emit: &mut impl FnMut(ReedSolomonRepair<'_, N>)) {
        let Some(round) = self.leaving.as_mut().filter(|round| round.packets > 0) else { return };
        let all = round.blocks.len() * self.c;
        let end = round.turns.saturating_add(turns).min(all);
        for turn in round.turns..end {
            let (row, block) = (turn / round.blocks.len(), turn % round.blocks.len());
            round.emit(block, row, &self.coefficients[row * self.r..], self.symbol_max, self.c, emit);
        }
        round.turns = end;
        if end == all {
            round.clear();
        }
    }

    fn fire_block(&mut self, block: usize, emit: &mut impl FnMut(ReedSolomonRepair<'_, N>)) {
        for row in 0..self.c {
            let coefficients = &self.coefficients[row * self.r..];
            self.filling.emit(block, row, coefficients, self.symbol_max, self.c, emit);
        }
        self.filling.blocks[block].clear();
    }

    /// Fires what the part-filled round holds; the next packet begins a new one.
    fn fire_round(&mut self, emit: &mut impl FnMut(ReedSolomonRepair<'_, N>)) {
        for row in 0..self.c {
            let coefficients = &self.coefficients[row * self.r..];
            for block in 0..self.filling.blocks.len().min(self.filling.packets) {
                self.filling.emit(block, row, coefficients, self.symbol_max, self.c, emit);
            }
        }
        self.filling.clear();
    }
}

impl<N: Copy> Round<N> {
    fn new(blocks: usize, r: usize, c: usize, symbol_max: usize) -> Self {
        Self {
            blocks: (0..blocks).map(|_| Block { names: Vec::with_capacity(r), length: 0 }).collect(),
            payloads: vec![0; blocks * c * symbol_max].into_boxed_slice(),
            packets: 0,
            begun_us: 0,
            turns: 0,
        }
    }

    /// Emits one repair of a block, unless the block is empty; `coefficients` begin with those of the row.
    fn emit(
        &self,
        block: usize,
        row: usize,
        coefficients: &[u8],
        symbol_max: usize,
        c: usize,
        emit: &mut impl FnMut(ReedSolomonRepair<'_, N>),
    ) {
        let Block { names, length } = &self.blocks[block];
        if names.is_empty() {
            return;
        }
        emit(ReedSolomonRepair {
            row: row as u8,
            names,
            coefficients: &coefficients[..names.len()],
            payload: &self.payloads[(block * c + row) * symbol_max..][..*length],
        });
    }

    fn clear(&mut self) {
        self.blocks.iter_mut().for_each(Block::clear);
        self.packets = 0;
        self.turns = 0;
    }
}

impl<N> Block<N> {
    fn clear(&mut self) {
        self.names.clear();
        self.length = 0;
    }
}
