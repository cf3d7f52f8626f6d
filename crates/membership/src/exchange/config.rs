//! Bounds and times of the exchange of lists.

use crate::me::{ConfigError, in_range};
use crate::wire::GROUPS_MAX;

/// Bounds and times of the exchange of lists.
#[derive(Clone, Copy, Debug)]
pub struct ListsConfig {
    /// Maximum number of groups of one member, at most [`GROUPS_MAX`].
    pub groups_max: usize,
    /// Maximum number of groups of all members together, 8 bytes each.
    pub total_groups_max: usize,
    /// Maximum number of lists requested at a time; each may bring 8 parts at once.
    pub fetches_max: usize,
    /// Time after which an unanswered request is sent again, to another node.
    pub request_timeout_us: u64,
    /// Interval between rounds of updates, and between versions of this node's list.
    pub update_period_us: u64,
    /// Number of members that updates go to in a round.
    pub update_fanout: usize,
    /// Number of rounds in which a node sends an update.
    pub update_rounds: u8,
    /// Interval between comparisons with a member drawn at random.
    pub summary_period_us: u64,
    /// Bytes of lists per second that one member gets.
    pub bytes_per_second_member: u32,
    /// Bytes of lists per second that all members together get.
    pub bytes_per_second_all: u32,
}

impl Default for ListsConfig {
    /// Returns the values for a local network.
    fn default() -> Self {
        Self {
            groups_max: GROUPS_MAX,
            total_groups_max: 4 << 20,
            fetches_max: 8,
            request_timeout_us: 100_000,
            update_period_us: 100_000,
            update_fanout: 3,
            update_rounds: 4,
            summary_period_us: 1_000_000,
            bytes_per_second_member: 1_000_000,
            bytes_per_second_all: 16_000_000,
        }
    }
}

impl ListsConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let period = "1 ms to 10 minutes";
        for (name, value) in [
            ("request_timeout_us", self.request_timeout_us),
            ("update_period_us", self.update_period_us),
            ("summary_period_us", self.summary_period_us),
        ] {
            in_range(name, value, 1_000..=600_000_000, period)?;
        }
        in_range("groups_max", self.groups_max as u64, 1..=GROUPS_MAX as u64, "1 to 65536")?;
        in_range("total_groups_max", self.total_groups_max as u64, 1..=1 << 32, "1 to 2^32")?;
        in_range("fetches_max", self.fetches_max as u64, 1..=1_024, "1 to 1024")?;
        in_range("update_fanout", self.update_fanout as u64, 1..=64, "1 to 64")?;
        in_range("update_rounds", u64::from(self.update_rounds), 1..=64, "1 to 64")?;
        for (name, value) in [
            ("bytes_per_second_member", self.bytes_per_second_member),
            ("bytes_per_second_all", self.bytes_per_second_all),
        ] {
            // An allowance holds a quarter of it, which must suffice for a part of a list.
            in_range(name, u64::from(value), 10_000..=u64::from(u32::MAX), "at least 10000")?;
        }
        Ok(())
    }
}
