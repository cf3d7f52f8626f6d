//! Missing packets as evidence for findings.
//!
//! An original may arrive late, so that its packet was not missing after all. Missing packets therefore count
//! only one to two ticks after their repairs have waited for them. The account that decides about injections
//! does not wait.

use super::account::{Account, ONE};
use crate::place::Counted;

/// An account of missing packets that are charged late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Suspicion {
    account: Account,
    /// Missing packets since the last tick, and in the interval before it, as parts of single ones in units
    /// of [`ONE`].
    recent: [i64; 2],
}

impl Suspicion {
    /// Notes a missing packet.
    pub(super) fn on_missing(&mut self, counted: Counted) {
        self.recent[0] += counted.part_of(ONE);
    }

    /// Notes that a packet that counted as missing is not. `weight`: that of a single one.
    pub(super) fn on_explained(&mut self, counted: Counted, weight: i64) {
        let part = counted.part_of(ONE);
        match self.recent.iter_mut().rev().find(|recent| **recent >= part) {
            Some(recent) => *recent -= part,
            None => self.account.charge(-counted.part_of(weight)),
        }
    }

    /// Lowers the level by the evidence of packets that are explained.
    pub(super) fn credit(&mut self, explained: i64) {
        self.account.charge(-explained);
    }

    /// Lowers the level for an arrival, where missing packets have this weight.
    pub(super) fn credit_arrival(&mut self, weight: i64) {
        self.account.credit_arrival(weight);
    }

    /// Charges the packets of this weight that have been missing for long enough, up to `level_max`. Must be
    /// called ten times a second.
    pub(super) fn on_tick(&mut self, weight: i64, level_max: i64) {
        self.account.forget_credit();
        self.account.charge(self.recent[1] * weight / ONE);
        self.recent = [0, self.recent[0]];
        self.account.limit(level_max);
    }

    /// Drops the evidence so far.
    pub(super) fn forgive(&mut self) {
        self.account.limit(0);
        self.recent = [0; 2];
    }

    pub(super) fn level(&self) -> i64 {
        self.account.level()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_arrives_late_is_never_charged() {
        let mut suspicion = Suspicion::default();
        // Two at a time are on the way at each tick.
        for _ in 0..20 {
            (0..2).for_each(|_| suspicion.on_missing(Counted::FIRST));
            suspicion.on_tick(7, 700);
            assert!(suspicion.level() <= 0);
            (0..2).for_each(|_| suspicion.on_explained(Counted::FIRST, 7));
        }
    }

    #[test]
    fn a_packet_that_does_not_arrive_is_charged_after_two_ticks() {
        let mut suspicion = Suspicion::default();
        suspicion.on_missing(Counted::FIRST);
        suspicion.on_tick(7, 700);
        assert_eq!(suspicion.level(), 0);
        suspicion.on_tick(7, 700);
        assert_eq!(suspicion.level(), 7);
        suspicion.on_explained(Counted::FIRST, 7);
        assert_eq!(suspicion.level(), 0, "it arrives very late");
        (0..9).for_each(|_| suspicion.on_missing(Counted::FIRST));
        (0..2).for_each(|_| suspicion.on_tick(7, 35));
        assert_eq!(suspicion.level(), 35);
    }
}
