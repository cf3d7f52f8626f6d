//! How much a tracker keeps.

use thiserror::Error;

/// Bounds of a [`Tracker`](super::Tracker); all memory follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackerConfig {
    /// Most streams, 1 to 1,048,576.
    pub streams_max: usize,
    /// Most intervals in all streams together, 1 to 2,097,152; when full the one found longest ago goes. A stream first seen
    /// in its middle takes one, for packets that it may have overtaken.
    pub intervals_max: usize,
    /// Most intervals in one stream, 1 to 65,536, so that one cannot take all; when full its first goes.
    pub stream_intervals_max: u32,
    /// How far behind the newest of its stream a missing packet is waited for, 1 to 2^30 packets.
    pub window: u32,
    /// How many packets before the first one seen of a stream are still accepted, at most 65,536: they may have been
    /// overtaken. A stream that begins below this is taken to be seen from its start, and owes all of it.
    pub lookback: u32,
    /// How long a stream must have been silent to make room for a new one, in microseconds. Not less than a
    /// duplicate can be late: a stream that was forgotten cannot tell its duplicates.
    pub idle_us_min: u64,
}

impl Default for TrackerConfig {
    /// 16,384 streams, 16,384 intervals, 64 of one stream, a window of 65,536, 64 looked back, 30 s.
    fn default() -> Self {
        Self {
            streams_max: 1 << 14,
            intervals_max: 1 << 14,
            stream_intervals_max: 64,
            window: 1 << 16,
            lookback: 64,
            idle_us_min: 30_000_000,
        }
    }
}

/// What is wrong with a [`TrackerConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TrackerConfigError {
    /// `streams_max` out of range.
    #[error("streams_max: expected 1 to 1048576, saw {0}")]
    Streams(usize),
    /// `intervals_max` out of range.
    #[error("intervals_max: expected 1 to 2097152, saw {0}")]
    Intervals(usize),
    /// `stream_intervals_max` out of range.
    #[error("stream_intervals_max: expected 1 to 65536, saw {0}")]
    StreamIntervals(u32),
    /// `window` out of range.
    #[error("window: expected 1 to 1073741824, saw {0}")]
    Window(u32),
    /// `lookback` out of range.
    #[error("lookback: expected at most 65536, saw {0}")]
    Lookback(u32),
}

impl TrackerConfig {
    /// Checks every range; the first mistake found is returned.
    ///
    /// # Errors
    /// [`TrackerConfigError`].
    pub fn check(&self) -> Result<(), TrackerConfigError> {
        const TABLE_MAX: usize = 1 << 20;
        if !(1..=TABLE_MAX).contains(&self.streams_max) {
            return Err(TrackerConfigError::Streams(self.streams_max));
        }
        // As many as streams, and room for gaps.
        if !(1..=2 * TABLE_MAX).contains(&self.intervals_max) {
            return Err(TrackerConfigError::Intervals(self.intervals_max));
        }
        if !(1..=1 << 16).contains(&self.stream_intervals_max) {
            return Err(TrackerConfigError::StreamIntervals(self.stream_intervals_max));
        }
        if !(1..=1 << 30).contains(&self.window) {
            return Err(TrackerConfigError::Window(self.window));
        }
        if self.lookback > 1 << 16 {
            return Err(TrackerConfigError::Lookback(self.lookback));
        }
        Ok(())
    }
}
