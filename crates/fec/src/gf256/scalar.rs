//! The operations byte by byte: the reference for all vector kernels, and their path for short strings.

use super::kernel::Kernel;
use super::tables::NIBBLES;

pub(super) static KERNEL: Kernel = Kernel {
    name: "scalar",
    present: || true,
    xor_into,
    xor_many,
    mul_add,
    mul_add_many,
    mul_add_rows,
    mul_add_each,
    mul,
    count,
};

pub(super) fn xor_into(acc: &mut [u8], src: &[u8]) {
    acc.iter_mut().zip(src).for_each(|(a, s)| *a ^= s);
}

fn xor_many(acc: &mut [u8], sources: &[&[u8]]) {
    sources.iter().for_each(|source| xor_into(acc, source));
}

pub(super) fn mul_add(acc: &mut [u8], c: u8, src: &[u8]) {
    acc.iter_mut().zip(src).for_each(|(a, &s)| *a ^= times(c, s));
}

fn mul_add_many(acc: &mut [u8], terms: &[(u8, &[u8])]) {
    terms.iter().for_each(|&(c, src)| mul_add(acc, c, src));
}

fn mul_add_rows(sums: &mut [&mut [u8]], terms: &[(&[u8], &[u8])]) {
    for (coefficients, src) in terms {
        sums.iter_mut().zip(*coefficients).for_each(|(sum, &c)| mul_add(sum, c, src));
    }
}

fn mul_add_each(sums: &mut [(u8, &mut [u8])], src: &[u8]) {
    sums.iter_mut().for_each(|(c, sum)| mul_add(sum, *c, src));
}

pub(super) fn mul(acc: &mut [u8], c: u8) {
    acc.iter_mut().for_each(|a| *a = times(c, *a));
}

/// Inlined into each kernel, whose instructions the compiler then uses: each of 64 lanes counts up to 255.
/// Sums of words, or fewer lanes, take two to ten times as long.
#[inline(always)]
pub(super) fn count(bytes: &[u8]) -> usize {
    let mut count = 0_usize;
    for block in bytes.chunks(64 * 255) {
        let (chunks, rest) = block.as_chunks::<64>();
        let mut lanes = [0_u8; 64];
        for chunk in chunks {
            lanes
                .iter_mut()
                .zip(chunk)
                .for_each(|(lane, &byte)| *lane = lane.wrapping_add(u8::from(byte != 0)));
        }
        let of_rest = rest.iter().filter(|&&byte| byte != 0).count();
        count =
            lanes.iter().fold(count.wrapping_add(of_rest), |sum, &lane| sum.wrapping_add(usize::from(lane)));
    }
    count
}

fn times(c: u8, x: u8) -> u8 {
    let (low, high) = &NIBBLES[usize::from(c)];
    low[usize::from(x & 15)] ^ high[usize::from(x >> 4)]
}
