//! Missing packets as evidence for findings.
//!
//! An original may arrive late, so that its packet was not missing after all. Missing packets therefore count
//! only one to two ticks after their repairs have waited for them. The account that decides about injections
//! does not wait.

use super::account::{Account, ONE};

/// An account of missing packets that are charged late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Suspicion {
    account: Account,
    /// Missing packets since the last tick, and of the interval before it.
    recent: [i64; 2],
}

impl Suspicion {
    /// Notes a missing packet.
    pub(super) fn on_missing(&mut self) {
        self.recent[0] += ONE;
    }

    /// Notes that a packet that counted as missing is not.
    pub(super) fn on_explained(&mut self) {
        match self.recent.iter_mut().rev().find(|recent| **recent > 0) {
            Some(recent) => *recent -= ONE,
            None => self.account.charge(-ONE),
        }
    }

    /// Lowers the level by the losses that a lost repair explains.
    pub(super) fn credit(&mut self, explained: i64) {
        self.account.charge(-explained);
    }

    /// Lowers the level for an arrival.
    pub(super) fn credit_arrival(&mut self) {
        self.account.credit_arrival();
    }

    /// Charges the packets that have been missing for long enough, up to `level_max`. Must be called ten
    /// times a second.
    pub(super) fn on_tick(&mut self, level_max: i64) {
        self.account.forget_credit();
        self.account.charge(self.recent[1]);
        self.recent = [0, self.recent[0]];
        self.account.limit(level_max);
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
            (0..2).for_each(|_| suspicion.on_missing());
            suspicion.on_tick(100 * ONE);
            assert!(suspicion.level() <= 0);
            (0..2).for_each(|_| suspicion.on_explained());
        }
    }

    #[test]
    fn a_packet_that_does_not_arrive_is_charged_after_two_ticks() {
        let mut suspicion = Suspicion::default();
        suspicion.on_missing();
        suspicion.on_tick(100 * ONE);
        assert_eq!(suspicion.level(), 0);
        suspicion.on_tick(100 * ONE);
        assert_eq!(suspicion.level(), ONE);
        suspicion.on_explained();
        assert_eq!(suspicion.level(), 0, "it arrives very late");
        (0..9).for_each(|_| suspicion.on_missing());
        (0..2).for_each(|_| suspicion.on_tick(5 * ONE));
        assert_eq!(suspicion.level(), 5 * ONE);
    }
}
