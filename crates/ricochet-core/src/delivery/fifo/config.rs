//! How much a stage keeps, and what it has done.

use thiserror::Error;

/// Bounds of a [`Fifo`](super::Fifo).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoConfig {
    /// Most messages and reports held back, 1 to 1,048,576.
    pub messages_max: usize,
    /// Most bytes of payload held back, at least 65,536. As many may stay allocated for what comes next.
    pub bytes_max: usize,
    /// Most streams, 1 to 1,048,576; when full the one heard longest ago is forgotten, and what is held of it released.
    pub streams_max: usize,
    /// How long the first messages of a stream that is first seen in its middle are held, in microseconds: they may have
    /// overtaken others. 0 releases them at once.
    pub settle_us: u64,
}

impl Default for FifoConfig {
    /// 4,096 messages, 8 MiB, 16,384 streams as `TrackerConfig::default` has, 2 ms. The tables of streams take 3 MB, touched as
    /// streams come.
    fn default() -> Self {
        Self { messages_max: 1 << 12, bytes_max: 8 << 20, streams_max: 1 << 14, settle_us: 2_000 }
    }
}

/// What is wrong with a [`FifoConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FifoConfigError {
    /// `messages_max` out of range.
    #[error("messages_max: expected 1 to 1048576, saw {0}")]
    Messages(usize),
    /// `bytes_max` out of range.
    #[error("bytes_max: expected at least 65536, saw {0}")]
    Bytes(usize),
    /// `streams_max` out of range.
    #[error("streams_max: expected 1 to 1048576, saw {0}")]
    Streams(usize),
}

impl FifoConfig {
    /// Checks every range; the first mistake found is returned.
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

/// What a [`Fifo`](super::Fifo) has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FifoCounts {
    /// Messages released.
    pub released: u64,
    /// Of these, such as had to wait for others.
    pub waited: u64,
    /// Messages discarded, since later ones of their stream had been released: they were skipped before, or belong to a
    /// time before the stream was first seen.
    pub late: u64,
    /// Times that something was released although more was waited for, to make room.
    pub crowded: u64,
    /// Packets skipped thereby.
    pub skipped: u64,
    /// Messages discarded, since their stream was forgotten.
    pub forgotten: u64,
}
