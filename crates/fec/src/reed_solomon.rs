//! Reed–Solomon blocks as a schedule: r source packets, c repairs, any r of the r + c are enough.
//!
//! Maelstrom §4.4 compares layered interleaving with this code. It is systematic, and its coefficients form a
//! Cauchy matrix, every square submatrix of which is invertible. With an interleave i, i blocks are fed in
//! turn, so that the packets of a block lie i apart. A *round* is i · r packets.

use crate::error::{ConfigError, check_common, check_memory, check_range};
use crate::gf256;
use crate::limits::{INTERLEAVE_MAX, SymbolTooLong, symbol_length};
use crate::repair::{Draw, Repair};
use crate::scheme::Sending;

/// Most source packets in a block.
pub const BLOCK_R_MAX: u8 = 128;
/// Number of a block's sums that one pass adds a packet to.
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
    /// Whether the c repairs leave as soon as their block is full, or with the packets of the next round.
    /// Delayed repairs leave in turn, the first of every block, then the second of every block, c / r
    /// (rounded up) with each packet.
    pub sending: Sending,
    /// Longest time that a round stays part-filled before all its blocks fire, 1 to
    /// [`DEADLINE_US_MAX`](crate::DEADLINE_US_MAX). `None`: without limit.
    pub deadline_us: Option<u64>,
    /// Longest symbol in bytes, 1 to [`SYMBOL_MAX`](crate::SYMBOL_MAX).
    pub symbol_max: usize,
}

impl Default for ReedSolomonConfig {
    /// (8, 3), one block at a time, sent at once, 20 ms, symbols up to 1,536 bytes.
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

impl ReedSolomonConfig {
    /// Checks every range.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_range("r", self.r, 1, BLOCK_R_MAX)?;
        check_range("c", self.c, 1, BLOCK_C_MAX)?;
        check_range("interleave", self.interleave, 1, INTERLEAVE_MAX)?;
        check_common(self.deadline_us, self.symbol_max)
    }

    /// Repairs per source packet in the long run, where blocks fill.
    pub fn overhead(&self) -> f64 {
        f64::from(self.c) / f64::from(self.r)
    }

    /// Number of rounds kept at a time.
    fn rounds(&self) -> usize {
        if self.sending == Sending::Delayed { 2 } else { 1 }
    }
}

/// Returns the coefficient of the packet at `position` of a block, counted from 0, in the block's repair
/// `row`.
///
/// The coefficients are the Cauchy matrix 1 / (x_row + y_position) with x_row = 128 + row and y_position =
/// position. Every column is scaled so that row 0 is all ones: the first repair of a block is a plain XOR.
/// Scaling columns keeps every square submatrix invertible.
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

/// Makes the repairs of a Reed–Solomon code from a stream of source packets.
///
/// `P` is what the owner keeps of each packet in a block. All memory is allocated at construction. A
/// part-filled block of k packets fires with all its c repairs: any k of the k + c are enough.
///
/// ```
/// use fec::{ReedSolomonConfig, ReedSolomonEncoder, Repair};
/// let config = ReedSolomonConfig { r: 2, c: 2, ..ReedSolomonConfig::default() };
/// let mut encoder = ReedSolomonEncoder::new(&config).unwrap();
/// let mut sent = Vec::new();
/// let mut emit = |repair: Repair<'_, u32>| sent.push((repair.row, repair.packets.to_vec(), repair.payload.to_vec()));
/// encoder.push(0, 1, &[b"ab"], &mut emit).unwrap();
/// encoder.push(0, 2, &[b"a", b"cd"], &mut emit).unwrap();
/// assert_eq!(sent[0], (0, vec![1, 2], vec![0, b'b' ^ b'c', b'd']));
/// assert_eq!((sent[1].0, sent.len()), (1, 2));
/// ```
#[derive(Debug)]
pub struct ReedSolomonEncoder<P> {
    r: usize,
    c: usize,
    sending: Sending,
    deadline_us: Option<u64>,
    symbol_max: usize,
    /// c rows of r coefficients.
    coefficients: Box<[u8]>,
    filling: Round<P>,
    /// Previous round, while some of its repairs have not left; only with delayed sending.
    leaving: Option<Round<P>>,
    /// Latest time seen.
    now_us: u64,
}

