//! The laws of the field, and the equality of all kernels with the scalar one.
#![allow(missing_docs)]

use fec::gf256::{self, Kernel, POLYNOMIAL};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// Textbook multiplication: shift, add, reduce.
fn long_product(a: u8, b: u8) -> u8 {
    let mut sum = 0u16;
    for bit in (0..8).rev() {
        sum <<= 1;
        if sum & 0x100 != 0 {
            sum ^= POLYNOMIAL;
        }
        if b >> bit & 1 != 0 {
            sum ^= u16::from(a);
        }
    }
    sum as u8
}

#[test]
fn product_is_that_of_the_polynomial() {
    for a in 0..=255 {
        for b in 0..=255 {
            assert_eq!(gf256::product(a, b), long_product(a, b), "{a} · {b}");
        }
    }
}

#[test]
fn every_element_but_0_has_an_inverse() {
    for a in 1..=255 {
        assert_eq!(gf256::product(a, gf256::inverse(a)), 1, "{a}");
    }
}

#[test]
fn every_constant_multiplies_every_byte_alike_in_all_kernels() {
    let bytes: Vec<u8> = (0..=255).collect();
    for kernel in Kernel::available() {
        for c in 0..=255 {
            let mut product = bytes.clone();
            kernel.mul(&mut product, c);
            let mut sum = bytes.clone();
            kernel.mul_add(&mut sum, c, &bytes);
            for (k, &byte) in bytes.iter().enumerate() {
                assert_eq!(product[k], long_product(c, byte), "{} {c} · {byte}", kernel.name());
                assert_eq!(sum[k], byte ^ long_product(c, byte), "{} {c} · {byte}", kernel.name());
            }
        }
    }
}

#[test]
fn all_kernels_count_alike() {
    let bytes: Vec<u8> = (0..3_000_u32).map(|n| if n * n % 7 < 3 { 0 } else { n as u8 | 0x80 }).collect();
    let lengths = (0..200).chain([1_791, 1_792, 1_793, 3_000]);
    for (kernel, length) in Kernel::available().flat_map(|kernel| lengths.clone().map(move |n| (kernel, n))) {
        let expected = bytes[..length].iter().filter(|&&byte| byte != 0).count();
        assert_eq!(kernel.count(&bytes[..length]), expected, "{} {length}", kernel.name());
    }
    assert_eq!(gf256::count(&vec![0xff; 100_000]), 100_000);
}

#[test]
fn the_last_kernel_is_the_scalar_one() {
    let names: Vec<_> = Kernel::available().map(Kernel::name).collect();
    println!("kernels here: {names:?}");
    assert_eq!(names.last(), Some(&"scalar"));
    assert_eq!(Kernel::best().name(), names[0]);
    assert!(Kernel::choose(names[0]), "it is chosen");
    assert!(!Kernel::choose("abacus"), "no processor has it");
    assert!(!Kernel::choose("scalar") || names.len() == 1, "another is in use");
}

#[test]
#[should_panic(expected = "source longer than sum")]
fn a_source_longer_than_the_sum_is_a_fault_of_the_caller() {
    gf256::xor_many(&mut [0; 4], &[&[0; 4], &[0; 5]]);
}

#[test]
#[should_panic(expected = "source longer than sum")]
fn a_term_longer_than_the_sum_is_a_fault_of_the_caller() {
    gf256::mul_add_many(&mut [0; 80], &[(2, &[0; 80]), (3, &[0; 81])]);
}

#[test]
#[should_panic(expected = "source longer than sum")]
fn a_row_shorter_than_a_source_is_a_fault_of_the_caller() {
    gf256::mul_add_rows(&mut [&mut [0; 80], &mut [0; 79]], &[(&[2, 3], &[0; 80])]);
}

#[test]
#[should_panic(expected = "one coefficient for each sum")]
fn a_coefficient_too_few_is_a_fault_of_the_caller() {
    gf256::mul_add_rows(&mut [&mut [0; 80], &mut [0; 80]], &[(&[2], &[0; 80])]);
}

