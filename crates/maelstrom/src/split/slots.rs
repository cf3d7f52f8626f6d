//! Things by number; the number of one that is gone is given again.

/// Things by number.
#[derive(Debug)]
pub(super) struct Slots<T> {
    items: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(super) fn insert(&mut self, item: T) -> usize {
        let index = self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            self.items.len() - 1
        });
        self.items[index] = Some(item);
        index
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<T> {
        let removed = self.items.get_mut(index)?.take();
        if removed.is_some() {
            self.free.push(index);
        }
        removed
    }

    pub(super) fn get(&self, index: usize) -> Option<&T> {
        self.items.get(index)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.items.get_mut(index)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.items.iter().enumerate().filter_map(|(index, item)| Some((index, item.as_ref()?)))
    }

    /// The lowest number that was never given.
    pub(super) fn bound(&self) -> usize {
        self.items.len()
    }

    /// The numbers in use.
    pub(super) fn indices(&self) -> Vec<usize> {
        self.iter().map(|(index, _)| index).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_again_only_after_its_thing_is_gone() {
        let mut slots = Slots::default();
        let (a, b) = (slots.insert('a'), slots.insert('b'));
        assert_eq!((slots.get(a), slots.get(b)), (Some(&'a'), Some(&'b')));
        assert_eq!((slots.remove(a), slots.remove(a), slots.get(a)), (Some('a'), None, None));
        assert_eq!(slots.insert('c'), a);
        assert_eq!(slots.insert('d'), 2);
        assert_eq!(slots.indices(), [0, 1, 2]);
        assert_eq!(slots.get_mut(9), None);
    }
}
