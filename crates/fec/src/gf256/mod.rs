//! Arithmetic of GF(256), polynomial x⁸+x⁴+x³+x²+1 (0x11D), over byte strings.
//!
//! Each operation exists once for plain bytes and once, generic over a vector, for the vector instructions of a
//! processor; [`Kernel::best`] is the fastest set this processor can run. Multiplication by a constant is a bit
//! matrix (GFNI; its own product has another polynomial) or two look-ups in tables of 16 (the others).
#![allow(unsafe_code)]

mod vector;

use std::sync::OnceLock;
use vector::Vector;

/// The field's polynomial.
pub const POLYNOMIAL: u16 = 0x11D;

/// The product of two elements.
#[inline]
pub const fn product(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let (log, exp) = (&LOGARITHMS.0, &LOGARITHMS.1);
    exp[log[a as usize] as usize + log[b as usize] as usize]
}

/// The element that gives 1 when multiplied with `a`.
///
/// # Panics
/// If `a` is 0, which has none.
#[inline]
pub const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse");
    LOGARITHMS.1[255 - LOGARITHMS.0[a as usize] as usize]
}

/// `acc[k] ^= src[k]` for the bytes of `src`.
///
/// # Panics
/// If `src` is longer than `acc`.
#[inline]
pub fn xor_into(acc: &mut [u8], src: &[u8]) {
    Kernel::best().xor_into(acc, src);
}

/// Adds all of `sources`, which may differ in length, in one pass over `acc` as far as the shortest reaches.
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

/// `acc[k] = c · acc[k]`.
#[inline]
pub fn mul(acc: &mut [u8], c: u8) {
    Kernel::best().mul(acc, c);
}

/// One implementation of the operations; all of them give the same bytes.
#[derive(Debug)]
pub struct Kernel {
    name: &'static str,
    present: fn() -> bool,
    xor_into: unsafe fn(&mut [u8], &[u8]),
    xor_many: unsafe fn(&mut [u8], &[&[u8]]),
    mul_add: unsafe fn(&mut [u8], u8, &[u8]),
    mul: unsafe fn(&mut [u8], u8),
}

/// Best first.
#[cfg(target_arch = "x86_64")]
static KERNELS: &[&Kernel] = &[&gfni::KERNEL, &avx2::KERNEL, &ssse3::KERNEL, &SCALAR];
/// Best first.
#[cfg(target_arch = "aarch64")]
static KERNELS: &[&Kernel] = &[&neon::KERNEL, &SCALAR];
/// Best first.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static KERNELS: &[&Kernel] = &[&SCALAR];

static SCALAR: Kernel = Kernel {
    name: "scalar",
    present: || true,
    xor_into: scalar::xor_into,
    xor_many: scalar::xor_many,
    mul_add: scalar::mul_add,
    mul: scalar::mul,
};

// SAFETY, for all calls through the pointers below: the functions are unsafe only in that the processor must have
// their instructions, and that sources are no longer than sums. `available` and `best` hand out no other kernels, and
// the methods assert the lengths.
impl Kernel {
    /// The fastest that this processor can run; found once.
    #[inline]
    pub fn best() -> &'static Self {
        static BEST: OnceLock<&Kernel> = OnceLock::new();
        BEST.get_or_init(|| Self::available().next().unwrap_or(&SCALAR))
    }

    /// All that this processor can run, the fastest first; the last is the scalar one.
    pub fn available() -> impl Iterator<Item = &'static Self> {
        KERNELS.iter().copied().filter(|kernel| (kernel.present)())
    }

    /// Names the instructions used.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// See [`xor_into`].
    #[inline]
    pub fn xor_into(&self, acc: &mut [u8], src: &[u8]) {
        assert!(src.len() <= acc.len(), "source longer than sum");
        // SAFETY: see above.
        unsafe { (self.xor_into)(acc, src) }
    }

    /// See [`xor_many`].
    #[inline]
    pub fn xor_many(&self, acc: &mut [u8], sources: &[&[u8]]) {
        assert!(sources.iter().all(|source| source.len() <= acc.len()), "source longer than sum");
        // SAFETY: see above.
        unsafe { (self.xor_many)(acc, sources) }
    }

    /// See [`mul_add`].
    #[inline]
    pub fn mul_add(&self, acc: &mut [u8], c: u8, src: &[u8]) {
        assert!(src.len() <= acc.len(), "source longer than sum");
        match c {
            0 => {}
            // SAFETY: see above.
            1 => unsafe { (self.xor_into)(acc, src) },
            // SAFETY: see above.
            _ => unsafe { (self.mul_add)(acc, c, src) },
        }
    }

    /// See [`mul`].
    #[inline]
    pub fn mul(&self, acc: &mut [u8], c: u8) {
        match c {
            0 => acc.fill(0),
            1 => {}
            // SAFETY: see above.
            _ => unsafe { (self.mul)(acc, c) },
        }
    }
}

