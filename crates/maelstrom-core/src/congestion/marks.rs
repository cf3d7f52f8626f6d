//! The delay of the queue at each place of the stream, as the repairs that arrived saw it.

use std::collections::VecDeque;

use foundation::Seq;

use super::horizon::bin_of;

/// Number of marks.
const MARKS: usize = 512;
/// Number of places between two marks, at least.
const SPAN_MIN: u64 = 4;

/// Delays by place, ascending. A place has the greater delay of the repairs that were sent before and after
/// its packet: behind a full queue, the next repair to arrive may be one that came much later.
#[derive(Clone, Debug)]
pub(super) struct Marks(VecDeque<Mark>);

#[derive(Clone, Copy, Debug)]
struct Mark {
    last: Seq,
    bin: u8,
    /// Number of packets in a datagram there.
    company: u8,
}

/// Knowledge about a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) bin: usize,
    /// Number of packets in a datagram there.
    pub(super) company: u8,
}

impl Marks {
    pub(super) fn new() -> Self {
        Self(VecDeque::with_capacity(MARKS))
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Notes that a datagram sent after the packet at `last` had this delay. `company`: number of packets in
    /// a datagram, 1 or more.
    pub(super) fn push(&mut self, last: Seq, delay_us: u64, company: u8) {
        if self.0.back().is_some_and(|mark| last < mark.last.plus(SPAN_MIN)) {
            return;
        }
        if self.0.len() == MARKS {
            self.0.pop_front();
        }
        self.0.push_back(Mark { last, bin: bin_of(delay_us) as u8, company });
    }

    /// Returns what is known of a place, and the number of places from it on, up to `count`, of which the
    /// same is known; `None` if no repair has arrived yet.
    pub(super) fn seen_at(&self, seq: Seq, count: u64) -> Option<(Seen, u64)> {
        let at = self.0.partition_point(|mark| mark.last < seq);
        let before = at.checked_sub(1).and_then(|before| self.0.get(before));
        let seen = |bin: u8, mark: &Mark| Seen { bin: bin.into(), company: mark.company };
        let Some(after) = self.0.get(at) else { return before.map(|mark| (seen(mark.bin, mark), count)) };
        let bin = before.map_or(after.bin, |before| after.bin.max(before.bin));
        Some((seen(bin, after), count.min(after.last.0 - seq.0 + 1)))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Mark>()
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
            marks.push(Seq(last), delay_us, 1);
        }
        let queue = bin_of(50_000);
        let bin_at = |seq, count| marks.seen_at(Seq(seq), count).map(|(seen, here)| (seen.bin, here));
        assert_eq!(bin_at(0, 100), Some((0, 32)));
        assert_eq!(bin_at(32, 100), Some((queue, 32)));
        assert_eq!(bin_at(63, 100), Some((queue, 1)));
        assert_eq!(bin_at(64, 100), Some((queue, 32)));
        assert_eq!(bin_at(96, 100), Some((bin_of(9_000), 32)));
        assert_eq!(bin_at(190, 5), Some((0, 5)), "as far as is known");
    }
}
