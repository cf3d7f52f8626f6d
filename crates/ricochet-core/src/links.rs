//! Doubly linked lists of numbered slots. Several lists, each with its own ends, may share one set of links.

/// Marks the end of a list.
const NONE: u32 = u32::MAX;

/// First and last slot of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    first: u32,
    last: u32,
}

impl Ends {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };

    pub(crate) fn first(self) -> Option<usize> {
        (self.first != NONE).then_some(self.first as usize)
    }

    pub(crate) fn last(self) -> Option<usize> {
        (self.last != NONE).then_some(self.last as usize)
    }
}

/// The neighbours of each slot. A slot is in one list at a time.
#[derive(Debug)]
pub(crate) struct Links {
    /// Both neighbours of a slot share a cache line, since most operations need both.
    slots: Box<[Neighbours]>,
}

#[derive(Clone, Copy, Debug)]
struct Neighbours {
    before: u32,
    after: u32,
}

impl Links {
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots < NONE as usize, "slot numbers fit 32 bits");
        Self { slots: vec![Neighbours { before: NONE, after: NONE }; slots].into_boxed_slice() }
    }

    pub(crate) fn before(&self, slot: usize) -> Option<usize> {
        some(self.slots[slot].before)
    }

    pub(crate) fn after(&self, slot: usize) -> Option<usize> {
        some(self.slots[slot].after)
    }

    pub(crate) fn push_first(&mut self, ends: &mut Ends, slot: usize) {
        self.put(ends, slot, NONE, ends.first);
    }

    pub(crate) fn push_last(&mut self, ends: &mut Ends, slot: usize) {
        self.put(ends, slot, ends.last, NONE);
    }

    pub(crate) fn insert_after(&mut self, ends: &mut Ends, neighbour: usize, slot: usize) {
        self.put(ends, slot, neighbour as u32, self.slots[neighbour].after);
    }

    pub(crate) fn remove(&mut self, ends: &mut Ends, slot: usize) {
        let Neighbours { before, after } = self.slots[slot];
        *self.after_mut(ends, before) = after;
        *self.before_mut(ends, after) = before;
    }

    fn put(&mut self, ends: &mut Ends, slot: usize, before: u32, after: u32) {
        self.slots[slot] = Neighbours { before, after };
        *self.after_mut(ends, before) = slot as u32;
        *self.before_mut(ends, after) = slot as u32;
    }

    /// Returns the link to the slot after this one, or to the first slot for `NONE`.
    fn after_mut<'a>(&'a mut self, ends: &'a mut Ends, slot: u32) -> &'a mut u32 {
        if slot == NONE { &mut ends.first } else { &mut self.slots[slot as usize].after }
    }

    /// Returns the link to the slot before this one, or to the last slot for `NONE`.
    fn before_mut<'a>(&'a mut self, ends: &'a mut Ends, slot: u32) -> &'a mut u32 {
        if slot == NONE { &mut ends.last } else { &mut self.slots[slot as usize].before }
    }
}

fn some(slot: u32) -> Option<usize> {
    (slot != NONE).then_some(slot as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(links: &Links, ends: Ends) -> Vec<usize> {
        let forward: Vec<_> = std::iter::successors(ends.first(), |&slot| links.after(slot)).collect();
        let mut back: Vec<_> = std::iter::successors(ends.last(), |&slot| links.before(slot)).collect();
        back.reverse();
        assert_eq!(forward, back);
        forward
    }

    proptest::proptest! {
        #[test]
        fn lists_that_share_links_keep_their_order(steps in proptest::collection::vec((0usize..12, 0usize..2, 0usize..3), 0..200)) {
            let mut links = Links::new(12);
            let mut ends = [Ends::EMPTY; 2];
            let mut model: [Vec<usize>; 2] = Default::default();
            for (slot, which, how) in steps {
                if let Some(of) = model.iter().position(|list| list.contains(&slot)) {
                    links.remove(&mut ends[of], slot);
                    model[of].retain(|&other| other != slot);
                } else if how > 0 && !model[which].is_empty() {
                    let at = (slot * 7 + how) % model[which].len();
                    links.insert_after(&mut ends[which], model[which][at], slot);
                    model[which].insert(at + 1, slot);
                } else if slot % 3 == 0 {
                    links.push_first(&mut ends[which], slot);
                    model[which].insert(0, slot);
                } else {
                    links.push_last(&mut ends[which], slot);
                    model[which].push(slot);
                }
                for which in 0..2 {
                    proptest::prop_assert_eq!(&list(&links, ends[which]), &model[which]);
                }
            }
        }
    }
}
