//! Which of its packets a sliding window's repair names (`docs/adr/0007-names-of-a-sliding-window.md`).

use std::collections::VecDeque;
use std::ops::Range;

use fec::RepairRate;
use foundation::Seq;

use crate::wire::TERMS_MAX;

/// A packet leaves the window at this age, and the time more that it may wait for its first repair, for the far ingress
/// gives up what is missing for a second: a repair may reach back no further than its memory. Only streams of less than W
/// packets in this time notice.
const AGE_MAX_US: u64 = 500_000;
/// Each name travels so often.
const COPIES: usize = 3;

/// Most packets that a repair names at this rate: what is new, and the copies that there is room for.
pub(crate) fn names(rate: RepairRate) -> usize {
    (copies(rate) * stride(rate)).min(TERMS_MAX)
}

/// How often a name can travel at this rate.
fn copies(rate: RepairRate) -> usize {
    (1..=COPIES).rev().find(|copies| copies * stride(rate) <= TERMS_MAX).unwrap_or(1)
}

/// The last copy of a name travels so many repairs after the first: more than the longest burst takes that the code can
/// mend.
fn spread(rate: RepairRate, window: u16) -> usize {
    // Squares of 33 bits and a window of 16.
    let (repairs, sources) = (u128::from(rate.repairs()), u128::from(rate.sources()));
    let share = (repairs + sources) * (repairs + sources);
    // No more than the window, for a share of repairs is below 1.
    (1 + (u128::from(window) * repairs * repairs).div_ceil(share) as usize).max(2)
}

/// Packets that come between two repairs, rounded up: a window is no shorter, or some would be in no repair.
pub(crate) fn stride(rate: RepairRate) -> usize {
    rate.sources().div_ceil(rate.repairs().max(1)) as usize
}

/// Knows what each repair named, and which packets are too old.
pub(crate) struct Naming {
    window: u16,
    spread: usize,
    /// A repair names so many packets where it can.
    names: usize,
    /// How often a name travels at this rate.
    copies: usize,
    age_max_us: u64,
    /// The place behind the newest packet of each of the last repairs, in a ring.
    ends: Box<[Seq]>,
    repairs: usize,
    /// Packets before it have been named a second time, or are not to be.
    second: Seq,
    /// Packets before it have been named a third time, or are not to be.
    third: Seq,
    /// When the packets of the window left, oldest first.
    sent_us: VecDeque<u64>,
}

impl Naming {
    /// Before the first repair of a stream that stands at `next`, where a packet waits `max_delay_us` for a repair.
    pub(crate) fn new(rate: RepairRate, window: u16, max_delay_us: u64, next: Seq) -> Self {
        // A spread is at most the window and 1, or 2.
        let ends = usize::from(window) + 4;
        Self {
            window,
            spread: spread(rate, window),
            names: names(rate),
            copies: copies(rate),
            age_max_us: AGE_MAX_US + max_delay_us,
            ends: vec![next; ends].into_boxed_slice(),
            repairs: 0,
            second: next,
            third: next,
            sent_us: VecDeque::with_capacity(usize::from(window)),
        }
    }

    /// The rate is another from now on. Later copies that are still to come are named as there is room for them.
    pub(crate) fn set_rate(&mut self, rate: RepairRate) {
        self.spread = spread(rate, self.window);
        self.names = names(rate);
        self.copies = copies(rate);
    }

    /// How many of the packets so far are young enough to stay in the window, if not all are.
    pub(crate) fn young(&mut self, now_us: u64) -> Option<usize> {
        let before = self.sent_us.len();
        while self.sent_us.front().is_some_and(|&sent_us| sent_us + self.age_max_us < now_us) {
            self.sent_us.pop_front();
        }
        let young = self.sent_us.len();
        (young < before).then_some(young)
    }

    /// A packet has entered the window.
    pub(crate) fn source(&mut self, now_us: u64) {
        if self.sent_us.len() == usize::from(self.window) {
            self.sent_us.pop_front();
        }
        self.sent_us.push_back(now_us);
    }

