//! Unfinished sums, in a bounded pool.

use fec::gf256;

/// A sum in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SumSlot(u32);

/// A pool of sums with `symbol_max` bytes each, allocated at construction.
#[derive(Debug)]
pub(super) struct Sums {
    bytes: Box<[u8]>,
    /// Length of each sum; the bytes beyond are left over from earlier sums.
    lengths: Box<[usize]>,
    free: Vec<u32>,
    symbol_max: usize,
}

impl Sums {
    pub(super) fn new(count: usize, symbol_max: usize) -> Self {
        Self {
            bytes: vec![0; count * symbol_max].into_boxed_slice(),
            lengths: vec![0; count].into_boxed_slice(),
            // The lowest slots are used first and stay in the cache.
            free: (0..count as u32).rev().collect(),
            symbol_max,
        }
    }

    /// Takes an empty sum, if one is free.
    pub(super) fn take(&mut self) -> Option<SumSlot> {
        let slot = self.free.pop()?;
        self.lengths[slot as usize] = 0;
        Some(SumSlot(slot))
    }

    pub(super) fn give_back(&mut self, slot: SumSlot) {
        self.free.push(slot.0);
    }

    /// Adds a symbol, given as consecutive pieces.
    pub(super) fn add(&mut self, slot: SumSlot, symbol: &[&[u8]]) {
        let at = slot.0 as usize;
        let bytes = &mut self.bytes[at * self.symbol_max..][..self.symbol_max];
        let length = &mut self.lengths[at];
        let mut offset = 0;
        for piece in symbol {
            let sum = piece.len().min(length.saturating_sub(offset));
            let place = &mut bytes[offset..offset + piece.len()];
            gf256::xor_into(&mut place[..sum], &piece[..sum]);
            place[sum..].copy_from_slice(&piece[sum..]);
            offset += piece.len();
        }
        *length = offset.max(*length);
    }

    pub(super) fn symbol(&self, slot: SumSlot) -> &[u8] {
        let at = slot.0 as usize;
        &self.bytes[at * self.symbol_max..][..self.lengths[at]]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.lengths.len() * (size_of::<usize>() + size_of::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_in_pieces_of_any_length_add_up_and_leave_nothing_for_later_sums() {
        let mut sums = Sums::new(1, 8);
        let slot = sums.take().unwrap();
        assert_eq!(sums.take(), None);
        sums.add(slot, &[&[0xff; 8]]);
        sums.give_back(slot);
        let slot = sums.take().unwrap();
        sums.add(slot, &[&[1, 2], &[3]]);
        sums.add(slot, &[&[1], &[], &[1, 1, 7, 7]]);
        sums.add(slot, &[]);
        assert_eq!(sums.symbol(slot), [0, 3, 2, 7, 7]);
        assert!(sums.memory_bytes() >= 8);
    }
}
