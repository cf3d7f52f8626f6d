//! How far windows reach back, by the time that packets have.

use super::PRODUCTS;
use crate::auto::{WINDOW, WINDOW_LONG};
use crate::coder::AGE_MAX_US;

/// Length of the longest window, whether it may have stripes, and what it may cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub(super) window_max: u16,
    pub(super) is_striped: bool,
    /// Number of products for each packet that are of use.
    pub(super) products: u16,
}

/// Factor by which a window exceeds the packets that come in time.
const BEYOND: u64 = 4;
/// Rate by whose windows the products of slow traffic are bounded, the highest by default: 3/8.
const BOUNDED_AT: [u16; 2] = [3, 8];

impl Reach {
    /// The usual window.
    pub(super) const START: Self = Self { window_max: WINDOW, is_striped: false, products: PRODUCTS };

    /// Lengthens the window where the operator has stated a deadline that leaves time for it, and by stripes
    /// where all packets have time for it. `late_us`: the deadline that all of them meet, once it is known;
    /// `longest_us`: the longest that is stated.
    pub(super) fn update(&mut self, per_second: u64, late_us: Option<u64>, longest_us: Option<u64>) {
        let is_in_time = |late_us: Option<u64>, was_long| {
            let late_us = late_us.unwrap_or(0).min(AGE_MAX_US);
            let in_time = u128::from(late_us) * u128::from(per_second) / 1_000_000;
            // Less is needed to stay, so that the window does not change to and fro.
            in_time >= u128::from(if was_long { WINDOW_LONG / 4 * 3 } else { WINDOW_LONG })
        };
        let is_long = is_in_time(longest_us, self.window_max == WINDOW_LONG);
        self.is_striped = is_in_time(late_us, self.is_striped);
        self.window_max = if is_long || self.is_striped { WINDOW_LONG } else { WINDOW };
    }

    /// Bounds what windows cost where few packets come in time. A window of 512 at a high rate would cost
    /// many times as much as one that is four times as long as the deadline, and recover only longer bursts,
    /// too late. `late_us`: the longest deadline, once it is known.
    pub(super) fn bound(&mut self, per_second: u64, late_us: Option<u64>) {
        let [repairs, packets] = BOUNDED_AT;
        let products_of = |window: u16| window / packets * repairs;
        let Some(late_us) = late_us.filter(|_| per_second > 0) else {
            self.products = PRODUCTS;
            return;
        };
        let useful = u128::from(late_us) * u128::from(per_second) * u128::from(BEYOND) / 1_000_000;
        // The longest is bounded by the processor alone.
        let longest = (WINDOW, PRODUCTS);
        let steps = [longest, (WINDOW / 2, products_of(WINDOW / 2)), (0, products_of(WINDOW / 4))];
        let is_useful = |&(window, products): &(u16, u16)| {
            // Less is needed to stay.
            let least = if self.products >= products { window / 4 * 3 } else { window };
            useful >= u128::from(least)
        };
        self.products = steps.into_iter().find(is_useful).map_or(PRODUCTS, |(_, products)| products);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::window;

    #[test]
    fn windows_are_long_where_packets_come_in_time_and_stay_so_at_three_quarters_of_their_pace() {
        let mut reach = Reach::START;
        let seen = [40_000, 41_000, 31_000, 30_000, 40_000].map(|per_second| {
            reach.update(per_second, Some(25_000), None);
            (reach.window_max, reach.is_striped)
        });
        let (short, striped) = ((WINDOW, false), (WINDOW_LONG, true));
        assert_eq!(seen, [short, striped, striped, short, short]);
    }

    #[test]
    fn a_stated_deadline_lengthens_windows_without_stripes_where_others_are_shorter() {
        let mut reach = Reach::START;
        reach.update(10_000, Some(25_000), Some(200_000));
        assert_eq!((reach.window_max, reach.is_striped), (WINDOW_LONG, false));
        reach.update(10_000, None, None);
        assert_eq!(reach.window_max, WINDOW);
    }

    #[test]
    fn windows_of_high_rates_are_short_where_few_packets_come_in_time() {
        let mut reach = Reach::START;
        // A quarter of a round trip of 20 ms.
        let of = |reach: &mut Reach, per_second, rate: &str| {
            reach.bound(per_second, Some(5_000));
            window(reach.products, rate.parse().unwrap(), WINDOW)
        };
        let seen = [30_000, 20_000, 19_000, 12_000, 9_000, 7_000, 12_000, 13_000, 26_000, 0];
        let windows = seen.map(|per_second| of(&mut reach, per_second, "3/8"));
        assert_eq!(windows, [512, 512, 256, 256, 128, 128, 128, 256, 512, 512]);
        let low = ["1/40", "1/8", "1/4"].map(|rate| of(&mut reach, 2_000, rate));
        assert_eq!(low, [512, 384, 192], "low rates cost little");
        reach.bound(2_000, Some(500_000));
        assert_eq!(reach.products, PRODUCTS, "the operator states a long deadline");
        reach.bound(u64::MAX, None);
        assert_eq!(reach.products, PRODUCTS);
    }
}
