//! Settings and counts of reassembly.

use thiserror::Error;

use crate::counters::UnfitCounts;

/// Largest `message_max`.
const MESSAGE_MAX: usize = 16 << 20;

/// Bounds of the messages that are reassembled from fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentsConfig {
    /// Longest message in bytes, sent or reassembled, up to 16,777,216. A packet of total order may be 39
    /// bytes longer.
    pub message_max: usize,
    /// Maximum number of bytes of incomplete messages, at least `message_max`. When full, the oldest is given
    /// up.
    pub bytes_max: usize,
    /// Maximum number of incomplete messages, including those given up and still remembered, 1 to 65,536.
    pub messages_max: usize,
    /// Time after its last fragment at which an incomplete message is given up, in microseconds, if none of
    /// its packets is awaited any more.
    pub age_us_max: u64,
}

impl Default for FragmentsConfig {
    /// Messages up to 1 MiB, 16 MiB in all, 1,024 messages, 15 s.
    fn default() -> Self {
        Self { message_max: 1 << 20, bytes_max: 16 << 20, messages_max: 1 << 10, age_us_max: 15_000_000 }
    }
}

/// Errors in a [`FragmentsConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FragmentsConfigError {
    /// `message_max` is out of range.
    #[error("fragments.message_max: expected at most {MESSAGE_MAX}, saw {0}")]
    Message(usize),
    /// `bytes_max` is out of range.
    #[error("fragments.bytes_max: expected at least fragments.message_max, {message_max}, saw {bytes_max}")]
    Bytes {
        /// Value of `message_max`.
        message_max: usize,
        /// Value of `bytes_max`.
        bytes_max: usize,
    },
    /// `messages_max` is out of range.
    #[error("fragments.messages_max: expected 1 to 65536, saw {0}")]
    Messages(usize),
}

impl FragmentsConfig {
    /// Checks every range; returns the first error found.
    ///
    /// # Errors
    /// [`FragmentsConfigError`].
    pub fn check(&self) -> Result<(), FragmentsConfigError> {
        let Self { message_max, bytes_max, .. } = *self;
        if message_max > MESSAGE_MAX {
            return Err(FragmentsConfigError::Message(message_max));
        }
        if bytes_max < message_max {
            return Err(FragmentsConfigError::Bytes { message_max, bytes_max });
        }
        if !(1..=1 << 16).contains(&self.messages_max) {
            return Err(FragmentsConfigError::Messages(self.messages_max));
        }
        Ok(())
    }
}

/// Counts of fragments and their messages since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentsCounts {
    /// Fragments received.
    pub fragments: u64,
    /// Messages reassembled.
    pub messages: u64,
    /// Messages given up because one of their fragments was lost.
    pub lost: u64,
    /// Messages given up to make room for others.
    pub crowded: u64,
    /// Messages given up because no fragment came for too long, and none was awaited.
    pub aged: u64,
    /// Fragments of messages that had been given up.
    pub vain: u64,
    /// Fragments refused, by reason.
    pub unfit: UnfitCounts,
}
