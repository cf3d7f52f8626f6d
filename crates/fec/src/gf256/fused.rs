//! Many products in one pass: into sums that stay in registers while sources are read, or from a source that
//! stays there.
//!
//! A window of a hundred packets is larger than the first-level cache. With the fastest kernels, reading it
//! takes as long as the arithmetic, so each source is read once for up to [`TOGETHER`] sums.

use super::vector::{self, Vector};

/// Number of sums computed together.
pub(super) const TOGETHER: usize = 4;

/// Source of masks: a vector loaded at 64 - k has `k` bytes 0, followed by bytes 255.
static EDGE: [u8; 128] = {
    let mut edge = [0; 128];
    let mut at = 64;
    while at < 128 {
        edge[at] = 255;
        at += 1;
    }
    edge
};

/// Clears the first `count` bytes of a vector.
///
/// # Safety
/// The processor must have the instructions, and `count` must be no more than a vector's bytes.
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
    /// A sum of that number must exist.
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

/// Adds the terms to any number of sums. `N1` vectors of one sum, `N2` of each of two sums, … stay in
/// registers.
///
/// # Safety
/// The processor must have the instructions, no source longer than a sum, and each term must have a
/// coefficient for each sum.
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
        // As even as possible: five sums are taken as three and two.
        let left = sums.len() - first;
        let taken = left.div_ceil(left.div_ceil(TOGETHER));
        let mut starts = sums[first..first + taken].iter_mut().map(|sum| sum.as_mut_ptr());
        let mut next = || starts.next().expect("as many as taken");
        // SAFETY: the caller guarantees the same.
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
/// Vectors are counted from the start of the strings, except that the last vector ends where the longest
/// source does. The last block of vectors may overlap the block before it, and the last vector the vector
/// before it. Vectors that were added already are skipped when the sums are stored.
///
/// # Safety
/// The processor must have the instructions, and each sum as long as the longest source.
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
        // SAFETY: `total` is at least the width, and the caller guarantees the rest.
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

/// A block of consecutive vectors of each sum.
struct Block<const S: usize> {
    sums: [*mut u8; S],
    /// Index of the first of these sums among the coefficients of a term.
    first: usize,
    /// Number of vectors that earlier blocks have added.
    done: usize,
    /// Number of vectors in this block, once chosen.
    width: usize,
    /// Number of vectors of the longest source; the last may overlap the one before.
    total: usize,
    /// Length of the longest source in bytes, at least one vector.
    longest: usize,
}

impl<const S: usize> Block<S> {
    /// Index of the block's first vector.
    #[inline(always)]
    fn start(&self) -> usize {
        self.done.min(self.total - self.width)
    }

    /// Length in bytes from which a source is added by this block.
    #[inline(always)]
    fn reach<V: Vector>(&self) -> usize {
        ((self.start() + self.width) * V::BYTES).min(self.longest)
    }

    /// Adds all sources that reach through `N` vectors to those vectors; returns the number of vectors added.
    ///
    /// # Safety
    /// The processor must have the instructions, each sum have `longest` bytes, and `total` be `N` or more.
    #[inline(always)]
    unsafe fn add<V: Vector, const N: usize, T: Term>(&mut self, terms: &[T]) -> usize {
        self.width = N;
        let (from, reach) = (self.start() * V::BYTES, self.reach::<V>());
        // Offset of the block's last vector from its start; all other vectors are contiguous.
        let last = reach - V::BYTES - from;
        // SAFETY: sums and sources have all bytes below `reach`, which is at least a vector's; the last
        // vector begins a whole vector before that.
        unsafe {
            let mut added = [[V::zero(); N]; S];
            for term in terms.iter().filter(|term| term.source().len() >= reach) {
                let src = term.source().as_ptr().add(from);
                let src = |i: usize| src.add(if i + 1 < N { i * V::BYTES } else { last });
                let factor = |k: usize| V::factor(term.coefficient(self.first + k));
                // The fewer of the two stay in registers beside the sums.
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

    /// Adds the bytes beyond earlier blocks of the sources that end within this block.
    ///
    /// # Safety
    /// As for `add`.
    #[inline(always)]
    unsafe fn add_shorter<V: Vector, T: Term>(&self, terms: &[T]) {
        let (done, reach) = (self.done * V::BYTES, self.reach::<V>());
        for term in terms.iter().filter(|term| (done + 1..reach).contains(&term.source().len())) {
            // SAFETY: the caller guarantees it.
            unsafe { add_rest::<V, S, T>(self.sums, self.first, done, term) };
        }
    }
}

/// Adds the bytes of a source from `from` on, a multiple of the vector length, to each sum.
///
/// # Safety
/// The processor must have the instructions, and each sum as long as the source.
#[inline(always)]
unsafe fn add_rest<V: Vector, const S: usize, T: Term>(
    sums: [*mut u8; S],
    first: usize,
    from: usize,
    term: &T,
) {
    let src = term.source();
    for (k, sum) in sums.into_iter().enumerate() {
        // SAFETY: there is a coefficient for each sum. Sum and source have a vector's bytes at each offset,
        // and the source's length in all.
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

/// Adds the terms to one sum: first groups of `G` sources of one length, then the others by blocks of `N`
/// vectors.
///
/// The sum passes through the registers once for each group. That is faster than blocks where the registers
/// are too few or too short to hold much of a sum, because sources are then read from end to end. A `G` of 1
/// disables groups.
///
/// # Safety
/// The processor must have the instructions, and no source longer than `acc`.
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
    // SAFETY: the caller guarantees the same.
    unsafe { add_all::<V, 1, N, _>([acc], 0, left) };
}

/// # Safety
/// The processor must have the instructions, and all strings have `length` bytes, at least a vector's.
#[inline(always)]
unsafe fn add_group<V: Vector, const G: usize>(acc: *mut u8, group: &[(u8, &[u8]); G], length: usize) {
    let (count, whole) = (length % V::BYTES, length - length % V::BYTES);
    // SAFETY: all strings have a vector's bytes at every offset below `whole`, and before their ends.
    unsafe {
        let pairs: [_; G] = std::array::from_fn(|j| (group[j].1.as_ptr(), V::factor(group[j].0)));
        // The end comes first: after the loop, it would read a vector that is still being written.
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

/// Returns `sum` plus the vectors of some sources at offset `at`, times their factors.
///
/// # Safety
/// The processor must have the instructions, and the sources the vectors.
#[inline(always)]
unsafe fn add_products<V: Vector, const G: usize>(
    mut sum: V,
    pairs: &[(*const u8, V::Factor); G],
    at: usize,
) -> V {
    for &(source, factor) in pairs {
        // SAFETY: the caller guarantees the same.
        sum = unsafe { sum.plus(V::load(source.add(at)).times(factor)) };
    }
    sum
}

/// Adds `src`, times each coefficient, to each sum, `N` vectors at a time.
///
/// # Safety
/// The processor must have the instructions, and `src` no longer than any sum.
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
    // SAFETY: sums and source have all whole vectors below `whole`, and a vector's bytes before the source's
    // end.
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

/// Adds `N` vectors of `src`, from index `at` on, times each coefficient, to each sum; returns `N`.
///
/// # Safety
/// The processor must have the instructions, and the vectors in the source and each sum.
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
