//! Assignment of symbols to columns of the matrix.

use crate::symbol::SymbolId;

/// A column of the matrix.
pub(super) type Column = usize;

const FREE: u16 = u16::MAX;

/// The unknowns of a system, each in a column, found by id through open addressing with linear probing.
///
/// At most half of the slots are used. Removal moves later entries back, so that lookups meet no tombstones.
#[derive(Debug)]
pub(super) struct Columns {
    slots: Box<[u16]>,
    ids: Box<[Option<SymbolId>]>,
    used: usize,
    /// One more than the highest column in use, or 0.
    width: usize,
    /// No column below this is free.
    lowest_free: usize,
}

impl Columns {
    pub(super) fn new(capacity: usize) -> Self {
        assert!(capacity < usize::from(FREE), "columns are numbered in 16 bits");
        Self {
            slots: vec![FREE; (2 * capacity).next_power_of_two()].into_boxed_slice(),
            ids: vec![None; capacity].into_boxed_slice(),
            used: 0,
            width: 0,
            lowest_free: 0,
        }
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn free(&self) -> usize {
        self.ids.len() - self.used
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn id(&self, column: Column) -> Option<SymbolId> {
        self.ids[column]
    }

    #[inline]
    pub(super) fn find(&self, id: SymbolId) -> Option<Column> {
        if self.used == 0 {
            return None;
        }
        let mut slot = self.home(id);
        loop {
            let column = self.slots[slot];
            if column == FREE {
                return None;
            }
            if self.ids[usize::from(column)] == Some(id) {
                return Some(usize::from(column));
            }
            slot = self.after(slot);
        }
    }

    /// Returns the column of the symbol, assigning a free one if it has none.
    ///
    /// # Panics
    /// If none is free; the caller makes room first.
    pub(super) fn find_or_take(&mut self, id: SymbolId) -> Column {
        if let Some(column) = self.find(id) {
            return column;
        }
        let free = self.ids[self.lowest_free..].iter().position(Option::is_none);
        let column = self.lowest_free + free.expect("room was made for this column");
        self.ids[column] = Some(id);
        self.used += 1;
        self.lowest_free = column + 1;
        self.width = self.width.max(column + 1);
        let mut slot = self.home(id);
        while self.slots[slot] != FREE {
            slot = self.after(slot);
        }
        self.slots[slot] = column as u16;
        column
    }

    pub(super) fn release(&mut self, column: Column) {
        let Some(id) = self.ids[column] else { return };
        let mut hole = self.home(id);
        while usize::from(self.slots[hole]) != column {
            hole = self.after(hole);
        }
        self.close(hole);
        self.ids[column] = None;
        self.used -= 1;
        self.lowest_free = self.lowest_free.min(column);
        while self.width > 0 && self.ids[self.width - 1].is_none() {
            self.width -= 1;
        }
    }

    /// Empties a slot and moves later entries back that would otherwise become unreachable.
    fn close(&mut self, mut hole: usize) {
        let mut slot = self.after(hole);
        while let Some(id) = self.occupant(slot) {
            let reach = self.distance(self.home(id), slot);
            if reach >= self.distance(hole, slot) {
                self.slots[hole] = self.slots[slot];
                hole = slot;
            }
            slot = self.after(slot);
        }
        self.slots[hole] = FREE;
    }

    fn occupant(&self, slot: usize) -> Option<SymbolId> {
        let column = self.slots[slot];
        if column == FREE { None } else { self.ids[usize::from(column)] }
    }

    #[inline]
    fn home(&self, id: SymbolId) -> usize {
        // Fibonacci hashing: the high bits of the product are well mixed.
        (id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.slots.len() - 1)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of_val(&*self.ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn finds_what_a_map_finds(steps in proptest::collection::vec((any::<bool>(), 0..60u64, 0..3u64), 0..400)) {
            const CAPACITY: usize = 32;
            let mut columns = Columns::new(CAPACITY);
            let mut map = BTreeMap::new();
            for (take, id, stream) in steps {
                // Neighbours, and ids that fall into one slot.
                let id = SymbolId(id + [0, u64::MAX / 2, 0x5DA0_0000_0000_0000][stream as usize]);
                if take && (columns.free() > 0 || map.contains_key(&id)) {
                    let column = columns.find_or_take(id);
                    prop_assert_eq!(*map.entry(id).or_insert(column), column);
                } else if let Some(column) = map.remove(&id) {
                    columns.release(column);
                }
                prop_assert_eq!((columns.used(), columns.free()), (map.len(), CAPACITY - map.len()));
                prop_assert_eq!(columns.width(), map.values().max().map_or(0, |&column| column + 1));
                for (&id, &column) in &map {
                    prop_assert_eq!((columns.find(id), columns.id(column)), (Some(column), Some(id)));
                }
                prop_assert_eq!(columns.find(id).is_some(), map.contains_key(&id));
            }
        }
    }
}
