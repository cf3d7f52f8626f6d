//! How far windows reach back, by the time that packets have.

use crate::auto::{WINDOW, WINDOW_LONG};

/// Length of the longest window, and whether it may have stripes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub(super) window_max: u16,
    pub(super) is_striped: bool,
}

impl Reach {
    /// The usual window.
    pub(super) const START: Self = Self { window_max: WINDOW, is_striped: false };

    /// Lengthens the window where the operator has stated a deadline that leaves time for it, and by stripes
    /// where all packets have time for it. `late_us`: the deadline that all of them meet, once it is known;
    /// `longest_us`: the longest that is stated.
    pub(super) fn update(&mut self, per_second: u64, late_us: Option<u64>, longest_us: Option<u64>) {
        let is_in_time = |late_us: Option<u64>, was_long| {
            let in_time = u128::from(late_us.unwrap_or(0)) * u128::from(per_second) / 1_000_000;
            // Less is needed to stay, so that the window does not change to and fro.
            in_time >= u128::from(if was_long { WINDOW_LONG / 4 * 3 } else { WINDOW_LONG })
        };
        let is_long = is_in_time(longest_us, self.window_max == WINDOW_LONG);
        self.is_striped = is_in_time(late_us, self.is_striped);
        self.window_max = if is_long || self.is_striped { WINDOW_LONG } else { WINDOW };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
