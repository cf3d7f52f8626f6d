//! Limits of the number of events: a state that changes all the time must not fill the log.

/// Number of events of one kind that may follow each other at once.
const BURST: u32 = 5;
/// Interval in which a further event is allowed.
const REFILL_US: u64 = 20_000_000;
/// Time for which countable things are collected before their first event.
const COLLECT_US: u64 = 1_000_000;
/// Interval between two events about the same count.
const INTERVAL_US: u64 = 60_000_000;

/// Limit of changes of a state. A change that is not allowed is no event, but the state that lasts is noted
/// as soon as an event is allowed again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changes {
    left: u32,
    refilled_us: u64,
}

impl Default for Changes {
    fn default() -> Self {
        Self { left: BURST, refilled_us: 0 }
    }
}

impl Changes {
    /// Returns whether an event is allowed, and counts it.
    pub(super) fn allows(&mut self, now_us: u64) -> bool {
        let refills = now_us.saturating_sub(self.refilled_us) / REFILL_US;
        if refills > 0 {
            self.left = BURST.min(self.left.saturating_add(u32::try_from(refills).unwrap_or(u32::MAX)));
            self.refilled_us = now_us;
        }
        let is_allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_allowed
    }
}

/// Events about a count that grows: the first one second after its start, then one each minute at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    noted: u64,
    due_us: Option<u64>,
    next_us: u64,
}

impl Growth {
    /// Takes the present count; returns by how much it has grown, if that is an event.
    pub(super) fn on_count(&mut self, now_us: u64, count: u64) -> Option<u64> {
        if count <= self.noted {
            // A count that has begun again, after a change of the configuration.
            self.noted = count;
            self.due_us = None;
            return None;
        }
        let due_us = *self.due_us.get_or_insert(self.next_us.max(now_us + COLLECT_US));
        if now_us < due_us {
            return None;
        }
        let grown = count - std::mem::replace(&mut self.noted, count);
        (self.due_us, self.next_us) = (None, now_us + INTERVAL_US);
        Some(grown)
    }

    /// Takes a count that exists already, so that only its growth is an event.
    pub(super) fn skip_to(&mut self, count: u64) {
        (self.noted, self.due_us) = (count, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_changes_all_the_time_is_an_event_three_times_a_minute() {
        let mut changes = Changes::default();
        let allowed = (0..6_000_u64).filter(|at| changes.allows(at * 100_000)).count();
        assert!((30..=36).contains(&allowed), "{allowed} in ten minutes");
    }

    #[test]
    fn a_count_that_grows_all_the_time_is_one_event_a_minute_and_nothing_is_left_out() {
        let mut growth = Growth::default();
        let mut events = Vec::new();
        for at in 0..6_000_u64 {
            events.extend(growth.on_count(at * 100_000, 3 * at).map(|grown| (at, grown)));
        }
        assert_eq!(events.len(), 10, "{events:?}");
        assert_eq!(events[0], (11, 33), "the first one after a second");
        let (last, _) = events[9];
        assert_eq!(events.iter().map(|(_, grown)| grown).sum::<u64>(), 3 * last);
    }

    #[test]
    fn a_count_that_begins_again_is_no_event() {
        let mut growth = Growth::default();
        growth.skip_to(1_000);
        assert_eq!(growth.on_count(0, 1_000), None);
        assert_eq!(growth.on_count(100, 3), None);
        assert_eq!(growth.on_count(200, 4), None, "collected");
        assert_eq!(growth.on_count(2_000_000, 5), Some(2));
    }
}
