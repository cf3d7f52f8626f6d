//! Settings of the repair bins.

use fec::{DEADLINE_US_MAX, SYMBOL_MAX};
use thiserror::Error;

use crate::wire::NAMES_MAX;

/// Largest stagger.
pub const STAGGER_MAX: u16 = 256;
/// Largest `sums_max`.
pub const SUMS_MAX: usize = 1 << 16;

/// Content of repairs besides names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Content {
    /// The XOR of the packets' symbols, which recovers packets without a round trip (Ricochet §4).
    #[default]
    Xor,
    /// Nothing. Such a lateral digest shows its receiver which packets to request.
    Names,
    /// Either of the two, chosen by the [conditions](super::Conditions) when a bin begins.
    Auto,
}

/// Parameters of [`Bins`](super::Bins).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinsConfig {
    /// Rate of fire: packets in a repair, 1 to [`NAMES_MAX`], the same for all groups (Ricochet §4).
    pub r: u8,
    /// Number of instances of each bin that are fed in turn, 1 to [`STAGGER_MAX`]. A burst of that many lost
    /// packets takes at most one packet from each repair (Ricochet §4.2.2).
    pub stagger: u16,
    /// Longest time that a bin stays part-filled, 1 to [`DEADLINE_US_MAX`] microseconds; `None` sets no
    /// limit. Where packets come slowly the limit costs more repairs, up to c for each packet, and bins wait
    /// down to an eighth of it. Each node draws its own limit, up to a tenth longer or shorter.
    pub max_delay_us: Option<u64>,
    /// Longest symbol in bytes, 1 to [`SYMBOL_MAX`].
    pub symbol_max: usize,
    /// Maximum number of unfinished sums, 1 to [`SUMS_MAX`]. If none is free, a repair is skipped.
    pub sums_max: usize,
    /// Content of repairs besides names.
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

/// Errors in a [`BinsConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BinsConfigError {
    /// `r` is out of range.
    #[error("r: expected 1 to {NAMES_MAX}, saw {0}")]
    R(u8),
    /// `stagger` is out of range.
    #[error("stagger: expected 1 to {STAGGER_MAX}, saw {0}")]
    Stagger(u16),
    /// `max_delay_us` is out of range.
    #[error("max_delay_us: expected none or 1 to {DEADLINE_US_MAX}, saw {0}")]
    MaxDelay(u64),
    /// `symbol_max` is out of range.
    #[error("symbol_max: expected 1 to {SYMBOL_MAX}, saw {0}")]
    SymbolMax(usize),
    /// `sums_max` is out of range.
    #[error("sums_max: expected 1 to {SUMS_MAX}, saw {0}")]
    Sums(usize),
}

impl BinsConfig {
    /// Checks every range; returns the first error found.
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
