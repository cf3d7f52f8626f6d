//! Draws from the generator that is passed in.

use rand_chacha::rand_core::Rng;

/// A number below `bound`, which is not 0. The bias, at most bound / 2^64, is of no concern here.
#[inline]
pub(crate) fn below(rng: &mut impl Rng, bound: usize) -> usize {
    ((u128::from(rng.next_u64()) * bound as u128) >> 64) as usize
}

/// The floor or the ceiling of `mean`, so that the average is `mean`; draws nothing where they are the same.
#[inline]
pub(crate) fn floor_or_ceiling(rng: &mut impl Rng, mean: f64) -> u32 {
    /// 2^-53: 53 random bits are a number from 0 up to 1.
    const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
    let floor = mean.floor();
    let fraction = mean - floor;
    let up = fraction > 0.0 && ((rng.next_u64() >> 11) as f64) * UNIT < fraction;
    floor as u32 + u32::from(up)
}

/// Appends `count` of `all`, each at most once and each as likely as the others; all of them if there are fewer.
///
/// Floyd's way: no copy of `all`, and one draw for each that is chosen.
pub(crate) fn choose<T: Copy + PartialEq>(rng: &mut impl Rng, all: &[T], count: usize, chosen: &mut Vec<T>) {
    let before = chosen.len();
    for last in all.len().saturating_sub(count)..all.len() {
        let candidate = all[below(rng, last + 1)];
        let taken = chosen[before..].contains(&candidate);
        chosen.push(if taken { all[last] } else { candidate });
    }
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

    #[test]
    fn each_is_chosen_equally_often_and_never_twice() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let all: Vec<usize> = (0..10).collect();
        let mut times = [0u32; 10];
        let mut chosen = Vec::new();
        for _ in 0..30_000 {
            chosen.clear();
            choose(&mut rng, &all, 3, &mut chosen);
            chosen.iter().for_each(|&one| times[one] += 1);
            chosen.sort_unstable();
            chosen.dedup();
            assert_eq!(chosen.len(), 3);
        }
        assert!(times.iter().all(|&n| (8_500..9_500).contains(&n)), "{times:?}");
        chosen.clear();
        choose(&mut rng, &all[..2], 5, &mut chosen);
        chosen.sort_unstable();
        assert_eq!(chosen, [0, 1]);
    }
}
