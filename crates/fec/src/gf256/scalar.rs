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

fn times(c: u8, x: u8) -> u8 {
    let (low, high) = &NIBBLES[usize::from(c)];
    low[usize::from(x & 15)] ^ high[usize::from(x >> 4)]
}
