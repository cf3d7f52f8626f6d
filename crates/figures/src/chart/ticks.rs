//! Places of the labels of a logarithmic axis.

use std::ops::Range;

/// First digits of the labels in a decade, from many to few; after the last set only powers of ten are left.
const DIGITS: [&[f64]; 4] = [
    &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
    &[1.0, 2.0, 3.0, 5.0, 7.0],
    &[1.0, 2.0, 5.0],
    &[1.0, 3.0],
];
/// Least distance of two labels, as a share of the distance that `most` labels have.
const ROOM: f64 = 0.6;
/// Least number of labels that describe an axis.
const FEW: usize = 3;
/// Greatest ratio of a range that may have labels in equal steps, like a linear axis.
const NARROW: f64 = 5.0;

/// Returns at most `most` values of a range above 0, at a distance that leaves room for labels. They are
/// round where the base is 10, else powers of the base, and in equal steps where the range has hardly one of
/// those.
pub(crate) fn logarithmic(range: &Range<f64>, base: f64, most: usize) -> Vec<f64> {
    let digits: &[&[f64]] = if base == 10.0 { &DIGITS } else { &[] };
    let powers = (1..).map(|step| (&[1.0][..], step));
    let mut sets = digits.iter().map(|digits| (*digits, 1)).chain(powers);
    let ticks = sets.find_map(|(digits, step)| {
        let ticks = of_powers(range, base, digits, step);
        has_room(&ticks, range, most).then_some(ticks)
    });
    ticks
        .filter(|ticks| ticks.len() >= FEW || range.end / range.start > NARROW)
        .unwrap_or_else(|| equal_steps(range, most))
}

/// Returns these digits times each `step`-th power of the base, within the range.
fn of_powers(range: &Range<f64>, base: f64, digits: &[f64], step: i32) -> Vec<f64> {
    let power = |value: f64| (value.ln() / base.ln()).floor() as i32;
    // Powers that are a whole number of steps from 1.
    let first = power(range.start).div_euclid(step) * step;
    (first..=power(range.end))
        .step_by(step.unsigned_abs() as usize)
        .flat_map(|power| digits.iter().map(move |digit| digit * base.powi(power)))
        .filter(|tick| range.contains(tick))
        .collect()
}

fn has_room(ticks: &[f64], range: &Range<f64>, most: usize) -> bool {
    let least = (range.end / range.start).powf(ROOM / most as f64);
    ticks.len() <= most && ticks.windows(2).all(|pair| pair[1] / pair[0] >= least)
}

/// Returns multiples of 1, 2 or 5 times a power of ten.
fn equal_steps(range: &Range<f64>, most: usize) -> Vec<f64> {
    let least = (range.end - range.start) / most as f64;
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|step| *step >= least);
    let step = step.unwrap_or(least);
    let first = (range.start / step).ceil() as i64;
    (first..).map(|at| at as f64 * step).take_while(|tick| *tick < range.end).take(most).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_are_rounded_values_that_do_not_crowd() {
        let of = |range: Range<f64>, base, most| {
            logarithmic(&range, base, most)
                .iter()
                .map(|tick| format!("{tick:.4}").parse().unwrap())
                .collect::<Vec<f64>>()
        };
        assert_eq!(of(0.6..12.0, 10.0, 8), [0.7, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0]);
        assert_eq!(of(0.009..11.0, 10.0, 12), [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]);
        assert_eq!(of(0.5..2_000.0, 10.0, 8), [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0]);
        assert_eq!(of(0.5..200_000.0, 10.0, 8), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5]);
        assert_eq!(of(1e-4..2e5, 10.0, 5), [1e-4, 1e-2, 1.0, 1e2, 1e4]);
        assert_eq!(
            of(1.7..1_178.0, 2.0, 12),
            [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0]
        );
        assert_eq!(of(1.7..1_178.0, 2.0, 5), [4.0, 16.0, 64.0, 256.0, 1_024.0]);
        assert_eq!(of(87.0..115.0, 10.0, 8), [90.0, 95.0, 100.0, 105.0, 110.0]);
    }

    proptest! {
        #[test]
        fn each_range_has_labels_in_order_and_not_too_many(
            low in -9.0..9.0_f64,
            reach in 0.1..12.0_f64,
            base in prop_oneof![Just(2.0), Just(10.0)],
            most in 4_usize..13,
        ) {
            let start = 10_f64.powf(low);
            let range = start..start * 10_f64.powf(reach);
            let ticks = logarithmic(&range, base, most);
            prop_assert!((1..=most).contains(&ticks.len()), "{ticks:?}");
            prop_assert!(base == 2.0 || most < 8 || ticks.len() >= FEW, "{ticks:?}");
            prop_assert!(ticks.iter().all(|tick| range.contains(tick)), "{ticks:?}");
            prop_assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{ticks:?}");
        }
    }
}
