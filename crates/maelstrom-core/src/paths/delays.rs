//! The delays of a path of late, on a clock that all paths share, and packets that others overtake.

/// Divisor by which the longest delay of a path comes down, and the shortest goes up, with each datagram.
const FADE: i64 = 256;
/// Time by which a packet may be later than others of late.
pub(super) const MARGIN_US: i64 = 2_000;
/// Longest time for which packets that others have overtaken are waited for. TCP would have sent them again.
const OVERTAKEN_MAX_US: i64 = 100_000;

/// The longest and the shortest delay of late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delays {
    pub(super) longest_us: i64,
    pub(super) shortest_us: i64,
}

impl Delays {
    pub(super) fn new(delay_us: i64) -> Self {
        Self { longest_us: delay_us, shortest_us: delay_us }
    }

    /// These delays, after a datagram with another one.
    #[must_use]
    pub(super) fn then(self, delay_us: i64) -> Self {
        let Self { longest_us, shortest_us } = self;
        Self {
            longest_us: delay_us.max(longest_us - (longest_us - delay_us) / FADE),
            shortest_us: delay_us.min(shortest_us + (delay_us - shortest_us) / FADE),
        }
    }
}

/// Time by which packets may come later than others that left after them on another path, in microseconds.
/// `carriers`: delays of the paths that carry packets.
pub(super) fn overtaken_us(carriers: &(impl Iterator<Item = Delays> + Clone)) -> u64 {
    let fast = |slow: usize| carriers.clone().enumerate().filter(move |&(path, _)| path != slow);
    let later = |(path, slow): (usize, Delays)| {
        let shortest_us = fast(path).map(|(_, fast)| fast.shortest_us).min();
        shortest_us.map(|shortest_us| (slow.longest_us - shortest_us).max(0))
    };
    let latest_us = carriers.clone().enumerate().filter_map(later).max();
    // The queue that makes a path slow may still grow while its packets are under way.
    latest_us.map_or(0, |us| (us + us / 4 + MARGIN_US).min(OVERTAKEN_MAX_US) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_waited_for_by_what_another_path_is_faster() {
        let delays = |&[shortest_us, longest_us]: &[i64; 2]| Delays { longest_us, shortest_us };
        let of = |all: &[[i64; 2]]| overtaken_us(&all.iter().map(delays));
        assert_eq!((of(&[]), of(&[[9_000, 40_000]])), (0, 0), "one path keeps the order");
        assert_eq!(of(&[[-20_000, 0], [20_000, 20_000]]), 50_000 + 2_000, "of 40 ms");
        assert_eq!(of(&[[20_000, 20_000], [-20_000, 0], [3_000, 3_000]]), 50_000 + 2_000);
        assert_eq!(of(&[[7_000, 7_000], [7_000, 7_000]]), 2_000);
        assert_eq!(of(&[[900_000, 900_000], [7_000, 7_000]]), 100_000);
    }

    #[test]
    fn delays_of_long_ago_fade() {
        let long_ago = Delays::new(80_000).then(0);
        assert_eq!((long_ago.longest_us, long_ago.shortest_us), (79_688, 0));
        let later = (0..2_000).fold(long_ago, |delays, _| delays.then(40_000));
        assert!((40_000..40_300).contains(&later.longest_us), "{later:?}");
        assert!((39_700..=40_000).contains(&later.shortest_us), "{later:?}");
    }
}
