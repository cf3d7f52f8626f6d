//! Which of its packets a sliding window's repair names.
//!
//! A receiver that is to subtract a packet from a repair must know the packet's place in the stream. A repair of a layer
//! or a block names all its packets; one of a window cannot. So it names those that are *new*, which came since the repair
//! before, and again those that were new in two earlier repairs. Until a name of it comes, a packet that arrived is an
//! unknown of the equations like one that is lost.

use crate::RepairRate;
use std::ops::Range;

/// Most packets that a repair names.
pub const NAMES_MAX: usize = 64;
/// Each name travels so often.
const COPIES: usize = 3;

/// Most packets that a repair names at this rate: what is new, and the copies that there is room for.
pub fn per_repair(rate: RepairRate) -> usize {
    (copies(rate) * stride(rate)).min(NAMES_MAX)
}

/// How often a name can travel at this rate.
fn copies(rate: RepairRate) -> usize {
    (1..=COPIES).rev().find(|copies| copies * stride(rate) <= NAMES_MAX).unwrap_or(1)
}

/// The least number of repairs, at least 2, that no burst takes both first and last of that the code can mend:
/// 1 + ⌈W · a² / (a + b)²⌉ at a rate of a / b.
pub fn spread(rate: RepairRate, window: u16) -> usize {
    // Squares of 33 bits and a window of 16.
    let (repairs, sources) = (u128::from(rate.repairs()), u128::from(rate.sources()));
    let share = (repairs + sources) * (repairs + sources);
    // No more than the window, for a share of repairs is below 1.
    (1 + (u128::from(window) * repairs * repairs).div_ceil(share) as usize).max(2)
}

/// Packets that come between two repairs, rounded up: a window is no shorter, or some would be in no repair.
pub fn stride(rate: RepairRate) -> usize {
    rate.sources().div_ceil(rate.repairs().max(1)) as usize
}

/// Knows what each repair named. Places are those of packets in their stream.
///
/// ```
/// use fec::{RepairRate, names::Names};
///
/// // A repair for every second packet, and copies of a name in the next repair and in that two later.
/// let mut names = Names::new(RepairRate::new(1, 2).unwrap(), [1, 2], 2, 0);
/// let named: Vec<_> = (1..8).step_by(2).map(|last| names.next(0, last)).collect();
/// assert_eq!(named[3], [2..4, 4..6, 6..8]);
/// ```
#[derive(Debug)]
pub struct Names {
    /// How many repairs after the first copy of a name the second and the third follow.
    distances: [usize; COPIES - 1],
    /// A repair names so many packets where it can.
    names: usize,
    /// How often a name travels at this rate.
    copies: usize,
    /// The place behind the newest packet of each of the last repairs, in a ring.
    ends: Box<[u64]>,
    repairs: usize,
    /// Packets before it have been named a second time, or are not to be.
    second: u64,
    /// Packets before it have been named a third time, or are not to be.
    third: u64,
}

impl Names {
    /// Before the first repair of a stream that stands at `next`: copies of a name follow the first after so many repairs,
    /// after `reach` at the most whatever the rate becomes.
    ///
    /// # Panics
    /// If the third copy does not follow the second, or the second not the first.
    pub fn new(rate: RepairRate, distances: [usize; 2], reach: usize, next: u64) -> Self {
        check(distances);
        let ends = reach.max(distances[1]) + 2;
        Self {
            distances,
            names: per_repair(rate),
            copies: copies(rate),
            ends: vec![next; ends].into_boxed_slice(),
            repairs: 0,
            second: next,
            third: next,
        }
    }

    /// The rate is another from now on. Later copies that are still to come are named as there is room for them.
    ///
    /// # Panics
    /// As [`Names::new`], and if the copies are further apart than was announced.
    pub fn set_rate(&mut self, rate: RepairRate, distances: [usize; 2]) {
        check(distances);
        assert!(distances[1] + 2 <= self.ends.len(), "expected copies within the reach, saw {distances:?}");
        if self.copies < 2 {
            // No second copies were due; as many as came at once at a lower rate would keep those that are waiting.
            let newest = self.ends[(self.repairs + self.ends.len() - 1) % self.ends.len()];
            (self.second, self.third) = (newest, newest);
        }
        (self.distances, self.names, self.copies) = (distances, per_repair(rate), copies(rate));
    }

