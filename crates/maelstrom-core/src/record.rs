//! The record of the losses on a link: bursts and gaps by minute, hour and day, and the last runs as a trace.

use crate::wire::{BURST_BUCKETS, LossReport};

/// Number of buckets for the lengths of gaps between bursts: 1, 2, 3–4, … , 2²³ and more packets.
pub const GAP_BUCKETS: usize = 24;
/// Number of runs in a trace.
pub const RUNS_MAX: usize = 8_192;

const MINUTE_US: u64 = 60_000_000;
const HOUR: u64 = 60;
const DAY: u64 = 24 * HOUR;
/// Number of the minute at the clock's origin, so that earlier ones have numbers too.
const ORIGIN: u64 = 32 * DAY;

/// Packets of a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets whose fate is known.
    pub packets: u64,
    /// Lost packets among them.
    pub lost: u64,
    /// Runs of consecutive lost packets by length, in doubling buckets.
    pub bursts: [u32; BURST_BUCKETS],
    /// Runs of packets that arrived between two bursts, in the same way.
    pub gaps: [u32; GAP_BUCKETS],
    /// Longest burst.
    pub longest: u32,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.lost += other.lost;
        let sum = |(sum, count): (&mut u32, &u32)| *sum = sum.saturating_add(*count);
        self.bursts.iter_mut().zip(&other.bursts).for_each(sum);
        self.gaps.iter_mut().zip(&other.gaps).for_each(sum);
        self.longest = self.longest.max(other.longest);
    }
}

/// Tallies of the last `N` spans of time.
#[derive(Clone, Debug)]
struct Slots<const N: usize> {
    /// Each with the number of its span since the clock's origin.
    slots: Box<[(u64, Tally)]>,
}

impl<const N: usize> Slots<N> {
    fn new() -> Self {
        Self { slots: vec![(0, Tally::default()); N].into_boxed_slice() }
    }

    fn add(&mut self, number: u64, tally: &Tally) {
        let slot = &mut self.slots[(number % N as u64) as usize];
        if slot.0 != number {
            *slot = (number, Tally::default());
        }
        slot.1.add(tally);
    }

    /// Adds spans of an earlier record, each with its age when it was taken.
    fn recall(&mut self, shift: &Shift, spans: &[(u64, Tally)]) {
        for (age, tally) in spans.iter().filter(|(age, _)| *age < N as u64) {
            let age = shift.age(*age).filter(|&age| age < N as u64);
            if let Some(number) = age.and_then(|age| (shift.now / shift.span).checked_sub(age)) {
                self.add(number, tally);
            }
        }
    }

    /// Spans with packets, the latest first, each with its age in spans.
    fn recent(&self, present: u64) -> impl Iterator<Item = (u64, Tally)> {
        (0..N as u64).filter_map(move |age| {
            let number = present.checked_sub(age)?;
            let (at, tally) = self.slots[(number % N as u64) as usize];
            (at == number && tally.packets > 0).then_some((age, tally))
        })
    }
}

/// The time between a record and its continuation, whose clocks may begin anywhere.
struct Shift {
    /// Length of a span in minutes.
    span: u64,
    elapsed: u64,
    /// The present minute of each clock. Of old records it is not known.
    taken: Option<u64>,
    now: u64,
}

impl Shift {
    /// Age at present of a span that had an age: that of the span whose beginning is the nearest.
    fn age(&self, age: u64) -> Option<u64> {
        let Some(taken) = self.taken else { return age.checked_add(self.elapsed / self.span) };
        let begun_ago = (age * self.span + taken % self.span).checked_add(self.elapsed)?;
        let behind = begun_ago.saturating_sub(self.now % self.span);
        Some(age.max(behind.saturating_add(self.span / 2) / self.span))
    }
}

/// The losses of one stream.
#[derive(Clone, Debug)]
pub struct Record {
    minutes: Slots<60>,
    hours: Slots<48>,
    days: Slots<31>,
    /// Number of the present minute since the clock's origin, and its packets.
    minute: u64,
    present: Tally,
    /// Packets that arrived since the last loss, and losses since then.
    run: (u32, u32),
    /// Runs of packets that arrived and that were lost, in turn, as a ring.
    runs: Box<[(u32, u32)]>,
    count: u64,
}