#[test]
#[should_panic(expected = "source longer than sum")]
fn a_sum_shorter_than_the_source_is_a_fault_of_the_caller() {
    gf256::mul_add_each(&mut [(2, &mut [0; 80]), (3, &mut [0; 79])], &[0; 80]);
}

/// Tries every length up to a few vectors of the widest kernel, to meet every boundary between its loops.
#[test]
fn fused_sums_are_right_at_every_length() {
    let bytes: Vec<u8> = (0..2_000u32).map(|n| ((n * n) >> 3) as u8).collect();
    for length in 0..1_100 {
        // Nine sources of one length, which form groups, then one that ends in their middle.
        let alike = (1..10usize).map(|n| ((n * 27) as u8, &bytes[n * 90..][..length]));
        let terms: Vec<(u8, &[u8])> = alike.chain([(200, &bytes[60..60 + length / 2])]).collect();
        let source = terms[0].1;
        let mut expected = bytes[..length].to_vec();
        let mut products = [vec![3; length], vec![5; length + 1]];
        for &(c, source) in &terms {
            expected.iter_mut().zip(source).for_each(|(sum, &byte)| *sum ^= gf256::product(c, byte));
        }
        for (product, c) in products.iter_mut().zip([29, 0x8E]) {
            product.iter_mut().zip(source).for_each(|(sum, &byte)| *sum ^= gf256::product(c, byte));
        }
        for kernel in Kernel::available() {
            let mut sum = bytes[..length].to_vec();
            kernel.mul_add_many(&mut sum, &terms);
            assert_eq!(sum, expected, "{}, {length} bytes", kernel.name());
            let mut sums = [vec![3; length], vec![5; length + 1]];
            let [one, other] = &mut sums;
            kernel.mul_add_each(&mut [(29, one), (0x8E, other)], source);
            assert_eq!(sums, products, "{}, {length} bytes", kernel.name());
        }
    }
}

/// A string and an offset into it, so that kernels meet all alignments.
fn bytes(longest: usize) -> impl Strategy<Value = (Vec<u8>, usize)> {
    (proptest::collection::vec(any::<u8>(), 0..longest), 0..16usize)
        .prop_map(|(bytes, offset)| (bytes.clone(), offset.min(bytes.len())))
}

