//! Mistakes in configurations.

use crate::limits::{DEADLINE_US_MAX, MEMORY_MAX, SYMBOL_MAX};
use thiserror::Error;

/// A mistake in the configuration of a code or of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value outside its range.
    #[error("{key}: expected {min} to {max}, saw {seen}")]
    Range {
        /// The field.
        key: &'static str,
        /// Smallest value accepted.
        min: u64,
        /// Largest value accepted.
        max: u64,
        /// The value found.
        seen: u64,
    },
    /// An interleave given twice: its two repairs would be the same.
    #[error("interleaves: expected distinct ones, saw {0} twice")]
    Repeated(u16),
    /// Parameters that together need too much memory.
    #[error("{keys}: expected at most {MEMORY_MAX} bytes of memory, saw {seen}")]
    Memory {
        /// The fields.
        keys: &'static str,
        /// Bytes needed.
        seen: usize,
    },
}

/// Checks that a value lies in its range.
pub(crate) fn check_range(
    key: &'static str,
    seen: impl TryInto<u64>,
    min: u64,
    max: impl TryInto<u64>,
) -> Result<(), ConfigError> {
    let [seen, max] = [seen.try_into().unwrap_or(u64::MAX), max.try_into().unwrap_or(u64::MAX)];
    if (min..=max).contains(&seen) { Ok(()) } else { Err(ConfigError::Range { key, min, max, seen }) }
}

/// Checks that memory needed lies within [`MEMORY_MAX`].
pub(crate) fn check_memory(keys: &'static str, seen: usize) -> Result<(), ConfigError> {
    if seen <= MEMORY_MAX { Ok(()) } else { Err(ConfigError::Memory { keys, seen }) }
}

/// Checks the two bounds that every code has.
pub(crate) fn check_common(deadline_us: Option<u64>, symbol_max: usize) -> Result<(), ConfigError> {
    if let Some(us) = deadline_us {
        check_range("deadline_us", us, 1, DEADLINE_US_MAX)?;
    }
    check_range("symbol_max", symbol_max, 1, SYMBOL_MAX)
}
