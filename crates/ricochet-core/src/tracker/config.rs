//! Settings of a tracker.

use thiserror::Error;

/// Bounds of a [`Tracker`](super::Tracker); all memory follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackerConfig {
    /// Maximum number of streams, 1 to 1,048,576.
    pub streams_max: usize,
    /// Maximum number of intervals in all streams together, 1 to 2,097,152; the oldest makes room. A stream
    /// first seen in its middle takes one interval, for packets that its first one may have overtaken.
    pub intervals_max: usize,
    /// Maximum number of intervals in one stream, 1 to 65,536, so that one stream cannot take all; its first
    /// makes room.
    pub stream_intervals_max: u32,
    /// Maximum distance of a missing packet from the newest of its stream, 1 to 2^30 packets. One further
    /// behind is given up.
    pub lag_max: u32,
    /// Number of packets before the first one seen of a stream that are still accepted, at most 65,536,
    /// because the first one may have overtaken them. A stream whose first packet has a lower number than
    /// this is taken to be seen from its start, so that all earlier packets count as missing.
    pub lookback: u32,
    /// Silence after which a stream makes room for a new one, in microseconds. It should exceed the time by
    /// which a duplicate can be late, because duplicates of a forgotten stream are not recognized.
    pub idle_us_min: u64,
}

impl Default for TrackerConfig {
    /// 16,384 streams, 16,384 intervals, 64 of one stream, 65,536 packets behind, a lookback of 64, 30 s.
    fn default() -> Self {
        Self {
            streams_max: 1 << 14,
            intervals_max: 1 << 14,
            stream_intervals_max: 64,
            lag_max: 1 << 16,
            lookback: 64,
            idle_us_min: 30_000_000,
        }
    }
}

/// Errors in a [`TrackerConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TrackerConfigError {
    /// `streams_max` is out of range.
    #[error("streams_max: expected 1 to 1048576, saw {0}")]
    Streams(usize),
    /// `intervals_max` is out of range.
    #[error("intervals_max: expected 1 to 2097152, saw {0}")]
    Intervals(usize),
    /// `stream_intervals_max` is out of range.
    #[error("stream_intervals_max: expected 1 to 65536, saw {0}")]
    StreamIntervals(u32),
    /// `lag_max` is out of range.
    #[error("lag_max: expected 1 to 1073741824, saw {0}")]
    Lag(u32),
    /// `lookback` is out of range.
    #[error("lookback: expected at most 65536, saw {0}")]
    Lookback(u32),
}

impl TrackerConfig {
    /// Checks every range; returns the first error found.
    ///
    /// # Errors
    /// [`TrackerConfigError`].
    pub fn check(&self) -> Result<(), TrackerConfigError> {
        const TABLE_MAX: usize = 1 << 20;
        if !(1..=TABLE_MAX).contains(&self.streams_max) {
            return Err(TrackerConfigError::Streams(self.streams_max));
        }
        // Room for an interval of each stream, and for gaps.
        if !(1..=2 * TABLE_MAX).contains(&self.intervals_max) {
            return Err(TrackerConfigError::Intervals(self.intervals_max));
        }
        if !(1..=1 << 16).contains(&self.stream_intervals_max) {
            return Err(TrackerConfigError::StreamIntervals(self.stream_intervals_max));
        }
        if !(1..=1 << 30).contains(&self.lag_max) {
            return Err(TrackerConfigError::Lag(self.lag_max));
        }
        if self.lookback > 1 << 16 {
            return Err(TrackerConfigError::Lookback(self.lookback));
        }
        Ok(())
    }
}
