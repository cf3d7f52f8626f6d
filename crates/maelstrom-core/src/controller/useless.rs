//! Repairs that do not help.
//!
//! Behind a full queue, the repair that follows its packet finds the queue full too. Repairs are then lost
//! far more than packets, and add to the load. The number of packets that were recovered in fact therefore
//! decides, and not the forecast. If hardly any repair arrives, there are no such numbers, and the loss of
//! repairs decides. Packets that are left to their senders count as not recovered, and so do those that are
//! solved while the far gateway injects nothing, because the path differs. Those of outages do not count at
//! all: an outage is no queue.

use super::history::Settled;

/// Share of lost packets above which repairs may be useless.
pub(super) const LOSS_MIN: f64 = 0.005;
/// Loss below which the link has recovered.
const CALM_MAX: f64 = 0.003;
/// Time at the floor, at first and at most.
const REST_US: [u64; 2] = [10_000_000, 60_000_000];
/// Time with little loss after which the first rest applies again.
const CALM_US: u64 = 5_000_000;
/// Time over which losses during a rest are counted.
pub(super) const MOMENT_US: u64 = 300_000;
/// Repairs help if they leave at most one in this many losses.
const NEARLY_ALL: u64 = 10;
/// Smallest number of losses that shows anything.
const LOSSES_MIN: u64 = 16;
/// Smallest number of runs of losses.
const RUNS_MIN: u64 = 8;
/// Share of lost repairs above which repairs are useless.
const REPAIR_LOSS_MAX: f64 = 0.9;
/// Time that the settled packets of a report cover.
const SPAN_US: u64 = 1_000_000;

/// Whether most of these packets stayed lost, although they are many.
pub(super) fn are_useless(settled: &Settled) -> bool {
    let &Settled { packets, lost, residual, runs } = settled;
    let loss = lost as f64 / packets.max(1) as f64;
    lost >= LOSSES_MIN && runs >= RUNS_MIN && loss > LOSS_MIN && 2 * u128::from(residual) > u128::from(lost)
}

/// Watches whether repairs help.
#[derive(Clone, Copy, Debug)]
pub(super) struct Useless {
    /// Time at which the present rest, or the last one, began.
    begun_us: u64,
    /// Share of lost packets below which a rest may end early; 0 if it must not.
    passed_below: f64,
    /// Time since which repairs have recovered nearly all losses.
    helpful_since_us: Option<u64>,
    /// Time from which settled packets were sent at the present rate or a higher one.
    judged_from_us: u64,
    until_us: u64,
    rest_us: u64,
    /// Time since which the link has lost little.
    calm_since_us: Option<u64>,
    /// Time since which hardly any repair has arrived.
    silent_since_us: Option<u64>,
}

impl Useless {
    pub(super) fn new() -> Self {
        Self {
            begun_us: 0,
            passed_below: 0.0,
            helpful_since_us: None,
            judged_from_us: 0,
            until_us: 0,
            rest_us: REST_US[0],
            calm_since_us: None,
            silent_since_us: None,
        }
    }

    /// Notes that the rate rises, or that nothing is known of the link. Reports show the effect after
    /// `delay_us`.
    pub(super) fn on_rise(&mut self, now_us: u64, delay_us: u64) {
        self.judged_from_us = now_us + delay_us + SPAN_US;
    }

    /// Notes that the far gateway used no repairs until now, so that its losses say nothing about them.
    /// Reports show others after `delay_us`.
    pub(super) fn on_unused(&mut self, now_us: u64, delay_us: u64) {
        self.judged_from_us = self.judged_from_us.max(now_us + delay_us + SPAN_US);
    }

