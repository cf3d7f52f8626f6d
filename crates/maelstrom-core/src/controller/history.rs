//! The forecasts of the last second and of the last minute.

use std::array;

use fec::RepairRate;

use super::useless::MOMENT_US;
use crate::forecast::{CANDIDATES, Forecast, Tail};
use crate::wire::{BURST_BUCKETS, LossReport};

/// Length of a slot of the short horizon.
const FAST_SLOT_US: u64 = 100_000;
/// Length of a slot of the long horizon.
const SLOW_SLOT_US: u64 = 1_000_000;
/// Number of packets that show rare batches, and number of seconds with traffic after which fewer have to do.
const YOUNG_PACKETS: u64 = 100_000;
const YOUNG_S: u64 = 3;

/// Burst bucket from which on bursts count as outages with the longest windows: 129 packets and more. Hardly
/// any window recovers them.
const OUTAGE: usize = 8;

/// Returns the bucket from which on bursts count as outages, because windows of this length recover none of
/// them at the highest rate by default.
pub(super) fn outage_of(window: u16) -> usize {
    // A window recovers a burst and the repairs lost with it.
    let rate = RepairRate::THREE_EIGHTHS.as_f64();
    LossReport::burst_bucket((f64::from(window) * rate / (1.0 + rate)) as u64).min(OUTAGE)
}

/// Packets whose fate is settled, without those of outages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) packets: u64,
    pub(super) lost: u64,
    /// Those that stayed lost, or were left lost. While the far gateway injects nothing because the path
    /// differs, those too that were solved and withheld.
    pub(super) residual: u64,
    /// Runs of lost packets.
    pub(super) runs: u64,
}

impl Settled {
    /// `outage`: the bucket from which on bursts count as outages. `is_closed`: whether withheld packets
    /// count as lost.
    fn between(old: &LossReport, new: &LossReport, outage: usize, is_closed: bool) -> Self {
        let since = |read: fn(&LossReport) -> u64| read(new).saturating_sub(read(old));
        let withheld = if is_closed { since(|loss| loss.withheld) } else { 0 };
        let mut runs = new.bursts;
        runs.iter_mut().zip(old.bursts).for_each(|(runs, old)| *runs = runs.saturating_sub(old));
        // The last bucket has no upper bound.
        let outages = (outage..BURST_BUCKETS - 1).map(|bucket| runs[bucket].saturating_mul(1 << bucket));
        let outages =
            if runs[BURST_BUCKETS - 1] > 0 { u64::MAX } else { outages.fold(0, u64::saturating_add) };
        Self {
            packets: since(|loss| loss.named),
            lost: since(|loss| loss.lost).saturating_sub(outages),
            residual: (since(|loss| loss.residual() + loss.left) + withheld).saturating_sub(outages),
            runs: runs[..outage].iter().fold(0, |sum, &runs| sum.saturating_add(runs)),
        }
    }

    fn add(&mut self, other: &Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.lost = self.lost.saturating_add(other.lost);
        self.residual = self.residual.saturating_add(other.residual);
        self.runs = self.runs.saturating_add(other.runs);
    }
}

/// Counts of a span of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) lost: u64,
    tails: [Tail; CANDIDATES],
    pub(super) settled: Settled,
    /// Number of packets after which candidates gave a loss up, at least; 0 without packets.
    pub(super) span: u64,
}

impl Counts {
    /// Number of numbers that describe it.
    const NUMBERS: usize = 7 + 3 * CANDIDATES;

    /// The counts between two reports of one session. `outage`: the bucket from which on bursts count as
    /// outages. `is_closed`: whether the far gateway injects nothing, because the path differs.
    pub(super) fn between(
        old: (&Forecast, &LossReport),
        new: (&Forecast, &LossReport),
        outage: usize,
        is_closed: bool,
    ) -> Self {
        let settled = Settled::between(old.1, new.1, outage, is_closed);
        let (old, new) = (old.0, new.0);
        let packets = new.packets.wrapping_sub(old.packets);
        Self {
            packets: u64::from(packets),
            lost: u64::from(new.lost.wrapping_sub(old.lost).min(packets)),
            tails: array::from_fn(|index| new.tails[index].since(old.tails[index])),
            settled,
            span: 0,
        }
    }

