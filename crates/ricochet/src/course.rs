//! Counts of a node in the last seconds, minutes and hour.

use foundation::windows::{SPANS_S, Tally, Window, Windows};

use crate::shared::{Core, Shared};

/// Counts of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tallied {
    /// Data packets sent.
    pub(crate) sent: u64,
    /// Data packets received, recovered or requested.
    pub(crate) received: u64,
    pub(crate) discovered: u64,
    pub(crate) repaired: u64,
    pub(crate) requested: u64,
    /// Packets given up, but for those whose deadline had passed.
    pub(crate) lost: u64,
    /// Messages dropped because a subscription was not read.
    pub(crate) dropped: u64,
}

impl Tally for Tallied {
    fn map(&self, other: &Self, with: impl Fn(u64, u64) -> u64 + Copy) -> Self {
        Self {
            sent: with(self.sent, other.sent),
            received: with(self.received, other.received),
            discovered: with(self.discovered, other.discovered),
            repaired: with(self.repaired, other.repaired),
            requested: with(self.requested, other.requested),
            lost: with(self.lost, other.lost),
            dropped: with(self.dropped, other.dropped),
        }
    }
}

/// The windows of a node, as last published.
pub(crate) type Published = [Window<Tallied>; SPANS_S.len()];

/// Takes samples of a node's counts.
#[derive(Debug, Default)]
pub(crate) struct Course {
    windows: Windows<Tallied>,
    /// Messages dropped by all subscriptions, past and present.
    dropped: u64,
    /// The same of each present one, by its place.
    dropped_by: Vec<u64>,
}

impl Course {
    pub(crate) fn poll_timeout(&self) -> u64 {
        self.windows.due_us()
    }

    /// Takes a sample, if one is due.
    pub(crate) fn handle_timeout(&mut self, now_us: u64, core: &Core, shared: &Shared) {
        if !self.windows.is_due(now_us) {
            return;
        }
        let consumers = core.out.consumers.iter();
        self.count_dropped(
            consumers.map(|consumer| consumer.as_ref().map_or(0, |consumer| consumer.queue.counts().dropped)),
        );
        let counts = core.node.counts();
        self.windows.add(
            now_us,
            Tallied {
                sent: counts.sent,
                received: counts.delivered + counts.repaired + counts.requested,
                discovered: counts.discovered,
                repaired: counts.repaired,
                requested: counts.requested,
                lost: core.out.lost,
                dropped: self.dropped,
            },
        );
        shared.publish_windows(self.windows.windows());
    }

    /// A count that is less than before is that of another subscription.
    fn count_dropped(&mut self, dropped: impl Iterator<Item = u64>) {
        for (at, count) in dropped.enumerate() {
            if self.dropped_by.len() <= at {
                self.dropped_by.push(0);
            }
            let before = std::mem::replace(&mut self.dropped_by[at], count);
            self.dropped += if count < before { count } else { count - before };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_messages_of_subscriptions_that_came_and_went_are_all_counted() {
        let mut course = Course::default();
        for (dropped, total) in [(vec![5], 5), (vec![5, 2], 7), (vec![0, 2], 7), (vec![1, 6], 12)] {
            course.count_dropped(dropped.into_iter());
            assert_eq!(course.dropped, total);
        }
    }
}
