//! The number of repairs that a packet enters, by the loss (Ricochet §6), with [`Content::Auto`].
//!
//! A packet enters c repairs at each receiver, but how many of them go to the member that misses it is left
//! to chance. If n of these lead to the packet on average, a share of e⁻ⁿ of the lost packets has none, and
//! comes back later, after an announcement. So a node lets packets enter as many repairs as keep the share
//! of such packets among all packets below [`UNAIDED`], up to the c of their group.

use super::Node;
use super::repair_sender::RepairSender;
use crate::bins::Content;
use crate::message::Output;
use crate::targets::Plan;

/// Share of packets that may be lost and get no repair.
const UNAIDED: f64 = 1.0 / 2_000.0;
/// Smallest number of repairs, for the losses that are to come.
const LEAST: f64 = 2.0;
/// Difference by which fewer repairs must suffice before a node changes to fewer.
const SLACK: f64 = 1.5;
/// Number of datagrams that have to come through: a digest, a request and its answer.
const DATAGRAMS: i32 = 3;

/// Maximum number of repairs of a packet before the loss is known.
pub(super) const ALL: u8 = u8::MAX;

/// Returns the maximum number of repairs of a packet at a loss, given the present one.
fn next_rate(rate: u8, loss: f64) -> u8 {
    let through = (1.0 - loss).powi(DATAGRAMS);
    let wanted = (loss / UNAIDED).ln() / through;
    let is_enough = wanted <= f64::from(rate) && wanted + SLACK > f64::from(rate);
    if is_enough { rate } else { wanted.max(LEAST).ceil() as u8 }
}

impl Node {
    /// Follows the measured loss. Part-filled repairs are sent first.
    pub(super) fn follow_loss(&mut self, out: &mut impl Output) {
        if self.config.content != Content::Auto {
            return;
        }
        let rate = next_rate(self.rate, self.bins.conditions().loss);
        let before = std::mem::replace(&mut self.rate, rate);
        if self.groups.iter().all(|(_, group)| group.c.min(before) == group.c.min(rate)) {
            return;
        }
        let plan = Plan::capped(&self.groups, self.bins.regions(), rate);
        let Self { bins, rng, scratch, config, counts, tally, .. } = self;
        let mut sender = RepairSender { me: config.id, scratch, counts, tally, out };
        bins.change_plan(plan, rng, &mut |repair| sender.send(&repair));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_loss_takes_more_repairs() {
        let at = |loss| next_rate(ALL, loss);
        assert_eq!([0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.2].map(at), [2, 2, 3, 4, 4, 6, 12]);
        assert_eq!(at(1.0), u8::MAX);
    }

    #[test]
    fn a_rate_stays_until_clearly_fewer_repairs_suffice() {
        // 3.1 at 1 %, 2.3 at 0.5 % and 3.9 at 2 %.
        let rate = next_rate(ALL, 0.01);
        assert_eq!((rate, next_rate(rate, 0.02), next_rate(rate, 0.03)), (4, 4, 5));
        assert_eq!((next_rate(rate, 0.007), next_rate(rate, 0.005)), (4, 3));
    }
}
