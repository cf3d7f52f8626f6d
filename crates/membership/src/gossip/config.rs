//! Bounds and times of gossip.

use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use foca::{Config, PeriodicParams};

use crate::exchange::ListsConfig;
use crate::me::{ConfigError, in_range};
use crate::wire::{DATAGRAM_MAX, HEADER};

/// Upper bound of `members_max`.
const MEMBERS_MAX: usize = 1 << 16;

/// Bounds and times of gossip.
#[derive(Clone, Copy, Debug)]
pub struct GossipConfig {
    /// Maximum number of members known, live and down.
    pub members_max: usize,
    /// Interval between probes of a member.
    pub probe_period_us: u64,
    /// Time without an answer after which other members probe it too; at most half of the period.
    pub probe_timeout_us: u64,
    /// Time that a member has to refute the suspicion, if it did not answer within the
    /// period, before it is declared down.
    pub suspicion_us: u64,
    /// Number of members asked to probe, and number of members that a round of updates goes to.
    pub probe_helpers: usize,
    /// Number of times that each update about a member is sent.
    pub update_repeats: u8,
    /// Interval between rounds of updates, while there are any.
    pub update_period_us: u64,
    /// Interval between requests to a member drawn at random for all the members that it knows.
    pub feed_period_us: u64,
    /// Interval between attempts to reach a node that was declared down.
    pub revive_period_us: u64,
    /// Time for which nodes declared down are remembered.
    pub forget_down_us: u64,
    /// Interval between attempts to reach a seed address, while no member is known.
    pub seed_retry_us: u64,
    /// Interval between attempts to reach a seed address that is no member's, while there are members.
    pub seed_check_us: u64,
    /// Bounds and times of the exchange of lists.
    pub lists: ListsConfig,
}

impl GossipConfig {
    /// Returns the values for a local network: a crash is noticed within two seconds
    /// among up to some hundred nodes.
    pub fn lan() -> Self {
        Self {
            members_max: 4_096,
            probe_period_us: 300_000,
            probe_timeout_us: 100_000,
            suspicion_us: 900_000,
            probe_helpers: 3,
            update_repeats: 12,
            update_period_us: 100_000,
            feed_period_us: 5_000_000,
            revive_period_us: 2_000_000,
            forget_down_us: 600_000_000,
            seed_retry_us: 250_000,
            seed_check_us: 2_000_000,
            lists: ListsConfig::default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let period = "10 ms to 10 minutes";
        for (name, value) in [
            ("probe_period_us", self.probe_period_us),
            ("suspicion_us", self.suspicion_us),
            ("update_period_us", self.update_period_us),
            ("feed_period_us", self.feed_period_us),
            ("revive_period_us", self.revive_period_us),
            ("seed_retry_us", self.seed_retry_us),
            ("seed_check_us", self.seed_check_us),
        ] {
            in_range(name, value, 10_000..=600_000_000, period)?;
        }
        let half_us = self.probe_period_us / 2;
        in_range("probe_timeout_us", self.probe_timeout_us, 1_000..=half_us, "1 ms to half of the period")?;
        in_range("forget_down_us", self.forget_down_us, 1_000_000..=86_400_000_000, "a second to a day")?;
        in_range("members_max", self.members_max as u64, 1..=MEMBERS_MAX as u64, "1 to 65536")?;
        in_range("probe_helpers", self.probe_helpers as u64, 1..=16, "1 to 16")?;
        in_range("update_repeats", u64::from(self.update_repeats), 1..=100, "1 to 100")?;
        self.lists.check()
    }

    /// Returns the library's configuration.
    ///
    /// # Panics
    /// If [`check`](Self::check) would fail.
    pub(super) fn foca(&self) -> Config {
        let time = Duration::from_micros;
        let count = |count| NonZeroUsize::new(count).expect("checked");
        let periodic = |period_us, members| {
            Some(PeriodicParams { frequency: time(period_us), num_members: count(members) })
        };
        Config {
            probe_period: time(self.probe_period_us),
            probe_rtt: time(self.probe_timeout_us),
            num_indirect_probes: count(self.probe_helpers),
            max_transmissions: NonZeroU8::new(self.update_repeats).expect("checked"),
            suspect_to_down_after: time(self.suspicion_us),
            remove_down_after: Some(time(self.forget_down_us)),
            max_packet_size: count(DATAGRAM_MAX - HEADER),
            notify_down_members: true,
            periodic_announce: periodic(self.feed_period_us, 1),
            periodic_announce_to_down_members: periodic(self.revive_period_us, 1),
            periodic_gossip: periodic(self.update_period_us, self.probe_helpers),
        }
    }
}

impl Default for GossipConfig {
    fn default() -> Self {
        Self::lan()
    }
}
