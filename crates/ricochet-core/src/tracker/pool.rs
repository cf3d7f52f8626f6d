//! The intervals of all streams, in one pool with two orders: by stream and by age.

use foundation::Seq;

use super::found::Interval;
use crate::links::{Ends, Links};

/// An interval in the pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<M> {
    pub(super) stream: u32,
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) mark: M,
    /// Whether its packets are awaited. Others precede the first packet seen of the stream, and are accepted
    /// if they come.
    pub(super) owed: bool,
}

impl<M: Copy> Span<M> {
    pub(super) fn interval(&self) -> Interval<M> {
        Interval { first: self.first, last: self.last, mark: self.mark }
    }
}

/// A bounded pool of intervals.
///
/// New intervals come last in both orders, and parts of one interval stay side by side. So the two orders
/// agree within a stream, and the oldest interval of all is the first of its stream.
#[derive(Debug)]
pub(super) struct Pool<M> {
    spans: Vec<Span<M>>,
    free: Vec<u32>,
    owed: usize,
    capacity: usize,
    order: Links,
    age: Links,
    ages: Ends,
}

impl<M: Copy> Pool<M> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            spans: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            owed: 0,
            capacity,
            order: Links::new(capacity),
            age: Links::new(capacity),
            ages: Ends::EMPTY,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len() - self.free.len()
    }

    /// Returns the number of intervals that are awaited.
    pub(super) fn owed(&self) -> usize {
        self.owed
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    pub(super) fn span(&self, slot: usize) -> &Span<M> {
        &self.spans[slot]
    }

    pub(super) fn span_mut(&mut self, slot: usize) -> &mut Span<M> {
        &mut self.spans[slot]
    }

    pub(super) fn before(&self, slot: usize) -> Option<usize> {
        self.order.before(slot)
    }

    pub(super) fn oldest(&self) -> Option<usize> {
        self.ages.first()
    }

    pub(super) fn append(&mut self, stream: &mut Ends, span: Span<M>) {
        let slot = self.take(span);
        self.order.push_last(stream, slot);
        self.age.push_last(&mut self.ages, slot);
    }

    pub(super) fn insert_after(&mut self, stream: &mut Ends, neighbour: usize, span: Span<M>) {
        let slot = self.take(span);
        self.order.insert_after(stream, neighbour, slot);
        self.age.insert_after(&mut self.ages, neighbour, slot);
    }

    pub(super) fn remove(&mut self, stream: &mut Ends, slot: usize) {
        self.order.remove(stream, slot);
        self.age.remove(&mut self.ages, slot);
        self.owed -= usize::from(self.spans[slot].owed);
        self.free.push(slot as u32);
    }

    pub(super) fn in_order(&self, stream: Ends) -> impl Iterator<Item = &Span<M>> {
        std::iter::successors(stream.first(), |&slot| self.order.after(slot)).map(|slot| &self.spans[slot])
    }

    pub(super) fn by_age(&self) -> impl Iterator<Item = &Span<M>> {
        std::iter::successors(self.ages.first(), |&slot| self.age.after(slot)).map(|slot| &self.spans[slot])
    }

    fn take(&mut self, span: Span<M>) -> usize {
        assert!(!self.is_full(), "the caller has made room");
        self.owed += usize::from(span.owed);
        if let Some(slot) = self.free.pop() {
            self.spans[slot as usize] = span;
            return slot as usize;
        }
        self.spans.push(span);
        self.spans.len() - 1
    }
}