/// Logarithm of each element (of 0: meaningless) and, twice round, the powers of 2.
static LOGARITHMS: ([u8; 256], [u8; 512]) = logarithms();

const fn logarithms() -> ([u8; 256], [u8; 512]) {
    let mut log = [0; 256];
    let mut exp = [0; 512];
    let mut x = 1u16;
    let mut power = 0;
    while power < 255 {
        exp[power] = x as u8;
        exp[power + 255] = x as u8;
        log[x as usize] = power as u8;
        x <<= 1;
        if x & 0x100 != 0 {
            x ^= POLYNOMIAL;
        }
        power += 1;
    }
    (log, exp)
}

/// For each constant its products with 0 to 15 and with 0, 16, … 240.
static NIBBLES: [([u8; 16], [u8; 16]); 256] = nibbles();

const fn nibbles() -> [([u8; 16], [u8; 16]); 256] {
    let mut tables = [([0; 16], [0; 16]); 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 0;
        while x < 16 {
            tables[c].0[x] = product(c as u8, x as u8);
            tables[c].1[x] = product(c as u8, (x << 4) as u8);
            x += 1;
        }
        c += 1;
    }
    tables
}

/// For each constant the matrix of its multiplication, as GF2P8AFFINEQB wants it: byte 7 - i tells which bits of the
/// factor are summed into bit i of the product.
#[cfg(target_arch = "x86_64")]
static MATRICES: [u64; 256] = matrices();

#[cfg(target_arch = "x86_64")]
const fn matrices() -> [u64; 256] {
    let mut matrices = [0; 256];
    let mut at = 0;
    while at < 256 * 64 {
        let (c, i, j) = (at / 64, at / 8 % 8, at % 8);
        if product(c as u8, 1 << j) >> i & 1 != 0 {
            matrices[c] |= 1 << ((7 - i) * 8 + j);
        }
        at += 1;
    }
    matrices
}

/// The operations byte by byte: the reference for all others, and their ends.
mod scalar {
    use super::NIBBLES;

    pub(super) fn xor_into(acc: &mut [u8], src: &[u8]) {
        acc.iter_mut().zip(src).for_each(|(a, s)| *a ^= s);
    }

    pub(super) fn xor_many(acc: &mut [u8], sources: &[&[u8]]) {
        sources.iter().for_each(|source| xor_into(acc, source));
    }

    pub(super) fn mul_add(acc: &mut [u8], c: u8, src: &[u8]) {
        acc.iter_mut().zip(src).for_each(|(a, &s)| *a ^= times(c, s));
    }

    pub(super) fn mul(acc: &mut [u8], c: u8) {
        acc.iter_mut().for_each(|a| *a = times(c, *a));
    }

    fn times(c: u8, x: u8) -> u8 {
        let (low, high) = &NIBBLES[usize::from(c)];
        low[usize::from(x & 15)] ^ high[usize::from(x >> 4)]
    }
}

