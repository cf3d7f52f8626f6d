//! Timers of the failure detector.

use std::collections::BTreeMap;

use foca::Timer;

use crate::wire::swim::Identity;

/// Maximum number of timers at a time. A quiet cluster has about ten.
const TIMERS_MAX: usize = 1_024;

/// Timers in order of their due times; of equal times the one set first comes first.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeMap<(u64, u64), Timer<Identity>>,
    serial: u64,
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

    /// Removes and returns the first timer that is due.
    pub(super) fn take_due(&mut self, now_us: u64) -> Option<Timer<Identity>> {
        let entry = self.due.first_entry()?;
        (entry.key().0 <= now_us).then(|| entry.remove())
    }

    pub(super) fn len(&self) -> usize {
        self.due.len()
    }
}
