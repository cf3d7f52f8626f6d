//! Exact rates of repairs per source packet.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Most repairs per source packet.
pub const RATE_MAX: u32 = 8;

/// Repairs per source packet, as a fraction.
///
/// Text is a fraction (`3/8`), a decimal (`0.375`) or a percentage (`37.5%`); all are exact.
///
/// ```
/// use fec::RepairRate;
/// let rate = RepairRate::new(3, 8).unwrap();
/// assert!(["3/8", "0.375", "37.5%", "6/16"].iter().all(|text| text.parse() == Ok(rate)));
/// assert_eq!((rate.to_string().as_str(), rate.as_f64()), ("3/8", 0.375));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairRate {
    repairs: u32,
    sources: u32,
}

/// A mistake in a [`RepairRate`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RateError {
    /// More than [`RATE_MAX`] repairs per source packet, or no source packets.
    #[error("rate: expected 0 to {RATE_MAX} repairs per source packet, saw {0} for {1}")]
    Range(u32, u32),
    /// The text is not a number.
    #[error("rate: expected a fraction (3/8), a decimal (0.375) or a percentage (37.5%), saw {0:?}")]
    Text(String),
}

impl RepairRate {
    /// 3/8, the rate of Maelstrom's (8, 3).
    pub const THREE_EIGHTHS: Self = Self::constant(3, 8);

    /// Creates the rate of `repairs` repairs for every `sources` source packets, in lowest terms.
    ///
    /// # Errors
    /// If that is more than [`RATE_MAX`] per packet, or `sources` is 0.
    pub fn new(repairs: u32, sources: u32) -> Result<Self, RateError> {
        if sources == 0 || u64::from(repairs) > u64::from(RATE_MAX) * u64::from(sources) {
            return Err(RateError::Range(repairs, sources));
        }
        let (mut divisor, mut rest) = (sources, repairs);
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        Ok(Self { repairs: repairs / divisor, sources: sources / divisor })
    }

    /// Returns the rate of `repairs` repairs for every `sources` source packets, for constants.
    ///
    /// # Panics
    /// If that is more than [`RATE_MAX`] per packet, `sources` is 0, or the fraction is not in lowest terms.
    pub const fn constant(repairs: u32, sources: u32) -> Self {
        assert!(sources > 0 && repairs <= RATE_MAX * sources, "a rate out of range");
        let (mut divisor, mut rest) = (sources, repairs);
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        assert!(divisor == 1, "a rate that is not in lowest terms");
        Self { repairs, sources }
    }

    /// Numerator in lowest terms.
    pub const fn repairs(self) -> u32 {
        self.repairs
    }

    /// Denominator in lowest terms, at least 1.
    pub const fn sources(self) -> u32 {
        self.sources
    }

    /// Returns the fraction as a floating-point number.
    pub fn as_f64(self) -> f64 {
        f64::from(self.repairs) / f64::from(self.sources)
    }
}

impl Ord for RepairRate {
    fn cmp(&self, other: &Self) -> Ordering {
        let product = |a: u32, b: u32| u64::from(a) * u64::from(b);
        product(self.repairs, other.sources).cmp(&product(other.repairs, self.sources))
    }
}

impl PartialOrd for RepairRate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for RepairRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.repairs, self.sources)
    }
}

impl FromStr for RepairRate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let wrong = || RateError::Text(text.to_owned());
        if let Some((repairs, sources)) = text.split_once('/') {
            return Self::new(repairs.parse().map_err(|_| wrong())?, sources.parse().map_err(|_| wrong())?);
        }
        let (number, percent) = match text.strip_suffix('%') {
            Some(number) => (number, 100),
            None => (text, 1),
        };
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + decimals.len() == 0 || !digits(whole) || !digits(decimals) {
            return Err(wrong());
        }
        // 32 bits hold numerator and denominator of a percentage with seven decimals.
        let repairs = format!("{whole}{decimals}").parse().map_err(|_| wrong())?;
        let sources =
            10u32.checked_pow(decimals.len() as u32).and_then(|sources| sources.checked_mul(percent));
        Self::new(repairs, sources.ok_or_else(wrong)?)
    }
}

/// Counts the repairs due with each source packet, without drift: after n packets at rate a / b, ⌊n · a / b⌋.
#[derive(Debug, Clone)]
pub(crate) struct Credit {
    rate: RepairRate,
    /// Credit in units of 1 / `rate.sources` repairs, always less than one repair.
    saved: u64,
}

