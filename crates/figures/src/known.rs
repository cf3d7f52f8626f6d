//! Figures that are known not to have their source's shape.
//!
//! Each has an entry with the shape that it has instead, which is asserted as firmly. The page says **no**
//! all the same, and `prose.toml` names the part of the claim that does not hold. A figure that gets its
//! source's shape must leave this list.

use crate::outcome::{Outcome, Panel};
use crate::plan::Figure;
use crate::real::goodput::verdict::{LEAD, TWO_ORDERS, masks_and_lags_at_every_latency};
use crate::real::messages::verdict::all_but_twice_as_long;
use crate::real::split::half_of_the_goodput_is_left;
use crate::ricochet::loss::stagger_costs_latency;
use crate::ricochet::rivals::half_is_far_sooner_and_the_rest_is_not;
use crate::ricochet::scale::{latency_falls_with_group_size, latency_grows_with_system_size};

struct Difference {
    id: &'static str,
    /// Whether the panels have the shape that is expected instead.
    holds: fn(&[Panel]) -> bool,
    /// Whether runs differ so much that some have the source's shape, quick ones above all.
    varies: bool,
}

const DIFFERENCES: [Difference; 8] = [
    // Repairs need their share of a link that the lossless line fills at every latency.
    Difference { id: "3.11", holds: |panels| masks_and_lags_at_every_latency(panels, LEAD), varies: false },
    Difference {
        id: "3.12",
        holds: |panels| masks_and_lags_at_every_latency(panels, TWO_ORDERS),
        varies: false,
    },
    // Presumably carriers that overflow the queue need a round trip of half a second on long links.
    Difference { id: "3.13", holds: half_of_the_goodput_is_left, varies: true },
    // Today's TCP recovers a loss in one or two round trips, so that the mean of all messages does not
    // double.
    Difference { id: "3.14", holds: all_but_twice_as_long, varies: false },
    // With n nodes two share ten in n of their packets, and bins fill as slowly.
    Difference { id: "4.6.6", holds: latency_grows_with_system_size, varies: false },
    // Bins fill more slowly in proportion to the stagger, and bursts take repairs with the data here.
    Difference { id: "4.14", holds: stagger_costs_latency, varies: false },
    // Theirs grows with the groups, presumably by processor time, which virtual time does not have.
    Difference { id: "4.15", holds: latency_falls_with_group_size, varies: false },
    // The last of 97.5 % need a second or third repair.
    Difference { id: "slingshot-3", holds: half_is_far_sooner_and_the_rest_is_not, varies: false },
];

impl Figure {
    /// Whether an outcome has the expected shape: that of the source, or the entry's for figures known to
    /// differ.
    pub fn is_as_expected(&self, outcome: &Outcome) -> bool {
        match DIFFERENCES.iter().find(|difference| difference.id == self.id) {
            Some(difference) => {
                (difference.varies || !outcome.claim.holds) && (difference.holds)(&outcome.panels)
            }
            None => outcome.claim.holds,
        }
    }

    /// Whether this figure is known not to have its source's shape.
    pub fn is_known_to_differ(&self) -> bool {
        DIFFERENCES.iter().any(|difference| difference.id == self.id)
    }
}
