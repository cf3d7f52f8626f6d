//! Many products at once: into sums that stay in registers while sources pass, or of one source that does.
//!
//! A window of a hundred packets is longer than the first cache: with the fastest kernels, reading it takes as long as the
//! arithmetic. So a source is read once for up to [`TOGETHER`] sums.

use super::vector::{self, Vector};

/// Sums that are made together.
pub(super) const TOGETHER: usize = 4;

/// For masks: from 64 - k on, a vector of `k` bytes 0 and then as many of 255 as it has room for.
static EDGE: [u8; 128] = {
    let mut edge = [0; 128];
    let mut at = 64;
    while at < 128 {
        edge[at] = 255;
        at += 1;
    }
    edge
};

/// A vector without all but its last `count` bytes.
///
/// # Safety
/// The instructions must be there, and `count` must be no more than a vector's bytes.
#[inline(always)]
unsafe fn last_bytes<V: Vector>(vector: V, count: usize) -> V {
    debug_assert!(count <= V::BYTES && V::BYTES <= 64);
    // SAFETY: `EDGE` has 64 bytes before its middle and 64 behind.
    unsafe { vector.and(V::load(EDGE.as_ptr().add(64 - V::BYTES + count))) }
}

/// A source, and its coefficient in each sum.
pub(super) trait Term {
    fn source(&self) -> &[u8];

    /// # Safety
    /// There must be a sum of that number.
    unsafe fn coefficient(&self, sum: usize) -> u8;
}

impl Term for (u8, &[u8]) {
    #[inline(always)]
    fn source(&self) -> &[u8] {
        self.1
    }

    #[inline(always)]
    unsafe fn coefficient(&self, _: usize) -> u8 {
        self.0
    }
}

impl Term for (&[u8], &[u8]) {
    #[inline(always)]
    fn source(&self) -> &[u8] {
        self.1
    }

    #[inline(always)]
    unsafe fn coefficient(&self, sum: usize) -> u8 {
        debug_assert!(sum < self.0.len());
        // SAFETY: the caller vouches for the number.
        unsafe { *self.0.get_unchecked(sum) }
    }
}

/// Adds the terms to any number of sums; `N1` vectors of one sum, `N2` of each of two, … stay in registers.
///
/// # Safety
/// The instructions must be there, no source longer than a sum, and each term must have a coefficient for each sum.
#[inline(always)]
pub(super) unsafe fn mul_add_rows<
    V: Vector,
    const N1: usize,
    const N2: usize,
    const N3: usize,
    const N4: usize,
>(
    sums: &mut [&mut [u8]],
    terms: &[(&[u8], &[u8])],
) {
    let mut first = 0;
    while first < sums.len() {
        // As even as may be: five are three and two.
        let left = sums.len() - first;
        let taken = left.div_ceil(left.div_ceil(TOGETHER));
        let mut starts = sums[first..first + taken].iter_mut().map(|sum| sum.as_mut_ptr());
        let mut next = || starts.next().expect("as many as taken");
        // SAFETY: the same is asked of the caller.
        unsafe {
            match taken {
                1 => add_all::<V, 1, N1, _>([next()], first, terms),
                2 => add_all::<V, 2, N2, _>([next(), next()], first, terms),
                3 => add_all::<V, 3, N3, _>([next(), next(), next()], first, terms),
                _ => add_all::<V, TOGETHER, N4, _>([next(), next(), next(), next()], first, terms),
            }
        }
        first += taken;
    }
}

