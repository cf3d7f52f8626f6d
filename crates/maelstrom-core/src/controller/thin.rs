//! Whether the egress thins its protection ([`crate::thinning`]), because a queue of the path stands full.
//!
//! Repairs may be what fills the queue. If it ebbs while protection is thin and stands full again soon after
//! protection has returned, the next ebb does not end the thinning for some time. Losses of the link end it
//! whenever the queue does not stand full.
//!
//! A full queue may have no room for repairs at all, while shorter packets still find some. Protection is
//! then thinned for a while too, until far fewer packets are lost.

use super::useless::LOSS_MIN;

/// Time after a return of protection in which a full queue is blamed on it.
const BLAME_US: u64 = 10_000_000;
/// Time for which an ebb is not believed then, at first and at most.
const REST_US: [u64; 2] = [10_000_000, 60_000_000];
/// Number of losses of the link that end the thinning, at least.
const LOSSES_MIN: u64 = 2;

/// Facts of the last second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Whether the peer finds that the queue stands full.
    pub(super) is_standing: bool,
    /// Whether less than half of the lost packets were recovered, or most repairs did not arrive.
    pub(super) is_useless: bool,
    /// Whether hardly any repair has arrived for a second.
    pub(super) is_starved: bool,
    /// Whether the rate is the lowest.
    pub(super) is_lowest: bool,
    /// Number of packets whose fate is known.
    pub(super) packets: u64,
    /// Packets that the link lost, and their share.
    pub(super) lost: u64,
    pub(super) loss: f64,
}

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Begin,
    /// The queue has ebbed.
    Ebb,
    /// The link loses packets.
    Losses,
}

/// Decides about thinning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thin {
    is_on: bool,
    /// Time up to which an ebb does not end it.
    until_us: u64,
    rest_us: u64,
    /// Share of lost packets at the begin, if it was for want of repairs.
    starved_at: Option<f64>,
    /// Time at which protection last returned.
    returned_us: Option<u64>,
}