    /// Which packets the next repair names, whose window is `first` to `last`: those that are new, those that were new in
    /// the repair before, for a single lost repair to cost nothing, and those that were new a spread ago, for a burst; of
    /// these, and of those before them, as many as make all repairs equally long. In order of the stream.
    ///
    /// Where the rate has changed the runs are longer or shorter than there is room for: what is left over is named by the
    /// next repairs, and a spread that has become shorter catches up.
    pub(crate) fn next(&mut self, first: Seq, last: Seq) -> [Range<Seq>; COPIES] {
        let len = self.ends.len();
        let end = |back: usize| self.ends[(self.repairs + len - back) % len];
        let behind = last.plus(1);
        let newest = end(1).max(first).max(behind.minus(TERMS_MAX as u64))..behind;
        // Equally long, so that they leave the host as one train; never longer, or they would no longer fit the WAN.
        let mut room = (self.names as u64).max(count(&newest)) - count(&newest);
        let mut from = |next: Seq, to: Seq| {
            let start = next.max(first).min(to.max(first));
            let run = start..to.max(start).min(start.plus(room));
            room -= count(&run);
            run
        };
        let second = from(if self.copies < 2 { end(2) } else { self.second }, end(1));
        // Nothing is named a third time before it has been a second time.
        let third_end = end(self.spread).min(second.start);
        let mut third = from(if self.copies < COPIES { end(self.spread + 1) } else { self.third }, third_end);
        (self.second, self.third) = (self.second.max(second.end), self.third.max(third.end));
        if third.end == third_end {
            third.start = third.start.minus(room).max(first);
        }
        self.ends[self.repairs % len] = behind;
        self.repairs = (self.repairs + 1) % len;
        // A run without a packet must lie in the window too.
        [third, second, newest].map(|run| if count(&run) == 0 { last..last } else { run })
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.ends) + self.sent_us.capacity() * size_of::<u64>()
    }
}