/// Adds the terms to `S` sums, of which `N` vectors each fit into registers.
///
/// Vectors are counted from the start of the strings, but the last ends where the longest source does. The last block of
/// vectors may begin before the block before it ends, and the last vector likewise: what was added already is left out
/// when the sums are stored.
///
/// # Safety
/// The instructions must be there, and each sum as long as the longest source.
#[inline(always)]
pub(super) unsafe fn add_all<V: Vector, const S: usize, const N: usize, T: Term>(
    sums: [*mut u8; S],
    first: usize,
    terms: &[T],
) {
    let longest = terms.iter().map(|term| term.source().len()).max().unwrap_or(0);
    let shortest = terms.iter().map(|term| term.source().len()).min().unwrap_or(0);
    let total = if longest < V::BYTES { 0 } else { longest.div_ceil(V::BYTES) };
    let mut done = 0;
    while done < total {
        let mut block = Block { sums, first, done, width: 0, total, longest };
        // SAFETY: `total` is at least the width, and the rest is asked of the caller.
        done = unsafe {
            if N >= 24 && total >= 24 {
                block.add::<V, 24, T>(terms)
            } else if N >= 12 && total >= 12 {
                block.add::<V, 12, T>(terms)
            } else if N >= 6 && total >= 6 {
                block.add::<V, 6, T>(terms)
            } else if N >= 3 && total >= 3 {
                block.add::<V, 3, T>(terms)
            } else if N >= 2 && total >= 2 {
                block.add::<V, 2, T>(terms)
            } else {
                block.add::<V, 1, T>(terms)
            }
        };
        if shortest < block.reach::<V>() {
            // SAFETY: as before.
            unsafe { block.add_shorter::<V, T>(terms) };
        }
    }
    if total == 0 {
        for term in terms {
            // SAFETY: the source is no longer than the sums.
            unsafe { add_rest::<V, S, T>(sums, first, 0, term) };
        }
    }
}

/// Some vectors of each sum, and what must be known to add to them.
struct Block<const S: usize> {
    sums: [*mut u8; S],
    /// Number of the first of these sums among the coefficients of a term.
    first: usize,
    /// Vectors that blocks before this one have dealt with.
    done: usize,
    /// Vectors of this block, once they are chosen.
    width: usize,
    /// Vectors of the longest source, of which the last may overlap the one before.
    total: usize,
    /// Bytes of the longest source, at least a vector's.
    longest: usize,
}

impl<const S: usize> Block<S> {
    /// Number of the block's first vector.
    #[inline(always)]
    fn start(&self) -> usize {
        self.done.min(self.total - self.width)
    }

    /// Bytes that a source must have to be added by this block.
    #[inline(always)]
    fn reach<V: Vector>(&self) -> usize {
        ((self.start() + self.width) * V::BYTES).min(self.longest)
    }

    /// Adds all sources that reach through `N` vectors to those vectors; tells how many are dealt with then.
    ///
    /// # Safety
    /// The instructions must be there, each sum have `longest` bytes, and `total` be `N` or more.
    #[inline(always)]
    unsafe fn add<V: Vector, const N: usize, T: Term>(&mut self, terms: &[T]) -> usize {
        self.width = N;
        let (from, reach) = (self.start() * V::BYTES, self.reach::<V>());
        // From the block's start, where its last vector is; all others follow each other.
        let last = reach - V::BYTES - from;
        // SAFETY: sums and sources have all bytes below `reach`, which is at least a vector's; the last vector begins
        // a whole vector before that.
        unsafe {
            let mut added = [[V::zero(); N]; S];
            for term in terms.iter().filter(|term| term.source().len() >= reach) {
                let src = term.source().as_ptr().add(from);
                let src = |i: usize| src.add(if i + 1 < N { i * V::BYTES } else { last });
                let factor = |k: usize| V::factor(term.coefficient(self.first + k));
                // Whichever is fewer stays in registers beside the sums.
                if N < S {
                    let bytes: [_; N] = std::array::from_fn(|i| V::load(src(i)).split());
                    for (k, added) in added.iter_mut().enumerate() {
                        let factor = factor(k);
                        for (added, &bytes) in added.iter_mut().zip(&bytes) {
                            *added = added.plus(V::product(bytes, factor));
                        }
                    }
                } else {
                    let factors: [_; S] = std::array::from_fn(factor);
                    for i in 0..N {
                        let bytes = V::load(src(i)).split();
                        for (added, &factor) in added.iter_mut().zip(&factors) {
                            added[i] = added[i].plus(V::product(bytes, factor));
                        }
                    }
                }
            }
            let fresh = reach - (self.start() + N - 1) * V::BYTES;
            for (&sum, added) in self.sums.iter().zip(&mut added) {
                added[N - 1] = last_bytes(added[N - 1], fresh);
                for (i, &added) in added.iter().enumerate() {
                    if self.start() + i >= self.done {
                        let to = sum.add(from + if i + 1 < N { i * V::BYTES } else { last });
                        V::load(to).plus(added).store(to);
                    }
                }
            }
        }
        self.start() + N
    }

