//! The delay of the queue at each place of the stream, as the repairs that arrived saw it.

use std::collections::VecDeque;

use foundation::Seq;

use super::horizon::bin_of;

/// Number of marks. At the highest rates a repair follows every few packets, and where a gateway is behind
/// the fate of a packet is known some tenths of a second after them.
const MARKS: usize = 4_096;
/// Number of places between two marks, at least.
const SPAN_MIN: u64 = 4;

/// Delays by place, ascending. A place has the greater delay of the repairs that were sent before and after
/// its packet: behind a full queue, the next repair to arrive may be one that came much later.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    marks: VecDeque<Mark>,
    /// Whether older marks were dropped, so that nothing is known of places up to the first one.
    is_cut: bool,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    last: Seq,
    bin: u8,
    least: u8,
    /// Number of packets in a datagram there.
    company: u8,
}

impl Mark {
    fn is_like(&self, other: &Self) -> bool {
        (self.bin, self.least, self.company) == (other.bin, other.least, other.company)
    }
}

/// Knowledge about a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) bin: usize,
    /// The bin of the shortest queue, of several paths that carry packets.
    pub(super) least: usize,
    /// Number of packets in a datagram there.
    pub(super) company: u8,
}

impl Marks {
    pub(super) fn new() -> Self {
        Self { marks: VecDeque::with_capacity(MARKS), is_cut: false }
    }

    pub(super) fn clear(&mut self) {
        self.marks.clear();
        self.is_cut = false;
    }

    /// Notes that a datagram sent after the packet at `last` had this delay, and met `least_us` on the path
    /// with the shortest queue. `company`: number of packets in a datagram, 1 or more.
    pub(super) fn push(&mut self, last: Seq, [delay_us, least_us]: [u64; 2], company: u8) {
        let [bin, least] = [delay_us, least_us].map(|us| bin_of(us) as u8);
        let mark = Mark { last, bin, least, company };
        let count = self.marks.len();
        if let Some(before) = self.marks.back_mut() {
            if last < before.last.plus(SPAN_MIN) {
                return;
            }
            // One between two of its kind says nothing of its own.
            let is_between = before.is_like(&mark);
            if is_between && count >= 2 && self.marks[count - 2].is_like(&mark) {
                self.marks[count - 1] = mark;
                return;
            }
        }
        if count == MARKS {
            self.marks.pop_front();
            self.is_cut = true;
        }
        self.marks.push_back(mark);
    }

    /// Returns what is known of a place, unless no repair has arrived yet, or it is too long ago.
    pub(super) fn seen(&self, seq: Seq) -> Option<Seen> {
        self.seen_at(seq, 1)?.0
    }

