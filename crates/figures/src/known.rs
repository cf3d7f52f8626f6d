//! Figures that do not have their source's shape, and are not expected to.
//!
//! Each is declared here with the shape that it has instead, which is held as firmly. The row on the page says **no**, and
//! why, all the same. A figure that comes to have its source's shape after all must leave this list.

use crate::outcome::{Outcome, Panel};
use crate::plan::Figure;
use crate::real::messages::verdict::all_but_twice_as_long;
use crate::ricochet::loss::stagger_costs_latency;
use crate::ricochet::rivals::half_is_far_sooner_and_the_rest_is_not;
use crate::ricochet::scale::{latency_falls_with_group_size, latency_grows_with_system_size};

struct Difference {
    id: &'static str,
    /// Whether these panels have the shape that is ours.
    holds: fn(&[Panel]) -> bool,
}

const DIFFERENCES: [Difference; 5] = [
    // Today's TCP gets over a loss in one or two round trips: too soon for the mean of all messages to double.
    Difference { id: "3.14", holds: all_but_twice_as_long },
    // With n nodes two share ten in n of their packets, and bins fill as slowly.
    Difference { id: "4.6.6", holds: latency_grows_with_system_size },
    // Bins fill as many times more slowly, and a burst takes repairs with the data here.
    Difference { id: "4.14", holds: stagger_costs_latency },
    // Their latency grows with the groups: processor time, it seems, which virtual time does not have.
    Difference { id: "4.15", holds: latency_falls_with_group_size },
    // Of 97.5 % the last are those that a second repair, or a third, brings back.
    Difference { id: "slingshot-3", holds: half_is_far_sooner_and_the_rest_is_not },
];

impl Figure {
    /// Whether an outcome is what this code should come to: the shape that the source claims, or for the few figures known
    /// to differ from their source the shape that is ours.
    #[must_use]
    pub fn is_as_expected(&self, outcome: &Outcome) -> bool {
        match DIFFERENCES.iter().find(|difference| difference.id == self.id) {
            Some(difference) => !outcome.claim.holds && (difference.holds)(&outcome.panels),
            None => outcome.claim.holds,
        }
    }

    /// Whether this figure is known not to have its source's shape.
    #[must_use]
    pub fn is_known_to_differ(&self) -> bool {
        DIFFERENCES.iter().any(|difference| difference.id == self.id)
    }
}