/// The kernel of one kind of vector: the generic operations, compiled with its instructions.
macro_rules! kernel {
    ($name:literal, $vector:ty, $present:expr, $($feature:literal),+) => {
        pub(super) static KERNEL: Kernel =
            Kernel { name: $name, present: || $present, xor_into, xor_many, mul_add, mul };

        $(#[target_feature(enable = $feature)])+
        unsafe fn xor_into(acc: &mut [u8], src: &[u8]) {
            // SAFETY: the instructions are there, and the caller vouches for the lengths.
            unsafe { vector::xor_into::<$vector>(acc, src) }
        }

        $(#[target_feature(enable = $feature)])+
        unsafe fn xor_many(acc: &mut [u8], sources: &[&[u8]]) {
            // SAFETY: the instructions are there, and the caller vouches for the lengths.
            unsafe { vector::xor_many::<$vector>(acc, sources) }
        }

        $(#[target_feature(enable = $feature)])+
        unsafe fn mul_add(acc: &mut [u8], c: u8, src: &[u8]) {
            // SAFETY: the instructions are there, and the caller vouches for the lengths.
            unsafe { vector::mul_add::<$vector>(acc, c, src) }
        }

        $(#[target_feature(enable = $feature)])+
        unsafe fn mul(acc: &mut [u8], c: u8) {
            // SAFETY: the instructions are there.
            unsafe { vector::mul::<$vector>(acc, c) }
        }
    };
}

/// How a vector type does what [`Vector`] asks for; `$c`, `$x` and `$f` name the arguments.
macro_rules! vector {
    (
        $vector:ty, $bytes:literal, load $load:ident, store $store:ident, plus $plus:ident,
        factor $factor:ty: |$c:ident| $prepare:expr, times: |$x:ident, $f:ident| $times:expr
    ) => {
        // Every function is inlined into one of the kernel, which has the instructions enabled.
        impl Vector for $vector {
            const BYTES: usize = $bytes;
            type Factor = $factor;

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: the caller has the instructions and the bytes; no alignment is asked for.
                unsafe { $load(from.cast()) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: the caller has the instructions and the bytes; no alignment is asked for.
                unsafe { $store(to.cast(), self) }
            }

            #[inline(always)]
            unsafe fn plus(self, other: Self) -> Self {
                // SAFETY: the caller has the instructions.
                unsafe { $plus(self, other) }
            }

            #[inline(always)]
            unsafe fn factor($c: u8) -> $factor {
                // SAFETY: the caller has the instructions; tables are as long as the vectors loaded from them.
                unsafe { $prepare }
            }

            #[inline(always)]
            unsafe fn times(self, $f: $factor) -> Self {
                let $x = self;
                // SAFETY: the caller has the instructions.
                unsafe { $times }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod gfni {
    use super::{Kernel, MATRICES, Vector, vector};
    use std::arch::x86_64::*;

    kernel!("GFNI, AVX-512", __m512i, supported(), "gfni", "avx512f", "avx512bw");
    vector!(__m512i, 64, load _mm512_loadu_si512, store _mm512_storeu_si512, plus _mm512_xor_si512,
        factor __m512i: |c| _mm512_set1_epi64(MATRICES[usize::from(c)] as i64),
        times: |x, matrix| _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix));

    fn supported() -> bool {
        is_x86_feature_detected!("gfni")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Kernel, NIBBLES, Vector, vector};
    use std::arch::x86_64::*;

    kernel!("AVX2", __m256i, is_x86_feature_detected!("avx2"), "avx2");
    vector!(__m256i, 32, load _mm256_loadu_si256, store _mm256_storeu_si256, plus _mm256_xor_si256,
    factor (__m256i, __m256i): |c| {
        let (low, high) = &NIBBLES[usize::from(c)];
        let (low, high) = (_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast()));
        (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
    },
    times: |x, tables| {
        let mask = _mm256_set1_epi8(15);
        let low = _mm256_shuffle_epi8(tables.0, _mm256_and_si256(x, mask));
        let high = _mm256_shuffle_epi8(tables.1, _mm256_and_si256(_mm256_srli_epi64::<4>(x), mask));
        _mm256_xor_si256(low, high)
    });
}

#[cfg(target_arch = "x86_64")]
mod ssse3 {
    use super::{Kernel, NIBBLES, Vector, vector};
    use std::arch::x86_64::*;

    kernel!("SSSE3", __m128i, is_x86_feature_detected!("ssse3"), "ssse3");
    vector!(__m128i, 16, load _mm_loadu_si128, store _mm_storeu_si128, plus _mm_xor_si128,
    factor (__m128i, __m128i): |c| {
        let (low, high) = &NIBBLES[usize::from(c)];
        (_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast()))
    },
    times: |x, tables| {
        let mask = _mm_set1_epi8(15);
        let low = _mm_shuffle_epi8(tables.0, _mm_and_si128(x, mask));
        let high = _mm_shuffle_epi8(tables.1, _mm_and_si128(_mm_srli_epi64::<4>(x), mask));
        _mm_xor_si128(low, high)
    });
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::{Kernel, NIBBLES, Vector, vector};
    use std::arch::aarch64::*;
    use std::arch::is_aarch64_feature_detected;

    kernel!("NEON", uint8x16_t, is_aarch64_feature_detected!("neon"), "neon");
    vector!(uint8x16_t, 16, load vld1q_u8, store vst1q_u8, plus veorq_u8,
    factor (uint8x16_t, uint8x16_t): |c| {
        let (low, high) = &NIBBLES[usize::from(c)];
        (vld1q_u8(low.as_ptr()), vld1q_u8(high.as_ptr()))
    },
    times: |x, tables| {
        let low = vqtbl1q_u8(tables.0, vandq_u8(x, vdupq_n_u8(15)));
        veorq_u8(low, vqtbl1q_u8(tables.1, vshrq_n_u8::<4>(x)))
    });
}
