//! Consecutive repairs, computed together.
//!
//! Their windows overlap, and a window is larger than the first-level cache. With the fastest kernels,
//! reading it takes as long as the arithmetic, so each packet is read once for all of them.

use super::coefficients::{Drawing, first_seed};
use super::strings::Strings;
use crate::gf256;
use std::ops::Range;

/// Maximum number of repairs computed together.
pub(super) const TOGETHER: usize = 4;
/// Number of packets added in one pass, few enough to stay in the first-level cache.
const PASS: usize = 16;
/// Density from which computing products that are 0 costs less than skipping them.
const DENSITY_TOGETHER: u8 = 11;
/// The same density for kernels whose product is one instruction.
const DENSITY_TOGETHER_CHEAP: u8 = 3;

/// Up to [`TOGETHER`] repairs of one stripe, in the order in which they leave.
///
/// Packets are counted within the stripe, but where the owner names them.
#[derive(Debug)]
pub(super) struct Rows {
    rows: [Row; TOGETHER],
    count: usize,
    stripe: Stripe,
    /// Number of repairs that have left.
    leaving: usize,
    /// Packets before this one have been added to their sums.
    added: u64,
    /// Coefficients, a window for each row, drawn as they are needed.
    coefficients: Box<[u8]>,
    drawing: Drawing<TOGETHER>,
    density: u8,
    /// Whether products that are 0 are computed.
    together: bool,
    sums: Strings,
}

/// A stripe of the stream: every packet whose number modulo `of` is `own`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stripe {
    pub(super) own: usize,
    pub(super) of: usize,
}

impl Stripe {
    /// The whole stream.
    pub(super) const ALL: Self = Self { own: 0, of: 1 };

    /// Number of packets of the stripe before packet `end` of the stream.
    fn before(self, end: u64) -> u64 {
        (end + (self.of - 1 - self.own) as u64) / self.of as u64
    }

    /// Number in the stream of a packet of the stripe.
    fn packet(self, number: u64) -> u64 {
        number * self.of as u64 + self.own as u64
    }
}

/// A repair of the packets `first` to `end`, exclusive, that leaves when the stream has `due` packets.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    first: u64,
    end: u64,
    due: u64,
    seed: u16,
}

/// A completed repair.
pub(super) struct Finished<'a> {
    pub(super) stripe: Stripe,
    /// From the oldest to behind the newest packet of the sum, counted in the stream.
    pub(super) packets: Range<u64>,
    pub(super) seed: u16,
    pub(super) coefficients: &'a [u8],
    pub(super) payload: &'a [u8],
}

impl Rows {
    /// Creates an empty set.
    pub(super) fn new(window: usize, symbol_max: usize, density: u8) -> Self {
        let cheap = gf256::Kernel::best().has_products();
        Self {
            rows: [Row::default(); TOGETHER],
            count: 0,
            stripe: Stripe::ALL,
            leaving: 0,
            added: 0,
            coefficients: vec![0; TOGETHER * window].into_boxed_slice(),
            drawing: Drawing::new([0; TOGETHER], density),
            density,
            together: density >= if cheap { DENSITY_TOGETHER_CHEAP } else { DENSITY_TOGETHER },
            sums: Strings::new(TOGETHER, symbol_max),
        }
    }

    /// Bytes of memory that such rows hold.
    pub(super) fn memory_bytes(window: usize, symbol_max: usize) -> usize {
        TOGETHER * window + Strings::memory_bytes(TOGETHER, symbol_max)
    }

    /// Forgets all repairs.
    pub(super) fn clear(&mut self) {
        (self.count, self.leaving) = (0, 0);
    }

    /// Begins repairs of a stripe of these packets, at most a window each. Each span, as its repair leaves,
    /// ends with the newest packet. Neither their first nor their last packets descend, and each has a packet
    /// of the stripe.
    ///
    /// The first takes the given seed, and each other the next one. Seeds whose coefficients are all 0,
    /// possible in a sparse repair of a short window, are skipped.
    pub(super) fn begin(&mut self, stripe: Stripe, spans: impl Iterator<Item = Range<u64>>, mut seed: u16) {
        self.clear();
        self.stripe = stripe;
        for (row, span) in self.rows.iter_mut().zip(spans) {
            let (first, end, due) = (stripe.before(span.start), stripe.before(span.end), span.end);
            seed = first_seed(seed, self.density, (end - first) as usize);
            *row = Row { first, end, due, seed };
            seed = seed.wrapping_add(1);
            self.sums.clear(self.count);
            self.count += 1;
        }
        self.added = self.rows[0].first;
        self.drawing = Drawing::new(self.rows.map(|row| row.seed), self.density);
    }

    /// Draws the coefficients of the packets before `end`. The first row always needs the most.
    fn draw(&mut self, end: u64) {
        let window = self.window();
        let mut all = self.coefficients.chunks_exact_mut(window);
        let mut parts = std::array::from_fn(|k| {
            let length = if k < self.count { self.rows[k].len() } else { 0 };
            all.next().map_or(&mut [][..], |part| &mut part[..length])
        });
        self.drawing.draw((end - self.rows[0].first) as usize, &mut parts);
    }

