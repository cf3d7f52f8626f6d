//! Parameters of a sliding window code.

use crate::error::{ConfigError, check_common, check_range};
use crate::rate::RepairRate;

/// Most packets in a window, and so in a repair.
pub const WINDOW_MAX: u16 = 1_024;
/// Most stripes of a window.
pub const STRIPES_MAX: u8 = 16;
/// Density threshold at which no coefficient is 0 (RFC 8681 §3.6).
pub const DENSITY_FULL: u8 = 15;

/// Parameters of a sliding window code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlidingConfig {
    /// Repairs per source packet.
    pub rate: RepairRate,
    /// Packets in the encoding window, 1 to [`WINDOW_MAX`].
    pub window: u16,
    /// Number of stripes of the window, 1 to [`STRIPES_MAX`]: a repair contains every k-th packet of k
    /// stripes, which take turns. Long windows of stripes cost as little as short ones, and recover bursts
    /// like long ones.
    pub stripes: u8,
    /// RFC 8681's density threshold, 0 to [`DENSITY_FULL`]: of 16 coefficients, `density` + 1 are nonzero on
    /// average. Sparse repairs cost less to compute and recover less.
    pub density: u8,
    /// Seed of the first repair's coefficients; each later repair takes the next number, modulo 65,536.
    pub seed: u16,
    /// Longest time that a packet stays in no repair before one leaves for it, 1 to
    /// [`DEADLINE_US_MAX`](crate::DEADLINE_US_MAX). `None`: without limit.
    pub deadline_us: Option<u64>,
    /// Longest symbol in bytes, 1 to [`SYMBOL_MAX`](crate::SYMBOL_MAX).
    pub symbol_max: usize,
}

impl Default for SlidingConfig {
    /// 3 repairs for every 8 packets over the last 160, all coefficients nonzero, 20 ms, symbols up to 1,536
    /// bytes.
    fn default() -> Self {
        Self {
            rate: RepairRate::THREE_EIGHTHS,
            window: 160,
            stripes: 1,
            density: DENSITY_FULL,
            seed: 0,
            deadline_us: Some(20_000),
            symbol_max: 1_536,
        }
    }
}

impl SlidingConfig {
    /// Checks every range.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_range("window", self.window, 1, WINDOW_MAX)?;
        check_range("stripes", self.stripes, 1, STRIPES_MAX)?;
        check_range("density", self.density, 0, DENSITY_FULL)?;
        check_common(self.deadline_us, self.symbol_max)
    }

    /// Repairs per source packet in the long run.
    pub fn overhead(&self) -> f64 {
        self.rate.as_f64()
    }
}