    fn add(&mut self, other: &Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.lost = self.lost.saturating_add(other.lost);
        for (sum, tail) in self.tails.iter_mut().zip(other.tails) {
            sum.half = sum.half.saturating_add(tail.half);
            sum.most = sum.most.saturating_add(tail.most);
            sum.failed = sum.failed.saturating_add(tail.failed);
        }
        self.settled.add(&other.settled);
        self.span = match (self.span, other.span) {
            (0, span) | (span, 0) => span,
            (span, other) => span.min(other),
        };
    }

    fn write(&self, numbers: &mut Vec<u64>) {
        let Settled { packets, lost, residual, runs } = self.settled;
        numbers.extend([self.packets, self.lost, self.span, packets, lost, residual, runs]);
        numbers.extend(self.tails.iter().flat_map(|tail| [tail.half, tail.most, tail.failed].map(u64::from)));
    }

    /// Reads what [`Counts::write`] has written. No slot counts more than fits into 32 bits.
    fn read(numbers: &[u64; Self::NUMBERS]) -> Option<Self> {
        if numbers.iter().any(|&number| number > u32::MAX.into()) {
            return None;
        }
        let [packets, lost, span, settled @ ..] = numbers.first_chunk::<7>()?;
        let (tails, _) = numbers[7..].as_chunks::<3>();
        let mut counts = Self { packets: *packets, lost: *lost, span: *span, ..Self::default() };
        let [packets, lost, residual, runs] = *settled;
        counts.settled = Settled { packets, lost, residual, runs };
        for (to, tail) in counts.tails.iter_mut().zip(tails) {
            let [half, most, failed] = tail.map(u32::try_from);
            *to = Tail { half: half.ok()?, most: most.ok()?, failed: failed.ok()? };
        }
        Some(counts)
    }

    /// Share of lost packets.
    pub(super) fn loss(&self) -> f64 {
        self.lost as f64 / self.packets.max(1) as f64
    }

    /// Losses that a candidate would have left.
    pub(super) fn failed(&self, index: usize) -> u64 {
        u64::from(self.tails[index].failed)
    }

    /// Predicts the share of packets that a candidate leaves lost.
    ///
    /// Batches that last longer are exponentially rarer. Their number falls from half of the window to three
    /// quarters of it by the same factor as from there to the whole window.
    pub(super) fn residual(&self, index: usize) -> f64 {
        let Tail { half, most, failed } = self.tails[index];
        let (half, most, failed) = (f64::from(half), f64::from(most), f64::from(failed));
        let beyond = if half > 0.0 { most * (most / half).min(1.0) } else { 0.0 };
        (beyond.max(failed) / self.packets.max(1) as f64).min(1.0)
    }
}

/// Sums over the last `N` slots of time.
#[derive(Clone, Debug)]
struct Horizon<const N: usize> {
    slot_us: u64,
    slots: Box<[Counts; N]>,
    /// Number of the present slot since the clock's origin.
    present: u64,
}

impl<const N: usize> Horizon<N> {
    fn new(slot_us: u64) -> Self {
        Self { slot_us, slots: Box::new([Counts::default(); N]), present: 0 }
    }

    fn add(&mut self, now_us: u64, counts: &Counts) {
        self.turn_to(now_us);
        self.slots[(self.present % N as u64) as usize].add(counts);
    }

    /// Forgets the slots that have become too old.
    fn turn_to(&mut self, now_us: u64) {
        let present = (now_us / self.slot_us).max(self.present);
        for slot in (self.present + 1..=present).rev().take(N) {
            self.slots[(slot % N as u64) as usize] = Counts::default();
        }
        self.present = present;
    }

