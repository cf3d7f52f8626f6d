//! Rows of different lengths in one allocation.

/// A list of rows, each a slice of one common vector.
#[derive(Clone, Debug)]
pub(crate) struct Rows<T> {
    /// Index of the first item of each row, and at the end the number of items.
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T: Copy> Rows<T> {
    /// Sorts items into `count` rows, keeping the order within each row.
    ///
    /// # Panics
    /// If an item names a row that does not exist.
    pub(crate) fn collect(count: usize, items: &[(usize, T)]) -> Self {
        let mut starts = vec![0u32; count + 1];
        for &(row, _) in items {
            starts[row + 1] += 1;
        }
        for row in 0..count {
            starts[row + 1] += starts[row];
        }
        let Some(&(_, filler)) = items.first() else { return Self { starts, items: Vec::new() } };
        let mut sorted = vec![filler; items.len()];
        let mut next = starts.clone();
        for &(row, item) in items {
            sorted[next[row] as usize] = item;
            next[row] += 1;
        }
        Self { starts, items: sorted }
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    #[inline]
    pub(crate) fn row(&self, row: usize) -> &[T] {
        &self.items[self.range(row)]
    }

    /// Returns the item at an index within a [`range`](Self::range).
    #[inline]
    pub(crate) fn item(&self, at: usize) -> T {
        self.items[at]
    }

    /// Returns the indices of a row among the items of all rows.
    #[inline]
    pub(crate) fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.starts[row] as usize..self.starts[row + 1] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_order_within_their_row() {
        let rows = Rows::collect(4, &[(2, 'a'), (0, 'b'), (2, 'c'), (3, 'd')]);
        assert_eq!(
            (0..4).map(|row| rows.row(row)).collect::<Vec<_>>(),
            [&['b'][..], &[], &['a', 'c'], &['d']]
        );
        assert_eq!(rows.range(2), 1..3);
        assert!(Rows::<u8>::collect(1, &[]).row(0).is_empty());
    }
}
