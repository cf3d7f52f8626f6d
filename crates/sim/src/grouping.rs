//! The groupings of the papers: n nodes, each in d randomly drawn of g = n·d/s groups, so that a group has s
//! members on average (Ricochet §5).

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use rand_chacha::rand_core::SeedableRng as _;
use ricochet_core::GroupId;

/// Returns the groups of each node.
///
/// ```
/// let grouping = sim::grouping(16, 8, 4, 1);
/// assert_eq!((grouping.len(), grouping[0].len()), (16, 8));
/// ```
pub fn grouping(n: usize, d: usize, s: usize, seed: u64) -> Vec<Vec<GroupId>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let all: Vec<GroupId> = (0..(n * d).div_ceil(s)).map(group).collect();
    (0..n).map(|_| choose(&all, d, &mut rng)).collect()
}

/// Returns the group with a number.
pub fn group(number: usize) -> GroupId {
    // odd multipliers keep the low halves, the tags, distinct
    GroupId((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Returns `d` of these groups at random: the first of a shuffle.
pub fn choose(all: &[GroupId], d: usize, rng: &mut impl Rng) -> Vec<GroupId> {
    let mut groups = all.to_vec();
    for at in 0..d.min(all.len()) {
        let other = at + below(rng, all.len() - at);
        groups.swap(at, other);
    }
    groups.truncate(d);
    groups
}

/// Returns a random number below `bound`.
pub(crate) fn below(rng: &mut impl Rng, bound: usize) -> usize {
    ((u128::from(rng.next_u64()) * bound as u128) >> 64) as usize
}
