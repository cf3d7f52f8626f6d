//! How the repairs of a sliding window may tell the places of packets that arrived without a number.

use crate::SlidingConfig;
use crate::names::{Names, spread};

/// Which earlier repairs' new packets a repair names again. The *spread* s is the least number of repairs that no
/// burst within the window's reach takes both first and last of ([`spread`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Naming {
    /// Packets carry numbers: every one that arrives is known at once.
    #[default]
    None,
    /// Those of the repair before, and of that s before: what gateways do.
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
    pub fn distances(self, config: &SlidingConfig) -> Option<[usize; 2]> {
        let spread = spread(config.rate, config.window);
        match self {
            Self::None => None,
            Self::Spread => Some([spread, 2 * spread]),
            Self::Adjacent => Some([1, 2]),
            Self::Early => Some([1, spread]),
            Self::Late => Some([1, 2 * spread]),
        }
    }

    /// What names packets in this way, if they must be named.
    pub(super) fn names(self, config: &SlidingConfig) -> Option<Names> {
        let distances = self.distances(config)?;
        Some(Names::new(config.rate, distances, distances[1], 0))
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
    fn each_packet_is_named_three_times_in_each_way() {
        for naming in [Naming::Early, Naming::Late, Naming::Adjacent, Naming::Spread] {
            let config = config(1, 2, 64);
            let distances = naming.distances(&config).unwrap();
            let mut names = naming.names(&config).unwrap();
            let mut named = vec![Vec::new(); 200];
            for (repair, last) in (1..200).step_by(2).enumerate() {
                let runs = names.next(0, last);
                runs.into_iter().flatten().for_each(|n| named[n as usize].push(repair));
            }
            for repairs in &named[..100] {
                let after: Vec<_> = repairs.iter().map(|repair| repair - repairs[0]).collect();
                assert_eq!(after, [0, distances[0], distances[1]], "{naming:?}");
            }
        }
    }
}