    fn window(&self) -> usize {
        self.coefficients.len() / TOGETHER
    }

    /// Number of repairs that have not left.
    pub(super) fn left(&self) -> usize {
        self.count - self.leaving
    }

    /// Number of repairs begun.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the seed after the last one used.
    pub(super) fn next_seed(&self) -> Option<u16> {
        let last = self.count.checked_sub(1)?;
        Some(self.rows[last].seed.wrapping_add(1))
    }

    /// Returns the packets of the stream from the first one of the first repair until that leaves.
    pub(super) fn first_window(&self) -> Range<u64> {
        self.stripe.packet(self.rows[0].first)..self.rows[0].due
    }

    /// Adds the packets of the stream before `end`, which must all be in `symbols`, to their sums.
    pub(super) fn add_before(&mut self, end: u64, symbols: &Strings) {
        let end = self.stripe.before(end);
        while self.added < end && self.left() > 0 {
            let rows = &self.rows[..self.count];
            // Windows begin and end in the order of the rows.
            let from = rows.iter().take_while(|row| row.end <= self.added).count();
            let to = rows.iter().take_while(|row| row.first <= self.added).count();
            let border = rows.get(from).map_or(end, |row| row.end);
            let border = rows.get(to).map_or(border, |row| border.min(row.first));
            let stop = end.min(border).min(self.added + PASS as u64);
            if from >= to {
                // These packets are between two windows, or behind the last.
                self.added = if from < rows.len() { stop } else { end };
                continue;
            }
            self.add(from..to, self.added..stop, symbols);
            self.added = stop;
        }
    }

    /// Adds packets that all of these repairs contain.
    fn add(&mut self, rows: Range<usize>, packets: Range<u64>, symbols: &Strings) {
        let window = self.window();
        let count = (packets.end - packets.start) as usize;
        self.draw(packets.end);
        let mut factors = [[0; TOGETHER]; PASS];
        for (k, row) in rows.clone().enumerate() {
            let from = (packets.start - self.rows[row].first) as usize;
            let own = &self.coefficients[row * window + from..][..count];
            factors.iter_mut().zip(own).for_each(|(factors, &own)| factors[k] = own);
        }
        let factors = &factors[..count];
        let sources = symbols.round(self.stripe.packet(packets.start), self.stripe.of, count);
        if rows.len() > 1 && self.together {
            return self.add_to_all(rows, factors, sources);
        }
        for (k, row) in rows.enumerate() {
            self.add_to_one(row, factors.iter().map(|factors| factors[k]), sources.clone());
        }
    }

    fn add_to_one<'a>(
        &mut self,
        row: usize,
        factors: impl Iterator<Item = u8>,
        sources: impl Iterator<Item = &'a [u8]>,
    ) {
        let mut terms: [(u8, &[u8]); PASS + 1] = [(0, &[]); PASS + 1];
        let (mut used, mut longest) = (0, 0);
        for term in factors.zip(sources) {
            // Branch-free, because random branches are mispredicted. An unused entry is overwritten.
            terms[used] = term;
            let there = usize::from(term.0 != 0);
            used += there;
            longest = longest.max(there * term.1.len());
        }
        self.sums.extend(row, longest);
        if let Some(sum) = self.sums.rooms_mut().nth(row) {
            gf256::mul_add_many(sum, &terms[..used]);
        }
    }

    fn add_to_all<'a>(
        &mut self,
        rows: Range<usize>,
        factors: &[[u8; TOGETHER]],
        sources: impl Iterator<Item = &'a [u8]>,
    ) {
        let mut terms: [(&[u8], &[u8]); PASS] = [(&[], &[]); PASS];
        let mut longest = [0; TOGETHER];
        for ((term, factors), source) in terms.iter_mut().zip(factors).zip(sources) {
            *term = (&factors[..rows.len()], source);
            for (longest, &factor) in longest.iter_mut().zip(factors) {
                *longest = (*longest).max(usize::from(factor != 0) * source.len());
            }
        }
        rows.clone().zip(longest).for_each(|(row, longest)| self.sums.extend(row, longest));
        let mut sums = self.sums.rooms_mut().skip(rows.start);
        let mut sums: [&mut [u8]; TOGETHER] = std::array::from_fn(|_| sums.next().unwrap_or_default());
        gf256::mul_add_rows(&mut sums[..rows.len()], &terms[..factors.len()]);
    }

    /// Takes the next repair, which must leave at packet `due` and whose packets must all have been added.
    pub(super) fn take(&mut self, due: u64) -> Finished<'_> {
        let at = self.leaving;
        assert!(at < self.count, "a repair leaves that was not begun");
        let row = self.rows[at];
        assert!(
            row.due == due && self.added >= row.end,
            "expected a repair that leaves at packet {due}, saw {row:?}"
        );
        self.leaving += 1;
        Finished {
            stripe: self.stripe,
            packets: self.stripe.packet(row.first)..self.stripe.packet(row.end - 1) + 1,
            seed: row.seed,
            coefficients: &self.coefficients[at * self.window()..][..row.len()],
            payload: self.sums.get(at),
        }
    }
}

impl Row {
    fn len(&self) -> usize {
        (self.end - self.first) as usize
    }
}