impl Credit {
    pub(crate) fn new(rate: RepairRate) -> Self {
        Self { rate, saved: 0 }
    }

    pub(crate) fn rate(&self) -> RepairRate {
        self.rate
    }

    /// Changes the rate. Rounding loses less than one unit of the saved credit.
    pub(crate) fn set_rate(&mut self, rate: RepairRate) {
        self.saved = self.saved * u64::from(rate.sources) / u64::from(self.rate.sources);
        self.rate = rate;
    }

    /// Counts a source packet; returns the number of repairs due with it.
    pub(crate) fn on_source(&mut self) -> u32 {
        let sources = u64::from(self.rate.sources);
        self.saved += u64::from(self.rate.repairs);
        let due = self.saved / sources;
        self.saved %= sources;
        due as u32
    }

    /// Returns the number of source packets until the repair number `count` from here leaves. `due` repairs
    /// are still to leave with the last packet. The rate must not be 0.
    pub(crate) fn packets_until(&self, count: u64, due: u32) -> u64 {
        let later = count.saturating_sub(u64::from(due));
        let lacking = (later * u64::from(self.rate.sources)).saturating_sub(self.saved);
        if later == 0 { 0 } else { lacking.div_ceil(u64::from(self.rate.repairs)) }
    }

    pub(crate) fn clear(&mut self) {
        self.saved = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_exact_fractions() {
        for (text, repairs, sources) in [
            ("0", 0, 1),
            ("1", 1, 1),
            ("0.1", 1, 10),
            (".5", 1, 2),
            ("12.5%", 1, 8),
            ("7/3", 7, 3),
            ("100%", 1, 1),
        ] {
            let rate: RepairRate = text.parse().unwrap();
            assert_eq!((rate.repairs(), rate.sources()), (repairs, sources), "{text}");
        }
        for text in ["", ".", "%", "-1", "1/0", "9", "a", "1e3", "1/2/3", "0.0000000001", "+1/+2x"] {
            assert!(text.parse::<RepairRate>().is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_ordered_by_value() {
        let ascending = ["0", "1/64", "1/8", "3/16", "0.2", "3/8", "1", "5/4"];
        let rates = ascending.map(|text| text.parse::<RepairRate>().unwrap());
        assert!(rates.is_sorted() && rates[1] < rates[2] && RepairRate::constant(3, 8) == rates[5]);
    }

    proptest! {
        #[test]
        fn repairs_never_drift(repairs in 0..900u32, sources in 1..1_000u32, packets in 1..5_000u64) {
            let Ok(rate) = RepairRate::new(repairs, sources) else { return Ok(()) };
            let mut credit = Credit::new(rate);
            let due: u64 = (0..packets).map(|_| u64::from(credit.on_source())).sum();
            prop_assert_eq!(due, packets * u64::from(repairs) / u64::from(sources));
        }

        #[test]
        fn repairs_leave_when_predicted(
            repairs in 1..900u32, sources in 1..1_000u32, packets in 1..1_000u64, count in 1..9u64,
        ) {
            let Ok(rate) = RepairRate::new(repairs, sources) else { return Ok(()) };
            let mut credit = Credit::new(rate);
            let due = (0..packets).map(|_| credit.on_source()).last().unwrap();
            for due in 0..=due {
                let (predicted, mut left, mut after, mut credit) = (credit.packets_until(count, due), u64::from(due), 0, credit.clone());
                while left < count {
                    left += u64::from(credit.on_source());
                    after += 1;
                }
                prop_assert_eq!(predicted, after);
            }
        }

        #[test]
        fn a_change_of_rate_loses_less_than_a_repair(
            first in 0..100u32, second in 0..100u32, sources in 1..100u32, packets in 1..500u32,
        ) {
            let (Ok(first), Ok(second)) = (RepairRate::new(first, sources), RepairRate::new(second, 50)) else {
                return Ok(());
            };
            let mut credit = Credit::new(first);
            let mut due: u32 = (0..packets).map(|_| credit.on_source()).sum();
            credit.set_rate(second);
            due += (0..packets).map(|_| credit.on_source()).sum::<u32>();
            let exact = f64::from(packets) * (first.as_f64() + second.as_f64());
            prop_assert!((f64::from(due) - exact).abs() < 1.03, "{due} for {exact}");
        }
    }
}
