//! Arithmetic of GF(256), polynomial x⁸+x⁴+x³+x²+1 (0x11D), over byte strings.
//!
//! Each operation exists once for plain bytes and once, generic over a vector, for the vector instructions of
//! a processor. [`Kernel::best`] is the fastest set that this processor can run. Multiplication by a constant
//! is a bit matrix with GFNI (whose own product has another polynomial), and two look-ups in tables of 16
//! elsewhere.
#![allow(unsafe_code)]

mod fused;
mod kernel;
mod lanes;
mod scalar;
mod tables;
mod vector;

use std::sync::OnceLock;

pub use kernel::Kernel;
pub use tables::{POLYNOMIAL, inverse, product};

/// `acc[k] ^= src[k]` for the bytes of `src`.
///
/// # Panics
/// If `src` is longer than `acc`.
#[inline]
pub fn xor_into(acc: &mut [u8], src: &[u8]) {
    Kernel::best().xor_into(acc, src);
}

/// Adds all of `sources` to `acc`, in one pass as far as the shortest source reaches. Sources may differ in
/// length.
///
/// # Panics
/// If a source is longer than `acc`.
#[inline]
pub fn xor_many(acc: &mut [u8], sources: &[&[u8]]) {
    Kernel::best().xor_many(acc, sources);
}

/// `acc[k] ^= c · src[k]` for the bytes of `src`.
///
/// # Panics
/// If `src` is longer than `acc`.
#[inline]
pub fn mul_add(acc: &mut [u8], c: u8, src: &[u8]) {
    Kernel::best().mul_add(acc, c, src);
}

/// Adds `c · src` to `acc` for all `(c, src)` of `terms` in one pass over `acc`.
///
/// Sources may differ in length; each counts as if padded with zeros. A term with coefficient 0 changes
/// nothing and costs as much as any other.
///
/// ```
/// let mut repair = [0; 3];
/// fec::gf256::mul_add_many(&mut repair, &[(1, &[7, 7, 7]), (2, &[0x80])]);
/// assert_eq!(repair, [7 ^ 0x1D, 7, 7]);
/// ```
///
/// # Panics
/// If a source is longer than `acc`.
#[inline]
pub fn mul_add_many(acc: &mut [u8], terms: &[(u8, &[u8])]) {
    Kernel::best().mul_add_many(acc, terms);
}

/// Adds `c[k] · src` to `sums[k]` for all `(c, src)` of `terms` and all `k`: [`mul_add_many`] for several
/// sums at once.
///
/// With GFNI, three sums of the same long window take less than twice the time of one, since each packet is
/// read once. Sources that begin at a multiple of 64 bytes are read fastest.
///
/// ```
/// let (mut one, mut other) = ([0; 2], [0; 2]);
/// fec::gf256::mul_add_rows(&mut [&mut one, &mut other], &[(&[1, 2], &[5, 0x80]), (&[1, 0], &[1])]);
/// assert_eq!((one, other), ([4, 0x80], [10, 0x1D]));
/// ```
///
/// # Panics
/// If a source is longer than one of the sums, or a term lacks a coefficient for a sum.
#[inline]
pub fn mul_add_rows(sums: &mut [&mut [u8]], terms: &[(&[u8], &[u8])]) {
    Kernel::best().mul_add_rows(sums, terms);
}

/// Adds `c · src` to `sum` for all `(c, sum)` of `sums` in one pass over `src`.
///
/// Sums may differ in length; bytes beyond `src` keep their values.
///
/// ```
/// let (mut one, mut other) = ([0; 2], [1; 3]);
/// fec::gf256::mul_add_each(&mut [(1, &mut one), (2, &mut other)], &[5, 0x80]);
/// assert_eq!((one, other), ([5, 0x80], [1 ^ 10, 1 ^ 0x1D, 1]));
/// ```
///
/// # Panics
/// If `src` is longer than one of the sums.
#[inline]
pub fn mul_add_each(sums: &mut [(u8, &mut [u8])], src: &[u8]) {
    Kernel::best().mul_add_each(sums, src);
}

/// `acc[k] = c · acc[k]`.
#[inline]
pub fn mul(acc: &mut [u8], c: u8) {
    Kernel::best().mul(acc, c);
}

/// Number of bytes that are not 0.
///
/// ```
/// assert_eq!(fec::gf256::count(&[0, 7, 0, 1]), 2);
/// ```
#[inline]
pub fn count(bytes: &[u8]) -> usize {
    Kernel::best().count(bytes)
}

/// Kernels of the architecture, fastest first.
#[cfg(target_arch = "x86_64")]
static KERNELS: &[&Kernel] = &[
    &lanes::gfni512::KERNEL,
    &lanes::gfni256::KERNEL,
    &lanes::avx2::KERNEL,
    &lanes::ssse3::KERNEL,
    &scalar::KERNEL,
];
/// Kernels of the architecture, fastest first.
#[cfg(target_arch = "aarch64")]
static KERNELS: &[&Kernel] = &[&lanes::neon::KERNEL, &scalar::KERNEL];
/// Kernels of the architecture, fastest first.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static KERNELS: &[&Kernel] = &[&scalar::KERNEL];

static BEST: OnceLock<&Kernel> = OnceLock::new();

impl Kernel {
    /// Returns the fastest kernel that this processor can run. The choice is made once.
    #[inline]
    pub fn best() -> &'static Self {
        BEST.get_or_init(|| Self::available().next().unwrap_or(&scalar::KERNEL))
    }

    /// Makes the kernel of this name the [best](Self::best), for measurements and tests of each kernel.
    /// Returns false if this processor does not have it, or another kernel was chosen or used before.
    #[doc(hidden)]
    pub fn choose(name: &str) -> bool {
        let kernel = Self::available().find(|kernel| kernel.name == name);
        kernel.is_some_and(|kernel| BEST.set(kernel).is_ok() || std::ptr::eq(Self::best(), kernel))
    }

    /// Kernels that this processor can run, fastest first; the last is the scalar one.
    pub fn available() -> impl Iterator<Item = &'static Self> {
        KERNELS.iter().copied().filter(|kernel| (kernel.present)())
    }
}