/// `interleave` blocks that are fed in turn.
#[derive(Debug)]
struct Round<P> {
    blocks: Box<[Block<P>]>,
    /// c payloads of `symbol_max` bytes for each block.
    payloads: Box<[u8]>,
    c: usize,
    symbol_max: usize,
    packets: usize,
    /// When the first packet came.
    begun_us: u64,
    /// Delayed repairs already sent, in order: the first of each block, then the second of each, …
    turns: usize,
}

#[derive(Debug)]
struct Block<P> {
    packets: Vec<P>,
    /// Length of the longest symbol in it.
    length: usize,
}

impl<P: Copy> ReedSolomonEncoder<P> {
    /// Checks every range and the memory that an encoder needs, without building one.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn check(config: &ReedSolomonConfig) -> Result<(), ConfigError> {
        config.check()?;
        let block = Self::block_bytes(usize::from(config.r), usize::from(config.c), config.symbol_max);
        let memory = config.rounds() * usize::from(config.interleave) * block;
        check_memory("r, c, interleave and symbol_max", memory)
    }

    /// Creates an encoder with empty blocks.
    ///
    /// # Errors
    /// As [`ReedSolomonEncoder::check`].
    pub fn new(config: &ReedSolomonConfig) -> Result<Self, ConfigError> {
        Self::check(config)?;
        let (r, c) = (usize::from(config.r), usize::from(config.c));
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

    /// Adds the next source packet to its block and emits the repairs that become due.
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
        let length = symbol_length(symbol, self.symbol_max)?;
        self.now_us = self.now_us.max(now_us);
        self.emit_delayed(self.c.div_ceil(self.r), emit);
        if self.filling.packets == 0 {
            self.filling.begun_us = self.now_us;
        }
        let blocks = self.filling.blocks.len();
        let block = self.filling.packets % blocks;
        self.add(block, packet, symbol, length);
        self.filling.packets += 1;
        if self.sending == Sending::Immediate && self.filling.blocks[block].packets.len() == self.r {
            self.fire_block(block, emit);
        }
        if self.filling.packets == blocks * self.r {
            self.end_round(emit);
        }
        Ok(())
    }

    /// Time of the next deadline; `None` without deadline or without a packet waiting.
    pub fn next_deadline_us(&self) -> Option<u64> {
        let leaving = self.leaving.as_ref().filter(|round| round.packets > 0);
        let oldest = leaving.or((self.filling.packets > 0).then_some(&self.filling))?;
        Some(oldest.begun_us.saturating_add(self.deadline_us?))
    }

    /// Emits the repairs whose deadline has passed: of part-filled blocks, and delayed ones not yet sent.
    pub fn fire_due(&mut self, now_us: u64, emit: &mut impl FnMut(Repair<'_, P>)) {
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

    /// Whether a block holds a packet, or repairs have not left.
    pub fn has_waiting(&self) -> bool {
        self.filling.packets > 0 || self.leaving.as_ref().is_some_and(|round| round.packets > 0)
    }

    /// Emits the repairs of every block that holds a packet.
    pub fn flush(&mut self, emit: &mut impl FnMut(Repair<'_, P>)) {
        self.emit_delayed(usize::MAX, emit);
        self.fire_round(emit);
    }

    /// Bytes of memory held, constant after construction.
    pub fn memory_bytes(&self) -> usize {
        let blocks = self.filling.blocks.len() * (1 + usize::from(self.leaving.is_some()));
        blocks * Self::block_bytes(self.r, self.c, self.symbol_max) + self.coefficients.len()
    }

    fn block_bytes(r: usize, c: usize, symbol_max: usize) -> usize {
        c * symbol_max + r * size_of::<P>() + size_of::<Block<P>>()
    }

    /// Adds a symbol to the c sums of a block.
    fn add(&mut self, at: usize, packet: P, symbol: &[&[u8]], length: usize) {
        let Self { r, c, symbol_max, .. } = *self;
        let block = &mut self.filling.blocks[at];
        let position = block.packets.len();
        block.packets.push(packet);
        let payloads = &mut self.filling.payloads[at * c * symbol_max..][..c * symbol_max];
        if length > block.length {
            // Bytes beyond the longest symbol are left over from an earlier block.
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

    /// Ends a full round: clears it, or lets its delayed repairs begin to leave.
    fn end_round(&mut self, emit: &mut impl FnMut(Repair<'_, P>)) {
        // The last repair of the previous round left with this packet at the latest.
        self.emit_delayed(usize::MAX, emit);
        match &mut self.leaving {
            Some(leaving) => std::mem::swap(leaving, &mut self.filling),
            None => self.filling.clear(),
        }
    }

    /// Emits the next `turns` repairs of the previous round, if any are left.
    fn emit_delayed(&mut self, turns: usize, emit: &mut impl FnMut(Repair<'_, P>)) {
        let Some(round) = self.leaving.as_mut().filter(|round| round.packets > 0) else { return };
        let all = round.blocks.len() * self.c;
        let end = round.turns.saturating_add(turns).min(all);
        for turn in round.turns..end {
            let (row, block) = (turn / round.blocks.len(), turn % round.blocks.len());
            round.emit(block, row, &self.coefficients[row * self.r..], emit);
        }
        round.turns = end;
        if end == all {
            round.clear();
        }
    }

    fn fire_block(&mut self, block: usize, emit: &mut impl FnMut(Repair<'_, P>)) {
        for row in 0..self.c {
            self.filling.emit(block, row, &self.coefficients[row * self.r..], emit);
        }
        self.filling.blocks[block].clear();
    }

    /// Fires all blocks of the part-filled round; the next packet begins a new round.
    fn fire_round(&mut self, emit: &mut impl FnMut(Repair<'_, P>)) {
        for row in 0..self.c {
            let coefficients = &self.coefficients[row * self.r..];
            for block in 0..self.filling.blocks.len().min(self.filling.packets) {
                self.filling.emit(block, row, coefficients, emit);
            }
        }
        self.filling.clear();
    }
}

impl<P: Copy> Round<P> {
    fn new(blocks: usize, r: usize, c: usize, symbol_max: usize) -> Self {
        Self {
            blocks: (0..blocks).map(|_| Block { packets: Vec::with_capacity(r), length: 0 }).collect(),
            payloads: vec![0; blocks * c * symbol_max].into_boxed_slice(),
            c,
            symbol_max,
            packets: 0,
            begun_us: 0,
            turns: 0,
        }
    }

    /// Emits one repair of a block, unless the block is empty; `coefficients` begin with those of the row.
    fn emit(&self, block: usize, row: usize, coefficients: &[u8], emit: &mut impl FnMut(Repair<'_, P>)) {
        let Block { packets, length } = &self.blocks[block];
        if packets.is_empty() {
            return;
        }
        emit(Repair {
            row,
            draw: Draw::default(),
            stripes: 1,
            packets,
            coefficients: &coefficients[..packets.len()],
            payload: &self.payloads[(block * self.c + row) * self.symbol_max..][..*length],
        });
    }

    fn clear(&mut self) {
        self.blocks.iter_mut().for_each(Block::clear);
        self.packets = 0;
        self.turns = 0;
    }
}

impl<P> Block<P> {
    fn clear(&mut self) {
        self.packets.clear();
        self.length = 0;
    }
}
