//! Estimates when a lost packet would have arrived, to state how late its recovery was.

use crate::arrivals::Arrivals;
use crate::place::Place;
use crate::quiet::SILENCE_US;
use foundation::Seq;

impl Arrivals {
    /// An estimate of when `seq` would have arrived: in proportion between the arrivals around it. If no
    /// later packet has arrived, it is an interval after the packets before it, as far as that agrees with
    /// the time when a repair first named it, which follows a silence or comes at the deadline.
    pub(crate) fn expected_us(&self, seq: Seq) -> Option<u64> {
        const NEAR: u64 = 64;
        const DEADLINE_US: u64 = 20_000;
        let before = self.arrival_before(seq, NEAR);
        let after = (1..=NEAR).find_map(|step| self.arrival(seq.plus(step)).map(|at_us| (step, at_us)));
        match (before, after) {
            (Some((back, before_us)), Some((ahead, after_us))) => {
                Some(before_us + after_us.saturating_sub(before_us) * back / (back + ahead))
            }
            (Some((back, before_us)), None) => {
                let named_us = match self.place(seq) {
                    Place::Missing { since_us, .. } => since_us,
                    _ => return Some(before_us),
                };
                let earlier =
                    (seq.0 > back + 7).then(|| self.arrival_before(seq.minus(back + 7), NEAR)).flatten();
                let interval_us =
                    earlier.map_or(0, |(more, earlier_us)| before_us.saturating_sub(earlier_us) / (more + 7));
                let range = named_us.saturating_sub(DEADLINE_US)..=named_us.saturating_sub(SILENCE_US);
                let expected_us = before_us + interval_us * back;
                Some(expected_us.clamp(*range.start(), *range.end()).max(before_us))
            }
            (None, after) => after.map(|(_, after_us)| after_us),
        }
    }

    /// Arrival time of `seq`, if it arrived and is remembered.
    fn arrival(&self, seq: Seq) -> Option<u64> {
        match self.place(seq) {
            Place::Arrived { at_us, .. } => Some(at_us),
            _ => None,
        }
    }

    /// The nearest arrival before `seq`, of `near` packets: its distance and its time.
    fn arrival_before(&self, seq: Seq, near: u64) -> Option<(u64, u64)> {
        (1..=near.min(seq.0)).find_map(|step| self.arrival(seq.minus(step)).map(|at_us| (step, at_us)))
    }
}