    /// Takes the packets of the last second that were settled. Reports show a change after `delay_us`.
    /// `may_rest`: whether there are repairs that may be useless.
    pub(super) fn on_settled(&mut self, now_us: u64, settled: Settled, delay_us: u64, may_rest: bool) {
        let loss = settled.lost as f64 / settled.packets.max(1) as f64;
        if loss > CALM_MAX {
            self.calm_since_us = None;
        } else if *self.calm_since_us.get_or_insert(now_us) + CALM_US <= now_us {
            self.rest_us = REST_US[0];
        }
        if settled.lost >= LOSSES_MIN {
            if settled.residual > settled.lost / NEARLY_ALL {
                self.helpful_since_us = None;
            } else if *self.helpful_since_us.get_or_insert(now_us) + CALM_US <= now_us {
                self.rest_us = REST_US[0];
            }
        }
        if self.passed_below > 0.0 && now_us < self.begun_us + SPAN_US {
            // The worst of these losses are settled later.
            self.passed_below = self.passed_below.max(loss / 2.0);
        }
        if !may_rest || now_us < self.judged_from_us || self.is_resting(now_us) {
            return;
        }
        if are_useless(&settled) {
            let is_first = self.rest_us == REST_US[0];
            self.rest(now_us, delay_us);
            self.passed_below = if is_first { loss / 2.0 } else { 0.0 };
        }
    }

    /// Takes the share of repairs that are lost.
    pub(super) fn on_repair_loss(&mut self, now_us: u64, share: f64, delay_us: u64) {
        if share <= REPAIR_LOSS_MAX {
            self.silent_since_us = None;
            return;
        }
        self.silent_since_us.get_or_insert(now_us);
        if self.is_starved(now_us) && !self.is_resting(now_us) {
            self.rest(now_us, delay_us);
        }
    }

    /// Takes the losses of the last [`MOMENT_US`], while no queue stands full; ends a rest if the link loses
    /// packets, but far fewer than when the rest began.
    ///
    /// A slow start that overfills a queue for a moment leaves most losses of a second to TCP. A link that
    /// loses packets needs its repairs again then. If they turn out to be useless once more, the next rest is
    /// not ended.
    pub(super) fn on_losses_of_link(&mut self, now_us: u64, lost: u64, loss: f64, delay_us: u64) {
        let is_news = now_us >= self.begun_us + MOMENT_US + delay_us;
        let is_lossy = lost >= LOSSES_MIN && loss > LOSS_MIN && loss < self.passed_below;
        if is_news && is_lossy && self.is_resting(now_us) {
            self.end_rest(now_us, delay_us);
        }
    }

    fn rest(&mut self, now_us: u64, delay_us: u64) {
        (self.begun_us, self.passed_below) = (now_us, 0.0);
        self.helpful_since_us = None;
        self.until_us = now_us + self.rest_us;
        self.rest_us = (2 * self.rest_us).min(REST_US[1]);
        // Packets that are sent during the rest do not count.
        self.on_rise(self.until_us, delay_us);
    }

    /// Whether hardly any repair has arrived for a second.
    pub(super) fn is_starved(&self, now_us: u64) -> bool {
        self.silent_since_us.is_some_and(|since_us| now_us >= since_us + SPAN_US)
    }

    /// Ends a rest, because the queue that made repairs useless has ebbed.
    pub(super) fn end_rest(&mut self, now_us: u64, delay_us: u64) {
        self.until_us = self.until_us.min(now_us);
        self.on_rise(now_us, delay_us);
    }