    /// Adds what the sources that end within this block have beyond the blocks before.
    ///
    /// # Safety
    /// As for `add`.
    #[inline(always)]
    unsafe fn add_shorter<V: Vector, T: Term>(&self, terms: &[T]) {
        let (done, reach) = (self.done * V::BYTES, self.reach::<V>());
        for term in terms.iter().filter(|term| (done + 1..reach).contains(&term.source().len())) {
            // SAFETY: as asked of the caller.
            unsafe { add_rest::<V, S, T>(self.sums, self.first, done, term) };
        }
    }
}

/// Adds what a source has from byte `from` on, a number of whole vectors, to each sum.
///
/// # Safety
/// The instructions must be there, and each sum as long as the source.
#[inline(always)]
unsafe fn add_rest<V: Vector, const S: usize, T: Term>(
    sums: [*mut u8; S],
    first: usize,
    from: usize,
    term: &T,
) {
    let src = term.source();
    for (k, sum) in sums.into_iter().enumerate() {
        // SAFETY: there is a coefficient for each sum; sum and source have a vector's bytes at each offset, and the length of the source in all.
        unsafe {
            let c = term.coefficient(first + k);
            if src.len() < V::BYTES {
                vector::mul_add::<V>(std::slice::from_raw_parts_mut(sum, src.len()), c, src);
                continue;
            }
            let factor = V::factor(c);
            let mut at = from;
            while at + V::BYTES <= src.len() {
                let to = sum.add(at);
                V::load(to).plus(V::load(src.as_ptr().add(at)).times(factor)).store(to);
                at += V::BYTES;
            }
            let last = src.len() - V::BYTES;
            let end = last_bytes(V::load(src.as_ptr().add(last)), src.len() - at);
            V::load(sum.add(last)).plus(end.times(factor)).store(sum.add(last));
        }
    }
}

/// Adds the terms to one sum, as far as they come in groups of `G` sources of one length; the others by blocks of `N`
/// vectors. The sum passes through the registers once for each group: better than blocks where the registers are too few
/// or too short for much of a sum, since sources are then read from end to end. A `G` of 1 is none.
///
/// # Safety
/// The instructions must be there, and no source longer than `acc`.
#[inline(always)]
pub(super) unsafe fn add_groups<V: Vector, const G: usize, const N: usize>(
    acc: &mut [u8],
    terms: &[(u8, &[u8])],
) {
    let acc = acc.as_mut_ptr();
    let mut left = terms;
    while G > 1
        && let Some((group, rest)) = left.split_first_chunk::<G>()
    {
        let length = group[0].1.len();
        if length < V::BYTES || group.iter().any(|(_, src)| src.len() != length) {
            break;
        }
        // SAFETY: all have that length, which is at least a vector's.
        unsafe { add_group::<V, G>(acc, group, length) };
        left = rest;
    }
    // SAFETY: the same is asked of the caller.
    unsafe { add_all::<V, 1, N, _>([acc], 0, left) };
}

