//! A system of linear equations in reduced row echelon form, with all memory taken at construction.
//!
//! Rows are dense: one coefficient byte per column, and the payload. Three invariants hold between calls:
//! 1. every row has a *pivot*: the oldest symbol in it, with coefficient 1;
//! 2. a pivot occurs in no other row;
//! 3. every column in use occurs in some row.
//!
//! It follows that a row with one unknown gives that symbol, that such a symbol occurs in no other row, and
//! that the rows whose pivot has expired are exactly the rows that contain an expired symbol.

use super::columns::{Column, Columns};
use super::config::DecoderConfig;
use crate::gf256;
use crate::symbol::SymbolId;

/// Result of inserting a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Insert {
    /// The row is a combination of the existing rows.
    Redundant,
    /// The row has the coefficients of a combination of existing rows, but another payload.
    Inconsistent,
    Stored,
    /// Stored in place of the oldest row.
    StoredForOldest,
}

#[derive(Debug)]
pub(super) struct System {
    columns: Columns,
    rows: Box<[Row]>,
    coefficients: Table,
    payloads: Table,
    /// Slots of the rows, oldest first.
    order: Vec<u16>,
    /// Slots without a row, at least one. A new row is built in the last of them.
    empty: Vec<u16>,
    /// For each column, the slot of the row whose pivot it is.
    pivots: Box<[Option<u16>]>,
    /// Lower bound of all pivots.
    oldest: SymbolId,
    /// Whether columns in use may occur in no row.
    orphans: bool,
    /// Scratch for the search for such columns.
    seen: Box<[u8]>,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    pivot: Option<Column>,
    /// Number of nonzero coefficients.
    unknowns: usize,
    /// Length of the payload in bytes.
    length: usize,
}

/// Byte rows of equal capacity.
#[derive(Debug)]
struct Table {
    bytes: Box<[u8]>,
    stride: usize,
}

impl System {
    pub(super) fn new(config: &DecoderConfig) -> Self {
        let slots = config.equations + 1;
        let columns = (2 * config.equations + config.terms_max).next_multiple_of(64);
        Self {
            columns: Columns::new(columns),
            rows: vec![Row { pivot: None, unknowns: 0, length: 0 }; slots].into_boxed_slice(),
            coefficients: Table::new(slots, columns),
            payloads: Table::new(slots, config.payload_max),
            order: Vec::with_capacity(slots),
            empty: (0..slots as u16).collect(),
            pivots: vec![None; columns].into_boxed_slice(),
            oldest: SymbolId(u64::MAX),
            orphans: false,
            seen: vec![0; columns].into_boxed_slice(),
        }
    }

    pub(super) fn equations(&self) -> usize {
        self.order.len()
    }

    pub(super) fn unknowns(&self) -> usize {
        self.columns.used()
    }

    #[inline]
    pub(super) fn waits_for(&self, id: SymbolId) -> bool {
        self.columns.find(id).is_some()
    }

