//! How much may be known of groups, and how fast it travels.

use crate::me::{ConfigError, in_range};
use crate::wire::GROUPS_MAX;

/// Bounds and times of the exchange of lists.
#[derive(Clone, Copy, Debug)]
pub struct ListsConfig {
    /// Most groups of one member, at most [`GROUPS_MAX`].
    pub groups_max: usize,
    /// Most groups of all members together, 8 bytes each.
    pub total_groups_max: usize,
    /// Lists that are asked for at a time; each may bring 8 parts at once.
    pub fetches_max: usize,
    /// After this an unanswered question is asked again, of somebody else.
    pub ask_timeout_us: u64,
    /// Time between two rounds in which news are told, and between two versions of this node's list.
    pub rumour_period_us: u64,
    /// Members that are told in a round.
    pub rumour_fanout: usize,
    /// Rounds in which a node tells a piece of news.
    pub rumour_rounds: u8,
    /// Time between two comparisons with a member drawn by chance.
    pub digest_period_us: u64,
    /// Bytes of lists that one peer gets in a second.
    pub bytes_per_second_peer: u32,
    /// Bytes of lists that all peers get in a second.
    pub bytes_per_second_all: u32,
}

impl Default for ListsConfig {
    /// A local network.
    fn default() -> Self {
        Self {
            groups_max: GROUPS_MAX,
            total_groups_max: 4 << 20,
            fetches_max: 8,
            ask_timeout_us: 100_000,
            rumour_period_us: 100_000,
            rumour_fanout: 3,
            rumour_rounds: 4,
            digest_period_us: 1_000_000,
            bytes_per_second_peer: 1_000_000,
            bytes_per_second_all: 16_000_000,
        }
    }
}

impl ListsConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let period = "1 ms to 10 minutes";
        for (name, value) in [
            ("ask_timeout_us", self.ask_timeout_us),
            ("rumour_period_us", self.rumour_period_us),
            ("digest_period_us", self.digest_period_us),
        ] {
            in_range(name, value, 1_000..=600_000_000, period)?;
        }
        in_range("groups_max", self.groups_max as u64, 1..=GROUPS_MAX as u64, "1 to 65536")?;
        in_range("total_groups_max", self.total_groups_max as u64, 1..=1 << 32, "1 to 2^32")?;
        in_range("fetches_max", self.fetches_max as u64, 1..=1_024, "1 to 1024")?;
        in_range("rumour_fanout", self.rumour_fanout as u64, 1..=64, "1 to 64")?;
        in_range("rumour_rounds", u64::from(self.rumour_rounds), 1..=64, "1 to 64")?;
        for (name, value) in [
            ("bytes_per_second_peer", self.bytes_per_second_peer),
            ("bytes_per_second_all", self.bytes_per_second_all),
        ] {
            // A quarter of it, which can be saved, must hold a part of a list.
            in_range(name, u64::from(value), 10_000..=u64::from(u32::MAX), "at least 10000")?;
        }
        Ok(())
    }
}