fn count(run: &Range<Seq>) -> u64 {
    run.end.0.saturating_sub(run.start.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn rate(text: &str) -> RepairRate {
        text.parse().unwrap()
    }

    /// Which repairs name each packet, of a stream that repairs follow at the first of these rates, and from each packet
    /// stated on at the next.
    fn named(rates: &[(u64, RepairRate)], window: u16, packets: u64) -> BTreeMap<u64, Vec<usize>> {
        let mut naming = Naming::new(rates[0].1, window, 0, Seq(0));
        let (mut named, mut repairs, mut due) = (BTreeMap::<u64, Vec<usize>>::new(), 0, 0);
        let (mut rate, mut next) = (rates[0].1, 0);
        for packet in 0..packets {
            if let Some(&(_, changed)) = rates.iter().find(|(from, _)| *from == packet) {
                rate = changed;
                naming.set_rate(rate);
            }
            assert_eq!(naming.young(packet), None);
            naming.source(packet);
            due += u64::from(rate.repairs());
            while due >= u64::from(rate.sources()) {
                due -= u64::from(rate.sources());
                let first = Seq(packet).minus(u64::from(window) - 1);
                let runs = naming.next(first, Seq(packet));
                let all: Vec<u64> = runs.iter().flat_map(|run| run.start.0..run.end.0).collect();
                let new = (packet + 1 - next) as usize;
                next = packet + 1;
                assert!(all.is_sorted_by(|a, b| a < b), "{rate}: {all:?}");
                // What waited at a lower rate before is named all the same.
                let most = if repairs == 0 { names(rate) } else { names(rate).max(new) };
                assert!(all.len() <= most, "{rate}: {} names: {all:?}", all.len());
                assert!(all.iter().all(|&seq| seq >= first.0 && seq <= packet));
                all.iter().for_each(|&seq| named.entry(seq).or_default().push(repairs));
                repairs += 1;
            }
        }
        named
    }

    /// The first 3,000 packets of 4,000, all of which must have been named.
    fn all_named(rates: &[(u64, RepairRate)], window: u16) -> Vec<(u64, Vec<usize>)> {
        let mut named = named(rates, window, 4_000);
        let named: Vec<_> = (0..3_000).map(|seq| (seq, named.remove(&seq).unwrap_or_default())).collect();
        assert!(named.iter().all(|(_, repairs)| !repairs.is_empty()), "a packet that no repair names");
        named
    }

    #[test]
    fn every_name_travels_three_times_and_no_burst_that_can_be_mended_takes_all() {
        for (text, window) in
            [("3/8", 160), ("3/8", 256), ("1/8", 256), ("1/8", 512), ("5/4", 64), ("1/1", 1)]
        {
            let rate = rate(text);
            let share = rate.as_f64() / (1.0 + rate.as_f64());
            let burst = share * share * f64::from(window);
            for (seq, repairs) in all_named(&[(0, rate)], window) {
                // Once more where that makes a repair as long as the others.
                let copies = if window == 1 { 1..=1 } else { 3..=5 };
                assert!(copies.contains(&repairs.len()), "{text}, W={window}: packet {seq}: {repairs:?}");
                if let [first, second, .., last] = repairs[..] {
                    assert!(second == first + 1 && (last - first) as f64 > burst, "{text}: {repairs:?}");
                }
            }
        }
    }

    #[test]
    fn a_low_rate_names_what_is_new_first() {
        for (text, copies) in [("1/21", 3), ("1/22", 2), ("1/32", 2), ("1/33", 1), ("1/64", 1)] {
            for (seq, repairs) in all_named(&[(0, rate(text))], 512) {
                assert_eq!(repairs.len(), copies, "{text}: packet {seq}: {repairs:?}");
            }
        }
    }

    #[test]
    fn no_repair_names_more_than_there_is_room_for() {
        for text in ["3/64", "2/43", "2/65", "2/127", "5/108", "3.1%", "4.7%", "1.6%"] {
            all_named(&[(0, rate(text))], 512);
        }
    }

    #[test]
    fn another_rate_takes_no_copies_of_names_away() {
        for (before, after, window) in [
            ("1/1", "1/8", 256),
            ("3/8", "1/8", 256),
            ("3/8", "1/8", 512),
            ("1/1", "1/16", 512),
            ("1/8", "3/8", 256),
            ("1/16", "1/2", 256),
            ("2/1", "1/4", 160),
        ] {
            let rates = [(0, rate(before)), (2_000, rate(after))];
            for (seq, repairs) in all_named(&rates, window) {
                assert!(repairs.len() >= 3, "{before} to {after}, W={window}: packet {seq}: {repairs:?}");
            }
        }
    }

    #[test]
    fn packets_of_a_slow_stream_leave_the_window_by_age() {
        let mut naming = Naming::new(rate("1/2"), 4, 20_000, Seq(0));
        let young = [0, 1, 2, 3, 4, 520_001, 520_003, 2_000_000].map(|now_us| {
            let young = naming.young(now_us);
            naming.source(now_us);
            young
        });
        assert_eq!(young, [None, None, None, None, None, None, Some(3), Some(0)]);
    }

    #[test]
    fn rates_of_many_digits_have_the_spread_of_their_neighbours() {
        for (text, near) in
            [("0.333333333", "1/3"), ("2147483647/2147483649", "1/1"), ("0.015625001", "1/64")]
        {
            assert!(spread(rate(text), 512).abs_diff(spread(near.parse().unwrap(), 512)) <= 1, "{text}");
        }
        assert_eq!(spread(rate("0.333333333"), 256), 17);
    }

    #[test]
    fn all_repairs_of_a_steady_stream_name_as_many_packets() {
        for (text, window) in [("3/8", 160), ("3/8", 256), ("2/7", 512), ("1/8", 256), ("1/1", 64)] {
            let rate = rate(text);
            let mut naming = Naming::new(rate, window, 0, Seq(0));
            let mut repairs = 0;
            for packet in 0..4_000 {
                let due = (packet + 1) * u64::from(rate.repairs()) / u64::from(rate.sources());
                while repairs < due {
                    let first = Seq(packet).minus(u64::from(window) - 1);
                    let count: u64 =
                        naming.next(first, Seq(packet)).iter().map(|run| run.end.0 - run.start.0).sum();
                    assert!(packet < 1_000 || count == names(rate) as u64, "{text}: {count} at {packet}");
                    repairs += 1;
                }
            }
        }
    }
}
