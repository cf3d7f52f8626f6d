//! How bins are filled.

use fec::{DEADLINE_US_MAX, SYMBOL_MAX};
use thiserror::Error;

use crate::wire::NAMES_MAX;

/// Largest stagger.
pub const STAGGER_MAX: u16 = 256;
/// Most sums in the making at once.
pub const SUMS_MAX: usize = 1 << 16;

/// What repairs carry besides names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Content {
    /// The XOR of the packets' symbols: mends without a round trip (Ricochet §4).
    #[default]
    Xor,
    /// Nothing: a digest, by which the receiver sees what to ask for.
    Names,
    /// Whichever of the two suits the [conditions](super::Conditions), bin by bin as it begins.
    Auto,
}

/// Parameters of [`Bins`](super::Bins).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinsConfig {
    /// Rate of fire: packets in a repair, 1 to [`NAMES_MAX`], the same for all groups (Ricochet §4).
    pub r: u8,
    /// How many instances of each bin are fed in turn, 1 to [`STAGGER_MAX`]: a burst of that many packets costs a
    /// repair no more than one of them (Ricochet §4.2.2).
    pub stagger: u16,
    /// How long a bin may stay part-filled, 1 to [`DEADLINE_US_MAX`] microseconds; `None` waits for packets for ever.
    /// Where packets come slowly the bound costs more repairs, up to c for each packet.
    pub max_delay_us: Option<u64>,
    /// Longest symbol in bytes, 1 to [`SYMBOL_MAX`].
    pub symbol_max: usize,
    /// Most sums in the making at once, 1 to [`SUMS_MAX`]; where none is free a repair is skipped.
    pub sums_max: usize,
    /// What repairs carry besides names.
    pub content: Content,
}

impl Default for BinsConfig {
    /// r = 8, no stagger, no bound on the delay, symbols up to 1,500 bytes, 4,096 sums, XORs.
    fn default() -> Self {
        Self {
            r: 8,
            stagger: 1,
            max_delay_us: None,
            symbol_max: 1_500,
            sums_max: 1 << 12,
            content: Content::Xor,
        }
    }
}

/// What is wrong with a [`BinsConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BinsConfigError {
    /// `r` out of range.
    #[error("r: expected 1 to {NAMES_MAX}, saw {0}")]
    R(u8),
    /// `stagger` out of range.
    #[error("stagger: expected 1 to {STAGGER_MAX}, saw {0}")]
    Stagger(u16),
    /// `max_delay_us` out of range.
    #[error("max_delay_us: expected none or 1 to {DEADLINE_US_MAX}, saw {0}")]
    MaxDelay(u64),
    /// `symbol_max` out of range.
    #[error("symbol_max: expected 1 to {SYMBOL_MAX}, saw {0}")]
    SymbolMax(usize),
    /// `sums_max` out of range.
    #[error("sums_max: expected 1 to {SUMS_MAX}, saw {0}")]
    Sums(usize),
}

impl BinsConfig {
    /// Checks every range; the first mistake found is returned.
    ///
    /// # Errors
    /// [`BinsConfigError`].
    pub fn check(&self) -> Result<(), BinsConfigError> {
        if !(1..=NAMES_MAX).contains(&usize::from(self.r)) {
            return Err(BinsConfigError::R(self.r));
        }
        if !(1..=STAGGER_MAX).contains(&self.stagger) {
            return Err(BinsConfigError::Stagger(self.stagger));
        }
        if let Some(max_delay_us) = self.max_delay_us
            && !(1..=DEADLINE_US_MAX).contains(&max_delay_us)
        {
            return Err(BinsConfigError::MaxDelay(max_delay_us));
        }
        if !(1..=SYMBOL_MAX).contains(&self.symbol_max) {
            return Err(BinsConfigError::SymbolMax(self.symbol_max));
        }
        if !(1..=SUMS_MAX).contains(&self.sums_max) {
            return Err(BinsConfigError::Sums(self.sums_max));
        }
        Ok(())
    }
}
