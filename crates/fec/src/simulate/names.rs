//! Rules by which a sliding window's repairs name packets that carry no number.

use crate::names::{Names, spread};
use crate::sliding::SlidingConfig;

/// The earlier repairs whose new packets a repair names again. The *spread* s is the distance at which no
/// recoverable burst loses both repairs ([`spread`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Naming {
    /// No names: packets carry numbers, so every packet that arrives is known at once.
    #[default]
    None,
    /// The previous repair, and the one s before. At low rates, copies travel apart from repairs. Gateways
    /// use this rule.
    Early,
    /// As `Early`, but all names travel in repairs.
    Inside,
    /// The previous repair, and the one 2 s before.
    Late,
    /// The last two repairs.
    Adjacent,
    /// The repairs s and 2 s before.
    Spread,
}

impl Naming {
    /// Distances in repairs of the second and third copy of a name from the first.
    pub fn distances(self, config: &SlidingConfig) -> Option<[usize; 2]> {
        let spread = spread(config.rate, config.window);
        match self {
            Self::None => None,
            Self::Spread => Some([spread, 2 * spread]),
            Self::Adjacent => Some([1, 2]),
            Self::Early | Self::Inside => Some([1, spread]),
            Self::Late => Some([1, 2 * spread]),
        }
    }

    /// Returns the state of this rule at the start of a stream, unless packets need no names.
    pub(super) fn names(self, config: &SlidingConfig) -> Option<Names> {
        let distances = self.distances(config)?;
        let names = Names::new(config.rate, distances, distances[1], 0);
        Some(if self == Self::Early { names } else { names.in_repairs(config.rate) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::RepairRate;

    fn config(repairs: u32, sources: u32, window: u16) -> SlidingConfig {
        let rate = RepairRate::new(repairs, sources).unwrap();
        SlidingConfig { rate, window, ..SlidingConfig::default() }
    }

    #[test]
    fn copies_are_further_apart_than_a_recoverable_burst() {
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
    fn every_rule_names_each_packet_three_times() {
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
