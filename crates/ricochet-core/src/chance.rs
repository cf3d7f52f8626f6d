//! Draws from the generator that is passed in.

use rand_chacha::rand_core::Rng;

/// A number below `bound`, which is not 0. The bias, at most bound / 2^64, is of no concern here.
#[inline]
pub(crate) fn below(rng: &mut impl Rng, bound: usize) -> usize {
    ((u128::from(rng.next_u64()) * bound as u128) >> 64) as usize
}

/// A number from 0 up to 1, of 53 random bits.
#[inline]
pub(crate) fn unit(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The floor or the ceiling of `mean`, so that the average is `mean`; draws nothing where they are the same.
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
