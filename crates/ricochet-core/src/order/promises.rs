//! The promises that a node keeps when it leaves a group. Others may count on them when it is a member again.

use std::collections::VecDeque;

use super::epoch::Epoch;
use super::total::Total;

/// Maximum number of orders of a group of which a promise is kept.
const ORDERS_MAX: usize = 8;

/// The promises of a node in orders of a group: to take part in no epoch before a certain one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// Random numbers of orders, the latest one last, and the greatest epoch promised in each.
    orders: VecDeque<(u64, Epoch)>,
}

impl Promises {
    fn add(&mut self, order: u64, epoch: Epoch) {
        self.orders.retain(|&(other, _)| other != order);
        self.orders.push_back((order, epoch));
        if self.orders.len() > ORDERS_MAX {
            self.orders.pop_front();
        }
    }

    fn of(&self, order: u64) -> Option<Epoch> {
        self.orders.iter().find(|&&(other, _)| other == order).map(|&(_, epoch)| epoch)
    }
}

impl Total {
    /// Returns a member that is bound by promises which this node gave when it was in the group earlier.
    #[must_use]
    pub fn with_promises(mut self, promises: Promises) -> Self {
        self.promises = promises;
        self
    }

    /// Returns the promises of this node, for [`Self::with_promises`] when it joins the group again.
    pub fn promises(&self) -> Promises {
        let mut promises = self.promises.clone();
        if let (Some(order), Some(epoch)) = (self.order, self.promised) {
            promises.add(order, epoch);
        }
        promises
    }

    /// Takes part in another order, or in none. A promise binds in its order alone.
    pub(super) fn enter_order(&mut self, order: Option<u64>) {
        self.promises = self.promises();
        self.order = order;
        let promised = order.and_then(|order| self.promises.of(order));
        (self.promised, self.granted) = (promised, promised);
        self.count_seen = self.count_seen.max(promised.map_or(0, |epoch| epoch.count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;

    #[test]
    fn the_latest_promises_are_kept_one_for_each_order() {
        let epoch = |count| Epoch { count, sequencer: NodeId(1) };
        let mut promises = Promises::default();
        (0..ORDERS_MAX as u64).for_each(|order| promises.add(order, epoch(1)));
        promises.add(0, epoch(2));
        promises.add(99, epoch(3));
        let kept = [0, 1, 2, 99].map(|order| promises.of(order));
        assert_eq!(kept, [Some(epoch(2)), None, Some(epoch(1)), Some(epoch(3))]);
    }
}