/// # Safety
/// The instructions must be there, and all strings have `length` bytes, at least a vector's.
#[inline(always)]
unsafe fn add_group<V: Vector, const G: usize>(acc: *mut u8, group: &[(u8, &[u8]); G], length: usize) {
    let (count, whole) = (length % V::BYTES, length - length % V::BYTES);
    // SAFETY: all strings have a vector's bytes at every offset below `whole`, and before their ends.
    unsafe {
        let pairs: [_; G] = std::array::from_fn(|j| (group[j].1.as_ptr(), V::factor(group[j].0)));
        // The end is not last: the vector before it would be read while it is still being written.
        if count > 0 {
            let last = length - V::BYTES;
            let end = last_bytes(add_products(V::zero(), &pairs, last), count);
            V::load(acc.add(last)).plus(end).store(acc.add(last));
        }
        let mut at = 0;
        while at < whole {
            add_products(V::load(acc.add(at)), &pairs, at).store(acc.add(at));
            at += V::BYTES;
        }
    }
}

/// `sum` plus the vectors at `at` of some sources, times their factors.
///
/// # Safety
/// The instructions must be there, and the vectors.
#[inline(always)]
unsafe fn add_products<V: Vector, const G: usize>(
    mut sum: V,
    pairs: &[(*const u8, V::Factor); G],
    at: usize,
) -> V {
    for &(source, factor) in pairs {
        // SAFETY: the same is asked of the caller.
        sum = unsafe { sum.plus(V::load(source.add(at)).times(factor)) };
    }
    sum
}

/// Adds `src`, times each coefficient, to each sum, `N` vectors at a time.
///
/// # Safety
/// The instructions must be there, and `src` no longer than any sum.
#[inline(always)]
pub(super) unsafe fn mul_add_each<V: Vector, const N: usize>(sums: &mut [(u8, &mut [u8])], src: &[u8]) {
    if src.len() < V::BYTES {
        for (c, sum) in sums {
            // SAFETY: the source is no longer than the sum.
            unsafe { vector::mul_add::<V>(sum, *c, src) };
        }
        return;
    }
    let (count, whole) = (src.len() % V::BYTES, src.len() / V::BYTES);
    let mut at = 0;
    // SAFETY: sums and source have all whole vectors below `whole`, and a vector's bytes before the source's end.
    unsafe {
        while at < whole {
            let left = whole - at;
            at += if N >= 12 && left >= 12 {
                add_to_each::<V, 12>(sums, src.as_ptr(), at)
            } else if N >= 6 && left >= 6 {
                add_to_each::<V, 6>(sums, src.as_ptr(), at)
            } else if N >= 3 && left >= 3 {
                add_to_each::<V, 3>(sums, src.as_ptr(), at)
            } else {
                add_to_each::<V, 1>(sums, src.as_ptr(), at)
            };
        }
        if count > 0 {
            let last = V::load(src.as_ptr().add(src.len() - V::BYTES));
            let end = last_bytes(last, count).split();
            for (c, sum) in sums {
                let to = sum.as_mut_ptr().add(src.len() - V::BYTES);
                V::load(to).plus(V::product(end, V::factor(*c))).store(to);
            }
        }
    }
}

/// Does so for `N` vectors, from number `at` on; gives `N`.
///
/// # Safety
/// The instructions must be there, and the vectors in the source and each sum.
#[inline(always)]
unsafe fn add_to_each<V: Vector, const N: usize>(
    sums: &mut [(u8, &mut [u8])],
    src: *const u8,
    at: usize,
) -> usize {
    // SAFETY: the caller vouches for the bytes.
    unsafe {
        let mut parts = [V::zero().split(); N];
        for (i, part) in parts.iter_mut().enumerate() {
            *part = V::load(src.add((at + i) * V::BYTES)).split();
        }
        for (c, sum) in sums {
            let factor = V::factor(*c);
            let to = sum.as_mut_ptr().add(at * V::BYTES);
            for (i, &part) in parts.iter().enumerate() {
                let to = to.add(i * V::BYTES);
                V::load(to).plus(V::product(part, factor)).store(to);
            }
        }
    }
    N
}
