//! Draws from a generator that the caller passes in.

use rand_chacha::rand_core::Rng;

/// Returns a number below `bound`, which must not be 0. The bias of at most bound / 2^64 does not matter
/// here.
#[inline]
pub(crate) fn below(rng: &mut impl Rng, bound: usize) -> usize {
    ((u128::from(rng.next_u64()) * bound as u128) >> 64) as usize
}

/// Returns a number in [0, 1) with 53 random bits.
#[inline]
pub(crate) fn unit(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Returns the floor or the ceiling of `mean`, so that the average is `mean`. Draws nothing if the two are
/// equal.
#[inline]
pub(crate) fn floor_or_ceiling(rng: &mut impl Rng, mean: f64) -> u32 {
    let floor = mean.floor();
    let fraction = mean - floor;
    let up = fraction > 0.0 && unit(rng) < fraction;
    floor as u32 + u32::from(up)
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;

    #[test]
    fn fractions_keep_their_average_and_whole_numbers_are_certain() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for mean in [0.0, 0.03, 0.4, 1.2, 3.0, 7.9] {
            let draws: Vec<u32> = (0..100_000).map(|_| floor_or_ceiling(&mut rng, mean)).collect();
            let average = f64::from(draws.iter().sum::<u32>()) / 100_000.0;
            // Five standard deviations of the fairest coin are 0.008.
            assert!((average - mean).abs() < 0.01, "{average} for {mean}");
            assert!(
                draws.iter().all(|&draw| f64::from(draw) == mean.floor() || f64::from(draw) == mean.ceil())
            );
        }
    }
}
