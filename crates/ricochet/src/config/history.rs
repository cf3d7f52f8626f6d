//! The section `[history]`: bounds of the messages that a node keeps for those that join later.

use std::time::Duration;

use diagnostics::settings::{Fallback, Integer, Millis, Section};
use ricochet_core::{HistoryConfig, KeyedConfig};

/// Longest time for which messages are kept.
const DAY: Duration = Duration::from_hours(24);
/// Maximum number of keys of a group whose last values are kept.
const KEYS_MAX: usize = 1 << 16;

diagnostics::settings! {
    /// Bounds of the messages that a node keeps for those that join later: the section `[history]`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct HistorySection(HistoryDraft): "history" as "[history]" {
        /// Maximum number of bytes that the messages kept of a group may take, with 23 bytes for each packet;
        /// 0 keeps none. Of a group that is read from, the newest are kept.
        group_bytes: usize {
            form: Integer::new(0, 1 << 30),
            default: Fallback::Toml("4194304"),
            example: "group_bytes = 67108864",
        }
        /// Maximum number of bytes that the last values of the keys of a group may take, with 128 bytes
        /// for each key; 0 keeps none, and so does `group_bytes = 0`. Of a group that has more, the keys that
        /// were set last are kept.
        keyed_bytes: usize {
            form: Integer::new(0, 1 << 30),
            default: Fallback::Toml("4194304"),
            example: "keyed_bytes = 67108864",
        }
        /// Maximum number of bytes of the messages of all groups together, and of all last values.
        bytes: usize {
            form: Integer::new(0, 1 << 36),
            default: Fallback::Toml("67108864"),
            example: "bytes = 1073741824",
        }
        /// Time for which a message is kept.
        age_ms: Duration {
            form: Millis { min: Duration::from_millis(1), max: DAY },
            default: Fallback::Toml("600000"),
            example: "age_ms = 60000",
        }
    }
}

impl Default for HistorySection {
    fn default() -> Self {
        Section::defaults()
    }
}

impl HistorySection {
    /// Returns the configuration of the core.
    pub(crate) fn core(&self) -> HistoryConfig {
        let age_us = u64::try_from(self.age_ms.as_micros()).unwrap_or(u64::MAX);
        HistoryConfig { group_bytes: self.group_bytes, bytes: self.bytes, age_us }
    }

    /// Returns the bounds of the last values of keys.
    pub(crate) fn keyed(&self) -> KeyedConfig {
        KeyedConfig { group_bytes: self.keyed_bytes, bytes: self.bytes, group_keys: KEYS_MAX }
    }
}