    /// Sums over the present slot and those just before it.
    fn newest(&self, slots: u64) -> Counts {
        let mut sum = Counts::default();
        for slot in self.present.saturating_sub(slots - 1)..=self.present {
            sum.add(&self.slots[(slot % N as u64) as usize]);
        }
        sum
    }

    /// Appends the number of slots with packets, and each of them behind its number.
    fn write(&self, numbers: &mut Vec<u64>) {
        let slots = self.present.saturating_sub(N as u64 - 1)..=self.present;
        let filled = slots.map(|slot| (slot, &self.slots[(slot % N as u64) as usize]));
        let filled: Vec<_> =
            filled.filter(|(_, counts)| counts.packets > 0 || counts.settled.packets > 0).collect();
        numbers.push(filled.len() as u64);
        for (slot, counts) in filled {
            numbers.push(slot);
            counts.write(numbers);
        }
    }

    /// Reads what [`Horizon::write`] has written from the beginning of `numbers`, and removes it. Slots
    /// that have become too old are forgotten.
    fn read(slot_us: u64, now_us: u64, numbers: &mut &[u64]) -> Option<Self> {
        let mut horizon = Self::new(slot_us);
        horizon.turn_to(now_us);
        for _ in 0..*numbers.split_off_first().filter(|&&slots| slots <= N as u64)? {
            let slot = *numbers.split_off_first()?;
            let (counts, rest) = numbers.split_first_chunk()?;
            *numbers = rest;
            let counts = Counts::read(counts)?;
            if slot <= horizon.present && horizon.present - slot < N as u64 {
                horizon.slots[(slot % N as u64) as usize] = counts;
            }
        }
        Some(horizon)
    }

    fn sum(&self, counts: impl Fn(&Counts) -> bool) -> Counts {
        let mut sum = Counts::default();
        self.slots
            .iter()
            .filter(|slot| slot.packets > 0 || slot.settled.packets > 0)
            .filter(|slot| counts(slot))
            .for_each(|slot| sum.add(slot));
        sum
    }
}

/// The two horizons.
#[derive(Clone, Debug)]
pub(super) struct History {
    fast: Horizon<10>,
    slow: Horizon<60>,
    /// Number of packets, number of seconds in which there were any, and the last of these seconds.
    packets: u64,
    seconds: u64,
    last_second: Option<u64>,
    /// Time since which it has never been without packets.
    since_us: u64,
}

impl History {
    pub(super) fn new() -> Self {
        Self {
            fast: Horizon::new(FAST_SLOT_US),
            slow: Horizon::new(SLOW_SLOT_US),
            packets: 0,
            seconds: 0,
            last_second: None,
            since_us: 0,
        }
    }

    /// Appends the numbers that describe it.
    pub(super) fn write(&self, numbers: &mut Vec<u64>) {
        numbers.extend([self.packets, self.seconds]);
        self.fast.write(numbers);
        self.slow.write(numbers);
    }

    /// Reads what [`History::write`] has written on a machine with the same clock; `None` for anything else.
    pub(super) fn read(now_us: u64, numbers: &[u64]) -> Option<Self> {
        let (&[packets, seconds], mut rest) = numbers.split_first_chunk()?;
        let fast = Horizon::read(FAST_SLOT_US, now_us, &mut rest)?;
        let slow = Horizon::read(SLOW_SLOT_US, now_us, &mut rest)?;
        let (seconds, last_second) = (seconds.min(u32::MAX.into()), Some(now_us / SLOW_SLOT_US));
        rest.is_empty().then_some(Self { fast, slow, packets, seconds, last_second, since_us: now_us })
    }

    pub(super) fn add(&mut self, now_us: u64, counts: &Counts) {
        self.packets = self.packets.saturating_add(counts.packets);
        let second = now_us / SLOW_SLOT_US;
        if counts.packets > 0 && self.last_second != Some(second) {
            self.seconds += 1;
            self.last_second = Some(second);
        }
        self.fast.add(now_us, counts);
        self.slow.turn_to(now_us);
        if counts.packets > 0 && self.slow.slots.iter().all(|second| second.packets == 0) {
            self.since_us = now_us;
        }
        self.slow.add(now_us, counts);
    }

