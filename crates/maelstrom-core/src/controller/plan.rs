//! The choice of an egress, as it tells the far ingress, and the windows that follow from it.

use fec::{Code, RepairRate, stripes_max};

use crate::auto::{LADDER, WINDOW, WINDOW_LONG};
use crate::coder::AGE_MAX_US;
use crate::forecast::{AUTO_STRIPES_MAX, CANDIDATES};

/// Smallest window.
pub const WINDOW_MIN: u16 = 128;
/// Number of packets for which a loss is never late, so that sparse traffic has any repair in time.
pub const SPAN_MIN: u64 = 8;

/// The code in force at an egress, and what its windows may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Repairs per packet.
    pub rate: RepairRate,
    /// Packets in a repair of a sliding window; 0 for other schemes.
    pub window: u16,
    /// Number of products that coding a packet may take.
    pub products: u16,
    /// Maximum number of packets in a window.
    pub window_max: u16,
    /// Time after which a recovered packet is of no use, in microseconds; 0 if that is not known.
    pub late_us: u32,
    /// Whether the egress chooses the rate by forecasts.
    pub is_auto: bool,
    /// Whether windows may have stripes.
    pub is_striped: bool,
    /// Whether the egress thins its protection ([`crate::thinning`]).
    pub is_thin: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self::NONE
    }
}

impl Plan {
    /// The plan of a gateway that has not told one.
    pub const NONE: Self = Self {
        rate: crate::auto::START,
        window: 0,
        products: super::PRODUCTS,
        window_max: WINDOW,
        late_us: 0,
        is_auto: false,
        is_striped: false,
        is_thin: false,
    };

    /// The plan of a code that the configuration fixes.
    pub(crate) fn of(code: &Code) -> Self {
        let per = |repairs: usize, r: u8| RepairRate::new(repairs as u32, u32::from(r));
        let (rate, window) = match code {
            Code::Layered(config) => (per(config.interleaves.len(), config.r), 0),
            Code::ReedSolomon(config) => (per(usize::from(config.c), config.r), 0),
            Code::Sliding(config) => (Ok(config.rate), config.window),
        };
        // Blocks may have more repairs than the highest rate.
        Self { rate: rate.unwrap_or(LADDER[CANDIDATES - 1]), window, ..Self::NONE }
    }

    /// Index of the rate on the ladder, if the egress chooses it.
    pub fn candidate(&self) -> Option<usize> {
        LADDER.iter().position(|&rate| rate == self.rate).filter(|_| self.is_auto)
    }

    /// The longest of the spans, which shows how fast traffic is.
    pub fn longest_span(&self, per_second: u64) -> u64 {
        self.spans(per_second).into_iter().max().unwrap_or(0)
    }

    /// The window at this rate. Stripes make it as long as time allows, at the cost of a shorter one.
    pub fn shape(&self, rate: RepairRate) -> Shape {
        if !self.is_striped {
            return Shape { packets: window(self.products, rate, self.window_max), stripes: 1 };
        }
        let most = self.window_max.clamp(WINDOW_MIN, WINDOW_LONG);
        let terms = window(self.products, rate, most.min(WINDOW));
        let needed = most.div_ceil(terms).next_power_of_two();
        let stripes = needed.min(1 << stripes_max(rate).ilog2()).min(AUTO_STRIPES_MAX.into());
        Shape { packets: most.min(terms * stripes), stripes: stripes as u8 }
    }

    /// Number of stripes of each candidate's window.
    pub fn stripes(&self) -> [u8; CANDIDATES] {
        LADDER.map(|rate| self.shape(rate).stripes)
    }

    /// Number of packets after which each candidate gives a loss up, at `per_second` packets per second:
    /// its window, or the packets that come until it is too late.
    pub fn spans(&self, per_second: u64) -> [u64; CANDIDATES] {
        let late_us = if self.late_us == 0 { AGE_MAX_US } else { AGE_MAX_US.min(self.late_us.into()) };
        let in_time = match late_us.saturating_mul(per_second) / 1_000_000 {
            _ if per_second == 0 => u64::MAX,
            packets => packets.max(SPAN_MIN),
        };
        LADDER.map(|rate| u64::from(self.shape(rate).packets).min(in_time))
    }
}

/// A window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of packets that a repair reaches back.
    pub packets: u16,
    /// Number of stripes, of which a repair contains one.
    pub stripes: u8,
}

impl Shape {
    /// Largest number of packets in a repair.
    pub fn terms(&self) -> u16 {
        self.packets.div_ceil(self.stripes.into())
    }
}

/// Number of packets in a window that takes at most `products` products for each packet, and has at most
/// `most` packets.
pub fn window(products: u16, rate: RepairRate, most: u16) -> u16 {
    let most = most.clamp(WINDOW_MIN, WINDOW_LONG);
    let packets = u64::from(products) * u64::from(rate.sources()) / u64::from(rate.repairs().max(1));
    packets.clamp(u64::from(WINDOW_MIN), u64::from(most)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cost_no_more_than_allowed_but_for_the_smallest() {
        let of = |products, rate: &str| window(products, rate.parse().unwrap(), WINDOW);
        assert_eq!(["1/32", "3/8", "1/2", "1/1"].map(|rate| of(200, rate)), [512, 512, 400, 200]);
        assert_eq!(["1/32", "1/6", "3/8", "1/1"].map(|rate| of(60, rate)), [512, 360, 160, 128]);
        let long = |rate: &str| window(512, rate.parse().unwrap(), WINDOW_LONG);
        assert_eq!(["1/32", "1/2", "5/8", "1/1"].map(long), [1_024, 1_024, 819, 512]);
        // A peer states what it likes.
        assert_eq!([0, u16::MAX].map(|most| window(512, crate::auto::START, most)), [128, 1_024]);
    }

    #[test]
    fn a_deadline_shortens_the_windows_of_slow_traffic() {
        let plan = Plan { late_us: 25_000, products: 200, ..Plan::default() };
        assert_eq!(plan.spans(50_000)[0], 512);
        assert_eq!(plan.spans(1_000), [25; CANDIDATES]);
        assert_eq!(plan.spans(10), [SPAN_MIN; CANDIDATES]);
        assert_eq!(plan.spans(0)[0], 512, "nothing is known of the pace");
    }

    #[test]
    fn only_a_rate_that_was_chosen_is_a_candidate() {
        let plan = Plan { is_auto: true, ..Plan::default() };
        assert_eq!(plan.candidate(), Some(7));
        assert_eq!(Plan::default().candidate(), None);
        assert_eq!(Plan { rate: "2/7".parse().unwrap(), ..plan }.candidate(), None);
    }
}
