//! The field's laws, and that all kernels give the bytes of the scalar one.
#![allow(missing_docs)]

use fec::gf256::{self, Kernel, POLYNOMIAL};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// Multiplication as it is taught: shift, add, reduce.
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
fn the_last_kernel_is_the_scalar_one() {
    let names: Vec<_> = Kernel::available().map(Kernel::name).collect();
    println!("kernels here: {names:?}");
    assert_eq!(names.last(), Some(&"scalar"));
    assert_eq!(Kernel::best().name(), names[0]);
}

#[test]
#[should_panic(expected = "source longer than sum")]
fn a_source_longer_than_the_sum_is_a_fault_of_the_caller() {
    gf256::xor_many(&mut [0; 4], &[&[0; 4], &[0; 5]]);
}

/// A string and an offset into it: kernels meet all alignments.
fn bytes(longest: usize) -> impl Strategy<Value = (Vec<u8>, usize)> {
    (proptest::collection::vec(any::<u8>(), 0..longest), 0..16usize)
        .prop_map(|(bytes, offset)| (bytes.clone(), offset.min(bytes.len())))
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
        // What lies before the string must stay as it is, and is compared too.
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
}
