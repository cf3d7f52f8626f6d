//! How the repairs of a sliding window name packets that arrived without a number.
//!
//! A receiver that is to subtract a packet from a repair must know the packet's place in the stream. A repair of a layer
//! or a block names all its packets; one of a window cannot. So it names those that are *new*, which came since the repair
//! before, and again those that were new in two earlier repairs. Until a name of it comes, a packet that arrived is an
//! unknown of the equations like one that is lost.

use crate::{SlidingConfig, SymbolId};
use std::collections::VecDeque;
use std::ops::Range;

/// Most names in a repair; where they would be more the oldest copies are left out.
pub(super) const NAMES_MAX: u64 = 64;

/// Which earlier repairs' new packets a repair names again. The *spread* s is the least number of repairs that no
/// burst within the window's reach takes both first and last of: 1 + ⌈W · a² / (a + b)²⌉ at a rate of a / b.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Naming {
    /// Packets carry numbers: every one that arrives is known at once.
    #[default]
    None,
    /// Those of the repair before, and of that s before.
    Early,
    /// Those of the repair before, and of that 2 s before.
    Late,
    /// Those of the last two repairs.
    Adjacent,
    /// Those of the repairs s and 2 s before.
    Spread,
}

impl Naming {
    /// By how many repairs the second and third copy of a name follow the first.
    pub fn distances(self, config: &SlidingConfig) -> Option<[u64; 2]> {
        let (repairs, sources) = (u64::from(config.rate.repairs()), u64::from(config.rate.sources()));
        let both = repairs + sources;
        let spread = 1 + (u64::from(config.window) * repairs * repairs).div_ceil(both * both);
        match self {
            Self::None => None,
            Self::Spread => Some([spread, 2 * spread]),
            Self::Adjacent => Some([1, 2]),
            Self::Early => Some([1, spread]),
            Self::Late => Some([1, 2 * spread]),
        }
    }
}

/// What the sender keeps to name packets.
#[derive(Debug)]
pub(super) struct Names {
    distances: [u64; 2],
    /// Where the new packets of the last repairs end, the newest last.
    ends: VecDeque<u64>,
}

impl Names {
    pub(super) fn new(distances: [u64; 2]) -> Self {
        Self { distances, ends: VecDeque::from([0]) }
    }

    /// The next repair, whose window ends with `last`: the packets that it names.
    pub(super) fn next(&mut self, last: SymbolId) -> impl Iterator<Item = Range<u64>> {
        self.ends.push_back(last.0 + 1);
        if self.ends.len() as u64 > self.distances[1] + 2 {
            self.ends.pop_front();
        }
        let mut room = NAMES_MAX;
        [0, self.distances[0], self.distances[1]].into_iter().map_while(move |back| {
            let end = (self.ends.len() - 1).checked_sub(back as usize).filter(|&end| end > 0)?;
            let run = self.ends[end - 1]..self.ends[end];
            room = room.checked_sub(run.end - run.start)?;
            Some(run)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RepairRate;

    fn config(repairs: u32, sources: u32, window: u16) -> SlidingConfig {
        let rate = RepairRate::new(repairs, sources).unwrap();
        SlidingConfig { rate, window, ..SlidingConfig::default() }
    }

    #[test]
    fn copies_are_as_far_apart_as_a_burst_that_can_be_mended_has_repairs() {
        for (repairs, sources, window, spread) in
            [(3, 8, 160, 13), (3, 8, 256, 21), (1, 8, 256, 5), (1, 8, 512, 8)]
        {
            let config = config(repairs, sources, window);
            assert_eq!(Naming::Spread.distances(&config), Some([spread, 2 * spread]));
            assert_eq!(Naming::Late.distances(&config), Some([1, 2 * spread]));
        }
        assert_eq!(Naming::Adjacent.distances(&config(1, 2, 9)), Some([1, 2]));
        assert_eq!(Naming::None.distances(&config(1, 2, 9)), None);
    }

    #[test]
    fn each_packet_is_named_three_times() {
        let mut names = Names::new([2, 5]);
        let mut named = [0; 100];
        for last in (1..100).step_by(2) {
            let runs: Vec<_> = names.next(SymbolId(last)).collect();
            assert_eq!(runs[0], last - 1..last + 1);
            runs.into_iter().flatten().for_each(|n| named[n as usize] += 1);
        }
        assert!(named[..90].iter().all(|&count| count == 3), "{named:?}");
    }

    #[test]
    fn the_oldest_copies_are_left_out_where_there_are_too_many() {
        let count = |new: u64| {
            let mut names = Names::new([1, 2]);
            (1..9).map(|k| names.next(SymbolId(k * new - 1)).count()).last()
        };
        assert_eq!(
            [count(21), count(22), count(32), count(33), count(64), count(65)],
            [3, 2, 2, 1, 1, 0].map(Some)
        );
    }
}
