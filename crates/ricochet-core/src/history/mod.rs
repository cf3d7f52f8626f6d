//! History: the messages of a group that its members keep for those who join later.
//!
//! Each member appends the packets of a group to a log, those of one stream in their order ([`log`]). A node
//! that joins asks members where its part of their logs begins, and reads one of them like a file
//! ([`catch_up`]). As long as it reads, it takes nothing from the group itself. The packets that it read tell
//! where each stream goes on, so what follows is received, or found missing, as by any other member.

pub(crate) mod catch_up;
pub(crate) mod keyed;
pub(crate) mod log;
mod noted;
pub(crate) mod pieces;
mod reading;
pub(crate) mod record;

pub use keyed::{KEYED_MAX, KeyedConfig};
use thiserror::Error;

/// Longest time that messages are kept, a day, in microseconds.
const AGE_US_MAX: u64 = 86_400_000_000;
/// Maximum number of bytes kept, 64 GiB.
const BYTES_MAX: usize = 64 << 30;

/// Bounds of what a node keeps of the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryConfig {
    /// Maximum number of bytes of each group, with 23 bytes for each packet; 0 keeps nothing.
    pub group_bytes: usize,
    /// Maximum number of bytes of all groups together.
    pub bytes: usize,
    /// Time after which a message is forgotten, in microseconds, at most a day.
    pub age_us: u64,
}

/// Errors in a [`HistoryConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HistoryConfigError {
    /// A number of bytes is out of range.
    #[error("history bytes: expected at most {BYTES_MAX}, saw {0}")]
    Bytes(usize),
    /// `age_us` is out of range.
    #[error("history age: expected at most {AGE_US_MAX} microseconds, saw {0}")]
    Age(u64),
}

impl HistoryConfig {
    /// Checks every range.
    ///
    /// # Errors
    /// [`HistoryConfigError`], the first error found.
    pub fn check(&self) -> Result<(), HistoryConfigError> {
        if let Some(&bytes) = [self.group_bytes, self.bytes].iter().find(|&&bytes| bytes > BYTES_MAX) {
            return Err(HistoryConfigError::Bytes(bytes));
        }
        if self.age_us > AGE_US_MAX { Err(HistoryConfigError::Age(self.age_us)) } else { Ok(()) }
    }
}

/// Part of a group's history that a node wants when it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The newest messages, as many as given.
    Last(u64),
    /// The messages of the time before, in microseconds.
    Since(u64),
    /// The last message of each key.
    LastPerKey,
}

/// News about the history that a node gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryNews {
    /// A member has been found that keeps the history.
    Begins {
        /// Number of messages that it keeps of those wanted.
        messages: u64,
        /// Whether these are all. Otherwise there may have been older ones.
        is_complete: bool,
    },
    /// No member keeps anything of it, or none has answered.
    Nothing {
        /// Number of members that were asked.
        asked: usize,
    },
    /// Messages that follow are those that the group gets.
    Ends,
}
