//! Settings and counts of an ordered delivery stage.

use thiserror::Error;

/// Bounds of a [`Fifo`](super::Fifo).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoConfig {
    /// Maximum number of messages and reports held back, 1 to 1,048,576.
    pub messages_max: usize,
    /// Maximum number of bytes of payload held back, at least 65,536. Up to the same number stays allocated
    /// for reuse.
    pub bytes_max: usize,
    /// Maximum number of streams, 1 to 1,048,576. When full, the quietest stream is forgotten, and its held
    /// messages are released.
    pub streams_max: usize,
    /// Time that the first messages of a stream are held if it is first seen in its middle, in microseconds,
    /// because they may have overtaken others. 0 releases them at once.
    pub settle_us: u64,
}

impl Default for FifoConfig {
    /// 4,096 messages, 8 MiB, 16,384 streams as in `TrackerConfig::default`, 2 ms. The tables of streams
    /// reserve 3 MB.
    fn default() -> Self {
        Self { messages_max: 1 << 12, bytes_max: 8 << 20, streams_max: 1 << 14, settle_us: 2_000 }
    }
}

/// Errors in a [`FifoConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FifoConfigError {
    /// `messages_max` is out of range.
    #[error("messages_max: expected 1 to 1048576, saw {0}")]
    Messages(usize),
    /// `bytes_max` is out of range.
    #[error("bytes_max: expected at least 65536, saw {0}")]
    Bytes(usize),
    /// `streams_max` is out of range.
    #[error("streams_max: expected 1 to 1048576, saw {0}")]
    Streams(usize),
}

impl FifoConfig {
    /// Checks every range; returns the first error found.
    ///
    /// # Errors
    /// [`FifoConfigError`].
    pub fn check(&self) -> Result<(), FifoConfigError> {
        const TABLE_MAX: usize = 1 << 20;
        if !(1..=TABLE_MAX).contains(&self.messages_max) {
            return Err(FifoConfigError::Messages(self.messages_max));
        }
        if self.bytes_max < 1 << 16 {
            return Err(FifoConfigError::Bytes(self.bytes_max));
        }
        if !(1..=TABLE_MAX).contains(&self.streams_max) {
            return Err(FifoConfigError::Streams(self.streams_max));
        }
        Ok(())
    }
}

/// Counts of a [`Fifo`](super::Fifo) since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FifoCounts {
    /// Messages released.
    pub released: u64,
    /// Messages released that had waited for others.
    pub waited: u64,
    /// Messages discarded because later ones of their stream had been released. Either they had been skipped,
    /// or they precede the first message released of the stream.
    pub late: u64,
    /// Releases forced for want of room, although earlier packets were still awaited.
    pub crowded: u64,
    /// Packets skipped by forced releases.
    pub skipped: u64,
    /// Messages discarded because their stream was forgotten.
    pub forgotten: u64,
}