/// Any coefficient, 0 and 1 as often as all others.
fn coefficient() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0), Just(1), any::<u8>(), any::<u8>()]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn all_kernels_give_the_bytes_of_the_scalar_one(
        (acc, skip) in bytes(900),
        sources in proptest::collection::vec(bytes(900), 0..20),
        c in any::<u8>(),
    ) {
        let length = acc.len() - skip;
        let sources: Vec<&[u8]> =
            sources.iter().map(|(bytes, skip)| &bytes[*skip..]).map(|s| &s[..s.len().min(length)]).collect();
        let first = sources.first().copied().unwrap_or(&[]);
        // Bytes before the string must not change, and are compared too.
        let run = |kernel: &Kernel| {
            let mut results = [acc.clone(), acc.clone(), acc.clone(), acc.clone()];
            kernel.xor_into(&mut results[0][skip..], first);
            kernel.xor_many(&mut results[1][skip..], &sources);
            kernel.mul_add(&mut results[2][skip..], c, first);
            kernel.mul(&mut results[3][skip..], c);
            results
        };
        let scalar = Kernel::available().last().unwrap();
        let expected = run(scalar);
        for kernel in Kernel::available() {
            prop_assert_eq!(run(kernel), expected.clone(), "{}", kernel.name());
        }
    }

    #[test]
    fn fused_sums_are_those_of_one_term_after_the_other(
        (acc, skip) in bytes(1_700),
        terms in proptest::collection::vec((coefficient(), bytes(1_700)), 0..20),
        alike in any::<bool>(),
    ) {
        // The ends of sources of one length are added with the last block; those of others are not.
        let acc_length = acc.len() - skip;
        let length = |source: &[u8]| source.len().min(acc_length);
        let common = terms.iter().map(|(_, (bytes, skip))| length(&bytes[*skip..])).min().unwrap_or(0);
        let terms: Vec<(u8, &[u8])> = terms
            .iter()
            .map(|(c, (bytes, skip))| (*c, &bytes[*skip..]))
            .map(|(c, source)| (c, &source[..if alike { common } else { length(source) }]))
            .collect();
        let mut expected = acc.clone();
        for &(c, source) in &terms {
            for (sum, &byte) in expected[skip..].iter_mut().zip(source) {
                *sum ^= gf256::product(c, byte);
            }
        }
        for kernel in Kernel::available() {
            let mut sum = acc.clone();
            kernel.mul_add_many(&mut sum[skip..], &terms);
            prop_assert_eq!(&sum, &expected, "{}", kernel.name());
        }
    }

    #[test]
    fn rows_are_sums_of_their_own(
        sources in proptest::collection::vec(bytes(1_700), 0..12),
        sums in proptest::collection::vec((0..16usize, 0..70usize), 0..10),
        coefficients in proptest::collection::vec(coefficient(), 12 * 10),
        alike in any::<bool>(),
    ) {
        let common = sources.iter().map(|(bytes, skip)| bytes.len() - skip).min().unwrap_or(0);
        let terms: Vec<(&[u8], &[u8])> = sources
            .iter()
            .enumerate()
            .map(|(n, (bytes, skip))| (&coefficients[n * 10..][..sums.len()], &bytes[*skip..]))
            .map(|(c, source)| (c, &source[..if alike { common } else { source.len() }]))
            .collect();
        let longest = terms.iter().map(|(_, source)| source.len()).max().unwrap_or(0);
        let start: Vec<Vec<u8>> = sums.iter().map(|(skip, more)| vec![0x5A; skip + longest + more]).collect();
        let mut expected = start.clone();
        for (k, (sum, (skip, _))) in expected.iter_mut().zip(&sums).enumerate() {
            for (c, source) in &terms {
                for (sum, &byte) in sum[*skip..].iter_mut().zip(*source) {
                    *sum ^= gf256::product(c[k], byte);
                }
            }
        }
        for kernel in Kernel::available() {
            let mut got = start.clone();
            let mut open: Vec<&mut [u8]> =
                got.iter_mut().zip(&sums).map(|(sum, (skip, _))| &mut sum[*skip..]).collect();
            kernel.mul_add_rows(&mut open, &terms);
            prop_assert_eq!(&got, &expected, "{}", kernel.name());
        }
    }

    #[test]
    fn one_source_is_added_to_each_sum(
        (src, skip) in bytes(1_700),
        sums in proptest::collection::vec((coefficient(), bytes(600)), 0..8),
    ) {
        let src = &src[skip..];
        // Each sum begins at an offset of its own, and is at least as long as the source.
        let sums: Vec<(u8, usize, Vec<u8>)> = sums
            .into_iter()
            .map(|(c, (mut bytes, skip))| {
                bytes.resize(bytes.len() + src.len(), 0xA5);
                (c, skip, bytes)
            })
            .collect();
        let mut expected = sums.clone();
        for (c, skip, sum) in &mut expected {
            for (sum, &byte) in sum[*skip..].iter_mut().zip(src) {
                *sum ^= gf256::product(*c, byte);
            }
        }
        for kernel in Kernel::available() {
            let mut sums = sums.clone();
            let mut open: Vec<(u8, &mut [u8])> =
                sums.iter_mut().map(|(c, skip, sum)| (*c, &mut sum[*skip..])).collect();
            kernel.mul_add_each(&mut open, src);
            prop_assert_eq!(&sums, &expected, "{}", kernel.name());
        }
    }
}