    /// Which packets the next repair names, whose window is `first` to `last`: those that are new, those that were new in
    /// two earlier repairs, as far apart as the distances say, and of those before them as many as make all repairs equally
    /// long. In order of the stream, and within the window.
    ///
    /// Where the rate has changed the runs are longer or shorter than there is room for: what is left over is named by the
    /// next repairs, as far as the new rate has room for copies at all. A distance that has become shorter does so as there is
    /// more room than copies need; with as many packets between all repairs there is none, and third copies stay later.
    pub fn next(&mut self, first: u64, last: u64) -> [Range<u64>; COPIES] {
        let [to_second, to_third] = self.distances;
        let len = self.ends.len();
        let end = |back: usize| self.ends[(self.repairs + len - 1 - back) % len];
        let behind = last + 1;
        let newest = end(0).max(first).max(behind.saturating_sub(NAMES_MAX as u64))..behind;
        // Equally long, so that they leave the host as one train, and no longer than was planned for: they must fit the WAN. Only the
        // first after a rise of the rate may name more, as many as came at the rate before.
        let mut room = (self.names as u64).max(count(&newest)) - count(&newest);
        let mut from = |next: u64, to: u64| {
            let start = next.max(first).min(to.max(first));
            let run = start..to.max(start).min(start.saturating_add(room));
            room -= count(&run);
            run
        };
        let second_end = end(to_second - 1);
        let second = from(if self.copies < 2 { end(to_second) } else { self.second }, second_end);
        // Nothing is named a third time before it has been a second time.
        let third_end = end(to_third - 1).min(second.start);
        let mut third = from(if self.copies < COPIES { end(to_third) } else { self.third }, third_end);
        (self.second, self.third) = (self.second.max(second.end), self.third.max(third.end));
        if third.end == third_end {
            third.start = third.start.saturating_sub(room).max(first);
        }
        self.ends[self.repairs % len] = behind;
        self.repairs = (self.repairs + 1) % len;
        // A run without a packet must lie in the window too.
        [third, second, newest].map(|run| if count(&run) == 0 { last..last } else { run })
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.ends)
    }
}

fn check(distances: [usize; 2]) {
    assert!(
        0 < distances[0] && distances[0] < distances[1],
        "expected copies one after the other, saw {distances:?}"
    );
}

fn count(run: &Range<u64>) -> u64 {
    run.end.saturating_sub(run.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn rate(text: &str) -> RepairRate {
        text.parse().unwrap()
    }

    fn as_gateways(rate: RepairRate, window: u16) -> Names {
        Names::new(rate, [1, spread(rate, window)], usize::from(window) + 2, 0)
    }

    /// Which repairs name each packet, of a stream that repairs follow at the first of these rates, and from each packet
    /// stated on at the next.
    fn named(rates: &[(u64, RepairRate)], window: u16, packets: u64) -> BTreeMap<u64, Vec<usize>> {
        let mut sender = as_gateways(rates[0].1, window);
        let (mut named, mut repairs, mut due) = (BTreeMap::<u64, Vec<usize>>::new(), 0, 0);
        let (mut rate, mut next) = (rates[0].1, 0);
        for packet in 0..packets {
            if let Some(&(_, changed)) = rates.iter().find(|(from, _)| *from == packet) {
                rate = changed;
                sender.set_rate(rate, [1, spread(rate, window)]);
            }
            due += u64::from(rate.repairs());
            while due >= u64::from(rate.sources()) {
                due -= u64::from(rate.sources());
                let first = (packet + 1).saturating_sub(u64::from(window));
                let all: Vec<u64> = sender.next(first, packet).into_iter().flatten().collect();
                let new = (packet + 1 - next) as usize;
                next = packet + 1;
                assert!(all.is_sorted_by(|a, b| a < b), "{rate}: {all:?}");
                // What waited at a lower rate before is named all the same.
                let most = if repairs == 0 { per_repair(rate) } else { per_repair(rate).max(new) };
                assert!(all.len() <= most, "{rate}: {} names: {all:?}", all.len());
                assert!(all.iter().all(|&seq| seq >= first && seq <= packet));
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
    fn a_rate_without_second_copies_leaves_none_in_the_way_of_a_higher_one() {
        let named = all_named(&[(0, rate("1/64")), (2_000, rate("3/8"))], 256);
        let at_once = |(_, repairs): &(u64, Vec<usize>)| repairs[1] == repairs[0] + 1;
        assert!(
            named[2_003..].iter().all(at_once),
            "{:?}",
            named[2_003..].iter().find(|entry| !at_once(entry))
        );
    }

    #[test]
    fn a_rate_with_room_for_new_names_alone_leaves_out_what_was_owed() {
        let named = all_named(&[(0, rate("3/8")), (2_000, rate("1/33"))], 256);
        assert!(named[..1_900].iter().all(|(_, repairs)| repairs.len() >= 3));
        assert!(named[2_033..].iter().all(|(_, repairs)| repairs.len() == 1));
    }

    #[test]
    fn a_shorter_distance_is_kept_longer_where_there_is_no_room_to_catch_up() {
        let rates = [(0, rate("1/1")), (2_000, rate("1/8"))];
        let last = all_named(&rates, 256).into_iter().filter(|(seq, _)| *seq > 2_500);
        let distances: Vec<_> = last.map(|(_, repairs)| repairs[2] - repairs[0]).collect();
        let spread = spread(rate("1/8"), 256);
        assert!(distances.iter().all(|distance| (spread..spread + 5).contains(distance)), "{distances:?}");
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
            let mut sender = as_gateways(rate, window);
            let mut repairs = 0;
            for packet in 0..4_000 {
                let due = (packet + 1) * u64::from(rate.repairs()) / u64::from(rate.sources());
                while repairs < due {
                    let first = (packet + 1).saturating_sub(u64::from(window));
                    let count = sender.next(first, packet).into_iter().flatten().count();
                    assert!(packet < 1_000 || count == per_repair(rate), "{text}: {count} at {packet}");
                    repairs += 1;
                }
            }
        }
    }
}
