//! Seeded random draws: the same seed gives the same draws on every machine and with every later version of
//! the generators.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// Seeded random generator.
#[derive(Clone, Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// Makes a generator from a random seed.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Returns true with the given probability. Draws nothing if the answer is certain.
    pub fn happens(&mut self, probability: Probability) -> bool {
        match probability.0 {
            0 => false,
            u64::MAX => true,
            threshold => self.0.next_u64() < threshold,
        }
    }

    /// Returns a number below `bound`, or 0 if the bound is 0. The bias, at most bound / 2^64, is negligible.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        u64::try_from((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64).unwrap_or(0)
    }
}

/// A probability, stored as a threshold for random 64-bit numbers; 0 and 1 are exact.
#[derive(Clone, Copy, Debug)]
pub struct Probability(u64);

impl Probability {
    /// Makes a probability from a number in 0..=1; other numbers are clamped.
    pub fn new(probability: f64) -> Self {
        const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;
        // A cast from float saturates and turns NaN into 0.
        Self((probability * TWO_TO_64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certain_answers_need_no_draw_and_others_come_at_their_rate() {
        let mut dice = Dice::new(1);
        assert!((0..1000).all(|_| dice.happens(Probability::new(1.0))));
        assert!(!(0..1000).any(|_| dice.happens(Probability::new(0.0))));
        let hits = (0..1_000_000).filter(|_| dice.happens(Probability::new(0.25))).count();
        assert!((248_000..252_000).contains(&hits), "{hits}");
    }

    #[test]
    fn numbers_below_a_bound_reach_all_of_it() {
        let mut dice = Dice::new(2);
        let mut seen = [0_u32; 7];
        for _ in 0..70_000 {
            seen[usize::try_from(dice.below(7)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
        assert_eq!(dice.below(0), 0);
    }
}