impl Default for Record {
    fn default() -> Self {
        Self::new()
    }
}

impl Record {
    /// Creates an empty record. All memory is allocated here.
    pub fn new() -> Self {
        Self {
            minutes: Slots::new(),
            hours: Slots::new(),
            days: Slots::new(),
            minute: 0,
            present: Tally::default(),
            run: (0, 0),
            runs: vec![(0, 0); RUNS_MAX].into_boxed_slice(),
            count: 0,
        }
    }

    /// Takes the next `count` packets, all of which have arrived.
    pub fn on_arrived(&mut self, count: u64) {
        if count == 0 {
            return;
        }
        self.end_run();
        self.present.packets += count;
        self.run.0 = self.run.0.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Takes the next packet, which is lost.
    pub fn on_lost(&mut self) {
        self.on_all_lost(1);
    }

    /// Takes the next `count` packets, all of which are lost.
    pub fn on_all_lost(&mut self, count: u64) {
        self.present.packets += count;
        self.present.lost += count;
        self.run.1 = self.run.1.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Notes that the fates of the next packets are not known.
    pub fn on_unknown(&mut self) {
        self.end_run();
        self.run = (0, 0);
    }

    fn end_run(&mut self) {
        let (arrived, lost) = self.run;
        if lost == 0 {
            return;
        }
        self.present.bursts[LossReport::burst_bucket(u64::from(lost))] += 1;
        self.present.longest = self.present.longest.max(lost);
        if arrived > 0 {
            self.present.gaps[gap_bucket(arrived)] += 1;
        }
        self.runs[self.count as usize % RUNS_MAX] = (arrived, lost);
        self.count += 1;
        self.run = (0, 0);
    }

    /// Whether no packet was counted.
    pub fn is_empty(&self) -> bool {
        let slots = self.minutes.slots.iter().chain(&*self.hours.slots).chain(&*self.days.slots);
        let are_empty = slots.map(|(_, tally)| tally).chain([&self.present]).all(|tally| tally.packets == 0);
        are_empty && self.count == 0
    }

    /// Must be called several times a minute.
    pub fn on_tick(&mut self, now_us: u64) {
        self.begin_minute(minute_of(now_us));
    }

    fn begin_minute(&mut self, minute: u64) {
        if minute == self.minute {
            return;
        }
        let (before, tally) = (self.minute, std::mem::take(&mut self.present));
        self.minutes.add(before, &tally);
        self.hours.add(before / HOUR, &tally);
        self.days.add(before / DAY, &tally);
        self.minute = minute;
    }

    /// The record with the present minute.
    fn complete(&self) -> Self {
        let mut complete = self.clone();
        complete.begin_minute(self.minute + 1);
        complete.minute = self.minute;
        complete
    }

    /// The minutes of the last hour, the hours of the last two days, and the days of the last month, as far
    /// as there were packets; each with its age, the latest first.
    pub fn history(&self) -> [Vec<(u64, Tally)>; 3] {
        let complete = self.complete();
        [
            complete.minutes.recent(self.minute).collect(),
            complete.hours.recent(self.minute / HOUR).collect(),
            complete.days.recent(self.minute / DAY).collect(),
        ]
    }

    /// The present minute of the clock, from some origin.
    pub fn minute(&self) -> u64 {
        self.minute
    }

    /// Continues a record, of which [`Record::history`] and [`Record::trace`] were taken `elapsed_minutes`
    /// ago, at the minute `taken` of its clock. Losses that are recorded here already stay.
    pub fn recall(
        &mut self,
        now_us: u64,
        elapsed_minutes: u64,
        taken: Option<u64>,
        history: &[Vec<(u64, Tally)>; 3],
        trace: &[(u32, u32)],
    ) {
        self.begin_minute(minute_of(now_us));
        let [minutes, hours, days] = history;
        let shift = |span| Shift { span, elapsed: elapsed_minutes, taken, now: self.minute };
        let shifts = [shift(1), shift(HOUR), shift(DAY)];
        self.minutes.recall(&shifts[0], minutes);
        self.hours.recall(&shifts[1], hours);
        self.days.recall(&shifts[2], days);
        let own = self.trace();
        (self.count, self.run.0) = (0, if self.run.1 == 0 { 0 } else { self.run.0 });
        let mut open = 0_u32;
        for &(arrived, lost) in trace.iter().chain(&own) {
            let arrived = arrived.saturating_add(std::mem::take(&mut open));
            if lost == 0 {
                open = arrived;
                continue;
            }
            self.runs[self.count as usize % RUNS_MAX] = (arrived, lost);
            self.count += 1;
        }
        self.run.0 = self.run.0.saturating_add(open);
    }

    /// The last runs of packets that arrived and that were lost, the oldest first. The last one may have lost
    /// nothing: the packets that arrived since the last loss.
    pub fn trace(&self) -> Vec<(u32, u32)> {
        let kept = self.count.min(RUNS_MAX as u64);
        let ended = (self.count - kept..self.count).map(|number| self.runs[number as usize % RUNS_MAX]);
        ended.chain(Some(self.run).filter(|run| run.0 > 0 && run.1 == 0)).collect()
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.runs) + (60 + 48 + 31) * size_of::<(u64, Tally)>()
    }
}

/// Number of the minute at a time.
fn minute_of(now_us: u64) -> u64 {
    ORIGIN + now_us / MINUTE_US
}

/// Bucket of a gap of `len` ≥ 1 packets.
pub fn gap_bucket(len: u32) -> usize {
    ((u32::BITS - (len.max(1) - 1).leading_zeros()) as usize).min(GAP_BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(record: &mut Record, arrived: u64, lost: u64) {
        record.on_arrived(arrived);
        (0..lost).for_each(|_| record.on_lost());
    }

    #[test]
    fn bursts_and_gaps_are_counted_by_minute_hour_and_day() {
        let mut record = Record::new();
        record.on_tick(0);
        assert!(record.is_empty());
        burst(&mut record, 100, 3);
        assert!(!record.is_empty());
        burst(&mut record, 40, 1);
        burst(&mut record, 60, 0);
        let [minutes, hours, days] = record.history();
        assert_eq!((minutes.len(), hours.len(), days.len()), (1, 1, 1));
        let (age, tally) = minutes[0];
        assert_eq!((age, tally.packets, tally.lost, tally.longest), (0, 204, 4, 3));
        assert_eq!((tally.bursts[0], tally.bursts[2], tally.gaps[6], tally.gaps[7]), (1, 1, 1, 1));
        // An hour and a half later the minutes are gone, the hour is not.
        record.on_tick(90 * MINUTE_US);
        burst(&mut record, 5, 0);
        assert!(!record.is_empty());
        let [minutes, hours, days] = record.history();
        assert_eq!(minutes.iter().map(|(age, tally)| (*age, tally.packets)).collect::<Vec<_>>(), [(0, 5)]);
        assert_eq!(hours.iter().map(|(age, tally)| (*age, tally.lost)).collect::<Vec<_>>(), [(0, 0), (1, 4)]);
        assert_eq!((days.len(), days[0].1.packets), (1, 209));
        record.on_tick(40 * DAY * MINUTE_US);
        assert!(record.history().iter().all(Vec::is_empty), "older than all of them");
    }

    #[test]
    fn the_trace_has_the_last_runs() {
        let mut record = Record::new();
        burst(&mut record, 7, 2);
        burst(&mut record, 9, 4);
        // It is not known what happened before the gap.
        record.on_unknown();
        burst(&mut record, 5, 1);
        burst(&mut record, 1, 0);
        assert_eq!(record.trace(), [(7, 2), (9, 4), (5, 1), (1, 0)]);
        for number in 0..2 * RUNS_MAX as u64 {
            burst(&mut record, number + 1, 1);
        }
        record.on_arrived(1);
        assert_eq!(
            (record.trace().len(), record.trace()[RUNS_MAX - 1], record.trace()[RUNS_MAX]),
            (RUNS_MAX + 1, (2 * RUNS_MAX as u32, 1), (1, 0))
        );
    }

    #[test]
    fn a_record_is_continued_after_a_restart_and_a_reboot() {
        let mut before = Record::new();
        before.on_tick(500 * DAY * MINUTE_US);
        burst(&mut before, 100, 3);
        burst(&mut before, 50, 0);
        before.on_tick((500 * DAY + 2) * MINUTE_US);
        burst(&mut before, 7, 2);
        before.on_arrived(1);
        let (history, trace) = (before.history(), before.trace());
        // The clock begins at 0 again.
        let mut record = Record::new();
        record.on_tick(MINUTE_US);
        burst(&mut record, 9, 1);
        record.on_arrived(1);
        record.recall(3 * MINUTE_US, 30, Some(before.minute()), &history, &trace);
        let [minutes, hours, days] = record.history();
        let ages: Vec<_> = minutes.iter().map(|(age, tally)| (*age, tally.lost)).collect();
        assert_eq!(ages, [(2, 1), (30, 2), (32, 3)]);
        assert_eq!((hours.len(), hours[0].1.lost, days.len(), days[0].1.lost), (1, 6, 1, 6));
        assert_eq!(record.trace(), [(100, 3), (57, 2), (10, 1), (1, 0)]);
        // A month later all of it is too old.
        let mut late = Record::new();
        late.recall(MINUTE_US, 40 * DAY, None, &history, &trace);
        assert!(late.history().iter().all(Vec::is_empty) && late.trace().len() == 3);
        // A file may say what it likes.
        let absurd = [vec![(u64::MAX, before.present); 99], Vec::new(), vec![(40, before.present)]];
        for taken in [None, Some(0), Some(u64::MAX)] {
            late.recall(0, u64::MAX, taken, &absurd, &vec![(1, u32::MAX); 3 * RUNS_MAX]);
        }
        assert_eq!((late.history(), late.trace().len()), (Default::default(), RUNS_MAX + 1));
    }

    /// A machine that is started again each night, after which its clock begins at 0 again.
    #[test]
    fn days_and_hours_grow_old_on_a_machine_that_restarts_each_night() {
        let (mut record, mut now_us) = (Record::new(), 0);
        for night in 0..5_u64 {
            // 23 h 50 min later.
            now_us += (DAY - 10) * MINUTE_US;
            record.on_tick(now_us);
            burst(&mut record, 100, night + 1);
            record.on_arrived(1);
            let (history, trace) = (record.history(), record.trace());
            let mut next = Record::new();
            next.recall(0, 10, Some(record.minute()), &history, &trace);
            (record, now_us) = (next, 0);
        }
        let [_, hours, days] = record.history();
        let of = |spans: &[(u64, Tally)]| -> Vec<_> {
            spans.iter().map(|(age, tally)| (*age, tally.lost)).collect()
        };
        assert_eq!(of(&days), [(1, 5), (2, 4), (3, 3), (4, 2), (5, 1)]);
        assert_eq!(of(&hours), [(1, 5), (25, 4)]);
        // One that starts again within the same clock keeps its spans.
        let mut again = Record::new();
        again.on_tick((DAY + 5) * MINUTE_US);
        burst(&mut again, 9, 2);
        again.on_tick((DAY + 70) * MINUTE_US);
        burst(&mut again, 9, 1);
        let mut next = Record::new();
        let history = again.history();
        next.recall((DAY + 71) * MINUTE_US, 1, Some(again.minute()), &history, &[]);
        assert_eq!((of(&next.history()[1]), of(&next.history()[2])), (of(&history[1]), of(&history[2])));
    }

    #[test]
    fn gaps_fall_into_doubling_buckets() {
        assert_eq!([1, 2, 3, 4, 5, 1 << 22, u32::MAX].map(gap_bucket), [0, 1, 2, 2, 3, 22, 23]);
    }
}
