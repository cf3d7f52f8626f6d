//! The windows that the processor can pay: the number of products that coding a packet may cost.
//!
//! A repair of a window of W packets takes W products of a packet and a coefficient, so that coding a packet
//! at the rate r costs r · W of them. The time of the gateway's other work is
//! measured, and encoding gets a part of the time that is left of one processor.

use crate::controller::PRODUCTS;
use fec::gf256;

/// Smallest number of products: windows of 256 packets at 3/8. Shorter ones leave more losses, so that the
/// rate rises, and with it the work.
const PRODUCTS_MIN: f64 = 96.0;
/// Part of a processor that the gateway may use.
const OWN_MAX: f64 = 0.7;
/// Smallest and largest part of it for encoding.
const ENCODING: [f64; 2] = [0.15, 0.5];
/// Part of idle time below which the machine counts as busy. It is above the part below which flows lose
/// their protection (`share.rs`): shorter windows come first.
const IDLE_MIN: f64 = 0.1;
/// Factor by which the part for encoding falls while the machine is busy.
const FALL: f64 = 0.5;
/// Factor by which more products must be affordable before windows grow.
const RISE: f64 = 1.25;
/// Shortest time for which more products must be affordable.
const CALM_US: u64 = 5_000_000;
/// Longest such time. It doubles whenever windows had to shrink again soon.
const CALM_MAX_US: u64 = 80_000_000;
/// Time after growth in which it is blamed for a fall.
const BLAME_US: u64 = 5_000_000;

/// Measures the time of a product of a packet and a coefficient on this processor, in nanoseconds, by a clock
/// of nanoseconds.
pub fn product_ns(mut clock_ns: impl FnMut() -> u64) -> f64 {
    /// Packets in a round, too many for the first-level cache, as in a window.
    const PACKETS: usize = 64;
    const BYTES: usize = 1_500;
    /// The fastest of some rounds counts, because others may have been interrupted.
    const ROUNDS: usize = 16;
    let packets = vec![0x5a; PACKETS * BYTES];
    let terms: Vec<(u8, &[u8])> =
        packets.chunks(BYTES).zip(2..).map(|(packet, factor)| (factor, packet)).collect();
    let mut sum = vec![0; BYTES];
    let round = || {
        let start_ns = clock_ns();
        terms.chunks(16).for_each(|terms| gf256::mul_add_many(&mut sum, terms));
        std::hint::black_box(&sum);
        clock_ns().saturating_sub(start_ns)
    };
    let fastest_ns = std::iter::repeat_with(round).take(ROUNDS).min().unwrap_or(0);
    (fastest_ns as f64 / PACKETS as f64).clamp(1.0, 10_000.0)
}

/// A measurement of the work since the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Part of one processor that the gateway has used.
    pub own: f64,
    /// Idle part of the time of all processors.
    pub idle: f64,
    /// Whether captures were missed, or waited for long.
    pub is_behind: bool,
    /// Packets protected in a second.
    pub packets_per_s: f64,
    /// Products computed in a second.
    pub products_per_s: f64,
}

/// Decides how many products a packet may cost.
///
/// Windows shrink at once, and grow again slowly. Growth that had to be taken back makes the next attempt
/// come later.
#[derive(Clone, Copy, Debug)]
pub struct Affordable {
    /// Time of a product in nanoseconds.
    product_ns: f64,
    products: u16,
    /// Time since which more products would be affordable.
    calm_since_us: u64,
    calm_us: u64,
    risen_us: Option<u64>,
}

impl Affordable {
    /// Begins with the longest windows, on a processor that takes `product_ns` nanoseconds for a product.
    pub fn new(product_ns: f64) -> Self {
        Self { product_ns, products: PRODUCTS, calm_since_us: 0, calm_us: CALM_US, risen_us: None }
    }

    /// Takes a measurement, which comes a few times a second, and returns the number of products for each
    /// packet from here on.
    pub fn update(&mut self, now_us: u64, work: &Work) -> u16 {
        let affordable = self.affordable(work);
        let wanted = affordable.clamp(PRODUCTS_MIN, f64::from(PRODUCTS)) as u16;
        if affordable < RISE * f64::from(self.products) {
            self.calm_since_us = now_us;
        }
        if wanted < self.products {
            if self.risen_us.is_some_and(|risen_us| now_us < risen_us + BLAME_US) {
                self.calm_us = (2 * self.calm_us).min(CALM_MAX_US);
            }
            (self.products, self.risen_us) = (wanted, None);
        } else if self.products < PRODUCTS && now_us >= self.calm_since_us + self.calm_us {
            (self.products, self.calm_since_us, self.risen_us) = (wanted, now_us, Some(now_us));
        } else if self.risen_us.is_some_and(|risen_us| now_us >= risen_us + BLAME_US) {
            self.calm_us = CALM_US;
        }
        self.products
    }

