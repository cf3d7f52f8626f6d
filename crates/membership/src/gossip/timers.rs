//! Timers of the failure detector.

use std::collections::BTreeMap;

use foca::Timer;

use crate::wire::swim::Identity;

/// Maximum number of timers at a time. A quiet cluster has about ten.
const TIMERS_MAX: usize = 1_024;

/// Lateness from which this node has stood still, in microseconds.
const STOOD_STILL_US: u64 = 100_000;

/// Timers in order of their due times; of equal times the one set first comes first.
///
/// A node that stood still, or has more work than time, has not read the answers that came meanwhile. It
/// would suspect every member that it had asked. So its own lateness does not count as theirs: all timers are
/// put off by it, and by the time in which the answers are read.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeMap<(u64, u64), Timer<Identity>>,
    serial: u64,
    /// Whether the next timer has been put off. It is not put off twice, so that work goes on in a node that
    /// is late all the time.
    is_put_off: bool,
}

impl Timers {
    /// Sets a timer. Returns whether the oldest timer had to make room for it.
    pub(super) fn set(&mut self, due_us: u64, timer: Timer<Identity>) -> bool {
        let full = self.due.len() == TIMERS_MAX;
        if full {
            // Rare, so a linear search is good enough. The oldest timers belong to past probes, or to
            // nothing.
            let oldest = self.due.keys().min_by_key(|&&(_, serial)| serial).copied();
            oldest.and_then(|key| self.due.remove(&key));
        }
        self.serial += 1;
        self.due.insert((due_us, self.serial), timer);
        full
    }

    pub(super) fn next_due_us(&self) -> Option<u64> {
        self.due.first_key_value().map(|(&(due_us, _), _)| due_us)
    }

    /// Puts all timers off if the first one is late; returns whether it did.
    pub(super) fn put_off_if_late(&mut self, now_us: u64) -> bool {
        let late_us = self.next_due_us().map_or(0, |due_us| now_us.saturating_sub(due_us));
        if late_us == 0 {
            return false;
        }
        if late_us < STOOD_STILL_US || std::mem::replace(&mut self.is_put_off, true) {
            self.is_put_off = false;
            return false;
        }
        let by_us = late_us + STOOD_STILL_US;
        let due = std::mem::take(&mut self.due);
        self.due =
            due.into_iter().map(|((due_us, serial), timer)| ((due_us + by_us, serial), timer)).collect();
        true
    }

    /// Removes and returns the first timer that is due.
    pub(super) fn take_due(&mut self, now_us: u64) -> Option<Timer<Identity>> {
        let entry = self.due.first_entry()?;
        (entry.key().0 <= now_us).then(|| entry.remove())
    }

    pub(super) fn len(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timers(due_us: impl IntoIterator<Item = u64>) -> Timers {
        let mut timers = Timers::default();
        for at_us in due_us {
            timers.set(at_us, Timer::PeriodicGossip(0));
        }
        timers
    }

    #[test]
    fn lateness_of_this_node_is_not_that_of_others() {
        let mut late = timers([1_000_000, 1_500_000]);
        assert!(!late.put_off_if_late(999_999) && !late.put_off_if_late(1_050_000));
        assert!(late.put_off_if_late(4_000_000));
        let due: Vec<u64> = late.due.keys().map(|&(due_us, _)| due_us).collect();
        assert_eq!(due, [4_100_000, 4_600_000], "as far apart as before");
        assert!(late.take_due(4_099_999).is_none());
        // Late again: the work goes on all the same.
        assert!(!late.put_off_if_late(6_000_000) && late.take_due(6_000_000).is_some());
        assert!(late.put_off_if_late(6_000_000) && late.take_due(6_000_000).is_none());
        assert!(!timers([]).put_off_if_late(1));
    }
}
