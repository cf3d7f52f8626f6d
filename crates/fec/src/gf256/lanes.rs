//! The vector types of each processor, and a kernel for each.

use super::fused;
use super::kernel::Kernel;
use super::tables::NIBBLES;
use super::vector::{self, Vector};

/// Defines the kernel of one vector type: the generic operations, compiled with its instructions.
///
/// `group` is the number of sources of one length that are added to a sum in one pass. `rows` is the number
/// of vectors of 1, 2, 3 and 4 sums that stay in registers while sources are read, and `each` the number of
/// vectors of a source that stay there while sums are read. The values are the fastest of those measured.
macro_rules! kernel {
    ($name:literal, $vector:ty, group $group:literal, rows [$n1:literal, $n2:literal, $n3:literal, $n4:literal], each $each:literal, $present:expr, $($feature:literal),+) => {
        pub(in super::super) static KERNEL: Kernel = Kernel {
            name: $name,
            present: || $present,
            xor_into,
            xor_many,
            mul_add,
            mul_add_many,
            mul_add_rows,
            mul_add_each,
            mul,
            count,
        };

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
        unsafe fn mul_add_many(acc: &mut [u8], terms: &[(u8, &[u8])]) {
            // SAFETY: the instructions are there, and the caller vouches for the lengths.
            unsafe { fused::add_groups::<$vector, $group, $n1>(acc, terms) }
        }

        $(#[target_feature(enable = $feature)])+
        unsafe fn mul_add_rows(sums: &mut [&mut [u8]], terms: &[(&[u8], &[u8])]) {
            // SAFETY: the instructions are there, and the caller vouches for the lengths.
            unsafe { fused::mul_add_rows::<$vector, $n1, $n2, $n3, $n4>(sums, terms) }
        }

        $(#[target_feature(enable = $feature)])+
        unsafe fn mul_add_each(sums: &mut [(u8, &mut [u8])], src: &[u8]) {
            // SAFETY: the instructions are there, and the caller vouches for the lengths.
            unsafe { fused::mul_add_each::<$vector, $each>(sums, src) }
        }

        $(#[target_feature(enable = $feature)])+
        unsafe fn mul(acc: &mut [u8], c: u8) {
            // SAFETY: the instructions are there.
            unsafe { vector::mul::<$vector>(acc, c) }
        }

        $(#[target_feature(enable = $feature)])+
        unsafe fn count(bytes: &[u8]) -> usize {
            super::super::scalar::count(bytes)
        }
    };
}

/// Defines a vector type that implements [`Vector`]; `$c`, `$x`, `$s` and `$f` name the arguments.
macro_rules! vector {
    (
        $vector:ident($register:ty), $bytes:literal, half $half:ty,
        load $load:ident, store $store:ident, plus $plus:ident, and $and:ident,
        split $split:ty: |$x:ident| $cut:expr,
        factor $factor:ty: |$c:ident| $prepare:expr, times: |$s:ident, $f:ident| $times:expr
    ) => {
        #[derive(Clone, Copy)]
        pub(super) struct $vector($register);

        // Every function is inlined into one of a kernel, which has the instructions enabled.
        impl Vector for $vector {
            const BYTES: usize = $bytes;
            type Half = $half;
            type Split = $split;
            type Factor = $factor;

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: the caller has the instructions and the bytes; no alignment is required.
                Self(unsafe { $load(from.cast()) })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: the caller has the instructions and the bytes; no alignment is required.
                unsafe { $store(to.cast(), self.0) }
            }

            #[inline(always)]
            unsafe fn plus(self, other: Self) -> Self {
                // SAFETY: the caller has the instructions.
                Self(unsafe { $plus(self.0, other.0) })
            }

            #[inline(always)]
            unsafe fn and(self, other: Self) -> Self {
                // SAFETY: the caller has the instructions.
                Self(unsafe { $and(self.0, other.0) })
            }

            // Bit matrices need no preparation.
            #[allow(unused_unsafe)]
            #[inline(always)]
            unsafe fn split(self) -> $split {
                let $x = self.0;
                // SAFETY: the caller has the instructions.
                unsafe { $cut }
            }

            #[inline(always)]
            unsafe fn factor($c: u8) -> $factor {
                // SAFETY: the caller has the instructions; tables are as long as the vectors loaded from
                // them.
                unsafe { $prepare }
            }

            #[inline(always)]
            unsafe fn product($s: $split, $f: $factor) -> Self {
                // SAFETY: the caller has the instructions.
                Self(unsafe { $times })
            }
        }
    };
}

/// Multiplication by a bit matrix.
#[cfg(target_arch = "x86_64")]
mod matrix {
    use super::super::tables::MATRICES;
    use super::Vector;
    use std::arch::x86_64::*;

    vector!(Wide(__m512i), 64, half Middle, load _mm512_loadu_si512, store _mm512_storeu_si512,
        plus _mm512_xor_si512, and _mm512_and_si512, split __m512i: |x| x,
        factor __m512i: |c| _mm512_set1_epi64(MATRICES[usize::from(c)] as i64),
        times: |x, matrix| _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix));

    vector!(Middle(__m256i), 32, half Narrow, load _mm256_loadu_si256, store _mm256_storeu_si256,
        plus _mm256_xor_si256, and _mm256_and_si256, split __m256i: |x| x,
        factor __m256i: |c| _mm256_set1_epi64x(MATRICES[usize::from(c)] as i64),
        times: |x, matrix| _mm256_gf2p8affine_epi64_epi8::<0>(x, matrix));

    vector!(Narrow(__m128i), 16, half Self, load _mm_loadu_si128, store _mm_storeu_si128,
        plus _mm_xor_si128, and _mm_and_si128, split __m128i: |x| x,
        factor __m128i: |c| _mm_set1_epi64x(MATRICES[usize::from(c)] as i64),
        times: |x, matrix| _mm_gf2p8affine_epi64_epi8::<0>(x, matrix));
}

/// Multiplication by look-up of the two halves of a byte.
#[cfg(target_arch = "x86_64")]
mod lookup {
    use super::{NIBBLES, Vector};
    use std::arch::x86_64::*;

    vector!(Middle(__m256i), 32, half Narrow, load _mm256_loadu_si256, store _mm256_storeu_si256,
    plus _mm256_xor_si256, and _mm256_and_si256,
    split (__m256i, __m256i): |x| {
        let mask = _mm256_set1_epi8(15);
        (_mm256_and_si256(x, mask), _mm256_and_si256(_mm256_srli_epi64::<4>(x), mask))
    },
    factor (__m256i, __m256i): |c| {
        let (low, high) = &NIBBLES[usize::from(c)];
        let (low, high) = (_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast()));
        (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
    },
    times: |halves, tables| {
        _mm256_xor_si256(_mm256_shuffle_epi8(tables.0, halves.0), _mm256_shuffle_epi8(tables.1, halves.1))
    });

    vector!(Narrow(__m128i), 16, half Self, load _mm_loadu_si128, store _mm_storeu_si128,
    plus _mm_xor_si128, and _mm_and_si128,
    split (__m128i, __m128i): |x| {
        let mask = _mm_set1_epi8(15);
        (_mm_and_si128(x, mask), _mm_and_si128(_mm_srli_epi64::<4>(x), mask))
    },
    factor (__m128i, __m128i): |c| {
        let (low, high) = &NIBBLES[usize::from(c)];
        (_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast()))
    },
    times: |halves, tables| {
        _mm_xor_si128(_mm_shuffle_epi8(tables.0, halves.0), _mm_shuffle_epi8(tables.1, halves.1))
    });
}

#[cfg(target_arch = "x86_64")]
pub(super) mod gfni512 {
    use super::{Kernel, fused, matrix, vector};

    kernel!("GFNI, AVX-512", matrix::Wide, group 8, rows [24, 12, 6, 6], each 12, supported(), "gfni", "avx512f", "avx512bw");

    fn supported() -> bool {
        is_x86_feature_detected!("gfni")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod gfni256 {
    use super::{Kernel, fused, matrix, vector};

    // The matrices need only AVX, the sums of whole bytes AVX2. No processor has GFNI and AVX without AVX2.
    kernel!("GFNI, AVX", matrix::Middle, group 8, rows [12, 6, 3, 2], each 12,
        is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx2"), "gfni", "avx2");
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use super::{Kernel, fused, lookup, vector};

    kernel!("AVX2", lookup::Middle, group 4, rows [6, 3, 2, 2], each 3, is_x86_feature_detected!("avx2"), "avx2");
}

#[cfg(target_arch = "x86_64")]
pub(super) mod ssse3 {
    use super::{Kernel, fused, lookup, vector};

    kernel!("SSSE3", lookup::Narrow, group 1, rows [6, 3, 2, 2], each 3, is_x86_feature_detected!("ssse3"), "ssse3");
}

#[cfg(target_arch = "aarch64")]
pub(super) mod neon {
    use super::{Kernel, NIBBLES, Vector, fused, vector};
    use std::arch::aarch64::*;
    use std::arch::is_aarch64_feature_detected;

    kernel!("NEON", Register, group 1, rows [12, 6, 3, 3], each 6, is_aarch64_feature_detected!("neon"), "neon");
    vector!(Register(uint8x16_t), 16, half Self, load vld1q_u8, store vst1q_u8, plus veorq_u8, and vandq_u8,
    split (uint8x16_t, uint8x16_t): |x| (vandq_u8(x, vdupq_n_u8(15)), vshrq_n_u8::<4>(x)),
    factor (uint8x16_t, uint8x16_t): |c| {
        let (low, high) = &NIBBLES[usize::from(c)];
        (vld1q_u8(low.as_ptr()), vld1q_u8(high.as_ptr()))
    },
    times: |halves, tables| veorq_u8(vqtbl1q_u8(tables.0, halves.0), vqtbl1q_u8(tables.1, halves.1)));
}