    /// Number of products for each packet that the processor has time for.
    fn affordable(&self, work: &Work) -> f64 {
        let encoding = work.products_per_s * self.product_ns / 1e9;
        let others = (work.own - encoding).max(0.0);
        let [least, most] = ENCODING;
        let mut part = (OWN_MAX - others).clamp(least, most);
        if work.is_behind || work.idle < IDLE_MIN {
            part = part.min(FALL * encoding).max(least);
        }
        // Very few packets can pay for any window.
        part * 1e9 / (work.packets_per_s.max(1.0) * self.product_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::WINDOW_MIN;

    /// An encoder whose windows follow the decision at once: the work at this rate of packets and repairs, on
    /// a processor that takes 25 ns for a product and 1 µs for the rest of a packet.
    fn work(products: u16, packets_per_s: f64, repairs: f64) -> Work {
        let window = (f64::from(products) / repairs).clamp(f64::from(WINDOW_MIN), 512.0);
        let products_per_s = packets_per_s * repairs * window;
        let own = packets_per_s * 1e-6 + products_per_s * 25e-9;
        Work { own: own.min(1.0), idle: 0.5, is_behind: own > 1.0, packets_per_s, products_per_s }
    }

    fn run(
        afford: &mut Affordable,
        seconds: std::ops::Range<u64>,
        packets_per_s: f64,
        repairs: f64,
    ) -> Vec<u16> {
        let quarters = 4 * seconds.start..4 * seconds.end;
        let mut products = afford.products;
        quarters
            .map(|quarter| {
                products = afford.update(quarter * 250_000, &work(products, packets_per_s, repairs));
                products
            })
            .collect()
    }

    #[test]
    fn few_packets_pay_for_the_longest_windows() {
        let mut afford = Affordable::new(25.0);
        assert!(run(&mut afford, 1..20, 5_000.0, 1.0).iter().all(|&products| products == PRODUCTS));
        // However busy the machine is with other work.
        let busy = Work { idle: 0.0, is_behind: true, ..work(PRODUCTS, 5_000.0, 0.375) };
        assert!(afford.update(30_000_000, &busy) >= 300);
    }

    #[test]
    fn windows_shrink_at_once_to_what_is_left_of_a_processor_and_stay() {
        let mut afford = Affordable::new(25.0);
        let chosen = run(&mut afford, 1..60, 80_000.0, 0.375);
        // Half a processor for 80,000 packets, 25 ns each.
        assert_eq!((chosen[0], chosen[chosen.len() - 1]), (250, 250), "{chosen:?}");
        assert!(chosen.windows(2).filter(|pair| pair[0] != pair[1]).count() <= 1, "{chosen:?}");
        // More packets leave less time for products, and other work of the gateway takes some of it.
        let chosen = run(&mut afford, 60..90, 400_000.0, 1.0 / 32.0);
        assert!(chosen.iter().all(|&products| products == 96), "{chosen:?}");
    }

    #[test]
    fn windows_grow_again_after_a_calm_time() {
        let mut afford = Affordable::new(25.0);
        run(&mut afford, 1..10, 200_000.0, 0.375);
        assert!(afford.products < 120);
        let chosen = run(&mut afford, 10..20, 10_000.0, 0.375);
        let rise = chosen.iter().position(|&products| products == PRODUCTS).unwrap();
        assert!((16..=21).contains(&rise), "after {rise} quarters of a second");
    }

    #[test]
    fn growth_that_must_be_taken_back_comes_later_each_time() {
        let mut afford = Affordable::new(25.0);
        let mut rises = Vec::new();
        for quarter in 4..1_600 {
            let before = afford.products;
            // The machine is busy whenever windows are long.
            let idle = if before > 100 { 0.0 } else { 0.5 };
            afford.update(quarter * 250_000, &Work { idle, ..work(before, 80_000.0, 0.375) });
            rises.extend((afford.products > before).then_some(quarter));
        }
        let pauses: Vec<u64> = rises.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.is_sorted() && pauses[0] <= 48 && pauses[pauses.len() - 1] >= 320, "{pauses:?}");
    }

    #[test]
    fn a_busy_machine_gets_shorter_windows_and_never_none() {
        let mut afford = Affordable::new(25.0);
        let busy = |products| Work { idle: 0.05, ..work(products, 100_000.0, 0.5) };
        let chosen: Vec<u16> =
            (4..40).map(|quarter| afford.update(quarter * 250_000, &busy(afford.products))).collect();
        assert!(chosen.is_sorted_by(|a, b| a >= b), "{chosen:?}");
        assert_eq!(chosen[chosen.len() - 1], 96, "{chosen:?}");
        let silence = Work { idle: 1.0, ..Work::default() };
        assert_eq!(afford.update(60_000_000, &silence), PRODUCTS);
    }
}
