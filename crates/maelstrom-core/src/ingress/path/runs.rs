//! Runs of missing packets, each of which is one event.
//!
//! A link that loses packets in bursts takes tens of them at once. The gateway at the far end sends the
//! packets of its tick as a train, with their repairs behind, so that a burst may take a part of the packets
//! and none of the repairs. If each packet were evidence by itself, a few bursts would look like a path of
//! their own. A packet in a run of missing ones, without an arrival between, therefore counts less the
//! further behind it is ([`Counted`]). Packets that take another road one by one, or whose flow does while
//! others do not, have arrivals between them and count fully. Each lost datagram excuses as much as ever:
//! the packets of a burst that are named one by one, because their traffic is thin, each begin a run.

use super::account::{FOLD, ONE};
use crate::place::Counted;
use foundation::Seq;

/// Time between the names of two packets of a train, at most, in microseconds.
const TRAIN_US: u64 = 1_000;
/// Number of missing packets over which their usual share is averaged.
const SPAN: i64 = 64;

/// The present run, and what the packets of runs usually count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    seq: Seq,
    since_us: u64,
    latest: Counted,
    /// Share of a single packet's evidence that missing packets have on average, in units of [`FOLD`].
    usual: i64,
}

impl Default for Runs {
    fn default() -> Self {
        Self { seq: Seq(0), since_us: 0, latest: Counted::NOT, usual: FOLD }
    }
}

impl Runs {
    /// Starts with the stream of a new session.
    pub(super) fn restart(&mut self) {
        self.latest = Counted::NOT;
    }

    /// Takes a packet that is missing, and was named at this time. Returns as what it counts.
    pub(super) fn on_missing(&mut self, seq: Seq, since_us: u64) -> Counted {
        let is_behind = Some(seq.0) == self.seq.0.checked_add(1);
        let is_next = is_behind && since_us.abs_diff(self.since_us) <= TRAIN_US && self.latest.is_counted();
        let counted = if is_next { self.latest.next() } else { Counted::FIRST };
        self.usual += (counted.part_of(FOLD) - self.usual) / SPAN;
        (self.seq, self.since_us, self.latest) = (seq, since_us, counted);
        counted
    }

    /// Returns what a missing packet usually counts, where a single one has this evidence.
    pub(super) fn usual_part_of(&self, single: i64) -> i64 {
        single / ONE * self.usual / (FOLD / ONE)
    }
}

#[cfg(test)]
mod tests {
    use super::super::account::{Account, CREDITED, RepairLoss};
    use super::*;
    use testkit::Random;

    /// A path on which packets leave in trains, with a repair for `each` of them behind.
    struct Trains {
        packets: u64,
        each: u64,
        /// Share of packets and repairs that bursts of this length take.
        loss: f64,
        burst: u64,
        /// Share of packets that take another road, in runs of this length.
        elsewhere: f64,
        run: u64,
    }

    impl Trains {
        /// Returns the number of missing packets until the evidence exceeds its limit, and the highest level
        /// by the limit. `is_one_by_one` takes each packet as evidence by itself.
        fn judge(&self, trains: u64, seed: u64, is_one_by_one: bool) -> (Option<u64>, f64) {
            let (mut runs, mut account, mut repairs) =
                (Runs::default(), Account::default(), RepairLoss::default());
            let mut random = Random(seed);
            let mut chance = |p: f64| (random.below(1 << 30) as f64) < p * f64::from(1 << 30);
            let [mut lost, mut away, mut missing, mut counter] = [0_u64; 4];
            let mut highest = 0.0_f64;
            let mut found = None;
            for train in 0..trains {
                let mut is_hit = || {
                    lost = if lost > 0 {
                        lost - 1
                    } else {
                        self.burst * u64::from(chance(self.loss / self.burst as f64))
                    };
                    lost > 0
                };
                let hit: Vec<bool> = (0..self.packets).map(|_| is_hit()).collect();
                let arrived: Vec<bool> = (0..self.packets / self.each).map(|_| !is_hit()).collect();
                for (n, is_hit) in hit.into_iter().enumerate() {
                    away = if away > 0 {
                        away - 1
                    } else {
                        self.run * u64::from(chance(self.elsewhere / self.run as f64))
                    };
                    repairs.on_named();
                    let weight = repairs.weight();
                    if is_hit || away > 0 {
                        let seq = Seq(train * self.packets + n as u64);
                        let counted =
                            if is_one_by_one { Counted::FIRST } else { runs.on_missing(seq, train * 2_000) };
                        account.charge(counted.part_of(weight));
                        missing += 1;
                    } else {
                        account.credit_arrival(runs.usual_part_of(weight));
                    }
                    let level = account.level() as f64 / repairs.limit() as f64;
                    highest = highest.max(level);
                    found = found.or((level > 1.0).then_some(missing));
                }
                for has_arrived in arrived {
                    counter += 1;
                    if !has_arrived {
                        continue;
                    }
                    let excuse = repairs.evidence(repairs.explains());
                    let lost = repairs.on_sealed(1, counter);
                    if lost > 0 && account.level() > -CREDITED {
                        repairs.on_try();
                    }
                    account.charge(-lost * excuse);
                    repairs.on_repair();
                }
                if train % 50 == 0 {
                    account.forget_credit();
                }
            }
            (found, highest)
        }
    }

