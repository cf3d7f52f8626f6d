//! The operations by vectors.
//!
//! All stores between the first and the last vector of a string are aligned, because a store that straddles
//! two cache lines costs twice as much. The first and the last vector may overlap their neighbours. They are
//! therefore computed from the original bytes, before all others, and stored after them.

use super::scalar;

/// A register of bytes.
///
/// # Safety
/// All functions need the instructions of their kernel; `load` and `store` need [`BYTES`](Self::BYTES)
/// accessible bytes.
pub(super) trait Vector: Copy {
    /// Length of the vector in bytes, at most 64.
    const BYTES: usize;
    /// A vector of half the length, for strings shorter than this one; the shortest names itself.
    type Half: Vector;
    /// The bytes prepared for multiplication.
    type Split: Copy;
    /// A constant prepared for multiplication.
    type Factor: Copy;
    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);
    unsafe fn plus(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn split(self) -> Self::Split;
    unsafe fn factor(c: u8) -> Self::Factor;
    unsafe fn product(bytes: Self::Split, factor: Self::Factor) -> Self;

    #[inline(always)]
    unsafe fn times(self, factor: Self::Factor) -> Self {
        // SAFETY: the caller has the instructions.
        unsafe { Self::product(self.split(), factor) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has the instructions, and no vector is longer than this.
        unsafe { Self::load([0; 64].as_ptr()) }
    }
}

/// Number of bytes before the first aligned vector.
#[inline(always)]
fn unaligned<V: Vector>(acc: *const u8) -> usize {
    acc.addr().wrapping_neg() % V::BYTES
}

/// # Safety
/// The processor must have the instructions, and `src` no longer than `acc`.
#[inline(always)]
pub(super) unsafe fn xor_into<V: Vector>(acc: &mut [u8], src: &[u8]) {
    if src.len() < V::BYTES {
        if V::Half::BYTES == V::BYTES {
            return scalar::xor_into(acc, src);
        }
        // SAFETY: the caller guarantees the same.
        return unsafe { xor_into::<V::Half>(acc, src) };
    }
    let (acc, from, last) = (acc.as_mut_ptr(), src.as_ptr(), src.len() - V::BYTES);
    // SAFETY: all offsets are at most `last`, and both strings have a vector's bytes from there.
    unsafe {
        let start = V::load(acc).plus(V::load(from));
        let end = V::load(acc.add(last)).plus(V::load(from.add(last)));
        for at in (unaligned::<V>(acc)..last).step_by(V::BYTES) {
            V::load(acc.add(at)).plus(V::load(from.add(at))).store(acc.add(at));
        }
        start.store(acc);
        end.store(acc.add(last));
    }
}

/// # Safety
/// The processor must have the instructions, and no source longer than `acc`.
#[inline(always)]
pub(super) unsafe fn xor_many<V: Vector>(acc: &mut [u8], sources: &[&[u8]]) {
    let common = sources.iter().map(|source| source.len()).min().unwrap_or(0);
    if common >= V::BYTES {
        // SAFETY: all sources and the sum have `common` bytes, at least one vector's.
        unsafe { xor_common::<V>(acc, sources, common) };
    }
    let from = if common >= V::BYTES { common } else { 0 };
    for source in sources.iter().filter(|source| source.len() > from) {
        // SAFETY: the source is no longer than the sum.
        unsafe { xor_into::<V>(&mut acc[from..], &source[from..]) };
    }
}

/// Adds the first `common` bytes of all sources, four vectors at a time.
///
/// # Safety
/// The processor must have the instructions, and all strings have `common` bytes, at least a vector's.
#[inline(always)]
unsafe fn xor_common<V: Vector>(acc: &mut [u8], sources: &[&[u8]], common: usize) {
    let (acc, last) = (acc.as_mut_ptr(), common - V::BYTES);
    // SAFETY: all offsets are at most `last`, and all strings have a vector's bytes from there.
    unsafe {
        let (mut start, mut end) = (V::load(acc), V::load(acc.add(last)));
        for source in sources {
            start = start.plus(V::load(source.as_ptr()));
            end = end.plus(V::load(source.as_ptr().add(last)));
        }
        let mut at = unaligned::<V>(acc);
        while at + 3 * V::BYTES <= last {
            let offsets = [at, at + V::BYTES, at + 2 * V::BYTES, at + 3 * V::BYTES];
            let mut sums = offsets.map(|offset| V::load(acc.add(offset)));
            for source in sources {
                for (sum, offset) in sums.iter_mut().zip(offsets) {
                    *sum = sum.plus(V::load(source.as_ptr().add(offset)));
                }
            }
            for (sum, offset) in sums.into_iter().zip(offsets) {
                sum.store(acc.add(offset));
            }
            at += 4 * V::BYTES;
        }
        while at < last {
            let mut sum = V::load(acc.add(at));
            for source in sources {
                sum = sum.plus(V::load(source.as_ptr().add(at)));
            }
            sum.store(acc.add(at));
            at += V::BYTES;
        }
        start.store(acc);
        end.store(acc.add(last));
    }
}

/// # Safety
/// The processor must have the instructions, and `src` no longer than `acc`.
#[inline(always)]
pub(super) unsafe fn mul_add<V: Vector>(acc: &mut [u8], c: u8, src: &[u8]) {
    if src.len() < V::BYTES {
        if V::Half::BYTES == V::BYTES {
            return scalar::mul_add(acc, c, src);
        }
        // SAFETY: the caller guarantees the same.
        return unsafe { mul_add::<V::Half>(acc, c, src) };
    }
    let (acc, from, last) = (acc.as_mut_ptr(), src.as_ptr(), src.len() - V::BYTES);
    // SAFETY: as in `xor_into`.
    unsafe {
        let factor = V::factor(c);
        let start = V::load(acc).plus(V::load(from).times(factor));
        let end = V::load(acc.add(last)).plus(V::load(from.add(last)).times(factor));
        for at in (unaligned::<V>(acc)..last).step_by(V::BYTES) {
            V::load(acc.add(at)).plus(V::load(from.add(at)).times(factor)).store(acc.add(at));
        }
        start.store(acc);
        end.store(acc.add(last));
    }
}

/// # Safety
/// The processor must have the instructions.
#[inline(always)]
pub(super) unsafe fn mul<V: Vector>(acc: &mut [u8], c: u8) {
    if acc.len() < V::BYTES {
        if V::Half::BYTES == V::BYTES {
            return scalar::mul(acc, c);
        }
        // SAFETY: the caller guarantees the same.
        return unsafe { mul::<V::Half>(acc, c) };
    }
    let (last, acc) = (acc.len() - V::BYTES, acc.as_mut_ptr());
    // SAFETY: as in `xor_into`.
    unsafe {
        let factor = V::factor(c);
        let start = V::load(acc).times(factor);
        let end = V::load(acc.add(last)).times(factor);
        for at in (unaligned::<V>(acc)..last).step_by(V::BYTES) {
            V::load(acc.add(at)).times(factor).store(acc.add(at));
        }
        start.store(acc);
        end.store(acc.add(last));
    }
}