    /// Returns what is known of a place, and the number of places from it on, up to `count`, of which the
    /// same is known, or as little. `None` if no repair has arrived yet.
    pub(super) fn seen_at(&self, seq: Seq, count: u64) -> Option<(Option<Seen>, u64)> {
        let at = self.marks.partition_point(|mark| mark.last < seq);
        let before = at.checked_sub(1).and_then(|before| self.marks.get(before));
        let seen = |before: &Mark, after: &Mark| {
            let [bin, least] = [before.bin.max(after.bin), before.least.max(after.least)].map(usize::from);
            Some(Seen { bin, least, company: after.company })
        };
        let Some(after) = self.marks.get(at) else {
            return before.map(|mark| (seen(mark, mark), count));
        };
        let here = count.min(after.last.0 - seq.0 + 1);
        match before {
            Some(before) => Some((seen(before, after), here)),
            None if self.is_cut => Some((None, here)),
            None => Some((seen(after, after), here)),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.marks.capacity() * size_of::<Mark>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_the_greater_delay_of_the_repairs_around_it() {
        let mut marks = Marks::new();
        assert_eq!(marks.seen_at(Seq(7), 1), None);
        for (last, delay_us) in [(31, 0), (33, 9_000), (63, 50_000), (20, 7), (95, 9_000), (127, 0)] {
            marks.push(Seq(last), [delay_us; 2], 1);
        }
        let queue = bin_of(50_000);
        let bin_at = |seq, count| {
            let (seen, here) = marks.seen_at(Seq(seq), count)?;
            Some((seen?.bin, here))
        };
        assert_eq!(bin_at(0, 100), Some((0, 32)));
        assert_eq!(bin_at(32, 100), Some((queue, 32)));
        assert_eq!(bin_at(63, 100), Some((queue, 1)));
        assert_eq!(bin_at(64, 100), Some((queue, 32)));
        assert_eq!(bin_at(96, 100), Some((bin_of(9_000), 32)));
        assert_eq!(bin_at(190, 5), Some((0, 5)), "as far as is known");
    }

    #[test]
    fn a_queue_that_stands_is_remembered_for_as_long_as_fates_may_take() {
        let mut marks = Marks::new();
        // A repair for each 2.7 packets: half a second at 80,000 packets a second.
        (0..15_000u64).for_each(|n| marks.push(Seq(8 * n / 3), [if n < 7_500 { 100_000 } else { 0 }; 2], 1));
        let [full, empty] = [100_000, 0].map(|delay_us| Some(bin_of(delay_us)));
        assert_eq!(
            [0, 20_000, 39_000].map(|seq| marks.seen(Seq(seq)).map(|seen| seen.bin)),
            [full, full, empty]
        );
        assert!(marks.marks.len() <= 6, "{marks:?}");
    }

    #[test]
    fn the_shortest_queue_of_several_paths_is_known_too() {
        let mut marks = Marks::new();
        marks.push(Seq(9), [50_000, 50_000], 1);
        marks.push(Seq(19), [50_000, 0], 1);
        marks.push(Seq(29), [50_000, 9_000], 1);
        let least = [5, 15, 25].map(|seq| marks.seen(Seq(seq)).unwrap()).map(|seen| (seen.bin, seen.least));
        assert_eq!(least, [50_000, 50_000, 9_000].map(|us| (bin_of(50_000), bin_of(us))));
    }

    #[test]
    fn nothing_is_known_of_places_whose_marks_were_dropped() {
        let mut marks = Marks::new();
        let count = 2 * MARKS as u64;
        (0..count).for_each(|n| marks.push(Seq(10 * n), [if n % 2 == 0 { 0 } else { 100_000 }; 2], 1));
        let first = 10 * (count - MARKS as u64);
        assert_eq!(marks.seen_at(Seq(5), u64::MAX), Some((None, first - 5 + 1)));
        assert_eq!([first, first + 1].map(|seq| marks.seen(Seq(seq)).is_some()), [false, true]);
        marks.clear();
        marks.push(Seq(3), [0; 2], 1);
        assert!(marks.seen(Seq(0)).is_some(), "the first of a stream");
    }

    proptest::proptest! {
        #[test]
        fn marks_that_are_left_out_change_nothing(
            steps in proptest::collection::vec((SPAN_MIN..20, 0u64..3, 1u8..3), 1..200)
        ) {
            let (mut marks, mut all, mut last) = (Marks::new(), Vec::new(), 0);
            for (step, delay, company) in steps {
                last += step;
                marks.push(Seq(last), [delay * 10_000; 2], company);
                all.push((last, bin_of(delay * 10_000), company));
            }
            for seq in 0..last + 5 {
                let at = all.partition_point(|&(last, ..)| last < seq);
                let around = &all[at.saturating_sub(1)..(at + 1).min(all.len())];
                let bin = around.iter().map(|&(_, bin, _)| bin).max();
                let company = around.last().map(|&(.., company)| company);
                let seen = marks.seen(Seq(seq));
                proptest::prop_assert_eq!(seen.map(|seen| seen.bin), bin);
                proptest::prop_assert_eq!(seen.map(|seen| seen.company), company);
            }
        }
    }
}