    /// Symbols in rows, each with whether it is a pivot.
    pub(super) fn ids(&self) -> impl Iterator<Item = (SymbolId, bool)> + '_ {
        let columns = 0..self.columns.width();
        columns.filter_map(|column| Some((self.columns.id(column)?, self.pivots[column].is_some())))
    }

    /// Drops the oldest rows until there are columns for all of `ids`; returns the number dropped.
    pub(super) fn make_room(&mut self, ids: &(impl Iterator<Item = SymbolId> + Clone)) -> usize {
        let before = self.order.len();
        while ids.clone().filter(|&id| !self.waits_for(id)).count() > self.columns.free() {
            // An eighth of the rows at a time, because `sweep` reads all of them.
            for _ in 0..(self.rows.len() / 8 + 1).min(self.order.len()) {
                self.remove(0);
            }
            self.sweep();
        }
        before - self.order.len()
    }

    /// Begins a new row; returns its payload.
    pub(super) fn begin(&mut self, payload: &[u8]) -> &mut [u8] {
        let slot = self.spare();
        let width = self.coefficients.stride;
        self.coefficients.row_mut(slot, width).fill(0);
        self.rows[slot] = Row { pivot: None, unknowns: 0, length: payload.len() };
        let own = self.payloads.row_mut(slot, payload.len());
        own.copy_from_slice(payload);
        own
    }

    /// Adds an unknown to the new row.
    pub(super) fn add_unknown(&mut self, id: SymbolId, coefficient: u8) {
        let (slot, column) = (self.spare(), self.columns.find_or_take(id));
        let own = self.coefficients.at_mut(slot, column);
        *own ^= coefficient;
        // A symbol listed twice may cancel out.
        self.orphans |= *own == 0;
    }

    /// Reduces the new row by the others and, unless it becomes empty, the others by it.
    pub(super) fn insert(&mut self) -> Insert {
        let slot = self.spare();
        for column in 0..self.columns.width() {
            let factor = self.coefficients.at(slot, column);
            if factor != 0
                && let Some(row) = self.pivots[column]
            {
                self.add_row(slot, usize::from(row), factor);
            }
        }
        self.count(slot);
        if self.rows[slot].unknowns == 0 {
            self.sweep();
            let zero = self.payload(slot).iter().all(|&byte| byte == 0);
            return if zero { Insert::Redundant } else { Insert::Inconsistent };
        }
        self.empty.pop();
        self.order.push(slot as u16);
        let full = self.empty.is_empty();
        if full {
            self.remove(0);
        }
        self.choose_pivot(slot);
        self.sweep();
        if full { Insert::StoredForOldest } else { Insert::Stored }
    }

    /// Substitutes a symbol that became known in all rows; returns the number of rows that contradicted it
    /// and were dropped.
    pub(super) fn substitute(&mut self, id: SymbolId, symbol: &[u8]) -> usize {
        let Some(column) = self.columns.find(id) else { return 0 };
        // At most one row has it as its pivot. If that row stays, it needs another pivot.
        let mut bereft = self.pivots[column].take();
        let mut contradictions = 0;
        let mut at = 0;
        while at < self.order.len() {
            let slot = usize::from(self.order[at]);
            let consistent = self.subtract_symbol(slot, column, symbol);
            if consistent && self.rows[slot].unknowns > 0 {
                at += 1;
                continue;
            }
            contradictions += usize::from(!consistent);
            bereft = bereft.filter(|&row| usize::from(row) != slot);
            self.remove(at);
        }
        self.columns.release(column);
        if let Some(slot) = bereft {
            self.choose_pivot(usize::from(slot));
        }
        self.sweep();
        contradictions
    }

    /// Drops every row with a symbol older than `id`; returns the number dropped.
    pub(super) fn expire_before(&mut self, id: SymbolId) -> usize {
        if self.oldest >= id {
            return 0;
        }
        let before = self.order.len();
        let mut at = 0;
        self.oldest = SymbolId(u64::MAX);
        while at < self.order.len() {
            let pivot = self.pivot_id(at);
            if pivot < id {
                self.remove(at);
            } else {
                self.oldest = self.oldest.min(pivot);
                at += 1;
            }
        }
        self.sweep();
        before - self.order.len()
    }

    /// Position of the first row, from `from` on, that has one unknown.
    pub(super) fn next_solved(&self, from: usize) -> Option<usize> {
        (from..self.order.len()).find(|&at| self.rows[usize::from(self.order[at])].unknowns == 1)
    }

    /// Returns a row's pivot and payload. With one unknown, the payload is that symbol.
    pub(super) fn symbol(&self, at: usize) -> (SymbolId, &[u8]) {
        (self.pivot_id(at), self.payload(usize::from(self.order[at])))
    }

    /// Drops the row at a position.
    pub(super) fn remove(&mut self, at: usize) {
        let slot = self.order.remove(at);
        self.empty.push(slot);
        let row = &mut self.rows[usize::from(slot)];
        let mut others = row.unknowns;
        if let Some(pivot) = row.pivot.take() {
            // A pivot occurs in its own row alone.
            self.pivots[pivot] = None;
            self.columns.release(pivot);
            others -= 1;
        }
        self.orphans |= others > 0;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.columns.memory_bytes()
            + size_of_val(&*self.rows)
            + self.coefficients.bytes.len()
            + self.payloads.bytes.len()
            + (self.order.capacity() + self.empty.capacity()) * size_of::<u16>()
            + size_of_val(&*self.pivots)
            + self.seen.len()
    }

    fn spare(&self) -> usize {
        usize::from(*self.empty.last().expect("one slot more than rows"))
    }

    fn pivot_id(&self, at: usize) -> SymbolId {
        let pivot = self.rows[usize::from(self.order[at])].pivot.expect("every row has a pivot");
        self.columns.id(pivot).expect("a pivot is in use")
    }

    fn payload(&self, slot: usize) -> &[u8] {
        self.payloads.row(slot, self.rows[slot].length)
    }

    /// Row `to` += `factor` · row `from`.
    fn add_row(&mut self, to: usize, from: usize, factor: u8) {
        let (sum, added) = self.coefficients.pair(to, from);
        let width = self.columns.width();
        gf256::mul_add(&mut sum[..width], factor, &added[..width]);
        let (sum, added) = self.payloads.pair(to, from);
        let (length, other) = (self.rows[to].length, self.rows[from].length);
        let common = length.min(other);
        gf256::mul_add(&mut sum[..common], factor, &added[..common]);
        if other > length {
            sum[length..other].copy_from_slice(&added[length..other]);
            gf256::mul(&mut sum[length..other], factor);
            self.rows[to].length = other;
        }
    }

    /// Subtracts a known symbol from one row; returns false if the row contradicts it.
    fn subtract_symbol(&mut self, slot: usize, column: Column, symbol: &[u8]) -> bool {
        let coefficient = self.coefficients.at_mut(slot, column);
        if *coefficient == 0 {
            return true;
        }
        let factor = std::mem::take(coefficient);
        let row = &mut self.rows[slot];
        row.unknowns -= 1;
        if row.pivot == Some(column) {
            row.pivot = None;
        }
        let length = row.length;
        let payload = self.payloads.row_mut(slot, length);
        let common = symbol.len().min(length);
        gf256::mul_add(payload, factor, &symbol[..common]);
        let left = row.unknowns > 0 || payload.iter().all(|&byte| byte == 0);
        left && symbol[common..].iter().all(|&byte| byte == 0)
    }

    /// Makes the oldest symbol of a row its pivot and eliminates it from all other rows.
    fn choose_pivot(&mut self, slot: usize) {
        let width = self.columns.width();
        let coefficients = self.coefficients.row(slot, width);
        let unknowns = (0..width).filter(|&column| coefficients[column] != 0);
        let oldest = unknowns.filter_map(|column| Some((self.columns.id(column)?, column))).min();
        let (id, pivot) = oldest.expect("a row has an unknown");
        self.rows[slot].pivot = Some(pivot);
        self.pivots[pivot] = Some(slot as u16);
        self.oldest = self.oldest.min(id);
        let scale = self.coefficients.at(slot, pivot);
        if scale != 1 {
            let length = self.rows[slot].length;
            gf256::mul(self.coefficients.row_mut(slot, width), gf256::inverse(scale));
            gf256::mul(self.payloads.row_mut(slot, length), gf256::inverse(scale));
        }
        for at in 0..self.order.len() {
            let other = usize::from(self.order[at]);
            let factor = self.coefficients.at(other, pivot);
            if other != slot && factor != 0 {
                self.add_row(other, slot, factor);
                self.count(other);
            }
        }
    }

    fn count(&mut self, slot: usize) {
        self.rows[slot].unknowns = gf256::count(self.coefficients.row(slot, self.columns.width()));
    }

    /// Releases the columns that occur in no row.
    fn sweep(&mut self) {
        if !std::mem::take(&mut self.orphans) {
            return;
        }
        let width = self.columns.width();
        self.seen[..width].fill(0);
        for &slot in &self.order {
            let row = self.coefficients.row(usize::from(slot), width);
            self.seen[..width].iter_mut().zip(row).for_each(|(seen, coefficient)| *seen |= coefficient);
        }
        for column in 0..width {
            if self.seen[column] == 0 {
                self.columns.release(column);
            }
        }
    }
}

impl Table {
    fn new(rows: usize, stride: usize) -> Self {
        Self { bytes: vec![0; rows * stride].into_boxed_slice(), stride }
    }

    fn at(&self, row: usize, column: usize) -> u8 {
        self.bytes[row * self.stride + column]
    }

    fn at_mut(&mut self, row: usize, column: usize) -> &mut u8 {
        &mut self.bytes[row * self.stride + column]
    }

    fn row(&self, row: usize, length: usize) -> &[u8] {
        &self.bytes[row * self.stride..][..length]
    }

    fn row_mut(&mut self, row: usize, length: usize) -> &mut [u8] {
        &mut self.bytes[row * self.stride..][..length]
    }

    /// Returns two different rows, the first mutable.
    fn pair(&mut self, changed: usize, read: usize) -> (&mut [u8], &[u8]) {
        assert!(changed != read, "a row is never added to itself");
        let stride = self.stride;
        let (low, high) = self.bytes.split_at_mut(changed.max(read) * stride);
        let low = &mut low[changed.min(read) * stride..][..stride];
        let high = &mut high[..stride];
        if changed < read { (low, high) } else { (high, low) }
    }
}
