//! How much is kept of messages that are not whole yet, and what has become of them.

use thiserror::Error;

use crate::counters::UnfitCounts;

/// Most bytes of a message, whatever the configuration.
const MESSAGE_MAX: usize = 16 << 20;

/// Bounds of what is put together from fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentsConfig {
    /// Longest message in bytes, sent or put together, up to 16,777,216.
    pub message_max: usize,
    /// Most bytes of messages in the making, at least `message_max`; when full the one begun longest ago is given up.
    pub bytes_max: usize,
    /// Most messages in the making, and such as were given up and are still remembered, 1 to 65,536.
    pub messages_max: usize,
    /// How long a message may be in the making, in microseconds. Longer than a packet is waited for, or it is given up
    /// too early.
    pub age_us_max: u64,
}

impl Default for FragmentsConfig {
    /// Messages up to 1 MiB, 16 MiB in all, 1,024 messages, 15 s.
    fn default() -> Self {
        Self { message_max: 1 << 20, bytes_max: 16 << 20, messages_max: 1 << 10, age_us_max: 15_000_000 }
    }
}

/// What is wrong with a [`FragmentsConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FragmentsConfigError {
    /// `message_max` out of range.
    #[error("fragments.message_max: expected at most {MESSAGE_MAX}, saw {0}")]
    Message(usize),
    /// `bytes_max` out of range.
    #[error("fragments.bytes_max: expected at least fragments.message_max, {message_max}, saw {bytes_max}")]
    Bytes {
        /// The longest message.
        message_max: usize,
        /// What was given.
        bytes_max: usize,
    },
    /// `messages_max` out of range.
    #[error("fragments.messages_max: expected 1 to 65536, saw {0}")]
    Messages(usize),
}

impl FragmentsConfig {
    /// Checks every range; the first mistake found is returned.
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

/// What has become of fragments and their messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentsCounts {
    /// Fragments that came.
    pub fragments: u64,
    /// Messages put together.
    pub messages: u64,
    /// Messages given up, since a fragment of theirs is lost.
    pub lost: u64,
    /// Messages given up to make room for others.
    pub crowded: u64,
    /// Messages given up, since they were in the making for too long.
    pub aged: u64,
    /// Fragments of messages that had been given up.
    pub vain: u64,
    /// Fragments refused, by reason.
    pub unfit: UnfitCounts,
}
