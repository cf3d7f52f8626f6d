//! The number of instances of each bin, by the bursts in which packets are lost (Ricochet §6), with
//! [`Content::Auto`].
//!
//! A sum of which its receiver lacks two packets brings neither of them back by itself. Some sums lack
//! several because losses are many, and instances would not help them. More than that show that losses come
//! in bursts longer than the distance between the packets of a sum. So a node compares the share of such sums
//! with the share to be expected of single losses, and doubles its instances while it is clearly higher. It
//! halves them again once the share has been low for some time, and tries that less often each time that it
//! was too early.
//!
//! As with the number of repairs, a node's own losses stand for those of its neighbours.

use super::Node;
use super::repair_sender::RepairSender;
use crate::bins::Content;
use crate::message::Output;

/// Number of sums with a missing packet in a measurement.
const SUMS: u32 = 64;
/// Share of sums that lack several packets, beyond that of single losses, from which on instances are
/// doubled.
const CROWDED: f64 = 0.25;
/// The same share below which they are halved.
const CALM: f64 = 0.10;
/// Largest number of instances that bursts lead to.
const STAGGER_MAX: u16 = 8;
/// Number of calm measurements before instances are halved, at first and at most.
const PATIENCE: u32 = 4;
const PATIENCE_MAX: u32 = 256;

/// Sums received since the last measurement.
#[derive(Debug)]
pub(super) struct Bursts {
    /// Those that lack a packet, those that lack several, and the number of packets in them.
    sums: u32,
    crowded: u32,
    names: u32,
    /// Calm measurements in a row.
    calm: u32,
    patience: u32,
}

impl Bursts {
    pub(super) fn new() -> Self {
        Self { sums: 0, crowded: 0, names: 0, calm: 0, patience: PATIENCE }
    }

    /// Notes that a sum of `names` packets came, of which this node lacks `missing`.
    pub(super) fn on_sum(&mut self, names: usize, missing: usize) {
        if missing > 0 && self.sums < SUMS {
            self.sums += 1;
            self.crowded += u32::from(missing > 1);
            self.names += names as u32;
        }
    }

    /// Returns the number of instances at a loss, given the present one and the smallest one. Sums of fewer
    /// than half of `r` packets are not divided any further: each of them would be nearly a copy.
    fn next(&mut self, stagger: u16, least: u16, loss: f64, r: u8) -> u16 {
        if self.sums < SUMS {
            return stagger;
        }
        let share = |part: u32| f64::from(part) / f64::from(self.sums);
        let (crowded, names) = (share(self.crowded), share(self.names));
        let of_single_losses = 1.0 - (1.0 - loss).powf(names - 1.0);
        (self.sums, self.crowded, self.names) = (0, 0, 0);
        let excess = crowded - of_single_losses;
        if excess > CROWDED {
            self.calm = 0;
            let is_divisible = names >= f64::from(r) / 2.0;
            return if is_divisible { (2 * stagger).min(STAGGER_MAX).max(stagger) } else { stagger };
        }
        self.calm = if excess < CALM { self.calm + 1 } else { 0 };
        if self.calm < self.patience {
            return stagger;
        }
        self.calm = 0;
        // It may have been too early, and then the next time has to be later.
        self.patience = if stagger > least { (2 * self.patience).min(PATIENCE_MAX) } else { PATIENCE };
        (stagger / 2).max(least)
    }
}

impl Node {
    /// Follows the bursts of losses. Part-filled repairs are sent first.
    pub(super) fn follow_bursts(&mut self, out: &mut impl Output) {
        if self.config.content != Content::Auto {
            return;
        }
        let (before, loss) = (self.bins.stagger(), self.bins.conditions().loss);
        let stagger = self.bursts.next(before, self.config.stagger, loss, self.config.r);
        if stagger == before {
            return;
        }
        let Self { bins, rng, scratch, config, counts, tally, .. } = self;
        let mut sender = RepairSender { me: config.id, scratch, counts, tally, out };
        bins.change_stagger(stagger, rng, &mut |repair| sender.send(&repair));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of instances after measurements of full sums, of which one in `crowded` of those
    /// that lack a packet lacks several.
    fn after(measurements: u32, bursts: &mut Bursts, mut stagger: u16, loss: f64, crowded: u32) -> u16 {
        for _ in 0..measurements {
            (0..SUMS).for_each(|at| bursts.on_sum(8, if at % crowded == 0 { 2 } else { 1 }));
            stagger = bursts.next(stagger, 1, loss, 8);
        }
        stagger
    }

    #[test]
    fn sums_that_lack_several_packets_more_often_than_by_chance_get_more_instances() {
        let mut bursts = Bursts::new();
        assert_eq!(after(1, &mut bursts, 1, 0.01, 1), 2);
        assert_eq!(after(9, &mut bursts, 2, 0.01, 2), STAGGER_MAX);
        // One sum in two at 10 % of single losses.
        assert_eq!(after(99, &mut Bursts::new(), 1, 0.1, 2), 1);
        assert_eq!(after(99, &mut Bursts::new(), 16, 0.01, 1), 16, "more than that only if so configured");
    }

    #[test]
    fn instances_are_halved_after_some_time_and_less_often_if_that_was_early() {
        let mut bursts = Bursts::new();
        assert_eq!(after(PATIENCE - 1, &mut bursts, 8, 0.01, 64), 8);
        assert_eq!(after(1, &mut bursts, 8, 0.01, 64), 4);
        assert_eq!(after(1, &mut bursts, 4, 0.01, 1), 8);
        assert_eq!(after(2 * PATIENCE - 1, &mut bursts, 8, 0.01, 64), 8);
        assert_eq!(after(1, &mut bursts, 8, 0.01, 64), 4);
        assert_eq!(after(999, &mut bursts, 4, 0.01, 64), 1);
    }

    #[test]
    fn few_sums_and_short_ones_change_nothing() {
        let mut bursts = Bursts::new();
        (0..SUMS - 1).for_each(|_| bursts.on_sum(8, 2));
        (0..999).for_each(|_| bursts.on_sum(8, 0));
        assert_eq!(bursts.next(1, 1, 0.01, 8), 1);
        bursts.on_sum(8, 2);
        assert_eq!(bursts.next(1, 1, 0.01, 8), 2);
        (0..SUMS).for_each(|_| bursts.on_sum(3, 2));
        assert_eq!(bursts.next(2, 1, 0.01, 8), 2, "each would be nearly a copy");
    }
}
