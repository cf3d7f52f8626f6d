//! Interned sets of groups: equal sets share a number.

use std::hash::{BuildHasher as _, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

/// Numbers sets from 0 in the order of their first appearance; equal sets get the same number.
#[derive(Debug)]
pub(crate) struct Sets<T> {
    starts: Vec<u32>,
    items: Vec<T>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<T: Copy + Eq + Hash> Sets<T> {
    pub(crate) fn new() -> Self {
        Self {
            starts: vec![0],
            items: Vec::new(),
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Returns the number of a set, whose items are sorted.
    pub(crate) fn intern(&mut self, set: &[T]) -> usize {
        let (starts, items, hasher) = (&self.starts, &self.items, &self.hasher);
        let hash = hasher.hash_one(set);
        if let Some(&known) = self.table.find(hash, |&known| slice(starts, items, known) == set) {
            return known as usize;
        }
        let number = u32::try_from(self.len()).expect("far fewer sets than 32 bits count");
        self.table.insert_unique(hash, number, |&known| hasher.hash_one(slice(starts, items, known)));
        self.items.extend_from_slice(set);
        self.starts.push(u32::try_from(self.items.len()).expect("far fewer items than 32 bits count"));
        number as usize
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub(crate) fn set(&self, number: usize) -> &[T] {
        slice(&self.starts, &self.items, number as u32)
    }
}

fn slice<'a, T>(starts: &[u32], items: &'a [T], number: u32) -> &'a [T] {
    let number = number as usize;
    &items[starts[number] as usize..starts[number + 1] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_share_a_number() {
        let mut sets = Sets::new();
        let numbers = [&[1, 2][..], &[1], &[], &[1, 2], &[2], &[1]].map(|set: &[u32]| sets.intern(set));
        assert_eq!(numbers, [0, 1, 2, 0, 3, 1]);
        assert_eq!((sets.len(), sets.set(0), sets.set(2)), (4, &[1, 2][..], &[][..]));
    }

    #[test]
    fn numbers_stay_while_the_table_grows() {
        let mut sets = Sets::new();
        let numbers: Vec<_> = (0..3_000u32).map(|n| sets.intern(&[n, n + 1])).collect();
        assert!((0..3_000u32).all(|n| sets.intern(&[n, n + 1]) == numbers[n as usize]));
    }
}