    const LINK: Trains = Trains { packets: 100, each: 3, loss: 0.0, burst: 1, elsewhere: 0.0, run: 1 };

    #[test]
    fn bursts_that_take_no_repair_of_their_train_are_no_evidence() {
        let mut one_by_one = 0;
        for (packets, each) in [(50, 2), (100, 3), (200, 3), (100, 8), (200, 16)] {
            for (loss, burst) in [(0.001, 40), (0.01, 40), (0.01, 20), (0.01, 8), (0.03, 1)] {
                let link = Trains { packets, each, loss, burst, ..LINK };
                for seed in 0..20 {
                    let (found, highest) = link.judge(4_000, seed, false);
                    assert_eq!(
                        found, None,
                        "{packets} with {each} for each, {burst} at {loss}: {highest:.2}"
                    );
                    one_by_one += u32::from(link.judge(400, seed, true).0.is_some());
                }
            }
        }
        assert!(one_by_one > 50, "only {one_by_one} of 500 paths would show a difference");
    }

    #[test]
    fn another_road_is_found_whatever_its_share_and_the_length_of_its_runs() {
        for (elsewhere, run, most) in [(0.02, 1, 150), (0.5, 1, 150), (0.1, 4, 500), (0.3, 20, 3_000)] {
            for each in [3, 8, 16] {
                let link = Trains { each, elsewhere, run, ..LINK };
                for seed in 0..10 {
                    let (found, highest) = link.judge(4_000, seed, false);
                    let missing = found.unwrap_or_else(|| panic!("{elsewhere}, {run}, {each}: {highest:.2}"));
                    assert!(missing <= most * each / 3, "{elsewhere}, {run}, {each}: {missing} packets");
                }
            }
        }
    }

    #[test]
    fn fewer_than_one_in_a_thousand_are_no_evidence_in_runs_either() {
        for run in [1, 10, 40] {
            let link = Trains { elsewhere: 0.0005, run, ..LINK };
            let (found, highest) = link.judge(20_000, 7, false);
            assert!(found.is_none() || run > 1, "{run}: {highest:.2}");
            let link = Trains { elsewhere: 0.004, run, ..LINK };
            assert!(link.judge(40_000, 7, false).0.is_some(), "{run}");
        }
    }

    #[test]
    fn a_run_ends_with_an_arrival_or_a_pause() {
        let mut runs = Runs::default();
        let parts: Vec<i64> = [(5, 0), (6, 0), (7, 900), (9, 900), (10, 2_000), (11, 2_000), (3, 2_000)]
            .map(|(seq, us)| runs.on_missing(Seq(seq), us).part_of(36))
            .to_vec();
        assert_eq!(parts, [36, 9, 4, 36, 36, 9, 36]);
        runs.restart();
        assert_eq!(runs.on_missing(Seq(4), 2_000), Counted::FIRST);
    }

    #[test]
    fn the_usual_share_is_that_of_the_latest_packets() {
        let mut runs = Runs::default();
        assert_eq!(runs.usual_part_of(1 << 20), 1 << 20);
        (0..4_000).for_each(|n| _ = runs.on_missing(Seq(n / 40 * 50 + n % 40), 0));
        let share = runs.usual_part_of(1 << 20) as f64 / f64::from(1 << 20);
        assert!((0.02..0.08).contains(&share), "{share}");
        (0..1_000).for_each(|n| _ = runs.on_missing(Seq(2 * n), 0));
        assert!(runs.usual_part_of(1 << 20) > (1 << 20) * 9 / 10);
    }
}