impl Thin {
    pub(super) fn new() -> Self {
        Self { is_on: false, until_us: 0, rest_us: REST_US[0], starved_at: None, returned_us: None }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn update(&mut self, now_us: u64, facts: &Facts) -> Option<Change> {
        let change = if !self.is_on {
            let is_due = facts.is_starved || facts.is_standing && facts.is_useless;
            (is_due && facts.is_lowest).then_some(Change::Begin)
        } else if facts.is_standing {
            self.starved_at = None;
            None
        } else if let Some(loss) = self.starved_at {
            let is_better = facts.packets > 0 && 2.0 * facts.loss < loss;
            (now_us >= self.until_us || is_better).then_some(Change::Ebb)
        } else if facts.lost >= LOSSES_MIN && facts.loss > LOSS_MIN {
            Some(Change::Losses)
        } else {
            (now_us >= self.until_us).then_some(Change::Ebb)
        }?;
        self.is_on = change == Change::Begin;
        match change {
            Change::Begin => {
                // In an outage the loss is not known.
                let loss = if facts.loss > 0.0 { facts.loss } else { 1.0 };
                self.starved_at = (!facts.is_standing).then_some(loss);
                let is_blamed = self.returned_us.is_some_and(|us| now_us < us.saturating_add(BLAME_US));
                self.rest_us = if is_blamed { self.rest_us } else { REST_US[0] };
                if is_blamed || self.starved_at.is_some() {
                    self.until_us = now_us + self.rest_us;
                    self.rest_us = (2 * self.rest_us).min(REST_US[1]);
                }
            }
            Change::Ebb => self.returned_us = Some(now_us),
            // The link has changed, so that the next full queue says nothing about the repairs.
            Change::Losses => self.returned_us = None,
        }
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const FULL: Facts = Facts {
        is_standing: true,
        is_useless: true,
        is_starved: false,
        is_lowest: true,
        packets: 1_000,
        lost: 0,
        loss: 0.0,
    };
    const EBB: Facts = Facts { is_standing: false, ..FULL };

    #[test]
    fn a_full_queue_begins_it_only_where_repairs_recover_little_at_the_lowest_rate() {
        for facts in [EBB, Facts { is_useless: false, ..FULL }, Facts { is_lowest: false, ..FULL }] {
            assert_eq!(Thin::new().update(SECOND, &facts), None, "{facts:?}");
        }
        let mut thin = Thin::new();
        assert_eq!(thin.update(SECOND, &FULL), Some(Change::Begin));
        // Without repairs the queue drops fewer packets, and stays full.
        let calm = Facts { is_useless: false, ..FULL };
        assert_eq!((thin.update(90 * SECOND, &calm), thin.is_on()), (None, true));
        assert_eq!((thin.update(91 * SECOND, &EBB), thin.is_on()), (Some(Change::Ebb), false));
    }

    #[test]
    fn an_ebb_that_repairs_fill_again_is_believed_later_and_later() {
        let (mut thin, mut returns) = (Thin::new(), Vec::new());
        for tenth in 0..3_000 {
            let now_us = tenth * SECOND / 10;
            // The queue ebbs at once without repairs, and fills within a second with them.
            let facts = if thin.is_on() || tenth % 10 > 0 { EBB } else { FULL };
            if thin.update(now_us, &facts) == Some(Change::Ebb) {
                returns.push(now_us / SECOND);
            }
        }
        assert_eq!(returns, [0, 11, 32, 73, 134, 195, 256]);
        // A queue that other traffic fills much later is not blamed on repairs.
        assert_eq!(thin.update(400 * SECOND, &EBB), Some(Change::Ebb));
        assert_eq!(thin.update(420 * SECOND, &FULL), Some(Change::Begin));
        assert_eq!(thin.update(421 * SECOND, &EBB), Some(Change::Ebb));
    }

    #[test]
    fn repairs_that_find_no_room_end_until_far_fewer_packets_are_lost() {
        let mut thin = Thin::new();
        let starved = Facts { is_starved: true, lost: 100, loss: 0.1, ..EBB };
        assert_eq!(thin.update(SECOND, &starved), Some(Change::Begin));
        let thinned = Facts { is_starved: false, lost: 90, loss: 0.09, ..EBB };
        assert_eq!(thin.update(10 * SECOND, &thinned), None);
        assert_eq!(thin.update(11 * SECOND, &thinned), Some(Change::Ebb), "they are tried again");
        assert_eq!(thin.update(15 * SECOND, &starved), Some(Change::Begin));
        assert_eq!(thin.update(34 * SECOND, &thinned), None, "later");
        let better = Facts { loss: 0.04, ..thinned };
        assert_eq!(thin.update(35 * SECOND, &better), Some(Change::Ebb));
    }

    #[test]
    fn an_outage_ends_with_the_first_packets_after_it() {
        let mut thin = Thin::new();
        let outage = Facts { is_starved: true, packets: 0, ..EBB };
        assert_eq!(thin.update(SECOND, &outage), Some(Change::Begin));
        assert_eq!(thin.update(5 * SECOND, &Facts { is_starved: false, ..outage }), None);
        let back = Facts { lost: 10, loss: 0.01, ..EBB };
        assert_eq!(thin.update(6 * SECOND, &back), Some(Change::Ebb));
    }

    #[test]
    fn losses_of_the_link_end_it_at_once_unless_the_queue_is_full() {
        let mut thin = Thin::new();
        thin.update(SECOND, &FULL);
        thin.update(2 * SECOND, &EBB);
        thin.update(3 * SECOND, &FULL);
        assert_eq!(thin.update(4 * SECOND, &EBB), None);
        let one = Facts { lost: 1, loss: 0.01, ..EBB };
        assert_eq!(thin.update(5 * SECOND, &one), None);
        let lossy = Facts { lost: 2, loss: 0.01, ..EBB };
        assert_eq!(thin.update(6 * SECOND, &Facts { is_standing: true, ..lossy }), None);
        assert_eq!((thin.update(7 * SECOND, &lossy), thin.is_on()), (Some(Change::Losses), false));
    }
}