    /// Time for which there has been traffic, with pauses of less than a minute.
    pub(super) fn age_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.since_us)
    }

    /// Counts of the last second.
    pub(super) fn fast(&self) -> Counts {
        self.fast.sum(|_| true)
    }

    /// Counts of the last minute. Two kinds of seconds say nothing about candidates, and are left out: those
    /// in which even the candidate `highest` would have left most losses, and those of traffic so slow that
    /// candidates gave losses up after far fewer packets than `span`.
    pub(super) fn slow(&self, highest: usize, span: u64) -> Counts {
        let is_like = |second: &Counts| second.span == 0 || 3 * second.span >= 2 * span;
        self.slow.sum(|second| is_like(second) && 2 * second.failed(highest) <= second.lost)
    }

    /// Counts of the last [`MOMENT_US`].
    pub(super) fn latest(&self) -> Counts {
        self.fast.newest(MOMENT_US / FAST_SLOT_US)
    }

    /// Whether traffic is so slow at present that candidates give losses up after `span` packets, and the
    /// last minute had little traffic like it, but faster one. The many packets of that hide how often slower
    /// traffic, with fewer repairs in time, stays lost.
    pub(super) fn is_slower(&self, span: u64) -> bool {
        let alike = |second: &Counts| second.span > 0 && 2 * second.span <= 3 * span;
        let packets = self.slow.sum(alike).packets;
        let has_faster = self.slow.slots.iter().any(|second| 2 * second.span > 3 * span);
        has_faster && packets < YOUNG_PACKETS
    }

    /// Begins to count the packets that show rare batches: traffic has become far faster.
    pub(super) fn begin(&mut self) {
        (self.packets, self.seconds, self.last_second) = (0, 0, None);
    }

    /// Whether the counts are too few to show rare batches that last long.
    pub(super) fn is_young(&self) -> bool {
        self.packets < YOUNG_PACKETS && self.seconds <= YOUNG_S
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(packets: u64, half: u32, most: u32, failed: u32) -> Counts {
        Counts { packets, tails: [Tail { half, most, failed }; CANDIDATES], ..Counts::default() }
    }

    #[test]
    fn slots_leave_the_horizons_after_a_second_and_a_minute() {
        let mut history = History::new();
        history.add(5_000_000, &counts(100, 0, 0, 0));
        history.add(5_950_000, &counts(10, 0, 0, 0));
        let packets = |history: &History| (history.fast().packets, history.slow(0, 0).packets);
        assert_eq!(packets(&history), (110, 110));
        history.add(6_000_000, &counts(1, 0, 0, 0));
        assert_eq!(packets(&history), (11, 111));
        history.add(66_000_000, &counts(0, 0, 0, 0));
        assert_eq!(packets(&history), (0, 0));
    }

    #[test]
    fn seconds_that_no_candidate_would_have_helped_are_left_out() {
        let mut history = History::new();
        let second = |lost, failed| Counts { lost, ..counts(100, failed, failed, failed) };
        history.add(5_000_000, &second(10, 5));
        history.add(6_000_000, &second(90, 46));
        history.add(7_000_000, &second(0, 0));
        let slow = history.slow(CANDIDATES - 1, 0);
        assert_eq!((slow.packets, slow.lost, slow.failed(0)), (200, 10, 5));
    }

    #[test]
    fn seconds_of_far_slower_traffic_are_left_out() {
        let mut history = History::new();
        history.add(5_000_000, &Counts { span: 500, ..counts(1_000, 0, 0, 0) });
        history.add(6_000_000, &Counts { span: 30, lost: 20, ..counts(100, 9, 9, 9) });
        history.add(6_500_000, &Counts { span: 400, ..counts(10, 0, 0, 0) });
        history.add(7_000_000, &Counts { span: 350, ..counts(1, 0, 0, 0) });
        assert_eq!(
            [30, 400, 510, 700].map(|span| history.slow(0, span).packets),
            [1_111, 1_001, 1_001, 1_000]
        );
    }

    #[test]
    fn traffic_is_slower_until_many_packets_came_as_slowly_or_the_faster_ones_are_forgotten() {
        let mut history = History::new();
        let second = |span, packets| Counts { span, ..counts(packets, 0, 0, 0) };
        for at in 0..3 {
            history.add(at * 1_000_000, &second(512, 50_000));
        }
        assert!(!history.is_slower(512) && !history.is_slower(400) && history.is_slower(300));
        for at in 3..7 {
            assert!(history.is_slower(100), "{at}");
            history.add(at * 1_000_000, &second(100, 1_000));
        }
        assert!(history.is_slower(100) && history.is_slower(60));
        let mut later = history.clone();
        later.add(7_000_000, &second(60, 200_000));
        assert!(!later.is_slower(60), "many packets show it");
        history.add(62_500_000, &second(100, 1));
        assert!(!history.is_slower(100), "only slow traffic is left");
    }

    #[test]
    fn the_latest_slots_are_summed() {
        let mut history = History::new();
        for at in 0..8 {
            history.add(at * 100_000, &counts(1 << at, 0, 0, 0));
        }
        assert_eq!(history.latest().packets, (1 << 5) + (1 << 6) + (1 << 7));
    }

    #[test]
    fn the_tail_of_a_candidate_continues_beyond_the_window() {
        let close = |counts: Counts, expected: f64| {
            let seen = counts.residual(3);
            assert!((seen - expected).abs() < 1e-12, "{seen}, expected {expected}");
        };
        close(counts(1_000_000, 0, 0, 0), 0.0);
        close(counts(1_000_000, 100, 10, 0), 1e-6);
        close(counts(1_000_000, 100, 100, 100), 1e-4);
        close(counts(1_000_000, 100, 10, 5), 5e-6);
    }

    #[test]
    fn packets_of_an_outage_are_left_out() {
        let before = LossReport { named: 1_000, lost: 10, recovered: 10, ..LossReport::NONE };
        let mut after = LossReport { named: 2_000, lost: 350, recovered: 50, left: 9, ..before };
        (after.bursts[0], after.bursts[9]) = (49, 1);
        let settled = Settled::between(&before, &after, OUTAGE, false);
        assert_eq!(settled, Settled { packets: 1_000, lost: 0, residual: 0, runs: 49 });
        (after.bursts[9], after.bursts[7]) = (0, 3);
        let settled = Settled::between(&before, &after, OUTAGE, false);
        assert_eq!(settled, Settled { packets: 1_000, lost: 340, residual: 300, runs: 52 });
        // Shorter windows recover shorter bursts.
        assert_eq!([128, 256, 512, 1_024].map(outage_of), [6, 7, 8, 8]);
        let settled = Settled::between(&before, &after, outage_of(256), false);
        assert_eq!(settled, Settled { packets: 1_000, lost: 0, residual: 0, runs: 49 });
        after.bursts[BURST_BUCKETS - 1] = 1;
        assert_eq!(Settled::between(&before, &after, OUTAGE, false).lost, 0);
    }

    #[test]
    fn reports_may_wrap_and_may_begin_again() {
        let mut old = Forecast { packets: u32::MAX - 9, lost: u32::MAX, ..Forecast::default() };
        old.tails[0].failed = u32::MAX;
        let mut new = Forecast { packets: 90, lost: 4, ..Forecast::default() };
        new.tails[0].failed = 1;
        let before = LossReport { named: 50, lost: 9, ..LossReport::NONE };
        let after = LossReport { named: 80, lost: 12, recovered: 4, ..LossReport::NONE };
        let counts = Counts::between((&old, &before), (&new, &after), OUTAGE, false);
        assert_eq!((counts.packets, counts.lost, counts.failed(0)), (100, 5, 2));
        assert_eq!(counts.settled, Settled { packets: 30, lost: 3, ..Settled::default() });
    }
}