    /// Whether the rate stays at the floor.
    pub(super) fn is_resting(&self, now_us: u64) -> bool {
        now_us < self.until_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn settled(packets: u64, lost: u64, residual: u64) -> Settled {
        Settled { packets, lost, residual, runs: lost }
    }

    #[test]
    fn repairs_that_recover_less_than_half_rest_longer_and_longer() {
        let (mut useless, mut rests) = (Useless::new(), Vec::new());
        for tenth in 0..3_000 {
            let now_us = tenth * SECOND / 10;
            let was = useless.is_resting(now_us);
            useless.on_settled(now_us, settled(1_000, 50, 30), SECOND / 10, true);
            if !was && useless.is_resting(now_us) {
                rests.push(now_us / SECOND);
            }
        }
        // Between two rests there is time to see the effect.
        assert_eq!(rests, [0, 11, 32, 73, 134, 195, 256]);
    }

    #[test]
    fn calm_forgives() {
        let mut useless = Useless::new();
        useless.on_settled(SECOND, settled(1_000, 50, 30), 0, true);
        assert_eq!((useless.until_us, useless.rest_us), (11 * SECOND, 20 * SECOND));
        useless.on_settled(12 * SECOND, settled(1_000, 1, 1), 0, true);
        useless.on_settled(18 * SECOND, settled(1_000, 1, 1), 0, true);
        assert_eq!(useless.rest_us, 10 * SECOND);
    }

    #[test]
    fn losses_that_are_recovered_or_few_or_of_a_lower_rate_do_not_count() {
        let mut useless = Useless::new();
        let few = Settled { runs: 7, ..settled(1_000, 50, 50) };
        for settled in
            [settled(1_000, 50, 25), settled(1_000, 4, 4), settled(100, 8, 8), settled(0, 0, 0), few]
        {
            useless.on_settled(0, settled, 0, true);
        }
        useless.on_rise(0, SECOND);
        useless.on_settled(2 * SECOND - 1, settled(1_000, 50, 50), 0, true);
        assert!(!useless.is_resting(2 * SECOND - 1));
        useless.on_settled(2 * SECOND, settled(1_000, 50, 50), 0, true);
        assert!(useless.is_resting(2 * SECOND));
    }

    #[test]
    fn a_far_gateway_that_used_no_repairs_shortens_no_wait() {
        let mut useless = Useless::new();
        useless.on_settled(0, settled(1_000, 50, 50), 0, true);
        // Packets of the rest itself do not count, for another second after it.
        useless.on_unused(5 * SECOND, 0);
        useless.on_settled(11 * SECOND - 1, settled(1_000, 50, 50), 0, true);
        assert!(!useless.is_resting(11 * SECOND - 1));
        useless.on_unused(11 * SECOND, SECOND);
        useless.on_settled(13 * SECOND - 1, settled(1_000, 50, 50), 0, true);
        assert!(!useless.is_resting(13 * SECOND - 1));
        useless.on_settled(13 * SECOND, settled(1_000, 50, 50), 0, true);
        assert!(useless.is_resting(13 * SECOND));
    }

    #[test]
    fn losses_of_the_link_end_the_first_rest_alone_until_repairs_have_helped() {
        const DELAY: u64 = SECOND / 4;
        let mut useless = Useless::new();
        let mut rest_and_lose = |from_us: u64| {
            useless.on_settled(from_us, settled(1_000, 500, 450), DELAY, true);
            assert!(useless.is_resting(from_us));
            useless.on_losses_of_link(from_us + SECOND, 15, 0.05, DELAY);
            assert!(useless.is_resting(from_us + SECOND), "too few");
            useless.on_losses_of_link(from_us + MOMENT_US + DELAY - 1, 50, 0.05, DELAY);
            assert!(useless.is_resting(from_us + SECOND / 2), "of before the rest");
            useless.on_losses_of_link(from_us + MOMENT_US + DELAY, 50, 0.05, DELAY);
            let is_over = !useless.is_resting(from_us + SECOND);
            // Repairs help from then on, or do not.
            for tenth in 0..60 {
                useless.on_settled(
                    from_us + 30 * SECOND + tenth * SECOND / 10,
                    settled(1_000, 50, 3),
                    0,
                    false,
                );
            }
            is_over
        };
        assert!(rest_and_lose(0) && rest_and_lose(100 * SECOND));
        let mut useless = Useless::new();
        for (from_us, is_over) in [(0, true), (3 * SECOND, false)] {
            useless.on_settled(from_us, settled(1_000, 500, 450), DELAY, true);
            useless.on_losses_of_link(from_us + SECOND, 50, 0.05, DELAY);
            assert_eq!(!useless.is_resting(from_us + SECOND), is_over);
        }
    }

    #[test]
    fn repairs_that_hardly_ever_arrive_rest_until_they_do() {
        let mut useless = Useless::new();
        for tenth in 0..600 {
            let now_us = tenth * SECOND / 10;
            useless.on_repair_loss(now_us, if tenth < 300 { 0.95 } else { 0.6 }, 0);
            let rests = (10..310).contains(&tenth);
            assert_eq!(useless.is_resting(now_us), rests, "after {tenth} tenths");
        }
        // A moment without repairs is no full queue.
        let mut useless = Useless::new();
        for tenth in 0..600 {
            useless.on_repair_loss(tenth * SECOND / 10, if tenth % 10 < 9 { 0.95 } else { 0.0 }, 0);
        }
        assert!(!useless.is_resting(60 * SECOND));
    }
}
