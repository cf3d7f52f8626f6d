//! The evidence for a choice, and what it says of each rate.

use super::history::Counts;
use super::{Range, fit};
use crate::auto::LADDER;

/// Evidence for a choice.
pub(super) struct Evidence {
    pub(super) fast: Counts,
    pub(super) slow: Counts,
    /// The link by its last bursts, while it gets worse or little else is known: loss, and mean length of a
    /// burst.
    pub(super) bursts: Option<(f64, f64)>,
    /// Number of packets after which each candidate gives a loss up.
    pub(super) spans: [u64; LADDER.len()],
    /// Number of stripes of each candidate's window.
    pub(super) stripes: [u8; LADDER.len()],
    /// Whether the counts are few, and the bursts unknown.
    pub(super) is_vague: bool,
}

impl Evidence {
    /// Predicts the share of packets that a candidate leaves lost. The last second may leave twice as much as
    /// the last minute.
    pub(super) fn residual(&self, index: usize) -> f64 {
        let tails = self.slow.residual(index).max(self.fast.residual(index) / 2.0);
        let Some((loss, burst)) = self.bursts else { return tails };
        // Each stripe is a code of its own, with its share of each burst.
        let stripes = f64::from(self.stripes[index]);
        let span = self.spans[index] as f64 / stripes;
        tails.max(fit::residual(loss, burst / stripes, LADDER[index].as_f64(), span))
    }

    /// If even the highest rate leaves most losses of the last second, returns the lowest rate that leaves
    /// little more, and suffices for the last minute, if one does: an outage must not hide other losses.
    pub(super) fn cheapest(&self, Range { floor, cap, .. }: Range, residual: f64) -> Option<usize> {
        let least = (floor..=cap).map(|index| self.fast.failed(index)).min()?;
        if self.fast.lost == 0 || 2 * least <= self.fast.lost {
            return None;
        }
        let cheapest = (floor..=cap).find(|&index| 4 * self.fast.failed(index) <= 5 * least)?;
        let needed = (floor..=cap).find(|&index| self.slow.residual(index) <= residual);
        Some(cheapest.max(needed.unwrap_or(floor)))
    }
}
