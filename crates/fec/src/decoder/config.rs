//! Bounds of the decoder.

use crate::error::{ConfigError, check_range};

/// Bounds of a [`Decoder`](super::Decoder), from which all its memory follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderConfig {
    /// Maximum number of equations kept, 1 to 4,096. When full, the oldest is dropped.
    pub equations: usize,
    /// Longest payload of a repair in bytes, 1 to 131,072.
    pub payload_max: usize,
    /// Maximum number of terms in a repair, 1 to 1,024.
    pub terms_max: usize,
}

impl Default for DecoderConfig {
    /// 256 equations of 1,536 bytes and 64 terms.
    fn default() -> Self {
        Self { equations: 256, payload_max: 1_536, terms_max: 64 }
    }
}

impl DecoderConfig {
    /// Checks every range.
    ///
    /// # Errors
    /// The first mistake found.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_range("equations", self.equations, 1, 4_096_u64)?;
        check_range("payload_max", self.payload_max, 1, 131_072_u64)?;
        check_range("terms_max", self.terms_max, 1, 1_024_u64)
    }
}
