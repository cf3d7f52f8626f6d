//! Many products at once: into one sum that stays in registers, or of one source that does.
//!
//! Both cut the bytes into whole vectors, counted from the start, and an end shorter than a vector. The end is done
//! with the string's last vector, in which what belongs to the vectors before is made 0: its product is 0 and changes
//! nothing, so it does not matter which comes first.

use super::vector::{self, Vector};

/// For a mask that is 0 in some first bytes of a vector and 255 in the others.
static EDGE: [u8; 128] = {
    let mut edge = [0; 128];
    let mut at = 64;
    while at < 128 {
        edge[at] = 255;
        at += 1;
    }
    edge
};

/// The last vector of `src`, of which only the last `count` bytes remain.
///
/// # Safety
/// The instructions must be there, `src` must have a vector's bytes, and `count` must be no more than those.
#[inline(always)]
unsafe fn end<V: Vector>(src: &[u8], count: usize) -> V {
    debug_assert!(count <= V::BYTES && V::BYTES <= src.len() && V::BYTES <= 64);
    // SAFETY: `src` has a vector's bytes before its end, and `EDGE` 64 bytes before and behind its middle.
    unsafe {
        let mask = V::load(EDGE.as_ptr().add(64 - V::BYTES + count));
        V::load(src.as_ptr().add(src.len() - V::BYTES)).and(mask)
    }
}

/// Adds all terms to `acc`, `N` vectors of it at a time.
///
/// # Safety
/// The instructions must be there, and no source longer than `acc`.
#[inline(always)]
pub(super) unsafe fn mul_add_many<V: Vector, const N: usize>(acc: &mut [u8], terms: &[(u8, &[u8])]) {
    let longest = terms.iter().map(|(_, src)| src.len()).max().unwrap_or(0);
    let whole = longest / V::BYTES;
    let mut at = 0;
    while at < whole {
        // SAFETY: `acc` has all the vectors that the longest source has.
        unsafe { add_block::<V, N>(acc.as_mut_ptr(), at, whole, longest, terms) };
        at += N;
    }
    for &(c, src) in terms {
        let count = src.len() % V::BYTES;
        if src.len() < V::BYTES {
            // SAFETY: the source is no longer than the sum.
            unsafe { vector::mul_add::<V>(acc, c, src) };
        } else if count > 0 && src.len() < longest {
            // SAFETY: both have a vector's bytes before the source's end.
            unsafe {
                let to = acc.as_mut_ptr().add(src.len() - V::BYTES);
                V::load(to).plus(end::<V>(src, count).times(V::factor(c))).store(to);
            }
        }
    }
}

/// Adds to the vectors of `acc` from number `at` on, `N` or as many as there are of `whole`; with the last of them also
/// the ends of the sources that are `longest`.
///
/// # Safety
/// The instructions must be there, and `acc` must have `longest` bytes, which are at least `whole` vectors, and no
/// source more.
#[inline(always)]
unsafe fn add_block<V: Vector, const N: usize>(
    acc: *mut u8,
    at: usize,
    whole: usize,
    longest: usize,
    terms: &[(u8, &[u8])],
) {
    let here = (whole - at).min(N);
    let ends = if at + N >= whole { longest % V::BYTES } else { 0 };
    // SAFETY: vector number `at + i` is there for all i below `here` in `acc`, below `count` in a source.
    unsafe {
        let mut sums = [V::zero(); N];
        for (i, sum) in sums.iter_mut().enumerate().take_while(|(i, _)| *i < here) {
            *sum = V::load(acc.add((at + i) * V::BYTES));
        }
        let mut end_sum = V::zero();
        for &(c, src) in terms {
            let count = (src.len() / V::BYTES).saturating_sub(at);
            if count == 0 {
                continue;
            }
            let factor = V::factor(c);
            let from = src.as_ptr().add(at * V::BYTES);
            if count >= N {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.plus(V::load(from.add(i * V::BYTES)).times(factor));
                }
            } else {
                for (i, sum) in sums.iter_mut().enumerate() {
                    if i >= count {
                        break;
                    }
                    *sum = sum.plus(V::load(from.add(i * V::BYTES)).times(factor));
                }
            }
            if ends > 0 && src.len() == longest {
                end_sum = end_sum.plus(end::<V>(src, ends).times(factor));
            }
        }
        for (i, sum) in sums.into_iter().enumerate().take_while(|(i, _)| *i < here) {
            sum.store(acc.add((at + i) * V::BYTES));
        }
        if ends > 0 {
            let to = acc.add(longest - V::BYTES);
            V::load(to).plus(end_sum).store(to);
        }
    }
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
    let (count, whole) = (src.len() % V::BYTES, src.len() - src.len() % V::BYTES);
    let mut at = 0;
    // SAFETY: sums and source have all whole vectors below `whole`, and a vector's bytes before the source's end.
    unsafe {
        while at + N * V::BYTES <= whole {
            add_to_each::<V, N>(sums, src.as_ptr(), at);
            at += N * V::BYTES;
        }
        while at < whole {
            add_to_each::<V, 1>(sums, src.as_ptr(), at);
            at += V::BYTES;
        }
        if count > 0 {
            let end = end::<V>(src, count).split();
            for (c, sum) in sums {
                let to = sum.as_mut_ptr().add(src.len() - V::BYTES);
                V::load(to).plus(V::product(end, V::factor(*c))).store(to);
            }
        }
    }
}

/// # Safety
/// The instructions must be there, and `N` vectors from `at` on in the source and each sum.
#[inline(always)]
unsafe fn add_to_each<V: Vector, const N: usize>(sums: &mut [(u8, &mut [u8])], src: *const u8, at: usize) {
    // SAFETY: the caller vouches for the bytes.
    unsafe {
        let mut parts = [V::zero().split(); N];
        for (i, part) in parts.iter_mut().enumerate() {
            *part = V::load(src.add(at + i * V::BYTES)).split();
        }
        for (c, sum) in sums {
            let factor = V::factor(*c);
            let to = sum.as_mut_ptr().add(at);
            for (i, &part) in parts.iter().enumerate() {
                let to = to.add(i * V::BYTES);
                V::load(to).plus(V::product(part, factor)).store(to);
            }
        }
    }
}
